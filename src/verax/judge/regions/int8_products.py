"""What sums of products of bytes lose where a processor adds pairs of them in 16 bits.

The integers are found again behind the floats that were dequantized from them; what saturates is
then added up exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation, as_tuple
from verax.ops.quantized.quantization import DequantizeLinear
from verax.ops.sums.linear import Gemm
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.integer_convolution import ConvInteger
from verax.ops.windows.windows import over_spatial

LOWEST, HIGHEST = -(2**15), 2**15 - 1
PRODUCTS = ("Conv", "ConvTranspose", "ConvInteger", "MatMul", "MatMulInteger", "Gemm")
MOST_TERMS = 1 << 33
"""Products of one node beyond which it is not tried: it would take minutes."""
IN_A_ROW, BY_POSITION = "in a row", "by position"
"""Which products make a pair: neighbors among all terms of a window, channels last; or channels by
two at each position of the kernel."""
_NOTHING = Evaluation((), ())


@dataclass(frozen=True)
class _IntegerGrid:
    """Grid of a dequantized tensor: float = (integer - zero) scale. offset: the value that was
    subtracted from integers before a product of integers, if any."""

    scale: np.ndarray
    zero: np.ndarray
    dtype: np.dtype
    axis: int
    offset: str = ""


def _widened_grid(graph: Graph, value: str | None) -> _IntegerGrid | None:
    """Grid of an int8 or uint8 factor of an integer product, cast to a wider type and perhaps
    reduced by a zero point; None for other values."""
    node, offset = graph.producers.get(value or ""), ""
    if node is not None and node.op.kind == "Sub":
        zero = graph.producers.get(node.inputs[1] or "")
        if zero is None or zero.op.kind != "Cast":
            return None
        offset, node = zero.inputs[0] or "", graph.producers.get(node.inputs[0] or "")
    if node is None or node.op.kind != "Cast":
        return None
    dtype = graph.types[node.inputs[0] or ""].dtype.numpy
    if dtype.kind not in "iu" or dtype.itemsize != 1:
        return None
    return _IntegerGrid(np.ones(()), np.zeros((), np.int64), dtype, 0, offset)


def _grid(graph: Graph, value: str | None) -> _IntegerGrid | None:
    """The 8-bit grid that `value` was dequantized from, where it is known."""
    node = graph.producers.get(value or "")
    if node is None or node.op.kind != "DequantizeLinear":
        return None
    constants = [None if v is None else graph.constants.get(v) for v in node.inputs[1:]]
    dtype = graph.types[node.inputs[0] or ""].dtype.numpy
    if constants[0] is None or dtype.itemsize != 1 or node.op.attributes().get("block_size"):
        return None
    if len(node.inputs) > 2 and node.inputs[2] is not None and constants[1] is None:
        return None
    zero = constants[1] if len(constants) > 1 and constants[1] is not None else np.zeros((), dtype)
    axis = node.op.axis if isinstance(node.op, DequantizeLinear) else 1
    return _IntegerGrid(constants[0].astype(np.float64), zero.astype(np.int64), dtype, axis)


def _integers(x: np.ndarray, grid: _IntegerGrid) -> np.ndarray:
    """The integers that dequantized floats came from."""
    lanes = [-1 if a == grid.axis % max(x.ndim, 1) else 1 for a in range(x.ndim)]
    scale, zero = (
        p.reshape(lanes) if p.size > 1 else p.reshape(()) for p in (grid.scale, grid.zero)
    )
    return np.rint(np.asarray(x, np.float64) / scale).astype(np.int64) + zero


def factors_known(graph: Graph, node: Node) -> tuple[_IntegerGrid, _IntegerGrid] | None:
    """Grids of the data and of signed weights; those of integer products count as scaled by one."""
    if node.op.kind.endswith("Integer"):
        types = [graph.types[v or ""].dtype.numpy for v in node.inputs[:2]]
        if any(t.itemsize != 1 for t in types):
            return None
        one = np.ones(())
        data, weights = (_IntegerGrid(one, np.zeros((), np.int64), t, 0) for t in types)
    else:
        integers = not graph.types[node.outputs[0]].dtype.is_float
        first, second = ((_widened_grid if integers else _grid)(graph, v) for v in node.inputs[:2])
        if first is None or second is None:
            return None
        data, weights = first, second
    return (data, weights) if weights.dtype == np.int8 and data.scale.size == 1 else None


def lost_in_pairs(
    graph: Graph,
    node: Node,
    arrays: Sequence[Any],
    pairing: str,
    halved: str,
    scalars: Mapping[str, np.ndarray],
) -> np.ndarray | None:
    """Change of the node's result by saturation; None where it cannot be computed.

    arrays: its inputs; pairing: IN_A_ROW or BY_POSITION; halved: as of an `IntegerScheme`; scalars:
    values of one element by name, which may hold zero points.
    """
    grids = factors_known(graph, node)
    if grids is None or arrays[0].ndim < 2 or arrays[1].ndim < 2:
        return None
    data, weights = (_integers(a, g) for a, g in zip(arrays, grids))
    shift = 128 if grids[0].dtype == np.int8 else 0
    zero = int(grids[0].zero.ravel()[0]) + shift
    if grids[0].offset:  # only centerd integers are there
        if grids[0].offset not in scalars or scalars[grids[0].offset].size != 1:
            return None
        zero += int(np.ravel(scalars[grids[0].offset])[0])
        data = data + zero - shift
    if grids[1].offset and grids[1].offset not in scalars:
        return None
    if grids[1].offset:
        weights = weights + scalars[grids[1].offset].astype(np.int64)
    raw = data + shift
    if isinstance(node.op, Conv | ConvInteger):
        if isinstance(node.op, ConvInteger) and len(arrays) > 2 and arrays[2] is not None:
            zero = int(np.ravel(arrays[2])[0]) + shift
        if shift and (halved == "signed" or (halved == "centered" and zero == shift)):
            change = 2 * np.rint(weights / 2) - weights
            lost = _plain(node.op).reference(_NOTHING, (raw - zero).astype(np.float64), change)
        else:
            lost = _lost_by_convolution(node.op, raw, weights, zero, pairing)
        lanes: tuple[int, ...] = (1, -1, *(1,) * (raw.ndim - 2))
    elif isinstance(node.op, ConvTranspose):
        lost = _lost_by_deconvolution(node.op, raw, weights)
        lanes = (1, -1, *(1,) * (raw.ndim - 2))
        if grids[1].scale.size > 1 and (grids[1].axis % weights.ndim != 1 or node.op.groups > 1):
            return None
    else:
        left, right = raw, weights
        if isinstance(node.op, Gemm):
            left = left.T if node.op.trans_a else left
            right = right.T if node.op.trans_b else right
        lost = _lost_by_product(left, right)
        lanes = (-1,)
    if lost is None:
        return None
    scale = grids[1].scale
    factor = float(getattr(node.op, "alpha", 1.0)) * grids[0].scale.reshape(())
    return lost * factor * (scale.reshape(lanes) if scale.size > 1 else scale.reshape(()))


def _excess(sums: np.ndarray) -> np.ndarray:
    return np.clip(sums, LOWEST, HIGHEST) - sums


def _may_saturate(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Whether 255 times the weights of a pair leave 16 bits."""
    up = np.maximum(first, 0) + np.maximum(second, 0)
    down = np.minimum(first, 0) + np.minimum(second, 0)
    return (255 * up > HIGHEST) | (255 * down < LOWEST)


