"""JSON Schemas of the records that `--json` writes, made from their classes.

`python -m docs.site.schemas` writes them to `docs/schemas`; a test holds them to the classes.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from verax.records import (
    agreement,
    alignment,
    benchmark,
    bisection,
    certificate,
    evaluation,
    gate,
    hunt,
    recipe,
    tuning,
    verdict,
)

FOLDER = Path(__file__).parents[1] / "schemas"
RECORDS: Mapping[str, type] = {
    verdict.SCHEMA: verdict.Verdict,
    bisection.SCHEMA: bisection.Bisection,
    alignment.SCHEMA: alignment.Alignment,
    agreement.SCHEMA: agreement.Agreement,
    evaluation.SCHEMA: evaluation.EvaluationRecord,
    gate.SCHEMA: gate.GateRecord,
    hunt.SCHEMA: hunt.HuntResult,
    benchmark.SCHEMA: benchmark.Benchmark,
    tuning.SCHEMA: tuning.TuningRecord,
    recipe.SCHEMA: recipe.Recipe,
    certificate.SCHEMA: certificate.Certificate,
}
"""Schema name -> the class of the record."""
PLAIN: Mapping[type, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    str: {"type": "string"},
    float: {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]},
}
"""JSON has no words for NaN and the infinities: they are texts."""


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of the record of that schema name."""
    definitions: dict[str, Any] = {}
    record = _object(RECORDS[name], definitions)
    record["properties"] = {"schema": {"const": name}, **record["properties"]}
    record["required"] = ["schema", *record["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        **record,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    return {
        "type": "object",
        "description": " ".join((inspect.getdoc(kind) or "").split()),
        "properties": {name: _of(hints[name], definitions) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value of a type."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {
            "anyOf": [{"type": "null"} if t is type(None) else _of(t, definitions) for t in inside]
        }
    if origin is tuple and len(inside) == 2 and inside[1] is Ellipsis:
        return {"type": "array", "items": _of(inside[0], definitions)}
    if origin is tuple:
        items = [_of(t, definitions) for t in inside]
        return {
            "type": "array",
            "prefixItems": items,
            "minItems": len(items),
            "maxItems": len(items),
        }
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(inside[1], definitions)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    assert dataclasses.is_dataclass(kind) and isinstance(kind, type), kind
    name = f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"
    if name not in definitions:
        definitions[name] = {}  # it may hold itself
        definitions[name] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{name}"}


def file_of(name: str) -> Path:
    """Where the schema of that name is written: verax.verdict/4 in verax.verdict-4.json."""
    return FOLDER / f"{name.replace('/', '-')}.json"


def text_of(name: str) -> str:
    """The content of that file."""
    return json.dumps(schema_of(name), indent=1) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name in RECORDS:
        file_of(name).write_text(text_of(name))


if __name__ == "__main__":
    main()
