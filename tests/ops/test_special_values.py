"""What holds for every operator at NaN, infinities, signed zeros, subnormal and huge numbers: its
reference, its promised bits and its compiled code have them at the same places, and ONNX Runtime
has, of operators on single elements, where the standard says what is right.

A family needs no line here: registering an operator puts it under these tests. Operators on single
elements take every pair of `SPECIAL`; the others their own cases with some numbers exchanged.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import onnxruntime
import pytest
from tests.compiler.test_bits import bits
from tests.ops.test_every_operator import CASES, SUPPORTED, infer, run, types_of

from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.export.onnx import to_onnx
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Case, Evaluation
from verax.ir.types import TensorType
from verax.ops.pointwise.elementwise import Elementwise
from verax.reference import promised
from verax.reference.evaluate import to_work

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
NAN, INF = math.nan, math.inf
SPECIAL = np.array(
    [NAN, INF, -INF, 0.0, -0.0, 1e30, -1e30, 1e-40, -1e-40, 0.5, -0.5, 1, -1, 2, 2.5, 3, -3, 0.3,
     -0.3, 20.5, 100, -100],
    np.float32,
)  # fmt: skip
PLANTED = {
    "nan": (NAN,),
    "infinity": (INF,),
    "both infinities": (INF, -INF),
    "small": (0.0, -0.0, 1e-40, -1e-40),
}
"""What takes the place of some numbers of an input."""
FEW = 3
"""Cases of an operator on more than single elements."""
BY_ANOTHER_ALGORITHM = {
    "StrassenMatMul": "sums of operands before the product: an infinity meets its negative",
    "StrassenConv": "as StrassenMatMul",
    "WinogradConv": "as StrassenMatMul, within a tile",
}
"""Operators that only the default level makes, which keep the masks of the plain ones by other
means than their own arithmetic."""
RUNS_LONG = ("Loop", "If", "LSTM", "GRU", "RNN")
"""Bodies are made of the other operators; of the recurrent ones a single case is taken."""
REFUSES = ("Range",)
"""Operators whose first input must be finite."""
FINITE_WEIGHTS = ("ConvTranspose",)
"""A position outside of the input counts as 0, which a weight that is not finite makes NaN."""


def on_single_elements(case: Case) -> bool:
    """Whether the operator takes any float32 arrays of one shape."""
    return (
        isinstance(case.op, Elementwise)
        and case.op.kind != "Clip"  # its bounds are scalars
        and 1 <= len(case.inputs) <= 2
        and all(a is not None and a.dtype == np.float32 for a in case.inputs)
    )


@cache
def elements(name: str) -> tuple[Case, ...]:
    """Every pair of special values for each way that an operator is written."""
    found: dict[str, Case] = {}
    for case in CASES[name]():
        if on_single_elements(case):
            pairs = np.meshgrid(*[SPECIAL] * len(case.inputs))
            inputs = tuple(a.ravel() for a in pairs)
            found.setdefault(f"{case.op} {len(inputs)}", Case(case.op, inputs, (), "pairs"))
    return tuple(found.values())


def against_one(name: str) -> Iterator[Case]:
    """The special values against each of them alone, for which libraries have shorter ways."""
    for case in elements(name):
        if len(case.inputs) == 2:
            for value in SPECIAL:
                yield Case(case.op, (SPECIAL, np.array(value)), (), f"one operand is {value}")


@cache
def planted(name: str) -> tuple[Case, ...]:
    """The operator's own cases, some numbers of one input exchanged for special ones."""
    rng, found = np.random.default_rng(zlib.crc32(name.encode())), []
    seen: set[str] = set()
    for case in CASES[name]():
        floats = [i for i, a in enumerate(case.inputs) if a is not None and a.dtype == np.float32]
        others = any(a is not None and a.dtype.kind in "fV" and a.dtype != np.float32
                     for a in case.inputs)  # fmt: skip
        floats = [i for i in floats if i not in case.constant and case.inputs[i].size]
        if others or not floats or on_single_elements(case) or str(case.op) in seen:
            continue
        seen.add(str(case.op))
        if len(seen) > (1 if name in RUNS_LONG else FEW):
            break
        for label, values in PLANTED.items():
            for which in floats[: 1 if name in (*RUNS_LONG, *FINITE_WEIGHTS) else 2]:
                array = case.inputs[which].copy()
                places = rng.permutation(array.size)[: len(values)]
                array.reshape(-1)[places] = values[: len(places)]
                inputs = tuple(array if i == which else a for i, a in enumerate(case.inputs))
                found.append(Case(case.op, inputs, case.constant, f"{label} in input {which}"))
    return tuple(found)


