"""Train a network with its convolutions exchanged for seven loops of Python, and be told whether
the difference is what rounding does to training, or a mistake.

Two networks of the same seed train for an epoch on small digits: one with PyTorch's convolutions,
one with the loops; parameters, optimizer and data are the same. Their losses part in the last
digits, and training lets such differences grow. How far is honest? The same epoch with the
rounding of every convolution drawn at random, a few times over, tells. Two mistakes follow, one in
the numbers (a tap that is wrong by a thousandth) and one in the gradients (the bias is left out):
both networks still learn, and both are found by name.

    python examples/substitution.py             # an epoch of each, about a minute
    python examples/substitution.py --batches 4
    python examples/substitution.py --plot docs/tutorials/substitution.svg
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import verax.torch
from verax.base.figures import times
from verax.records.verdict import Kind

SIZE, CLASSES, BATCH = 8, 10, 32
SEGMENTS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")
"""Which of the seven strokes of a display make each digit."""
STROKES = {
    "a": (1, slice(2, 6)),
    "b": (slice(1, 4), 5),
    "c": (slice(4, 7), 5),
    "d": (6, slice(2, 6)),
    "e": (slice(4, 7), 2),
    "f": (slice(1, 4), 2),
    "g": (4, slice(2, 6)),
}
PERTURBED = (11, 12, 13)
"""Seeds of the trainings whose rounding is drawn."""
Array = np.ndarray


def digits(count: int, seed: int) -> tuple[Any, Any]:
    """Images [count, 1, 8, 8] of digits as a display shows them, moved and noisy, and their labels
    [count]."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    images = np.zeros((count, 1, SIZE, SIZE), np.float32)
    for image, label in zip(images, labels):
        for stroke in SEGMENTS[label]:
            image[0][STROKES[stroke]] = random.uniform(0.6, 1.0)
        image[0] = np.roll(image[0], random.integers(0, 2), 1)
    images += random.normal(0, 0.15, images.shape).astype(np.float32)
    return torch.from_numpy(images), torch.from_numpy(labels)


