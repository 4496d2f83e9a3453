"""The judge on recorded runs of a GPU: who is accused, what is undecided, which mistakes are seen.

    python -m benchmarks.gpu_records FOLDER --rows rows.jsonl --write docs/gpu.md
    python -m benchmarks.gpu_records FOLDER --only "bert" --mode tf32 --by outputs

FOLDER holds archives of recorded networks (networks_cnn.zip, networks_seq.zip, planted.zip): a
manifest.json whose records name a model, its inputs, and what a GPU computed. Every record is
judged twice, by all of its values and by its outputs alone. convs.zip and attention.zip hold single
operators, which are judged by their answer; `gpu_gradients` judges gradients, into the same rows.
Rows that stand in --rows are not judged again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks import gpu_operators
from benchmarks.gpu_arrays import stored_arrays
from benchmarks.provenance import stamped

import verax
from verax.records.verdict import Verdict

ARCHIVES = ("networks_cnn.zip", "networks_seq.zip", "planted.zip")
WAYS = ("values", "outputs")
"""What a record is judged by: all that it holds, or the network's outputs alone."""
ACQUITTED = ("identical", "rounding", "precision", "precision lost")
FAMILIES = (
    ("float64", ("float64",)),
    ("autocast", ("autocast",)),
    ("bf16 and fp16 weights", ("weights",)),
    ("JAX default", ("jax default",)),
    ("TF32", ("tf32",)),
    ("default settings", ("default",)),
    ("16 bits", ("bf16", "fp16")),
    ("strict float32", ("strict", "jax highest")),
)
"""Rows of the table, and by which words a mode belongs to them, the first that fits."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """One verdict: what was judged, what it should say and what it says."""

    archive: str
    name: str
    mode: str
    by: str
    honest: bool
    kind: str
    seconds: float
    blamed: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    first_causes: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    worst: float = 0.0
    node: str = ""
    cause: str = ""
    reason: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.archive, self.name, self.mode, self.by

    @property
    def family(self) -> str:
        return next((n for n, words in FAMILIES if any(w in self.mode for w in words)), self.mode)

    @property
    def is_located(self) -> bool:
        """Whether the guilty module was blamed, or a node in it by the first cause."""
        return self.node in self.blamed or self.node in self.named

    @property
    def is_accused(self) -> bool:
        return self.kind == "mistake"


class Archive:
    """The recorded networks of one file."""

    def __init__(self, path: Path) -> None:
        self.name, self._zip = path.stem, zipfile.ZipFile(path)

    @cached_property
    def manifest(self) -> list[dict[str, Any]]:
        """All records."""
        records: list[dict[str, Any]] = json.loads(self._zip.read("manifest.json"))["records"]
        return records

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        return [r for r in self.manifest if "error" not in r and "model" in r]

    @cached_property
    def operators(self) -> list[dict[str, Any]]:
        """Records of single operators."""
        return [r for r in self.manifest if gpu_operators.is_judged(r)]

    def inputs_of(self, record: Mapping[str, Any]) -> Arrays:
        """The inputs of a single operator."""
        source = record["inputs_of"]
        return self.arrays(next(r["file"] for r in self.manifest if r["name"] == source))

    def read(self, file: str) -> bytes:
        """A file of the archive."""
        return self._zip.read(file)

    def arrays(self, file: str) -> Arrays:
        """The arrays of an .npz of the archive."""
        return stored_arrays(self.read(file))

    def values(self, record: Mapping[str, Any]) -> Arrays:
        """What the record's run gave, by name; a record with a base holds what differs from it."""
        base = self.arrays(record["base"]) if "base" in record else {}
        return {**base, **self.arrays(record["file"])}

    def model(self, record: Mapping[str, Any], folder: Path) -> Any:
        """The network of a record, loaded."""
        path = folder / record["model"]
        if not path.exists():
            path.write_bytes(self._zip.read(record["model"]))
        return verax.load(path)


