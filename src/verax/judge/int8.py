"""What processors and runtimes are known to do to 8-bit integers, other than the meaning.

- Processors without an instruction for dot products of bytes add pairs of products in 16 bits and
  saturate there: unsigned data times signed weights of the full range loses whole quanta (ONNX
  Runtime, issue 14642; oneDNN and with it OpenVINO). Signed data is shifted by 128 first. Which
  products make a pair depends on the order of the terms: all of a window one after the other,
  channels last, or channels by two at each position of the kernel.
- Where oneDNN computes with signed data there, it halves the weights (to even), so that no pair can
  saturate: they keep seven bits.
- ONNX Runtime's integer Softmax multiplies with 1 / scale of its result rounded down to a whole
  number: 254 in place of 254.9999 makes every probability 0.4 % too small.

- ONNX Runtime rounds float weights to 8 bits itself (one scale for all of them) where a product of
  them lies between dequantised data and a quantisation.
- OpenVINO adds to the sums of a convolution before it rounds them: the quantisation between a
  product and the addition behind it is left out, which is finer than the meaning, not coarser.

Each is a `Way`: a node is computed again so, exactly, and what a subject gave has to be that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation, as_tuple
from verax.judge.hypotheses.windows import can_pad
from verax.judge.precision import asymmetric_uint8
from verax.ops.convolution import Conv
from verax.ops.linear import Gemm
from verax.ops.quantization import DequantizeLinear
from verax.ops.windows import over_spatial

LOWEST, HIGHEST = -(2**15), 2**15 - 1
PRODUCTS = ("Conv", "ConvInteger", "MatMul", "MatMulInteger", "Gemm")
MOST_TERMS = 1 << 33
"""Products of one node beyond which it is not tried: it would take minutes."""
_NOTHING = Evaluation((), ())


@dataclass(frozen=True)
class Way:
    """A coarser arithmetic of integers.

    pairs: how products are paired, "", "in a row" or "by position". halved: which signed data gets
    halved weights instead, "" for none, "centred" for that with zero point 0, "signed" for all.
    softmax: whether 1 / scale of a quantised Softmax is rounded down. sums: the operands of an
    addition whose quantisation is left out behind a product: "", "both", or where both come from
    products "left" or "right". weights: whether float weights between quantised values are rounded
    to 8 bits. spared: first outputs of nodes that are computed as the graph says.
    """

    pairs: str = ""
    halved: str = ""
    softmax: bool = False
    sums: str = ""
    weights: bool = False
    spared: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        words = []
        if self.pairs:
            words.append(f"int8 with 16-bit saturation (pairs of products {self.pairs})")
        if self.halved:
            words.append("weights halved to 7 bits where the data is signed")
        if self.softmax:
            words.append("an integer softmax whose 1 / scale was rounded down")
        if self.weights:
            words.append("float weights rounded to 8 bits between quantised values")
        if self.spared:
            words[-1] += " in some of the nodes"
        if self.sums:
            words.append("no quantisation between a product and the sum behind it")
        return " and ".join(words)

    def left_out(self, graph: Graph, nodes: Sequence[Node]) -> set[str]:
        """Quantised values that are not rounded."""
        found: set[str] = set()
        for node in nodes if self.sums else ():
            chosen = [v for v in _bare_sums(graph, node) if v is not None]
            if len(chosen) == 2 and self.sums != "both":
                chosen = chosen[:1] if self.sums == "left" else chosen[1:]
            found.update(chosen)
        return found - self.spared

    def outputs(
        self,
        graph: Graph,
        node: Node,
        arrays: Sequence[Any],
        exact: Sequence[np.ndarray],
        scalars: Mapping[str, np.ndarray],
    ) -> tuple[np.ndarray, ...]:
        """What the node gives so. arrays: its inputs; exact: its outputs by the meaning; scalars:
        values of one element by name, where zero points may be."""
        if node.outputs[0] in self.spared:
            return tuple(exact)
        if self.pairs and node.op.kind in PRODUCTS:
            lost = _lost(graph, node, arrays, self, scalars)
            if lost is not None:
                return (exact[0] + lost.astype(exact[0].dtype),)
        if self.weights and _has_bare_weights(graph, node):
            change = asymmetric_uint8(np.asarray(arrays[1], np.float64)) - arrays[1]
            return (exact[0] + as_tuple(node.op.reference(_NOTHING, arrays[0], change))[0],)
        if self.softmax and node.op.kind == "Softmax":
            factor = _softmax_factor(graph, node)
            if factor is not None:
                return (exact[0] * factor,)
        return tuple(exact)


def ways(graph: Graph, nodes: Sequence[Node]) -> Iterator[Way]:
    """Those that could matter to these nodes, the simplest first."""
    known = [f for n in nodes if n.op.kind in PRODUCTS if (f := _factors_known(graph, n))]
    products = [Way()]
    if known:
        products += [Way("in a row"), Way("by position")]
    if any(data.dtype == np.int8 for data, _ in known):
        products += [Way("by position", "centred"), Way("by position", "signed")]
    bare = [sum(v is not None for v in _bare_sums(graph, n)) for n in nodes]
    sums = ["", "both", "left", "right"] if 2 in bare else ["", "both"] if any(bare) else [""]
    softmax = any(n.op.kind == "Softmax" and _softmax_factor(graph, n) is not None for n in nodes)
    bare_weights = any(_has_bare_weights(graph, n) for n in nodes)
    for rounded_down, short, left, way in itertools.product(
        (False, True)[: 1 + softmax], (False, True)[: 1 + bare_weights], sums, products
    ):
        found = replace(way, softmax=rounded_down, sums=left, weights=short)
        if found != Way():
            yield found


def _bare_sums(graph: Graph, node: Node) -> tuple[str | None, ...]:
    """For each operand of an addition, its quantised value if that comes straight from a product
    and is read by nobody else."""
    if node.op.kind != "Add":
        return ()
    return tuple(_bare_sum(graph, v) for v in node.inputs)


def _bare_sum(graph: Graph, value: str | None) -> str | None:
    node = graph.producers.get(value or "")
    if node is None or node.op.kind != "DequantizeLinear" or len(graph.consumers[value or ""]) != 1:
        return None
    whole = node.inputs[0] or ""
    rounded = graph.producers.get(whole)
    if rounded is None or rounded.op.kind != "QuantizeLinear" or len(graph.consumers[whole]) != 1:
        return None
    source = graph.producers.get(rounded.inputs[0] or "")
    return whole if source is not None and source.op.kind in PRODUCTS else None


def _has_bare_weights(graph: Graph, node: Node) -> bool:
    """Whether a product of dequantised data with constant float weights is quantised next."""
    if node.op.kind not in ("Conv", "ConvTranspose", "MatMul") or len(node.inputs) < 2:
        return False
    source = graph.producers.get(node.inputs[0] or "")
    readers = graph.consumers.get(node.outputs[0], ())
    return (
        source is not None
        and source.op.kind == "DequantizeLinear"
        and node.inputs[1] in graph.constants
        and len(readers) == 1
        and readers[0].op.kind == "QuantizeLinear"
    )


def _softmax_factor(graph: Graph, node: Node) -> float | None:
    """What rounding 1 / scale down makes of a Softmax that is quantised next."""
    readers = graph.consumers.get(node.outputs[0], ())
    if len(readers) != 1 or readers[0].op.kind != "QuantizeLinear":
        return None
    scale = graph.constants.get(readers[0].inputs[1] or "")
    if scale is None or scale.size != 1:
        return None
    whole = float(np.ravel(scale)[0])
    with np.errstate(divide="ignore"):
        return float(np.floor(np.float32(1) / np.float32(whole))) * whole


@dataclass(frozen=True)
class _Grid:
    """Where the floats of a dequantised tensor lie: (integer - zero) scale. offset: the value that
    was taken off integers before a product of integers, if any."""

    scale: np.ndarray
    zero: np.ndarray
    dtype: np.dtype
    axis: int
    offset: str = ""


def _bytes(graph: Graph, value: str | None) -> _Grid | None:
    """The bytes behind a factor of an integer product: widened, perhaps minus a zero point."""
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
    return _Grid(np.ones(()), np.zeros((), np.int64), dtype, 0, offset)


def _grid(graph: Graph, value: str | None) -> _Grid | None:
    """The 8-bit grid that `value` was dequantised from, where it is known."""
    node = graph.producers.get(value or "")
    if node is None or node.op.kind != "DequantizeLinear":
        return None
    known = [None if v is None else graph.constants.get(v) for v in node.inputs[1:]]
    dtype = graph.types[node.inputs[0] or ""].dtype.numpy
    if known[0] is None or dtype.itemsize != 1 or node.op.attributes().get("block_size"):
        return None
    if len(node.inputs) > 2 and node.inputs[2] is not None and known[1] is None:
        return None
    zero = known[1] if len(known) > 1 and known[1] is not None else np.zeros((), dtype)
    axis = node.op.axis if isinstance(node.op, DequantizeLinear) else 1
    return _Grid(known[0].astype(np.float64), zero.astype(np.int64), dtype, axis)


def _integers(x: np.ndarray, grid: _Grid) -> np.ndarray:
    """The integers that dequantised floats came from."""
    lanes = [-1 if a == grid.axis % max(x.ndim, 1) else 1 for a in range(x.ndim)]
    scale, zero = (
        p.reshape(lanes) if p.size > 1 else p.reshape(()) for p in (grid.scale, grid.zero)
    )
    return np.rint(np.asarray(x, np.float64) / scale).astype(np.int64) + zero


def _factors_known(graph: Graph, node: Node) -> tuple[_Grid, _Grid] | None:
    """Grids of the data and of signed weights; those of integer products count as scaled by one."""
    if node.op.kind.endswith("Integer"):
        types = [graph.types[v or ""].dtype.numpy for v in node.inputs[:2]]
        if any(t.itemsize != 1 for t in types):
            return None
        one = np.ones(())
        data, weights = (_Grid(one, np.zeros((), np.int64), t, 0) for t in types)
    else:
        whole = not graph.types[node.outputs[0]].dtype.is_float
        first, second = ((_bytes if whole else _grid)(graph, v) for v in node.inputs[:2])
        if first is None or second is None:
            return None
        data, weights = first, second
    return (data, weights) if weights.dtype == np.int8 and data.scale.size == 1 else None


def _lost(
    graph: Graph,
    node: Node,
    arrays: Sequence[Any],
    way: Way,
    scalars: Mapping[str, np.ndarray],
) -> np.ndarray | None:
    """What the arithmetic adds to the node's result; None where it cannot be known."""
    grids = _factors_known(graph, node)
    if grids is None or arrays[0].ndim < 2 or arrays[1].ndim < 2:
        return None
    data, weights = (_integers(a, g) for a, g in zip(arrays, grids))
    shift = 128 if grids[0].dtype == np.int8 else 0
    zero = int(grids[0].zero.ravel()[0]) + shift
    if grids[0].offset:  # only centred integers are there
        if grids[0].offset not in scalars or scalars[grids[0].offset].size != 1:
            return None
        zero += int(np.ravel(scalars[grids[0].offset])[0])
        data = data + zero - shift
    if grids[1].offset and grids[1].offset not in scalars:
        return None
    if grids[1].offset:
        weights = weights + scalars[grids[1].offset].astype(np.int64)
    raw = data + shift
    if node.op.kind in ("Conv", "ConvInteger"):
        if node.op.kind == "ConvInteger" and len(arrays) > 2 and arrays[2] is not None:
            zero = int(np.ravel(arrays[2])[0]) + shift
        if shift and (way.halved == "signed" or (way.halved == "centred" and zero == shift)):
            change = 2 * np.rint(weights / 2) - weights
            lost = _plain(node.op).reference(_NOTHING, (raw - zero).astype(np.float64), change)
        else:
            lost = _lost_by_convolution(node.op, raw, weights, zero, way.pairs)
        lanes: tuple[int, ...] = (1, -1, *(1,) * (raw.ndim - 2))
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


