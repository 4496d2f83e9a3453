"""The JSON Schemas in the docs are those of the records, and records that are written fit them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from docs.site.schemas import FOLDER, RECORDS, file_of, schema_of, text_of
from tests.docs.pages import ROOT
from tests.report.page.test_page import RECORDS as EXAMPLES
from tests.report.test_verdict_on_terminal import verdict
from verax.records.bisection import Bisection
from verax.records.verdict import Kind, Precision, Repeat

PAGE = (ROOT / "docs" / "records.md").read_text()
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
    "integer": int,
}


def faults(data: Any, schema: dict[str, Any], top: dict[str, Any], at: str = "") -> list[str]:
    """Where data does not fit a schema: of the words that `docs.site.schemas` uses."""
    if "$ref" in schema:
        return faults(data, top["$defs"][schema["$ref"].rpartition("/")[2]], top, at)
    if "anyOf" in schema:
        tried = [faults(data, one, top, at) for one in schema["anyOf"]]
        return [] if any(not one for one in tried) else min(tried, key=len)
    if "const" in schema:
        return [] if data == schema["const"] else [f"{at} is {data!r}"]
    if "enum" in schema:
        return [] if data in schema["enum"] else [f"{at} is {data!r}"]
    is_number = schema["type"] in ("number", "integer") and isinstance(data, bool)
    if not isinstance(data, TYPES[schema["type"]]) or is_number:
        return [f"{at} is {data!r}, no {schema['type']}"]
    if isinstance(data, list):
        kinds = schema.get("prefixItems") or [schema["items"]] * len(data)
        return [
            f for i, (v, s) in enumerate(zip(data, kinds)) for f in faults(v, s, top, f"{at}[{i}]")
        ]
    if not isinstance(data, dict):
        return []
    known, rest = schema.get("properties", {}), schema["additionalProperties"]
    found = [f"{at} has no {name}" for name in schema.get("required", ()) if name not in data]
    for name, value in data.items():
        kind = known.get(name, rest)
        found += [f"{at} has {name}"] if kind is False else faults(value, kind, top, f"{at}.{name}")
    return found


@pytest.mark.parametrize("name", RECORDS)
def test_the_file_is_what_the_class_says(name: str) -> None:
    assert file_of(name).read_text() == text_of(name), "run python -m docs.site.schemas"
    assert f"`{name}`" in PAGE and f"(schemas/{file_of(name).name})" in PAGE


def test_there_is_no_other_file() -> None:
    assert {p.name for p in FOLDER.iterdir()} == {file_of(name).name for name in RECORDS}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_kind_of_record_fits_its_schema(name: str) -> None:
    data = json.loads(EXAMPLES[name]().to_json())
    schema = schema_of(data["schema"])
    assert faults(data, schema, schema) == []


def test_records_fit_and_others_do_not() -> None:
    precision = Precision("v", "n", "bf16 inputs", float("inf"), True)
    record = verdict(Kind.mistake, precisions=(precision,), repeat=Repeat(2, True))
    data, schema = json.loads(record.to_json()), schema_of("verax.verdict/5")
    assert faults(data, schema, schema) == []
    spoilt = [
        ({**data, "schema": "verax.verdict/4"}, ".schema is"),
        ({**data, "kind": "fine"}, ".kind is"),
        ({**data, "more": 1}, "has more"),
        ({**data, "seed": "0"}, ".seed is"),
        ({k: v for k, v in data.items() if k != "blame"}, "has no blame"),
    ]
    for wrong, told in spoilt:
        (fault,) = faults(wrong, schema, schema)
        assert told in fault
    bisection, schema = Bisection(record, "all"), schema_of("verax.bisection/4")
    assert faults(json.loads(bisection.to_json()), schema, schema) == []
