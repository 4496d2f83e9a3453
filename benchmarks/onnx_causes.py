"""ONNX's own node cases that other runtimes answer wrongly, and the causes that the judge names.

Every case of the installed `onnx` runs on ONNX Runtime at each level of graph optimizations and on
OpenVINO. An answer that the judge calls a mistake becomes a line of the page: the operator, the
cause that is named or that none is, and whether a human who read the case agrees
(`onnx_causes.toml`). Cases run in a process of their own, so that a crash ends none but itself.

    python -m benchmarks.onnx_causes --rows rows.json --write docs/onnx_causes.md    # all
    python -m benchmarks.onnx_causes test_resize_upsample_scales_cubic
"""

from __future__ import annotations

import importlib
import multiprocessing
import platform
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from benchmarks import rows
from onnx import numpy_helper

import verax
from verax.api import subject_of
from verax.base.errors import VeraxError
from verax.base.option_groups.options import CheckOptions
from verax.base.storage.files import scratch_folder
from verax.judge.check import check
from verax.judge.protocol import Runner
from verax.records.verdict import Kind, Verdict

SUBJECTS = (
    "onnxruntime:disabled", "onnxruntime:basic", "onnxruntime:extended", "onnxruntime:all",
    "openvino",
)  # fmt: skip
SECONDS = 120
"""How long one case may take on all subjects."""
VALUE_LIMIT = 64
"""Small inputs of whole numbers may be shapes or axes: constants where the sizes depend on them."""
IMPORTED = ("onnxruntime", "openvino", "verax.judge.explain.hypotheses.library")
REVIEWS = Path(__file__).with_suffix(".toml")
KINDS = ("as stored", "identical", "rounding", "precision", "mistake", "undecided", "refused",
         "not judged")  # fmt: skip
HEAD = ("cases", "runtime", "operator", "cause named", "review")
Answer = dict[str, Any]


@dataclass
class Row:
    """One case. found: subject -> how its answer was judged: `kind`, and for a mistake `operator`,
    `causes` (best first), `structure` and `told_apart`. skipped: why it was not run at all."""

    name: str
    found: dict[str, Answer] = field(default_factory=dict)
    skipped: str = ""

    def mistakes(self) -> Iterator[tuple[str, Answer]]:
        """(subjects that gave the same answer, what was found) for each wrong answer."""
        wrong = {s: a for s, a in self.found.items() if a["kind"] == Kind.mistake.value}
        done: set[str] = set()
        for subject, answer in wrong.items():
            if subject in done:
                continue
            same = [s for s in wrong if wrong[s] == answer and s not in done]
            done.update(same)
            yield _joined(same), answer

    def cells(self) -> list[str]:
        kinds = Counter(a["kind"] for a in self.found.values())
        causes = [c for _, a in self.mistakes() for c in a["causes"][:1]]
        return [
            self.name,
            self.skipped or ", ".join(f"{k} {n}" for k, n in kinds.items()),
            *causes,
        ]


def _joined(subjects: Sequence[str]) -> str:
    """`onnxruntime` for all its levels, the levels that are concerned otherwise."""
    levels = [s.partition(":")[2] for s in subjects if ":" in s]
    names = [s for s in subjects if ":" not in s]
    every = [s.partition(":")[2] for s in SUBJECTS if ":" in s]
    if levels:
        names.insert(0, "onnxruntime" if levels == every else f"onnxruntime ({', '.join(levels)})")
    return ", ".join(names)


