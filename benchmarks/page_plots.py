"""Plots of the tables that pages of measurements hold; nothing is measured here.

    python -m benchmarks.page_plots          # docs/changing_sizes.svg, docs/language_models.svg

A plot says what its page's table says, and is drawn again with it. matplotlib is needed (`pip
install matplotlib`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from benchmarks.hashes_picture import CARD, INK, OURS, PALE, SETTINGS
from matplotlib.axes import Axes
from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parents[1] / "docs"
STREAMS, MODELS = "network", "weights"
"""First heading of the tables that are drawn."""
COLORS: Mapping[str, str] = {
    "Verax": OURS,
    "ONNX Runtime": "#0969da",
    "GenAI": "#8250df",
    "llama.cpp": "#bc4c00",
}
WIDTH = 0.8
"""Of a group of bars, of the distance between two groups."""
Rows = Sequence[Mapping[str, str]]


def table(page: str, first: str) -> Rows:
    """The first table of a page whose first heading is `first`, by heading. An empty first cell
    repeats the one above. Raises ValueError where there is none."""
    lines = page.splitlines()
    for at, line in enumerate(lines):
        heads = _cells(line)
        if heads and heads[0] == first:
            rows: list[dict[str, str]] = []
            for text in lines[at + 2 :]:
                cells = _cells(text)
                if not cells:
                    break
                rows.append(dict(zip(heads, cells, strict=True)))
                rows[-1][first] = cells[0] or rows[-2][first]
            return rows
    raise ValueError(f"no table begins with {first!r}")


def _cells(line: str) -> list[str]:
    return [c.strip() for c in line.strip().strip("|").split("|")] if line[:1] == "|" else []


def number(text: str) -> float:
    return float(text.replace(",", ""))


def streams(rows: Rows) -> tuple[list[str], dict[str, list[float]]]:
    """By network, how many times as fast as ONNX Runtime a stream is, and its memory by ours."""
    names = list(dict.fromkeys(r["network"] for r in rows))
    ratios: dict[str, list[float]] = {
        "programs on the disk, reading them included": [],
        "the same calls once more": [],
        "memory of ONNX Runtime by that of Verax": [],
    }
    for name in names:
        by_engine = {r["engine"]: r for r in rows if r["network"] == name}
        other, own = by_engine["ONNX Runtime, other sizes"], by_engine["Verax, kept, other sizes"]
        for values, column in zip(ratios.values(), ("stream s", "again s", "MB"), strict=True):
            values.append(number(other[column]) / number(own[column]))
    return [n.partition(",")[0].partition(" (")[0] for n in names], ratios


def speeds(rows: Rows, column: str, room: str) -> tuple[list[str], dict[str, list[float]]]:
    """By weights, tokens per second of every engine; 0 where it was not measured."""
    names = list(dict.fromkeys(r["weights"] for r in rows))
    engines = list(dict.fromkeys(r["engine"] for r in rows))
    found = {
        (r["weights"], r["engine"]): number(r[column]) for r in rows if r["room"] in ("", room)
    }
    return names, {e: [found.get((n, e), 0.0) for n in names] for e in engines}


def bars(axes: Axes, names: Sequence[str], groups: Mapping[str, Sequence[float]]) -> None:
    """A group of bars for each name, with their values above."""
    shades = [OURS, "#7bc48d", PALE]
    for i, (label, values) in enumerate(groups.items()):
        width = WIDTH / len(groups)
        places = [at + (i - (len(groups) - 1) / 2) * width for at in range(len(names))]
        color = COLORS.get(label, shades[i % len(shades)])
        drawn = axes.bar(places, values, width * 0.92, label=label, color=color)
        texts = ["" if v == 0 else f"{v:.2f}" if v < 10 else f"{v:.0f}" for v in values]
        axes.bar_label(drawn, texts, fontsize=8, padding=1, color=INK)
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_yticks([])


def draw_streams(page: str, to: Path) -> None:
    names, ratios = streams(table(page, STREAMS))
    figure = Figure(figsize=(10, 4.2), facecolor=CARD)
    axes = figure.subplots()
    bars(axes, names, ratios)
    axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=":")
    axes.set_title("30 calls of random sizes: times ONNX Runtime (dotted: as fast, as small)")
    axes.legend(frameon=False, fontsize=10, loc="upper left")
    axes.set_ylim(0, 1.35 * max(max(v) for v in ratios.values()))
    save(figure, to)


def draw_models(page: str, to: Path) -> None:
    rows = table(page, MODELS)
    figure = Figure(figsize=(10, 6.4), facecolor=CARD)
    for axes, (column, title) in zip(
        figure.subplots(2, 1),
        (
            ("prefill tokens/s", "prompts, tokens a second of processor time"),
            ("decode tokens/s", "decoding"),
        ),
        strict=True,
    ):
        names, groups = speeds(rows, column, "512")
        bars(axes, names, groups)
        axes.set_title(title, loc="left")
        axes.set_ylim(0, 1.15 * max(max(v) for v in groups.values()))
    figure.axes[0].legend(frameon=False, fontsize=10, loc="upper right", ncols=4)
    save(figure, to)


def save(figure: Figure, to: Path) -> None:
    """Write an SVG that is the same for the same figure."""
    figure.tight_layout()
    figure.savefig(to, format="svg", metadata={"Date": None}, facecolor=CARD)
    lines = to.read_text().replace("'sans-serif'", "sans-serif").splitlines()
    to.write_text("\n".join(line.rstrip() for line in lines) + "\n")


def main() -> int:
    with matplotlib.rc_context(SETTINGS):
        draw_streams((DOCS / "changing_sizes.md").read_text(), DOCS / "changing_sizes.svg")
        draw_models((DOCS / "language_models.md").read_text(), DOCS / "language_models.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