def _plain(op: Any) -> Conv:
    """The convolution of floats over the windows of `op`."""
    return Conv(
        kernel_shape=op.kernel_shape,
        strides=op.strides,
        pads=op.pads,
        dilations=op.dilations,
        groups=op.groups,
    )


def _lost_by_convolution(
    op: Any, raw: np.ndarray, w: np.ndarray, zero: int, pairs: str
) -> np.ndarray | None:
    """Padding holds the zero point where a window's terms lie in a row, and is left out where they
    are taken by position."""
    windows = _plain(op).geometry(w.shape[2:]).windows(raw.shape[2:])
    n, groups, channels = raw.shape[0], op.groups, w.shape[1]
    if float(n) * w.size * float(np.prod(windows.output, dtype=np.float64)) > MOST_TERMS:
        return None
    if op.groups == raw.shape[1] == w.shape[0]:
        return np.zeros((n, w.shape[0], *windows.output))  # a kernel of its own, exact everywhere
    if not can_pad(windows, raw):
        return None
    padded = windows.pad(raw, zero if pairs == "in a row" else 0)
    padded = padded.reshape(n, groups, channels, *padded.shape[2:])
    weights = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    lost = np.zeros((n, groups, weights.shape[1], *windows.output))
    lanes = (1,) * windows.rank
    for one, other in _pairs(windows, channels, pairs):
        first, second = (weights[:, :, c][over_spatial(p)] for c, p in (one, other))
        may = _may_saturate(first, second)
        for g in np.flatnonzero(may.any(axis=1)):
            some = np.flatnonzero(may[g])
            seen = [windows.tap(padded[:, g, c], p)[:, None] for c, p in (one, other)]
            factors = [v[g, some].reshape(1, -1, *lanes) for v in (first, second)]
            lost[:, g, some] += _excess(seen[0] * factors[0] + seen[1] * factors[1])
    return lost.reshape(n, w.shape[0], *windows.output)


_Term = tuple[int, tuple[int, ...]]


def _pairs(windows: Any, channels: int, pairs: str) -> Iterator[tuple[_Term, _Term]]:
    """Terms (channel, position) of a window that are added in 16 bits, channels last."""
    if pairs == "in a row":
        terms = [(c, p) for p in windows.positions() for c in range(channels)]
        yield from zip(terms[::2], terms[1::2])
        return
    for p in windows.positions():
        for c in range(0, channels - 1, 2):
            yield (c, p), (c + 1, p)
