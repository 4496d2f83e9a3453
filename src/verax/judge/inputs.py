"""Inputs for a check, drawn when none are given: seeded, of the declared type, stated in words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

import numpy as np

from verax.base.errors import UsageError
from verax.ir.dim import DimLike, symbols
from verax.ir.dim_forms import substitute
from verax.ir.graph import Graph, Node
from verax.ir.pixels import IMAGE_CHANNELS, Pixels
from verax.ir.types import NARROW_INTEGERS, DType, TensorType
from verax.ops.recurrent.recurrent import LENGTHS, Recurrent
from verax.records.codec import MOST

BATCH, SPATIAL, LENGTH = 2, (64, 96, 32), 7
"""Sizes for symbols: the first axis, spatial axes of images and volumes, any other axis."""
INTEGERS = 10
"""Integers are drawn below this, unless they index a table."""
HANDED_ON = frozenset(
    ["Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose", "Concat"]
)
"""What may be done to positions before they index something, and to bytes before they are read."""
QUANTITIES = frozenset(
    ("ConvInteger", "ConvTransposeInteger", "DequantizeLinear", "MaxPool", "AveragePool", "Resize",
     "Conv", "MatMul", "Gemm", "Add", "Sub", "Mul", "Div", "LookupTable")
)  # fmt: skip
"""Operators whose first inputs are amounts: pixels, samples, quantized values."""
MASK = re.compile(r"(^|[^a-z])mask($|[^a-z])", re.IGNORECASE)
"""Names of integer inputs [rows, length] that say which positions count: 1 where they do."""
INITIAL = "the state's initial value"
"""Where the state of a network that remembers comes from."""


def choose_sizes(graph: Graph, fixed: Mapping[str, int] | None = None) -> dict[str, int]:
    """A size for every symbol of the inputs' types; sizes in `fixed` take precedence."""
    sizes = dict(fixed or {})
    for name in graph.inputs:
        type_ = graph.types[name]
        for axis, dim in enumerate(type_.dims):
            for symbol in sorted(symbols(dim)):
                sizes.setdefault(symbol, _within(graph, symbol, _size(type_, axis)))
    return sizes


def _within(graph: Graph, symbol: str, size: int) -> int:
    """The size, or the end of the symbol's bounds that is nearest to it."""
    low, high = graph.bounds.get(symbol, (0, None))
    return max(low, size if high is None else min(size, high))


def _size(type_: TensorType, axis: int) -> int:
    if axis == 0:
        return BATCH
    if type_.rank >= 4 and type_.dtype.is_float and axis >= 2:
        return SPATIAL[min(axis - 2, len(SPATIAL) - 1)]
    return LENGTH


def require_seed(seed: int) -> None:
    """Raise `UsageError` for a seed that a record could not hold, or that nothing is drawn from."""
    if not 0 <= seed < MOST:
        raise UsageError(
            f"a seed is a whole number from 0 to {MOST - 1}",
            next_step="leave it out for 0, or take any smaller one",
        )


def _require_symbols(graph: Graph, sizes: Mapping[str, int]) -> None:
    open_sizes = graph.symbols()
    for symbol in sizes:
        if symbol not in open_sizes:
            raise UsageError(
                f"no input has a size {symbol!r}",
                place=graph.name,
                next_step=f"open are {', '.join(sorted(open_sizes)) or 'none: all are stated'}",
            )