def judged_operator(archive: Archive, record: Mapping[str, Any]) -> Row:
    """The verdict on a single operator, by its answer."""
    arrays = archive.arrays(record["file"])
    answer = arrays["y"] if "y" in arrays else arrays["y0"]
    dtype = gpu_operators.TYPES.get(answer.dtype.name, torch.float32)
    function, arguments = gpu_operators.function_of(record, archive.inputs_of(record), dtype)
    if answer.shape == (1,):
        answer = answer.reshape(())  # no archive holds an array without axes
    return _row(archive, record, "answer", function, answer, arguments)


def judged(archive: Archive, record: Mapping[str, Any], model: Any, by: str) -> Row:
    """The verdict on one record."""
    values, inputs = archive.values(record), archive.arrays(record["inputs"])
    if by == "outputs":
        values = {v: values[v] for v in model.graph.outputs}
    row = _row(archive, record, by, model, values, inputs)
    return replace(row, named=_modules_named(row, model.graph, archive.values(record)))


def _row(
    archive: Archive, record: Mapping[str, Any], by: str, meaning: Any, values: Any, inputs: Any
) -> Row:
    return row_of(archive, record, by, lambda: verax.check(meaning, values, inputs))


def row_of(
    archive: Archive, record: Mapping[str, Any], by: str, check: Callable[[], Verdict]
) -> Row:
    """The verdict that `check` gives of a record, as a row."""
    plain = {
        "archive": archive.name,
        "name": record["name"],
        "mode": record["mode"],
        "by": by,
        "honest": bool(record["honest"]),
        "node": record.get("node", ""),
        "cause": record.get("cause", ""),
    }
    begin = time.process_time()
    try:
        verdict = check()
    except Exception:  # a crash is a result, too
        last = traceback.format_exc().splitlines()[-1]
        return Row(**plain, kind="crash", seconds=time.process_time() - begin, reason=last)
    seconds = time.process_time() - begin
    return Row(
        **plain,
        kind=str(verdict.kind.value),
        seconds=seconds,
        blamed=tuple(dict.fromkeys(v for b in verdict.blame for v in (b.node, b.value))),
        first_causes=tuple(b.explanations[0].hypothesis for b in verdict.blame if b.explanations),
        causes=tuple(e.words for b in verdict.blame for e in b.explanations),
        tests=tuple(sorted({f.test for f in verdict.nodes if f.kind is verdict.kind})),
        worst=max((f.statistic for f in verdict.nodes), default=0.0),
        reason="; ".join(verdict.reasons)[:600],
    )


def _modules_named(row: Row, graph: Any, recorded: Mapping[str, Any]) -> tuple[str, ...]:
    """The recorded values of the modules that hold the node which each first cause names."""
    names = {hypothesis.partition(": ")[0] for hypothesis in row.first_causes}
    modules: list[str] = []
    for node in graph.nodes:
        if (node.name or node.outputs[0]) not in names:
            continue
        reached = [node.outputs[0]]
        for value in reached:  # grows
            if value in recorded:
                modules.append(value)
                continue
            readers = graph.consumers.get(value, ())
            reached += [v for n in readers for v in n.outputs if v not in reached]
    return tuple(dict.fromkeys(modules))