def agree(case: Case, found: Sequence[np.ndarray] | None = None) -> None:
    """`found`, or else the promised bits, have the reference's special values where it has them,
    and lie within the error bound elsewhere."""
    types = types_of(case)
    outputs = infer(case, types)
    try:
        meant = run(case, promised=False)
    except InputError:
        with pytest.raises(InputError):
            run(case, promised=True)
        return
    wide = [
        a if a is None or t is None else to_work(a, t.dtype, np.dtype(np.float64))
        for a, t in zip(case.inputs, types)
    ]
    errors = case.op.error(Evaluation(types, outputs), wide, meant)
    found = run(case, promised=True) if found is None else found
    for want, got, error, declared in zip(meant, found, errors, outputs, strict=True):
        place = f"{case.op} {case.label}"
        if not declared.dtype.is_float:
            np.testing.assert_array_equal(got, want, err_msg=place)
            continue
        rounded = np.asarray(want.astype(declared.dtype.numpy), np.float64)
        bound = 0.0 if error is None else error.bound
        near = np.isfinite(rounded) & np.isfinite(got) & ~(np.abs(got - want) > bound)
        same = (np.isnan(rounded) & np.isnan(got)) | (rounded == got) | near
        shown = [a[~same][:4] for a in case.inputs if a is not None and a.shape == got.shape]
        assert same.all(), (place, shown, want[~same][:4], got[~same][:4])


@pytest.mark.parametrize("name", SUPPORTED)
def test_the_promised_bits_have_the_special_values_of_the_reference(name: str) -> None:
    if name in BY_ANOTHER_ALGORITHM:
        pytest.skip(BY_ANOTHER_ALGORITHM[name])
    cases = () if name in ("Loop", "If") else planted(name)
    for case in (*elements(name), *against_one(name), *cases):
        agree(case)


def network(cases: list[Case]) -> tuple[Graph, dict[str, np.ndarray]]:
    """One network of all cases, an output of each that has the case's number in its name."""
    b, fed, outputs = Builder("special_values"), {}, []
    for k, case in enumerate(cases):
        inputs: list[str | None] = []
        for i, array in enumerate(case.inputs):
            if array is None:
                inputs.append(None)
            elif i in case.constant:
                inputs.append(b.constant(np.array(array)))
            else:
                same = next((v for v, a in fed.items() if a is array), None)
                name = same or b.input(f"x{k}_{i}", TensorType.of(array))
                fed[name] = array
                inputs.append(name)
        made = b.add_all(case.op, inputs, [f"y{k}_{j}" for j in range(case.op.output_count)])
        outputs += made
    return b.graph(outputs), fed


def singles() -> Iterator[Case]:
    """All cases of operators on single elements, on the same arrays."""
    pairs = [a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL)]
    for name in SUPPORTED:
        for case in elements(name):
            yield Case(case.op, (SPECIAL,) if len(case.inputs) == 1 else tuple(pairs))


@pytest.mark.parametrize("level", [1, 3])
def test_compiled_code_has_the_promised_special_values(level: int) -> None:
    cases = list(singles())
    graph, fed = network(cases)
    want = promised(graph, fed)
    found = compile(graph, Settings(opt_level=level, threads=1)).run(fed)
    for value in graph.outputs:
        op = cases[int(value[1:].partition("_")[0])].op
        assert bits(found[value]) == bits(np.asarray(want[value])), op


def test_compiled_reductions_and_windows_have_the_promised_special_values() -> None:
    """One case of every other operator with a NaN and infinities in its first input."""
    cases = []
    for name in SUPPORTED:
        if (
            name not in (*RUNS_LONG, *BY_ANOTHER_ALGORITHM, *REFUSES)
            and not REGISTRY[name].no_kernel
        ):
            both = [c for c in planted(name) if c.label == "both infinities in input 0"]
            for case in both[:1]:
                first = case.inputs[0].copy()
                first.reshape(-1)[first.size // 2] = NAN
                cases.append(Case(case.op, (first, *case.inputs[1:]), case.constant))
    assert len(cases) > 60
    graph, fed = network(cases)
    want = promised(graph, fed)
    found = compile(graph, Settings(opt_level=1, threads=1)).run(fed)
    for value in graph.outputs:
        op = cases[int(value[1:].partition("_")[0])].op
        assert bits(found[value]) == bits(np.asarray(want[value])), op


DECIDED_OTHERWISE = {
    "Cast": "a number that the integer type has not: undefined in the standard",
}
"""Where ONNX Runtime differs from us, and why that is no mistake."""


def test_onnx_runtime_has_the_same_special_values_as_what_is_written() -> None:
    lacking = {*DECIDED_OTHERWISE, "BitCast", "Bfloat16Factor", "Dropout"}
    cases = [c for c in singles() if c.op.kind not in lacking]
    graph, fed = network(cases)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(to_onnx(graph).SerializeToString(), options)
    for value, got in zip(graph.outputs, session.run(None, fed), strict=True):
        case = cases[int(value[1:].partition("_")[0])]
        agree(case, [got])
