"""The convolution that everybody writes once, in seven loops, and what a judge makes of it.

People compare such a reference with a framework, see a few elements "wrong" in the fifth digit, and
look for a mistake that is not there. The loops add the products one after another in float32; a
framework adds them in another order, and float32 sums depend on the order. This file computes the
same layer both ways and lets Verax say which of the two it is: rounding or a mistake.

    python examples/seven_loops.py                       # the story, with figures
    python examples/seven_loops.py given.npz made.npz    # the layer as a program: x, w -> y

The second form is how a program in any language can be judged:

    verax check layer.onnx "cmd:python examples/seven_loops.py" --input layer_inputs.npz

`python examples/seven_loops.py --write FOLDER` writes layer.onnx and layer_inputs.npz.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import verax
from verax.base.errors import MissingPackageError
from verax.base.optional import optional
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind
from verax.runners.functions import FunctionRunner

BATCH, CHANNELS, SIZE = 1, 16, 28
FILTERS, KERNEL = 8, 5
RTOL = 1e-4
"""The relative tolerance that people try first."""


def conv2d(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Convolution of x [n, c, h, w] with w [o, c, k, k], padded so that the size stays; float32.

    Seven loops, one product after the other, nothing clever. The loop over the columns of the
    output is NumPy's, as it does not change any sum: every element still adds its products one by
    one, in the order channel, row, column of the kernel.
    """
    n, channels, height, width = x.shape
    filters, _, rows, columns = w.shape
    before = (rows - 1) // 2, (columns - 1) // 2
    padded = np.zeros((n, channels, height + rows - 1, width + columns - 1), np.float32)
    padded[:, :, before[0] : before[0] + height, before[1] : before[1] + width] = x
    y = np.zeros((n, filters, height, width), np.float32)
    for image in range(n):
        for o in range(filters):
            for i in range(height):
                for c in range(channels):
                    for r in range(rows):
                        for s in range(columns):
                            row = padded[image, c, i + r, s : s + width]
                            y[image, o, i] += row * w[o, c, r, s]
    return y


def draw(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An input x [1, 16, 28, 28] and weights w [8, 16, 5, 5], both normal, float32."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((BATCH, CHANNELS, SIZE, SIZE)).astype(np.float32)
    w = random.standard_normal((FILTERS, CHANNELS, KERNEL, KERNEL)).astype(np.float32)
    return x, w


def as_program(given: Path, made: Path) -> None:
    """Read x and w from one .npz, write y to another."""
    with np.load(given) as arrays:
        np.savez(made, y=conv2d(arrays["x"], arrays["w"]))


def layer(x: np.ndarray, w: np.ndarray) -> Graph:
    """The layer as a network with the inputs x and w and the output y."""
    before, after = (KERNEL - 1) // 2, KERNEL // 2
    b = Builder("layer")
    names = [b.input(name, TensorType.of(array)) for name, array in (("x", x), ("w", w))]
    op = Conv(pads=((before, after), (before, after)))
    return b.graph([b.add(op, names, ["y"], "conv")])


def framework() -> tuple[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """PyTorch's convolution where PyTorch is installed, else our own compiled one."""
    try:
        torch = optional("torch", "to compare with PyTorch")
    except MissingPackageError:
        return "verax", lambda x, w: verax.compile(layer(x, w)).run({"x": x, "w": w})["y"]

    def run(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        tensors = torch.from_numpy(x), torch.from_numpy(w)
        return np.asarray(torch.nn.functional.conv2d(*tensors, padding="same"))

    return "torch", run


def with_an_off_by_one(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The same loops by somebody who stopped one channel early."""
    return conv2d(x[:, :-1], w[:, :-1])


def story() -> int:
    """Print the comparison; 0 when the verdicts are what this file says."""
    x, w = draw()
    graph, inputs = layer(x, w), {"x": x, "w": w}
    name, peer = framework()
    ours, theirs = conv2d(x, w), peer(x, w)
    beyond = int((np.abs(ours - theirs) > RTOL * np.abs(theirs)).sum())
    print(f"seven loops against {name}: {beyond} of {ours.size} elements differ by more than")
    print(f"rtol {RTOL:g}; the largest difference is {np.abs(ours - theirs).max():.2g}. A mistake?")
    loops, other = FunctionRunner(conv2d, "loops"), FunctionRunner(peer, name)
    verdict = verax.check(graph, loops, inputs, other=other, twice=False)
    (found,), (sides,) = verdict.nodes, verdict.comparisons
    print(f"\nverdict: {verdict.kind.value}")
    products, sigma, error = CHANNELS * KERNEL**2, found.sigma, found.error
    print(f"  Every output is a sum of {products} products, and each addition rounds. In float32")
    print(f"  that is off by {sigma:.1g} typically, and the loops are off by {error:.1g}, which is")
    print(
        f"  {found.statistic:.0%} of what honest arithmetic may reach. Where a sum ends near zero,"
    )
    print("  the same small error is a large part of it; that is all that the rtol shows.")
    print(f"  Nearer to the exact result: {sides.nearer}.")
    short = FunctionRunner(with_an_off_by_one, "one channel short")
    wrong = verax.check(graph, short, inputs, twice=False)
    print(f"\nthe same loops, one channel short: {wrong.kind.value}")
    for blame in wrong.blame:
        print(f"  node {blame.node} ({blame.operator}): {blame.reason}")
        for explanation in blame.explanations[:1]:
            print(f"  what happened: {explanation.words}")
    return 0 if (verdict.kind, wrong.kind) == (Kind.rounding, Kind.mistake) else 1


def write(folder: Path) -> None:
    """layer.onnx, and layer_inputs.npz for it."""
    x, w = draw()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "layer.onnx").write_bytes(to_bytes(layer(x, w)))
    np.savez(folder / "layer_inputs.npz", x=x, w=w)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="an .npz to read and one to write")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the layer's files")
    given = parser.parse_args(arguments)
    if given.write:
        write(given.write)
        return 0
    if len(given.paths) not in (0, 2):
        parser.error("give two .npz files, or nothing")
    if given.paths:
        as_program(*given.paths)
        return 0
    return story()


if __name__ == "__main__":
    sys.exit(main())
