"""PyTorch's operators at NaN, infinities, signed zeros, subnormal and huge numbers, against
PyTorch: the reference and the promised bits have its values, at every element or pair of elements.

Each function is read by its own row; what a comment exempts is what PyTorch leaves to the processor
or to the order of an algorithm.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from verax.frontends.torch import load_torch  # noqa: E402
from verax.frontends.torch.tables.elementwise import FUNCTIONS, SAME  # noqa: E402
from verax.reference import evaluate, promised  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
F = torch.nn.functional
NAN, INF = math.nan, math.inf
SPECIAL = np.array(
    [NAN, INF, -INF, 0.0, -0.0, 1e30, -1e30, 1e-40, -1e-40, 0.5, -0.5, 1, -1, 2, 2.5, 3, -3, 0.3,
     -0.3, 20.5, 100, -100],
    np.float32,
)  # fmt: skip
ROWS = np.array(
    [[NAN, 1, 2, 0.5], [1, NAN, 2, NAN], [INF, 1, 2, 0], [-INF, -INF, -INF, -INF],
     [INF, INF, INF, INF], [-INF, 1, 2, -3], [INF, -INF, 1, 2], [INF, NAN, -INF, 3],
     [0.0, -0.0, 0.0, -0.0], [1e-40, 1e-40, -1e-40, 0], [3, 2, 1, 0], [NAN, NAN, NAN, NAN],
     [100, 200, -100, 0]],
    np.float32,
)  # fmt: skip
WHOLE = np.array([-7, -3, -1, 0, 1, 2, 5, -(2**31), 2**31 - 1], np.int32)
Function = Callable[..., Any]


def of_aten(name: str) -> Function:
    return getattr(torch.ops.aten, name).default


ONE: dict[str, Function] = {
    **{name: of_aten(name) for name in (*FUNCTIONS, *SAME)},
    **{name: of_aten(name) for name in ("sign", "round", "trunc", "frac", "rsqrt", "exp2")},
    **{name: of_aten(name) for name in ("log2", "log10", "square", "erfc", "isfinite", "angle")},
    **{name: of_aten(name) for name in ("relu6", "hardsigmoid", "celu", "nan_to_num")},
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "logsigmoid": F.logsigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, -0.5),
    "elu": lambda x: F.elu(x, 0.7),
    "softplus": lambda x: F.softplus(x, 2.0, 3.0),
    "hardtanh": F.hardtanh,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.5, -7.0),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.25])),
    "rrelu": F.rrelu,
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp, bounds crossed": lambda x: x.clamp(2, -1),
    "clamp from NaN": lambda x: x.clamp(min=NAN),
    "clamp to NaN": lambda x: x.clamp(max=NAN),
    **{f"to the power of {e}": lambda x, e=e: x**e
       for e in (0.5, -0.5, 2, 3, -1, -2, 0, 0.333, INF, -INF, NAN)},
    **{f"{b} to the power": lambda x, b=b: torch.pow(b, x) for b in (2.0, 1.0, 0.0, -2.0)},
    "by 0.3, rounded down": lambda x: x // 0.3,
    "remainder by 0.3": lambda x: x % 0.3,
    "remainder by infinity": lambda x: x % -INF,
    "fmod by -0.3": lambda x: torch.fmod(x, -0.3),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([-2.0, 0.0, 2.0])),
    "bucketize to the right": lambda x: torch.bucketize(x, torch.tensor([-2.0, 0.0]), right=True),
}  # fmt: skip
"""Functions of one tensor."""
TWO: dict[str, Function] = {
    **{name: getattr(torch, name) for name in (
        *("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum"),
        *("minimum", "eq", "ne", "lt", "le", "gt", "ge", "atan2", "hypot", "logaddexp"),
        *("logical_and", "logical_or", "logical_xor"),
    )},
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "lerp near": lambda a, b: torch.lerp(a, b, 0.25),
    "lerp far": lambda a, b: torch.lerp(a, b, 0.75),
    "lerp by a tensor": lambda a, b: torch.lerp(a, b, b),
    "where": lambda a, b: torch.where(a > b, a, b),
    "clamp": lambda a, b: torch.clamp(a, b, b + 1),
    "clamp from": lambda a, b: torch.clamp(a, min=b),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.5),
    "size of a complex number": lambda a, b: torch.complex(a, b).abs(),
    "angle of a complex number": lambda a, b: torch.complex(a, b).angle(),
}  # fmt: skip
"""Functions of two tensors."""
ALONG: dict[str, Function] = {
    **{name: lambda x, name=name: getattr(x, name)(-1) for name in (
        *("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "logsumexp", "softmax"),
        *("log_softmax", "cumsum", "cumprod", "any", "all", "count_nonzero", "var", "std"),
    )},
    "largest": lambda x: x.max(-1)[0],
    "where the smallest is": lambda x: x.min(-1)[1],
    "largest of all": lambda x: x.max(),
    "median": lambda x: x.median(-1)[0],
    "second": lambda x: x.kthvalue(2, -1)[0],
    "three largest": lambda x: x.topk(3, -1)[0],
    "three smallest": lambda x: x.topk(3, -1, largest=False)[0],
    "in order": lambda x: x.sort(-1)[0],
    "places in order": lambda x: x.sort(dim=-1, stable=True)[1],
    "places in descending order": lambda x: x.sort(dim=-1, descending=True, stable=True)[1],
    "euclidean norm": lambda x: x.norm(2, -1),
    "sum of sizes": lambda x: x.norm(1, -1),
    "largest size": lambda x: x.norm(INF, -1),
    "smallest size": lambda x: x.norm(-INF, -1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "max pool": lambda x: F.max_pool1d(x[None], 3, 1),
    "average pool": lambda x: F.avg_pool1d(x[None], 3, 1),
    "differences": lambda x: x.diff(dim=-1),
}  # fmt: skip
"""Functions along the last axis."""
INTEGERS: dict[str, Function] = {
    **{name: getattr(torch, name) for name in ("floor_divide", "remainder", "fmod", "sign")},
    "rounded down": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "rounded to zero": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}
INTEGERS["sign"] = lambda a, b: torch.sign(a) + torch.sign(b)


def pairs(values: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(a.ravel().copy() for a in np.meshgrid(values, values))


def divisible() -> tuple[np.ndarray, ...]:
    a, b = pairs(WHOLE)
    defined = (b != 0) & ((a != -(2**31)) | (b != -1))
    return a[defined], b[defined]


def without_subnormal_divisors(name: str, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """PyTorch's vectors have no remainder by a subnormal number (its single numbers do)."""
    exempt = name in ("remainder", "fmod", "floor_divide")
    return ~(exempt & (np.abs(inputs[-1]) < 1e-38) & (inputs[-1] != 0))