def network(seed: int = 0) -> Any:
    """Two convolutions and a linear layer."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * (SIZE // 2) ** 2, CLASSES),
    )


def seven_loops(x: Array, weight: Array, bias: Array, stride: Any, padding: Any) -> Array:
    """A convolution of x [n, c, h, w] with weight [o, c, k, k], one product after the other."""
    (top, left), step = padding, stride[0]
    x = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)))
    n, channels, height, width = x.shape
    filters, _, rows, columns = weight.shape
    y = np.empty(
        (n, filters, (height - rows) // step + 1, (width - columns) // step + 1), np.float32
    )
    for image in range(n):
        for o in range(filters):
            for i in range(y.shape[2]):
                for j in range(y.shape[3]):
                    total = bias[o]
                    for c in range(channels):
                        for r in range(rows):
                            for s in range(columns):
                                seen = x[image, c, step * i + r, step * j + s]
                                total = total + seen * weight[o, c, r, s]
                    y[image, o, i, j] = total
    return y


def with_a_wrong_tap(x: Array, weight: Array, bias: Array, stride: Any, padding: Any) -> Array:
    """The same loops by somebody whose weights lose a thousandth in one place."""
    weight = weight.copy()
    weight[1, 0, 2, 1] *= 1.001
    return seven_loops(x, weight, bias, stride, padding)


def without_bias(g: Array, x: Array, weight: Array, stride: Any, padding: Any) -> dict[str, Array]:
    """Gradients of the convolution by somebody who forgot the one of the bias."""
    tensors = [torch.from_numpy(np.array(a)).requires_grad_() for a in (x, weight)]
    y = nn.functional.conv2d(*tensors, stride=stride, padding=padding)
    y.backward(torch.from_numpy(g))
    return {"input": tensors[0].grad.numpy(), "weight": tensors[1].grad.numpy()}


@dataclass(frozen=True)
class Training:
    """An epoch: the loss of every batch and the share of its digits that were told rightly, the
    accuracy on held-out digits, and what was found."""

    losses: Array
    shares: Array
    accuracy: float
    found: Any

    def apart(self, other: Training) -> float:
        """How far the losses of two trainings are from each other: root mean square, relative."""
        return float(np.sqrt(np.mean((self.losses / other.losses - 1) ** 2)))


def train(
    replacement: Any = None, *, batches: int, backward: str = "reference", calls: int | None = 1
) -> Training:
    """An epoch with the convolutions exchanged, or as they are."""
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), 0.04)
    x, y = digits(batches * BATCH, seed=1)
    exchanged = {} if replacement is None else {nn.Conv2d: replacement}
    losses, shares = [], []
    options: dict[str, Any] = {"backward": backward, "calls": calls, "compare": False}
    with verax.torch.substitute(net, exchanged, **options) as run:
        for start in range(0, len(x), BATCH):
            optimizer.zero_grad()
            answers, wanted = net(x[start : start + BATCH]), y[start : start + BATCH]
            loss = nn.functional.cross_entropy(answers, wanted)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            shares.append(float((answers.argmax(1) == wanted).double().mean()))
    x, y = digits(500, seed=2)
    with torch.no_grad():
        right = float((net(x).argmax(1) == y).double().mean())
    return Training(np.array(losses), np.array(shares), right, run)


def story(batches: int, show: Callable[[str], Any] = print, plot: Path | None = None) -> int:
    """Print the experiment, and draw it; 0 when the verdicts are what this file says."""
    plain = train(batches=batches)
    loops = train(seven_loops, batches=batches)
    drawn = [train(verax.torch.perturbed(s), batches=batches, calls=0) for s in PERTURBED]
    tap = train(with_a_wrong_tap, batches=batches)
    bias = train((seven_loops, without_bias), batches=batches, backward="own")
    spread = max(a.apart(b) for a in (plain, *drawn) for b in drawn if a is not b)
    show(f"{'':24}{'last loss':>12}{'accuracy':>10}{'losses apart':>14}  {'judged':10}")
    rows = {"PyTorch": plain, "seven loops": loops}
    rows |= {f"rounding drawn, seed {s}": one for s, one in zip(PERTURBED, drawn)}
    rows |= {"a wrong tap": tap, "no gradient of bias": bias}
    for words, one in rows.items():
        kind = one.found.kind if one.found.verdicts else ""
        show(
            f"{words:24}{one.losses[-1]:12.7f}{one.accuracy:10.3f}"
            f"{one.apart(plain):14.1e}  {kind:10}"
        )
    show("")
    show(f"Rounding alone moves the losses of this training apart by {spread:.1e}.")
    told(show, "The seven loops", loops, plain, spread)
    told(show, "A wrong tap", tap, plain, spread)
    told(show, "No gradient of the bias", bias, plain, spread)
    if plot is not None:
        plot.write_text(drawing(rows), encoding="utf-8")
    kinds = [one.found.kind for one in (loops, tap, bias)]
    return 0 if kinds == [Kind.rounding, Kind.mistake, Kind.mistake] else 1


def told(
    show: Callable[[str], Any], words: str, one: Training, plain: Training, spread: float
) -> None:
    """What is to be said of a training."""
    by = one.apart(plain)
    if one.found.kind is not Kind.mistake:
        show(f"{words}: the losses part by {by:.1e}; every layer differs by rounding alone.")
        return
    beyond = f"{times(by / spread)} times" if spread else "beyond"
    said = f"{beyond} what rounding does" if by > spread else "no more than rounding does"
    show(f"{words}: the losses part by {by:.1e}, {said}. A mistake:")
    for layer in one.found.layers.values():
        for blame in layer.verdict.blame if layer.verdict is not None else ():
            explained = [e.words for e in blame.explanations[:1]] or list(blame.structure[:1])
            show(f"  layer {layer.name}: {(explained or [blame.reason])[0]}")
        for name, found in layer.gradients.items():
            if found.kind is Kind.mistake:
                show(f"  layer {layer.name}: the gradient of {name} is {found.words}")


COLOURS = {"PyTorch": "#333", "seven loops": "#1f77b4", "a wrong tap": "#ff7f0e",
           "no gradient of bias": "#d62728"}  # fmt: skip
DRAWN = "#bbb"
WIDTH, HEIGHT, ROOM, TOP = 250, 190, 52, 56


def drawing(rows: Mapping[str, Training]) -> str:
    """The trainings as SVG, side by side: losses, shares of right digits, and how far each loss is
    from PyTorch's, on a logarithmic axis, where the grey lines are what rounding alone does."""
    plain = rows["PyTorch"]
    apart = {name: np.abs(one.losses / plain.losses - 1) for name, one in rows.items()}
    panels = [
        ("loss", {name: one.losses for name, one in rows.items()}, False),
        ("share of right digits", {name: one.shares for name, one in rows.items()}, False),
        ("loss, relative to PyTorch's", {n: v for n, v in apart.items() if n != "PyTorch"}, True),
    ]
    whole, bottom = len(panels) * (WIDTH + ROOM) + 8, TOP + HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {bottom + 32}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{whole}" height="{bottom + 32}" fill="white"/>',
    ]
    for i, (words, colour) in enumerate([*COLOURS.items(), ("rounding drawn at random", DRAWN)]):
        x = ROOM + 150 * i
        lines.append(f'<rect x="{x}" y="8" width="18" height="4" fill="{colour}"/>')
        lines.append(f'<text x="{x + 24}" y="14">{words}</text>')
    for i, (title, curves, logarithmic) in enumerate(panels):
        lines += _panel(ROOM + i * (WIDTH + ROOM), title, curves, logarithmic)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(left: float, title: str, curves: Mapping[str, Array], logarithmic: bool) -> list[str]:
    """One drawing of the row; zeros of a logarithmic one lie at its foot."""
    bottom = TOP + HEIGHT
    if logarithmic:
        low, ticks = -9.0, [float(k) for k in range(-9, 1)]
        curves = {name: np.log10(np.maximum(v, 1e-9)) for name, v in curves.items()}
    else:
        highest = max(float(v.max()) for v in curves.values())
        step = 0.25 if highest <= 1 else 0.5
        low, ticks = 0.0, [step * k for k in range(math.ceil(highest / step) + 1)]
    high = ticks[-1]

    def up(value: float) -> float:
        return bottom - HEIGHT * (min(value, high) - low) / (high - low)

    lines = [f'<text x="{left}" y="{TOP - 10}" font-weight="bold">{title}</text>']
    for tick in ticks:
        words = f"1e{tick:.0f}" if logarithmic else f"{tick:g}"
        ends = f'x1="{left}" x2="{left + WIDTH}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"'
        lines.append(f'<line {ends} stroke="#eee"/>')
        lines.append(
            f'<text x="{left - 5}" y="{up(tick) + 4:.1f}" text-anchor="end">{words}</text>'
        )
    for name in sorted(curves, key=lambda n: n in COLOURS):  # the drawn ones behind
        values = curves[name]
        across = WIDTH / max(len(values) - 1, 1)
        points = " ".join(
            f"{left + across * k:.1f},{up(float(v)):.1f}" for k, v in enumerate(values)
        )
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS.get(name, DRAWN)}" '
            f'stroke-width="1.5"><title>{name}</title></polyline>'
        )
    lines.append(
        f'<text x="{left + WIDTH / 2}" y="{bottom + 20}" text-anchor="middle">batch</text>'
    )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--batches", type=int, default=32, help="batches of an epoch")
    parser.add_argument("--plot", type=Path, help="draw the trainings into this file (SVG)")
    given = parser.parse_args()
    return story(given.batches, plot=given.plot)


if __name__ == "__main__":
    raise SystemExit(main())
