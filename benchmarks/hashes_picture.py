"""The picture of `hashes`: speed beside the fastest peer, and how many different outputs there are.

matplotlib draws it (`pip install matplotlib`; nothing else of Verax needs it). It stands on a card
of its own, so that it can be read on a dark page and on a light one, and its text stays text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, PALE, CARD = "#1f2328", "#6e7781", "#ffffff"
OURS, ONE, MORE = "#1a7f37", "#dafbe1", "#ffd8d3"
"""Of our bars, and of cells with one hash and with several."""
SETTINGS = {
    **{"svg.fonttype": "none", "svg.hashsalt": "verax", "font.family": "sans-serif"},
    **{"font.size": 12, "text.color": INK, "xtick.color": INK, "ytick.color": INK},
}
ENGINES: Mapping[str, str] = {
    "verax:O1": "Verax\nO1",
    "verax:O3": "Verax\nO3",
    "onnxruntime": "ONNX\nRuntime",
    "openvino": "Open-\nVINO",
    "torch": "PyTorch",
}


Counts = Mapping[str, Mapping[str, tuple[int, int]]]
"""By network and engine: distinct hashes, and settings that ran."""


def draw(counts: Counts, ratios: Mapping[str, float], to: Path) -> None:
    """Write the SVG. ratios: how many times as fast as the fastest peer Verax is, by network."""
    names = list(counts)
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(9, 1.75 + 0.46 * len(names)), facecolor=CARD)
        speed, cells = figure.subplots(1, 2, width_ratios=[1, 1.15])
        _bars(speed, names, [ratios.get(name, math.nan) for name in names])
        _table(cells, names, counts)
        figure.subplots_adjust(
            left=0.17, right=0.985, bottom=0.04, top=1 - 1.02 / figure.get_figheight(), wspace=0.1
        )
        figure.savefig(to, format="svg", metadata={"Date": None}, facecolor=CARD)
    lines = to.read_text().replace("'sans-serif'", "sans-serif").splitlines()
    to.write_text("\n".join(line.rstrip() for line in lines) + "\n")


def _heading(axes: Axes, bold: str, plain: str) -> None:
    above = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
    axes.annotate(bold, (0, 1), (0, 52), fontsize=14, fontweight="bold", **above)
    axes.annotate(plain, (0, 1), (0, 37), fontsize=11, color=PALE, **above)


def _bars(axes: Axes, names: Sequence[str], values: Sequence[float]) -> None:
    """A bar a network, from 0; the fastest peer is the line at 1."""
    rows = range(len(names))
    axes.barh(rows, values, height=0.62, color=OURS)
    for row, value in zip(rows, values):
        known = not math.isnan(value)
        axes.text(value + 0.03 if known else 0.03, row, f"{value:.2f}x" if known else "not timed",
                  va="center", fontweight="bold" if known else "normal")  # fmt: skip
    axes.axvline(1, color=INK, linewidth=1.2, linestyle=(0, (3, 2)))
    axes.annotate("fastest peer", (1, 1), (0, 6), xycoords=axes.get_xaxis_transform(),
                  textcoords="offset points", ha="center", va="bottom", fontsize=11)  # fmt: skip
    axes.set_yticks(rows, names)
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.set_xlim(0, max((v for v in values if not math.isnan(v)), default=1) * 1.2)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.spines[:].set_visible(False)
    _heading(axes, "Speed", "times the fastest peer, one thread, AVX2")


def _table(axes: Axes, names: Sequence[str], counts: Counts) -> None:
    """A cell for each network and engine: how many hashes, in how many settings."""
    for row, name in enumerate(names):
        for column, engine in enumerate(ENGINES):
            number, settings = counts[name].get(engine, (0, 0))
            color = "#f6f8fa" if number == 0 else ONE if number == 1 else MORE
            axes.fill_between(
                (column - 0.46, column + 0.46), row - 0.42, row + 0.42, color=color, linewidth=0
            )
            if number:
                axes.text(column + 0.42, row + 0.34, f"in {settings}", ha="right", va="baseline",
                          fontsize=8.5, color=PALE)  # fmt: skip
            axes.text(column, row, str(number or "–"), ha="center", va="center",
                      fontsize=14, fontweight="bold" if number else "normal")  # fmt: skip
    for column, title in enumerate(ENGINES.values()):
        axes.annotate(title, (column, -0.5), (0, 4), textcoords="offset points", ha="center",
                      va="bottom", fontsize=11)  # fmt: skip
    axes.set_xlim(-0.5, len(ENGINES) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_axis_off()
    _heading(axes, "Different outputs for one input", "over instruction sets and 1, 2, 3 threads")
