"""`write_report`: records as one HTML file; `fragment`: one record for a notebook."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from verax.base.errors import UsageError
from verax.base.storage.files import atomic_write
from verax.records.environment import verax_version
from verax.report.page.model import GraphView, RecordSection
from verax.report.page.network_details import LABELS
from verax.report.page.sections import RECORD_TYPES, section_of
from verax.report.page.views import NetworkView

MARKS: Mapping[str, str] = {
    "mistake": "\u2717 ",
    "parted": "\u2717 ",
    "precision-lost": "\u2717 ",
    "precision": "\u2248 ",
    "undecided": "? ",
}
"""Before the label of a box: color alone is not for everybody."""
INVISIBLE = {
    c: f"\\u{c:04x}"
    for c in (
        *range(0x00, 0x09),
        *range(0x0B, 0x20),
        *range(0x7F, 0xA0),
        *(0x200E, 0x200F, 0x061C, 0x2028, 0x2029, 0xFEFF),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    )
}
"""Control characters, also those that turn the direction of text, as they are printed."""


def write_report(records: Any, path: str | Path) -> Path:
    """Write one HTML file on one or several records, and return where it is.

    records: `Verdict`, `Bisection`, `Alignment`, `Agreement`, `GateRecord`, `EvaluationRecord`,
    `Benchmark`, `TuningRecord` or `HuntResult`, or an iterable of them. The file needs no
    other and loads nothing. Raises `UsageError` for what is no such record.
    """
    listed = [records] if isinstance(records, RECORD_TYPES) else list(records)
    text = report_html(listed)
    target = Path(path)
    with atomic_write(target) as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))
    return target


def report_html(records: Iterable[Any]) -> str:
    """The page on records. Raises `UsageError` for what is none, and where there is none."""
    sections = [_section(record) for record in records]
    if not sections:
        raise UsageError("there is no record to report", next_step="give at least one")
    style, script = _asset("style.css"), _asset("script.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    graphs = [
        {"id": f"record{s}-graph{g}", **_script_data(graph)}
        for s, section in enumerate(sections)
        for g, graph in enumerate(section.graphs)
    ]
    first = sections[0]
    more = f" and {len(sections) - 1} more" if sections[1:] else ""
    return (
        _templates()
        .get_template("report.html.j2")
        .render(
            title=f"{first.word}: {first.title}{more}",
            sections=sections,
            style=Markup(style),
            script=Markup(script),
            policy=Markup(policy),
            data=_embedded({"graphs": graphs}),
            version=verax_version(),
        )
    )


def fragment(record: Any) -> str:
    """A record as HTML for a notebook: the same page's section, with its style and nothing active.

    Raises `UsageError` for what is no record.
    """
    macros = _templates().get_template("section.html.j2").module
    identity = f"verax-{id(record):x}"
    body = macros.record(_section(record), identity, False)  # type: ignore[attr-defined]
    return f'<div class="verax"><style>{_asset("style.css")}</style>{body}</div>'


def _section(record: Any) -> RecordSection:
    if not isinstance(record, RECORD_TYPES):
        raise UsageError(
            f"a {type(record).__name__} is no record that a report shows",
            next_step=f"it shows {', '.join(kind.__name__ for kind in RECORD_TYPES)}",
        )
    try:
        return section_of(record)
    except (ArithmeticError, ValueError, LookupError) as error:
        raise UsageError(
            f"the record contradicts itself ({type(error).__name__}: {error})",
            next_step="use the record as Verax wrote it",
        ) from error


def _script_data(graph: GraphView) -> dict[str, Any]:
    """What the page's script knows of a drawing. first: the node that is selected at first."""
    return {
        "nodes": graph.details,
        "legend": {e.kind: e.nodes for e in graph.legend},
        "first": graph.suspects[0] if graph.is_faulty and graph.suspects else -1,
        "views": [
            {
                "parent": view.parent,
                "size": [round(view.layout.width), round(view.layout.height)],
                "centers": [[round(x), round(y)] for x, y in view.layout.centers],
                "edges": view.edges,
                "layers": view.layout.layers,
            }
            for view in graph.views
        ],
    }


def _embedded(content: Any) -> Markup:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(_visible(content), separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _visible(content: Any) -> Any:
    """`content` with the control characters of its texts as they are printed."""
    if isinstance(content, str):
        return content.translate(INVISIBLE)
    if isinstance(content, Mapping):
        return {k: _visible(v) for k, v in content.items()}
    if isinstance(content, list | tuple):
        return [_visible(v) for v in content]
    return content


@cache
def _templates() -> Environment:
    """Texts are escaped by default; control characters are printed as such."""
    environment = Environment(
        loader=PackageLoader("verax.report.page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_finalize,
    )
    environment.filters["routes"] = _routes
    environment.globals.update(labels=LABELS, marks=MARKS)
    return environment


def _finalize(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return value.translate(INVISIBLE)
    return value


def _routes(view: NetworkView) -> Markup:
    """All edges of a drawing as the data of one SVG path."""
    pieces = []
    for route in view.layout.routes:
        for i, (x, y) in enumerate(route):
            if not i:
                pieces.append(f"M{x:.0f} {y:.0f}")
                continue
            last_x, last_y = route[i - 1]
            middle = (last_y + y) / 2
            pieces.append(
                f"L{x:.0f} {y:.0f}"
                if abs(last_x - x) < 1
                else f"C{last_x:.0f} {middle:.0f} {x:.0f} {middle:.0f} {x:.0f} {y:.0f}"
            )
    return Markup(escape("".join(pieces)))


@cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """A source of a content security policy: the SHA-256 of an element's content."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