def every(folder: Path, asked: argparse.Namespace) -> Iterator[tuple[Archive, dict[str, Any], str]]:
    """Yield what is to be judged."""
    for name in (n for n in ARCHIVES if asked.archive in n):
        archive = Archive(folder / name)
        for record in archive.records:
            if asked.only in record["name"] and (not asked.mode or asked.mode == record["mode"]):
                yield from ((archive, record, by) for by in WAYS if by in asked.by)
    for name in gpu_operators.ARCHIVES if "answer" in asked.by else ():
        archive = Archive(folder / name)
        for record in archive.operators:
            if asked.only in record["name"] and (not asked.mode or asked.mode == record["mode"]):
                yield archive, record, "answer"


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown: honest and planted runs by mode."""
    lines = [
        "| mode | honest | mistake | undecided | planted | mistake | right module | with a cause |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.family].append(row)
    for name in [*(n for n, _ in FAMILIES if n in groups), "all"]:
        of = groups[name] if name != "all" else list(rows)
        honest, planted = [r for r in of if r.honest], [r for r in of if not r.honest]
        seen = [r for r in planted if r.is_accused]
        cells = (
            *(len(honest), sum(r.is_accused for r in honest)),
            *(sum(r.kind not in (*ACQUITTED, "mistake") for r in honest), len(planted)),
            *(len(seen), sum(r.is_located for r in seen)),
            sum(bool(r.causes) and r.is_located for r in seen),
        )
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return lines


def page(rows: Sequence[Row]) -> str:
    """The page of the documentation."""
    seconds = sorted(r.seconds for r in rows)
    kinds = Counter(r.kind for r in rows if r.honest)
    lines = [
        "# The judge on recorded runs of a GPU",
        "",
        "Made by `python -m benchmarks.gpu_records`: what PyTorch, Triton and JAX computed on one",
        "NVIDIA H100, judged on a processor by all values that were recorded and by the outputs",
        "alone. Every honest run counts twice, and so does every run with a planted mistake.",
        "",
        *table([r for r in rows if r.by in WAYS]),
        "",
        "The same of single convolutions and attention, by their answer:",
        "",
        *table([r for r in rows if r.by == "answer"]),
        "",
        *gradient_lines([r for r in rows if r.by == "gradients"]),
        f"Honest runs: {', '.join(f'{n} {k}' for k, n in kinds.most_common())}. Processor time of",
        f"a verdict: median {seconds[len(seconds) // 2]:.1f} s, longest {seconds[-1]:.1f} s.",
        "",
    ]
    return "\n".join(lines)


def gradient_lines(rows: Sequence[Row]) -> list[str]:
    """Of the page, what it says of gradients."""
    if not rows:
        return []
    return [
        "The gradients of convolutions, attention and networks, made by `python -m",
        "benchmarks.gpu_gradients`, which also puts mistakes into them (no node is known for",
        "these, and no causes are sought):",
        "",
        *table(rows),
        "",
    ]


def read(path: Path | None) -> list[Row]:
    """The rows that were written before."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return [
        Row(**{k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(line).items()})
        for line in lines
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    warnings.simplefilter("ignore")
    parser.add_argument("folder", type=Path, help="where the archives lie")
    parser.add_argument("--only", default="", help="records whose names contain this")
    parser.add_argument("--mode", default="", help="records of this mode")
    parser.add_argument("--by", nargs="+", default=(*WAYS, "answer"), choices=(*WAYS, "answer"))
    parser.add_argument("--archive", default="", help="of archives whose names contain this")
    parser.add_argument("--rows", type=Path, help="JSON lines of what was judged before, and then")
    parser.add_argument("--write", type=Path, help="the page to write")
    asked = parser.parse_args()
    rows = read(asked.rows)
    done = {r.key for r in rows}
    with tempfile.TemporaryDirectory() as folder:
        for archive, record, by in every(asked.folder, asked):
            if (archive.name, record["name"], record["mode"], by) in done:
                continue
            if by == "answer":
                row = judged_operator(archive, record)
            else:
                row = judged(archive, record, archive.model(record, Path(folder)), by)
            rows.append(row)
            print(f"{row.kind:10} {row.seconds:5.1f} s  {row.name} | {row.mode} | {by}", flush=True)
            if asked.rows is not None:
                with asked.rows.open("a") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
    print("\n".join(table([r for r in rows if r.by in WAYS])))
    print("\n".join(table([r for r in rows if r.by == "answer"])))
    if asked.write is not None:
        asked.write.write_text(stamped(page(rows)))
    return 0 if rows else 2


if __name__ == "__main__":
    raise SystemExit(main())