def without_gelu_of_infinity(name: str, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """PyTorch's vectors of AVX-512 give NaN for gelu of an infinity, others 0 or infinity."""
    return ~((name == "gelu") & np.isinf(inputs[0]))


class Several(torch.nn.Module):
    def __init__(self, functions: list[Function]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *xs: Any) -> Any:
        return tuple(f(*xs) for f in self.functions)


CASES = {
    "one tensor": (ONE, (SPECIAL,)),
    "two tensors": (TWO, pairs(SPECIAL)),
    "lines": (ALONG, (ROWS,)),
    "integers": (INTEGERS, divisible()),
}


@pytest.mark.parametrize("title", CASES)
def test_special_values_are_those_of_pytorch(title: str) -> None:
    functions, inputs = CASES[title]
    tensors = tuple(torch.from_numpy(a) for a in inputs)
    model = load_torch(Several(list(functions.values())), inputs=tensors)
    assert "decomposed" not in model.metadata, model.metadata["decomposed"]
    fed = dict(zip(model.graph.inputs, inputs, strict=True))
    meant, bits = evaluate(model.graph, fed), promised(model.graph, fed)
    for (name, function), value in zip(functions.items(), model.graph.outputs, strict=True):
        want = function(*tensors).numpy()
        kept = {
            "one tensor": without_gelu_of_infinity,
            "two tensors": without_subnormal_divisors,
        }.get(title, lambda *_: ...)(name, inputs)
        for kind, found in (("reference", meant[value]), ("promised", bits[value])):
            same(want[kept], np.asarray(found)[kept], f"{name}: {kind}")


def same(want: np.ndarray, got: np.ndarray, what: str) -> None:
    """NaN and infinities at the same places, other numbers within what float32 rounds."""
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    got = np.asarray(got, np.float32)
    for kind in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(kind(got), kind(want), err_msg=f"{what}, {kind.__name__}")
    finite = np.isfinite(want)
    apart = np.abs(got[finite].astype(np.float64) - want[finite])
    size = np.maximum(np.abs(want[finite]), np.float32(1))
    assert (apart <= 64 * np.finfo(np.float32).eps * size).all(), (what, got[finite], want[finite])


def test_zeros_keep_the_signs_that_angles_depend_on() -> None:
    y, x = pairs(np.array([0.0, -0.0, 1, -1], np.float32))
    tensors = torch.from_numpy(y), torch.from_numpy(x)
    model = load_torch(Several([torch.atan2, torch.floor_divide]), inputs=tensors)
    found = promised(model.graph, dict(zip(model.graph.inputs, (y, x), strict=True)))
    for function, value in zip((torch.atan2, operator.floordiv), model.graph.outputs, strict=True):
        want = function(*tensors).numpy()
        np.testing.assert_array_equal(np.signbit(found[value]), np.signbit(want))