@cache
def cases() -> dict[str, Any]:
    """ONNX's operator cases by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


class Worker:
    """A process that runs cases one by one, and is made anew when one of them ends it."""

    def __init__(self) -> None:
        for module in IMPORTED:
            importlib.import_module(module)  # once, before the first fork
        self.process: Any = None

    def run(self, name: str) -> Row:
        if self.process is None:
            self.pipe, theirs = multiprocessing.Pipe()
            context = multiprocessing.get_context("fork")
            self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
        self.pipe.send(name)
        row = Row(name)
        try:
            while self.pipe.poll(SECONDS):
                subject, answer = self.pipe.recv()
                if not subject:
                    row.skipped = answer
                    return row
                row.found[subject] = answer
            row.skipped = f"not done in {SECONDS} s"
        except EOFError:
            row.skipped = "the process died"
        self.process.kill()
        self.process.join()
        self.process = None
        return row


@cache
def worker() -> Worker:
    return Worker()


def measure(name: str) -> Row:
    """The case on every subject."""
    cases()
    return worker().run(name)


def _serve(pipe: Any) -> None:
    warnings.simplefilter("ignore")
    while True:
        name, skipped = pipe.recv(), ""
        try:
            for subject, answer in judged(cases()[name]):
                pipe.send((subject, answer))
        except VeraxError as error:
            skipped = f"not imported: {error.cause}"
        pipe.send(("", skipped))


def judged(case: Any) -> Iterator[tuple[str, Answer]]:
    """(subject, how its answer to a case was judged). Raises `VeraxError` where the case is not
    imported."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    arrays = _inputs(proto, case)
    with scratch_folder() as folder:
        model = _loaded(proto, arrays, folder / "model.onnx")
        inputs = {n: arrays[n] for n in model.graph.inputs}
        before: tuple[dict[str, np.ndarray], Answer] | None = None
        for name in SUBJECTS:
            runner = subject_of(name, model, threads=1, timeout=SECONDS)
            runner.isolated = False  # type: ignore[attr-defined]
            try:
                given = runner.run(model.graph, inputs)
            except Exception as error:  # a runtime's own, of any class
                yield name, {"kind": "refused", "text": str(error).strip().split("\n")[0][:200]}
                continue
            if before is not None and _same_bits(given, before[0]):
                yield name, before[1]
                continue
            if _as_stored(given, proto, case):
                answer: Answer = {"kind": "as stored"}
            else:
                answer = _answer(model, runner, inputs)
            before = given, answer
            yield name, answer


def _as_stored(given: dict[str, np.ndarray], proto: onnx.ModelProto, case: Any) -> bool:
    """True if every output is what ONNX stores with the case, within the case's own tolerance."""
    for stored, value in zip(case.data_sets[0][1], proto.graph.output, strict=True):
        if isinstance(stored, onnx.TensorProto):
            stored = numpy_helper.to_array(stored)
        if value.name not in given or not isinstance(stored, np.ndarray | np.generic):
            return False
        a, b = given[value.name], np.asarray(stored)
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        if a.dtype.kind in "biu":
            same = np.array_equal(a, b)
        else:
            a, b = a.astype(np.float64), b.astype(np.float64)
            same = np.allclose(a, b, case.rtol, case.atol, equal_nan=True)
        if not same:
            return False
    return True


def _inputs(proto: onnx.ModelProto, case: Any) -> dict[str, np.ndarray]:
    constant = {tensor.name for tensor in proto.graph.initializer}
    names = [v.name for v in proto.graph.input if v.name not in constant]
    arrays = {}
    for name, value in zip(names, case.data_sets[0][0], strict=True):
        if isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        if not isinstance(value, np.ndarray | np.generic):
            raise VeraxError("a sequence or an optional as an input")
        arrays[name] = np.asarray(value)
    return arrays


def _loaded(proto: onnx.ModelProto, arrays: dict[str, np.ndarray], path: Path) -> Any:
    """The model as its file says it; small integers are constants of it where sizes depend on
    them."""
    onnx.save(proto, path)
    with_values = False
    try:
        model = verax.load(str(path))
        types = model.graph.types.values()
        with_values = any(s.startswith("_") for t in types for s in t.symbols())
    except VeraxError:
        with_values = True
    if with_values:
        small = {n: a for n, a in arrays.items() if a.size <= VALUE_LIMIT and a.ndim <= 1}
        small = {n: a for n, a in small.items() if a.dtype.kind in "iub" or a.dtype == np.float32}
        kept = [v for v in proto.graph.input if v.name not in small]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
        proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in small.items())
        onnx.save(proto, path)
        model = verax.load(str(path))
    return model


def _answer(model: Any, runner: Runner, inputs: dict[str, np.ndarray]) -> Answer:
    try:
        verdict = check(model.graph, runner, inputs, options=CheckOptions(timeout=SECONDS))
    except VeraxError as error:
        return {"kind": "not judged", "text": error.cause}
    return described(verdict)


def described(verdict: Verdict) -> Answer:
    """What the page says of a verdict."""
    answer: Answer = {"kind": verdict.kind.value}
    if verdict.kind is not Kind.mistake:
        return answer
    blame = verdict.blame[0] if verdict.blame else None
    explanations = (*verdict.causes, *(blame.explanations if blame else ()))
    return answer | {
        "operator": blame.operator if blame else "",
        "causes": [e.words for e in explanations],
        "structure": list(blame.structure if blame else verdict.reasons[:1]),
        "told_apart": blame.told_apart if blame else "",
    }