def draw_inputs(
    graph: Graph,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    pixels: Mapping[str, Pixels] | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays by input name, and how each was drawn, in words.

    Floating-point tensors are normal; those shaped like images are smooth with fine detail, in
    0 to 1, or in the range that `pixels` has for them. Integers that index a table stay inside it;
    masks of rows, as their names say, are ones and then zeros. State has its initial value.
    sizes: for symbols; see `choose_sizes`. Raises `UsageError` for a size of a symbol that no input
    has.
    """
    require_seed(seed)
    _require_symbols(graph, sizes or {})
    symbol_sizes = choose_sizes(graph, sizes)
    random = np.random.default_rng(seed)
    arrays, origins = {}, {}
    for name in graph.inputs:
        if name in graph.initial:
            arrays[name], origins[name] = graph.initial[name], INITIAL
            continue
        type_ = graph.types[name].substitute(symbol_sizes)
        stated_pixels = (pixels or {}).get(name)
        if stated_pixels is not None and stated_pixels.is_normalized and type_.dtype.is_float:
            arrays[name], words = _stated(stated_pixels, type_, random)
        else:
            arrays[name], words = _draw(graph, name, type_, random, symbol_sizes)
        stated = [f"{s} = {symbol_sizes[s]}" for s in sorted(graph.types[name].symbols())]
        origins[name] = f"drawn with seed {seed}: " + "; ".join([words, *stated])
    return arrays, origins


def untelling(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Sentences on floating-point inputs that hide mistakes: one number everywhere, or the same
    array with two axes exchanged, one read backwards, or at each index."""
    return [
        f"input {name!r} {symmetry}: {hidden} would not show here"
        for name, array in arrays.items()
        if array.dtype.kind == "f" and array.size > 1
        for symmetry, hidden in itertools.islice(_symmetries(array), 1)
    ]


def _symmetries(array: np.ndarray) -> Iterator[tuple[str, str]]:
    """Yield (the array's symmetry, the mistake that it hides), the plainest first."""
    if (array == array.flat[0]).all():
        yield (
            f"is {array.flat[0]:g} everywhere",
            "another layout, order of channels or place of what is read",
        )
    long = [a for a, n in enumerate(array.shape) if n > 1]
    for axis in long:
        first = np.take(array, [0], axis)
        if np.array_equal(np.broadcast_to(first, array.shape), array):
            yield (
                f"is the same at every place of axis {axis}",
                f"a mistake of places along axis {axis}",
            )
    for a, b in itertools.combinations(long, 2):
        if array.shape[a] == array.shape[b] and np.array_equal(array, array.swapaxes(a, b)):
            yield f"is symmetric in axes {a} and {b}", "their exchange"
    for axis in long:
        if np.array_equal(array, np.flip(array, axis)):
            yield f"is the same read backwards along axis {axis}", "a reversal"


def _draw(
    graph: Graph,
    name: str,
    type_: TensorType,
    random: np.random.Generator,
    symbol_sizes: Mapping[str, int],
) -> tuple[np.ndarray, str]:
    shape, dtype = type_.shape, type_.dtype
    if dtype is DType.bool_:
        return random.integers(0, 2, shape).astype(bool), "fair coin"
    if not dtype.is_float and len(shape) == 2 and MASK.search(name):
        length = shape[1]
        ends = random.integers(min(length // 2 + 1, length), length + 1, (shape[0], 1))
        ends[:1] = min(ends[:1, 0].max(initial=1), max(length - 1, 1))  # the first row ends early
        mask = np.arange(length) < ends
        return mask.astype(dtype.numpy), "a mask: ones, then zeros where a row ends"
    if dtype in (DType.int8, DType.uint8) and _is_quantity(graph, name):
        return _bytes(type_, random)
    if not dtype.is_float:
        limit = min(
            _table_size(graph, name, symbol_sizes), dtype.ends[1] + (dtype in NARROW_INTEGERS)
        )
        return random.integers(0, limit, shape).astype(dtype.numpy), f"integers below {limit}"
    if _is_image(shape):
        return _image(shape, random).astype(dtype.numpy), "smooth random image, 0 to 1"
    return random.standard_normal(shape).astype(dtype.numpy), "standard normal"


def _is_quantity(graph: Graph, name: str) -> bool:
    """True if a node reads the input as an amount, and none as an index."""
    readers = list(_readers(graph, name))
    if any(len(n.inputs) > 1 and n.inputs[1] == v and _indexed(graph, n) for v, n in readers):
        return False
    return any(n.op.kind in QUANTITIES and n.inputs[0] == v for v, n in readers)


def _readers(graph: Graph, name: str) -> Iterator[tuple[str, Node]]:
    """Yield (value, node) for each node that reads an input, or a copy or cast of it."""
    waiting, seen = [name], {name}
    while waiting:
        value = waiting.pop()
        for node in graph.consumers.get(value, ()):
            yield value, node
            if node.op.kind in HANDED_ON:
                waiting += [v for v in node.outputs if v not in seen]
                seen.update(node.outputs)


def _bytes(type_: TensorType, random: np.random.Generator) -> tuple[np.ndarray, str]:
    """int8 or uint8 numbers of the whole range: a smooth image if the shape is an image's."""
    shape, info = type_.shape, np.iinfo(type_.dtype.numpy)
    last = _is_image(shape, last=True)
    if last or _is_image(shape):
        image = _image(_channels_first(shape, last), random)
        image = np.rint(image * (info.max - info.min) + info.min)
        words = f"smooth random image, {info.min} to {info.max}"
        return _laid_out(image, last).astype(info.dtype), words
    numbers = random.integers(info.min, int(info.max) + 1, shape)
    return numbers.astype(info.dtype), f"integers from {info.min} to {info.max}"


def _stated(
    pixels: Pixels, type_: TensorType, random: np.random.Generator
) -> tuple[np.ndarray, str]:
    """A smooth random image in the range that the file states."""
    last = pixels.layout is not None and pixels.layout.endswith("C")
    shape = (1,) * (4 - type_.rank) + type_.shape
    image = _image(_channels_first(shape, last), random)
    low, high = (
        (0.0, 1.0) if pixels.low is None or pixels.high is None else (pixels.low, pixels.high)
    )
    image = low + image * (high - low)
    for step, values in ((np.subtract, pixels.mean), (np.divide, pixels.std)):
        if len(values) in (1, image.shape[1]):
            image = step(image, np.reshape(values, (1, -1, 1, 1)))
    words = f"smooth random image as the file says: {pixels.to_text()}"
    return _laid_out(image, last).reshape(type_.shape).astype(type_.dtype.numpy), words


def _is_image(shape: tuple[int, ...], *, last: bool = False) -> bool:
    """True for four axes of which the channels' (the second; the last) is as long as an image's,
    and those of rows and columns are long enough to hold a picture."""
    if len(shape) != 4:
        return False
    _, channels, *extents = _channels_first(shape, last)
    return channels in IMAGE_CHANNELS and min(extents) >= 8


def _channels_first(shape: tuple[int, ...], last: bool) -> tuple[int, ...]:
    """A shape whose channels are the last axis, or the second already, as [n, c, height, width]."""
    return (shape[0], shape[-1], *shape[1:-1]) if last else shape


def _laid_out(image: np.ndarray, last: bool) -> np.ndarray:
    """Images [n, c, height, width] with their channels last, or as they are."""
    return image.transpose(0, 2, 3, 1) if last else image


def _image(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Random waves plus fine noise, every channel and image different, between 0 and 1."""
    n, c, height, width = shape
    y, x = np.linspace(0, 1, height)[:, None], np.linspace(0, 1, width)
    waves = np.zeros(shape)
    for _ in range(6):
        frequency = random.uniform(0.5, 6.0, (2, n, c, 1, 1))
        phase = random.uniform(0, 2 * np.pi, (n, c, 1, 1))
        waves += np.sin(2 * np.pi * (frequency[0] * y + frequency[1] * x) + phase)
    waves += 0.5 * random.standard_normal(shape)
    low, high = waves.min(axis=(2, 3), keepdims=True), waves.max(axis=(2, 3), keepdims=True)
    return (waves - low) / (high - low)


def _table_size(graph: Graph, name: str, symbol_sizes: Mapping[str, int]) -> int:
    """Positions of the smallest axis that the input indexes, else a small default; one more than
    the steps of a sequence whose length it is."""
    sizes: list[int] = []
    for value, node in _readers(graph, name):
        if isinstance(node.op, Recurrent) and node.inputs[LENGTHS : LENGTHS + 1] == (value,):
            steps = graph.types[str(node.inputs[0])].dims[node.op.layout]
            steps = substitute(steps, symbol_sizes)
            sizes += [steps + 1] if isinstance(steps, int) else []
        elif len(node.inputs) > 1 and node.inputs[1] == value:
            sizes += [d for d in _indexed(graph, node) if isinstance(d, int)]
    return max(1, min(sizes, default=INTEGERS))


def _indexed(graph: Graph, node: Node) -> tuple[DimLike, ...]:
    """Sizes of the axes of its first input that a node's second input holds positions on."""
    table, index = (graph.types[v] for v in node.inputs[:2] if v is not None)
    if node.op.kind in ("Gather", "GatherElements", "ScatterElements"):
        return (table.dims[getattr(node.op, "axis", 0)],) if table.rank else ()
    if node.op.kind in ("GatherND", "ScatterND") and index.rank:
        depth = index.dims[-1]
        first = int(getattr(node.op, "batch_dims", 0))
        return table.dims[first : first + depth] if isinstance(depth, int) else ()
    return ()