def _lost_by_product(left: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """left [..., m, k] @ right [..., k, n], pairs along k."""
    terms = left.shape[-1]
    shape = (
        *np.broadcast_shapes(left.shape[:-2], right.shape[:-2]),
        left.shape[-2],
        right.shape[-1],
    )
    if float(np.prod(shape, dtype=np.float64)) * terms > MOST_TERMS:
        return None
    lost = np.zeros(shape)
    for k in range(0, terms - 1, 2):
        weights = right[..., k : k + 1, :], right[..., k + 1 : k + 2, :]
        may = _may_saturate(*weights)
        columns = np.flatnonzero(may.any(axis=tuple(range(may.ndim - 1))))
        if columns.size:
            first, second = (w[..., columns] for w in weights)
            sums = left[..., k : k + 1] * first + left[..., k + 1 : k + 2] * second
            lost[..., columns] += _excess(sums)
    return lost


def _plain(op: Conv | ConvInteger) -> Conv:
    """The convolution of floats over the windows of `op`."""
    return op.convolution() if isinstance(op, ConvInteger) else op


def _lost_by_convolution(
    op: Any, raw: np.ndarray, w: np.ndarray, zero: int, pairing: str
) -> np.ndarray | None:
    """Change of a convolution's result by saturation; None where it would take minutes.

    Padding holds the zero point for pairs in a row, and 0 for pairs by position."""
    windows = _plain(op).geometry(w.shape[2:]).windows(raw.shape[2:])
    n, groups, channels = raw.shape[0], op.groups, w.shape[1]
    if float(n) * w.size * float(np.prod(windows.output, dtype=np.float64)) > MOST_TERMS:
        return None
    if op.groups == raw.shape[1] == w.shape[0]:
        return np.zeros((n, w.shape[0], *windows.output))  # a kernel of its own, exact everywhere
    if not windows.can_store_pads(raw):
        return None
    padded = windows.pad(raw, zero if pairing == IN_A_ROW else 0)
    padded = padded.reshape(n, groups, channels, *padded.shape[2:])
    weights = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    lost = np.zeros((n, groups, weights.shape[1], *windows.output))
    lanes = (1,) * windows.rank
    for first_term, second_term in _term_pairs(windows, channels, pairing):
        first, second = (weights[:, :, c][over_spatial(p)] for c, p in (first_term, second_term))
        may = _may_saturate(first, second)
        for g in np.flatnonzero(may.any(axis=1)):
            saturating = np.flatnonzero(may[g])
            seen = [windows.tap(padded[:, g, c], p)[:, None] for c, p in (first_term, second_term)]
            factors = [v[g, saturating].reshape(1, -1, *lanes) for v in (first, second)]
            lost[:, g, saturating] += _excess(seen[0] * factors[0] + seen[1] * factors[1])
    return lost.reshape(n, w.shape[0], *windows.output)


def _lost_by_deconvolution(op: ConvTranspose, raw: np.ndarray, w: np.ndarray) -> np.ndarray | None:
    """Pairs of channels at each position of the kernel, spread like the products themselves."""
    if float(raw[:, 0].size) * w.size > MOST_TERMS or op.groups > 1:
        return None
    count = w.shape[1]
    spread = dataclasses.replace(op, groups=count)
    lanes = (1,) * (raw.ndim - 2)
    lost: np.ndarray | None = None
    for p in np.ndindex(*w.shape[2:]):
        excess = np.zeros((raw.shape[0], count, *raw.shape[2:]))
        for c in range(0, raw.shape[1] - 1, 2):
            first, second = (w[i][over_spatial(p)].reshape(1, -1, *lanes) for i in (c, c + 1))
            excess += _excess(raw[:, c : c + 1] * first + raw[:, c + 1 : c + 2] * second)
        tap = np.zeros((count, 1, *w.shape[2:]))
        tap[over_spatial(p)] = 1
        spread_excess = as_tuple(spread.reference(_NOTHING, excess, tap))[0]
        lost = spread_excess if lost is None else lost + spread_excess
    return lost


_Term = tuple[int, tuple[int, ...]]


def _term_pairs(windows: Any, channels: int, pairing: str) -> Iterator[tuple[_Term, _Term]]:
    """Terms (channel, position) of a window that are added in 16 bits, channels last."""
    if pairing == IN_A_ROW:
        terms = [(c, p) for p in windows.positions() for c in range(channels)]
        yield from zip(terms[::2], terms[1::2])
        return
    for p in windows.positions():
        for c in range(0, channels - 1, 2):
            yield (c, p), (c + 1, p)
