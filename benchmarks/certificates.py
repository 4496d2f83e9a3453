"""Whether O3's certificate holds: a table over model files.

    python benchmarks/certificates.py MODEL_OR_FOLDER ... --write docs/certificates.md
    python benchmarks/certificates.py --torchvision resnet34 googlenet

Every network is compiled at O3 and judged against float64 on one drawn input, at batch 1 and the
sizes that its file states (a size that it leaves open is 1, or --shape says it). torchvision's
networks have drawn weights and BatchNorm statistics, at 96 x 96 pixels and batch 2.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verax
from provenance import stamped
from verax.base.errors import VeraxError
from verax.cli.console import parse_shapes
from verax.formats import FORMATS
from verax.ir.graph import specialize

HEAD = (
    "# Networks that O3's certificate holds on\n\n"
    "Made by `python benchmarks/certificates.py`: compiled at O3 with `certify=True`, judged "
    'against float64 on one drawn input each. "Fast" counts the layers that O3 '
    'approximates, "back" those that the judge put back to direct summation. Seconds are those '
    "of a machine that others used as well.\n\n"
    "| network | fast | back | certificate | s |\n|---|---|---|---|---|\n"
)
SUFFIXES = tuple(s for f in FORMATS for s in f.suffixes if s not in (".vx", ".params"))


def found(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_file() or path.suffix in SUFFIXES:
            yield path
        else:
            yield from sorted(p for p in path.rglob("*") if p.name.endswith(SUFFIXES))


def row(name: str, model: Any) -> str:
    begin = time.perf_counter()
    exe = verax.compile(model, opt_level=3, certify=True, threads=1, cache=False)
    held = exe.certificate
    assert held is not None
    word = "holds" if held.holds else f"does not hold: {'; '.join(held.problems)}"
    layers = len(exe.recipe.algorithms)
    seconds = time.perf_counter() - begin
    return f"| {name} | {layers} | {len(held.fallbacks)} | {word} | {seconds:.0f} |"


def from_file(path: Path, shapes: dict[str, Any]) -> Any:
    given = {name: size for name, size in shapes.items() if name in path.name}
    model = verax.load(path, shapes=next(iter(given.values()), None))
    open_sizes = model.graph.symbols()
    return specialize(model.graph, dict.fromkeys(open_sizes, 1)) if open_sizes else model


def from_torchvision(name: str, seed: int) -> Any:
    import torch
    import torchvision

    torch.manual_seed(seed)
    rooms = (torchvision.models, torchvision.models.segmentation)
    make = next(getattr(room, name) for room in rooms if hasattr(room, name))
    backbone = {"weights_backbone": None} if "segmentation" in make.__module__ else {}
    net = make(weights=None, **backbone).eval()
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.2)
    side = 128 if name == "inception_v3" else 96
    return verax.load(net, inputs=torch.randn(2, 3, side, side))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--torchvision", nargs="*", default=[])
    parser.add_argument("--shape", action="append", default=[], help="PART_OF_FILE:NAME=SIZES")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    pairs = [text.partition(":")[::2] for text in options.shape]
    shapes = {part: parse_shapes([shape]) for part, shape in pairs}
    jobs = [(p.name, lambda p=p: from_file(p, shapes)) for p in found(options.models)]
    jobs += [
        (name, lambda name=name, i=i: from_torchvision(name, i))
        for i, name in enumerate(options.torchvision)
    ]
    rows = []
    for name, make in jobs:
        try:
            rows.append(row(name, make()))
        except VeraxError as error:
            rows.append(f"| {name} | | | not compiled: {error.cause} | |")
        print(rows[-1], flush=True)
        if options.write:
            options.write.write_text(stamped(HEAD + "\n".join(rows) + "\n"))


if __name__ == "__main__":
    main()
