"""The demo: a real network and a real image, compiled, run, judged, and a planted mistake found.

    make demo

The network reads handwritten digits and draws them again (see train.py). It is imported from ONNX,
compiled to native code, run on a photo of a digit, and every one of its values is judged against
float64. Then one pad is moved from the end of an axis to its front, as happens when networks move
between frameworks, and the judge has to name the guilty layer. Leaves 0 only if all of this held.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from verax.cli.interrupts import ending_quietly

with ending_quietly():  # Ctrl-C while these are imported
    import argparse
    import dataclasses
    import time

    import numpy as np
    from rich.console import Console
    from rich.text import Text

    import verax
    from verax.frontends.model import Model
    from verax.images import read_image
    from verax.ir.graph import Graph
    from verax.records.verdict import Kind
    from verax.report.verdict import render_verdict

FOLDER = Path(__file__).parent / "digits"
GUILTY = "down1"
INK = " .:-=+*#%@"


def picture(values: np.ndarray) -> list[str]:
    """A grey image [rows, columns], 0 to 1, as text."""
    levels = np.clip(values * len(INK), 0, len(INK) - 1).astype(int)
    return ["".join(INK[level] * 2 for level in row) for row in levels]


def with_moved_pad(graph: Graph) -> Graph:
    """The same network, but layer `down1` pads before its input instead of after it."""
    nodes = []
    for node in graph.nodes:
        if node.name == GUILTY:
            moved = tuple((end, begin) for begin, end in node.op.attributes()["pads"])
            node = dataclasses.replace(node, op=dataclasses.replace(node.op, pads=moved))
        nodes.append(node)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--digit", choices=("3", "5", "8"), default="3")
    digit = parser.parse_args(arguments).digit
    console = Console(highlight=False)

    console.rule("1. import")
    begin = time.perf_counter()
    model = verax.load(FOLDER / "digits.onnx")
    assert isinstance(model, Model)
    console.print(
        Text(
            f"{model.format}, {len(model.graph.nodes)} nodes, "
            f"read in {time.perf_counter() - begin:.2f} s"
        )
    )
    for name, type_ in {**model.inputs, **model.outputs}.items():
        console.print(Text(f"  {name}: {type_}"))

    console.rule("2. compile and run")
    photo = read_image(FOLDER / f"{digit}.png", model.inputs["image"])
    console.print(Text("image: " + "; ".join(s.replace(f"{FOLDER}/", "") for s in photo.steps)))
    inputs = {"image": photo.array}
    begin = time.perf_counter()
    exe = verax.compile(model)
    outputs = exe.run(inputs)
    console.print(f"compiled to native code and run in {time.perf_counter() - begin:.2f} s")
    begin = time.perf_counter()
    for _ in range(100):
        exe.run(inputs)
    console.print(f"again, compiled: {(time.perf_counter() - begin) * 1e4:.0f} us a call")
    seen = outputs["probabilities"][0]
    console.print("\nwhat the network was shown           and what it drew")
    for left, right in zip(picture(photo.array[0, 0]), picture(outputs["drawing"][0, 0])):
        console.print(Text(f"{left[:40]:40}   {right[:40]}"))
    console.print(f"it saw a [bold]{seen.argmax()}[/bold] with {seen.max():.1%}\n")

    console.rule("3. judge: every value of the compiled network against float64")
    honest = verax.check(model, "verax:O1", inputs)
    console.print(render_verdict(honest))

    console.rule("4. a planted mistake: one pad of one layer on the wrong side")
    spoilt = dataclasses.replace(
        model, graph=with_moved_pad(model.graph), source="the same network with a moved pad"
    )
    wrong = verax.check(model, spoilt, inputs)
    console.print(render_verdict(wrong))

    blamed = [blame.node for blame in wrong.blame]
    held = {
        "the digit was recognised": int(seen.argmax()) == int(digit),
        "the compiled network differs by rounding only": honest.kind
        in (Kind.rounding, Kind.identical),
        f"the planted mistake was found, in {GUILTY} and nowhere else": blamed == [GUILTY],
    }
    console.rule("in short")
    for what, is_so in held.items():
        console.print(f"  {'[green]yes[/green]' if is_so else '[red]NO[/red] '}  {what}")
    console.rule("what to type next")
    for what, command in next_commands():
        console.print(Text(f"  {command}"), soft_wrap=True)
        console.print(Text(f"      {what}", style="dim"))
    return 0 if all(held.values()) else 1


def next_commands() -> list[tuple[str, str]]:
    """What three further commands show, and each as it is typed in the folder of the caller."""
    here = Path(sys.executable).with_name("verax")
    found = shutil.which("verax")
    on_path = found is not None and Path(found).resolve() == here.resolve()
    program = "verax" if on_path else os.path.relpath(here)
    folder = os.path.relpath(FOLDER)
    return [
        ("another digit", f"{program} run {folder}/digits.onnx --image {folder}/8.png"),
        (
            "our fastest level, judged on a photo",
            f"{program} check {folder}/digits.onnx verax:O3 --image {folder}/5.png",
        ),
        (
            "is the file in TensorFlow Lite's format the same network?",
            f"{program} check {folder}/digits.onnx {folder}/digits.tflite",
        ),
    ]


if __name__ == "__main__":
    with ending_quietly():
        sys.exit(main())