def _same_bits(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(
        (a[n].dtype, a[n].shape) == (b[n].dtype, b[n].shape) and a[n].tobytes() == b[n].tobytes()
        for n in a
    )


@dataclass
class Line:
    """Wrong answers that are one finding: the same runtime, operator and cause.

    right: whether who read the cases agrees with the cause; None where none is named or nobody
    read them. note: what the reader says."""

    name: str
    runtime: str
    operator: str
    cause: str
    right: bool | None
    note: str
    cases: list[str]

    def cells(self) -> list[str]:
        told = {True: "right", False: "wrong", None: ""}[self.right if self.cause else None]
        review = ": ".join(p for p in (told, self.note) if p)
        named = ", ".join(f"`{c}`" for c in self.cases)
        return [named, self.runtime, self.operator, self.cause or "no known reading", review]


@cache
def reviews() -> list[dict[str, Any]]:
    """What a human says of the cases whose names begin so; the first that fits holds."""
    return list(tomllib.loads(REVIEWS.read_text())["review"])


def _is_of(review: dict[str, Any], case: str, runtime: str) -> bool:
    return review.get("runtime", "") in runtime and case.startswith(tuple(review["cases"]))


def lines_of(found: Sequence[Row]) -> list[Line]:
    """The wrong answers, those alike together."""
    lines: dict[tuple[str, ...], Line] = {}
    for row in found:
        case = row.name.removeprefix("test_")
        for runtime, answer in row.mistakes():
            cause = answer["causes"][0] if answer["causes"] else ""
            review = next((r for r in reviews() if _is_of(r, case, runtime)), {})
            note = str(review.get("note", ""))
            key = (runtime, answer["operator"], cause, note)
            line = lines.setdefault(
                key,
                Line(case, runtime, answer["operator"], cause, review.get("right"), note, []),
            )
            line.cases.append(case)
    return list(lines.values())


def page(found: Sequence[Row]) -> str:
    """The page."""
    lines = lines_of(found)
    judged_rows = [r for r in found if r.found]
    total, named = (sum(len(v.cases) for v in lines if keep(v)) for keep in (_any, _named))
    right, wrong = (
        sum(len(v.cases) for v in lines if v.cause and v.right is verdict)
        for verdict in (True, False)
    )
    runtimes = ", ".join(f"{p} {version(p)}" for p in ("onnx", "onnxruntime", "openvino"))
    kinds = [
        [s, *(sum(r.found.get(s, {}).get("kind") == k for r in judged_rows) for k in KINDS)]
        for s in SUBJECTS
    ]
    text = [
        "# ONNX's node cases, and the causes of wrong answers",
        "",
        "Made by `python -m benchmarks.onnx_causes`: every node case of the installed `onnx` on "
        "ONNX Runtime at each level of graph optimizations and on OpenVINO. An answer outside of "
        "the case's own tolerance is judged; where the verdict is a mistake, the first cause that "
        "it names stands here, and what a human says who read the case "
        "(`benchmarks/onnx_causes.toml`).",
        "",
        f"**{total} wrong answers (a runtime's levels that answer alike count once): {named} get a "
        f"cause, of which {right} are right, {wrong} wrong and {named - right - wrong} were not "
        f'reviewed; {total - named} get "no known reading".**',
        "",
        f"{runtimes}, {platform.machine()}. {len(judged_rows)} of {len(found)} cases ran.",
        "",
        "## Wrong answers",
        "",
        *rows.table(HEAD, sorted(lines, key=lambda v: (v.operator, v.name))),
        "",
        "## All answers",
        "",
        "| runtime | " + " | ".join(KINDS) + " |",
        "|" + "---|" * (len(KINDS) + 1),
        *("| " + " | ".join(map(str, r)) + " |" for r in kinds),
    ]
    return "\n".join(text) + "\n"


def _any(line: Line) -> bool:
    return True


def _named(line: Line) -> bool:
    return bool(line.cause)


def main() -> int:
    def names(asked: Sequence[str]) -> Sequence[str]:
        return rows.among(cases(), asked) or list(cases())

    return rows.run(str(__doc__), Row, names, measure, page)


if __name__ == "__main__":
    raise SystemExit(main())
