"""Foreign model -> `Model`, for every format: walks over the foreign nodes and lets a table's rows
convert each.

Everything unsupported is listed at once, before anything is converted. Sizes that the file leaves
open become symbols unless the user gives them; types that the file records are held against the
inferred ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from verax.base.errors import GraphError, ModelError, UnsupportedError, UsageError
from verax.frontends.common.context import (
    Conversion,
    Row,
    RunningDecidesError,
    ValueNeededError,
    convert,
)
from verax.frontends.common.control import (
    Control,
    KeptBranch,
    KeptRepeat,
    unfold,
)
from verax.frontends.common.control_nodes import ROWS
from verax.frontends.common.foreign import MAX_NODES, ForeignModel, ForeignNode, ForeignValue
from verax.frontends.common.ledger import Attributes, Ledger
from verax.frontends.common.open_sizes import advice
from verax.frontends.common.stated_sizes import (
    Bounds,
    Shapes,
    StatedSizes,
    size_text,
    stated_rank,
    symbol_of,
    within,
)
from verax.frontends.common.subgraphs import Scope, keep, scope_of
from verax.frontends.common.wide_borders import take_wide_borders
from verax.frontends.model import Model
from verax.ir.dim import DimLike, symbol, symbols
from verax.ir.dim_forms import parse_dim, substitute
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.pointwise.identity import Identity

MAX_ELEMENTS = 1 << 40
"""Elements that one tensor may have."""
LISTED = 8
"""Places that an error names."""


class Importer:
    """One import. A format whose nodes may stand for other nodes overrides `can_convert` and
    `expand`.

    table: rows by (domain, operator). shapes: sizes for what the file leaves open, as
    `stated_sizes` reads them. values: inputs to be made constants.
    """

    def __init__(
        self,
        foreign: ForeignModel,
        table: Mapping[tuple[str, str], Row],
        shapes: Shapes | None = None,
        values: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.foreign, self.table = foreign, {**ROWS, **table}
        self.shapes, self.values = shapes or {}, values or {}
        self.builder = Builder(foreign.name)
        self.ledger = Ledger()
        self.metadata = dict(foreign.metadata)
        self.names: dict[str, str] = {}
        self.bounds: dict[str, Bounds] = {}
        """Stated for symbols that stay open."""
        self._last_suffixes: dict[str, int] = {}
        self.used_names = {*foreign.constants, *(v.name for v in foreign.inputs)}
        self.used_names.update(o for node in foreign.nodes for o in node.outputs)

    @property
    def scope(self) -> Scope:
        """What bodies of branches and loops see. Not held: it refers to the import, and the arrays
        of a file would stay until the cycle is found."""
        return scope_of(self)

    def can_convert(self, node: ForeignNode) -> bool:
        """Whether the node has a row or can be expanded."""
        is_control = isinstance(node, Control)
        return is_control or (node.domain, node.op_type) in self.table

    def expand(self, node: ForeignNode) -> list[ForeignNode] | None:
        """The nodes that `node` stands for, None when its row is to convert it."""
        nodes = unfold(node, self.scope)
        if nodes is not None:
            self.refuse_unsupported(nodes, f"inside {node.place}")
        return nodes

    def run(self, source: str, format: str) -> Model:
        """Convert every node. `format` is the model's, with version, for the reader.

        Raises `UnsupportedError` listing every operator without a row, `ModelError` for a file
        that contradicts itself, `UsageError` for shapes that do not fit.
        """
        self._check_names()
        self.refuse_unsupported(self.foreign.nodes, "")
        self._inputs()
        for name, array in self.foreign.constants.items():
            self._constant(name, array)
        try:
            self.convert_nodes(self.foreign.nodes)
        except UnsupportedError as error:
            raise self._naming_open_sizes(error) from error
        outputs = [v for declared in self.foreign.outputs for v in self.outputs_of(declared.name)]
        self._updates_must_fit()
        graph = self.builder.graph(outputs, self.foreign.updates, self.foreign.initial)
        graph, replaced = take_wide_borders(graph)
        if self.bounds:
            graph = dataclasses.replace(graph, bounds=self.bounds)
        _must_have_room(graph.types)
        modules = {
            replaced.get(self.names[v], self.names[v]): call
            for v, call in self.foreign.modules.items()
        }
        return Model(graph, self.ledger, format, source, self.metadata, modules)

    def _naming_open_sizes(self, error: UnsupportedError) -> UnsupportedError:
        """The same error; if its next step is --shape, with the sizes that the file leaves open."""
        open_sizes = advice({v: self.builder.types[v] for v in self.builder.inputs})
        if "--shape" not in (error.next_step or "") or not open_sizes:
            return error
        return type(error)(
            error.cause, place=error.place, next_step=f"{error.next_step}; {open_sizes}"
        )

    def convert_nodes(self, nodes: Sequence[ForeignNode]) -> None:
        """Convert nodes and what they stand for, in order."""
        refusals: list[UnsupportedError] = []
        lost: set[str] = set()
        pending = list(reversed(nodes))
        done = 0
        while pending:
            node = pending.pop()
            done += 1
            if done + len(pending) > MAX_NODES:
                raise ModelError(f"the model has more than {MAX_NODES} nodes once inlined")
            if not lost.isdisjoint(node.inputs):
                lost.update(node.outputs)
                continue
            try:
                expanded = self.expand(node)
                if expanded is None:
                    self._convert(node)
                else:
                    pending.extend(reversed(expanded))
            except UnsupportedError as error:
                refusals.append(error)
                lost.update(o for o in node.outputs if o)
        if refusals:
            raise _together(refusals)

    def _check_names(self) -> None:
        """Refuse a model without outputs, and names that are no valid Unicode."""
        foreign = self.foreign
        if not foreign.outputs:
            raise ModelError(
                "the model has no outputs",
                next_step="it may be empty, or everything in it is read by something else",
            )
        names = [*foreign.constants, *(v.name for v in (*foreign.inputs, *foreign.outputs))]
        names += [text for n in foreign.nodes for text in (n.name, *n.inputs, *n.outputs)]
        try:
            "\n".join(names).encode()
        except UnicodeEncodeError as error:
            excerpt = error.object[max(0, error.start - 20) : error.end + 20]
            raise ModelError(f"a name is not valid text: {excerpt!a}") from error

    def fresh(self, hint: str) -> str:
        """A name that neither the graph nor any part of the file uses."""
        i = self._last_suffixes.get(hint, 0)
        name = f"{hint}_{i}" if i else hint
        while name in self.used_names or name in self.builder.types:
            i += 1
            name = f"{hint}_{i}"
        self.used_names.add(name)
        self._last_suffixes[hint] = i
        return name

    # Inputs and dimensions

    def _inputs(self) -> None:
        self._require_ranks()
        declared = {v.name: self._input_dims(v) for v in self.foreign.inputs}
        if nowhere := sorted(set(self.values) - set(declared)):
            raise UsageError(
                f"a value is given for {nowhere[0]!r}, which is no input of the model",
                next_step=f"its inputs are {', '.join(declared) or 'none'}",
            )
        fixed = {v: np.shape(array) for v, array in self.values.items()}
        stated = StatedSizes(self.shapes, declared, fixed)
        symbol_names: dict[str, str] = {}
        for value in self.foreign.inputs:
            dims = []
            for axis, dim in enumerate(declared[value.name]):
                size = _dim(dim, stated.key_of(value.name, axis), stated, symbol_names)
                bounds = stated.bounds_of(stated.key_of(value.name, axis))
                self._check_size(dim, size, bounds, value.name, axis)
                if bounds is not None and not isinstance(size, int):
                    self.bounds[str(size)] = bounds
                dims.append(size)
            assert value.dtype is not None
            type_ = TensorType(value.dtype, tuple(dims))
            if value.name in self.values:
                self._constant(value.name, _as_declared(self.values[value.name], type_))
                _check_type(type_, self.builder.types[value.name], f"value for {value.name!r}")
            else:
                self.names[value.name] = self.builder.input(value.name, type_)

    def _input_dims(self, value: ForeignValue) -> tuple[int | str | None, ...]:
        location = f"input {value.name!r}"
        if value.dtype is None:
            raise UnsupportedError(
                f"the input is {value.kind}, not a tensor of a supported type", place=location
            )
        if value.dims is not None:
            return value.dims
        if value.name in self.values:
            return tuple(np.shape(self.values[value.name]))
        rank = stated_rank(self.shapes[value.name])
        assert rank is not None
        return (None,) * rank

    def _require_ranks(self) -> None:
        """Raise `ValueNeededError` naming every input whose rank neither file nor caller states."""
        unknown = [
            value.name
            for value in self.foreign.inputs
            if value.dtype is not None and value.dims is None and value.name not in self.values
            and stated_rank(self.shapes.get(value.name)) is None
        ]  # fmt: skip
        if unknown:
            one = unknown[0]
            named = ", ".join(repr(name) for name in unknown[:LISTED])
            raise ValueNeededError(
                "the file does not say how many dimensions "
                + ("the input has" if len(unknown) == 1 else f"{len(unknown)} inputs have"),
                place=f"input {named}",
                next_step=f"give each shape, e.g. shapes={{{one!r}: (1, 3, 224, 224)}} in Python, "
                f"--shape {one}=1x3x224x224 on the command line",
            )

    def _check_size(
        self, dim: int | str | None, size: DimLike, bounds: Bounds | None, name: str, axis: int
    ) -> None:
        """Refuse sizes that the file does not allow; note the allowed ones of a dynamic size."""
        allowed = self.foreign.sizes.get(dim if isinstance(dim, str) else f"{name}.{axis}")
        if allowed is None:
            return
        if not isinstance(size, int):
            self.metadata[f"sizes of {size}"] = _allowed(allowed)
        if isinstance(size, int) and size not in allowed:
            message = f"size {size} is"
        elif bounds is not None and not any(within(n, bounds) for n in _ends(allowed, bounds)):
            message = f"sizes {size_text(bounds)} are"
        else:
            return
        raise UsageError(
            f"the {message} given for axis {axis}; the file allows {_allowed(allowed)}",
            place=f"input {name!r}",
        )

    def _constant(self, name: str, array: np.ndarray) -> None:
        self.names[name] = self.builder.constant(array, name)

    def outputs_of(self, name: str) -> list[str]:
        """Values of a model's output: one, unless a format says otherwise."""
        return [self._output(name)]

    def _output(self, name: str) -> str:
        """The value of a model output, which must bear its name."""
        if name not in self.names:
            raise ModelError(f"the output {name!r} is computed nowhere")
        value = self.names[name]
        return value if value == name else self.builder.add(Identity(), [value], [name])

    def _updates_must_fit(self) -> None:
        """What a model writes to keeps its type."""
        types = self.builder.types
        for name, new in self.foreign.updates.items():
            if types[name] != types[new]:
                raise UnsupportedError(
                    f"the model writes {types[new]} to it, and it is {types[name]}",
                    place=f"{'state' if name in self.foreign.initial else 'input'} {name!r}",
                    next_step="export the model with fixed shapes",
                )

    # Nodes

    def advice(self, missing: Sequence[ForeignNode]) -> str:
        """What to do about nodes that are not supported."""
        return "`verax ops` lists the supported operators"

    def refuse_unsupported(self, nodes: Sequence[ForeignNode], location: str) -> None:
        missing = Counter(node.operator for node in nodes if not self.can_convert(node))
        if missing:
            listed = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
            raise UnsupportedError(
                f"operators that are not supported: {listed}",
                place=location,
                next_step=self.advice([n for n in nodes if not self.can_convert(n)]),
            )

    def attributes(self, node: ForeignNode) -> Attributes:
        """The node's attributes, entered in the ledger as they are read."""
        return self.ledger.attributes(node.place, node.operator, node.attributes)

    def _convert(self, node: ForeignNode) -> None:
        if isinstance(node, KeptBranch | KeptRepeat):
            for name in filter(None, node.inputs):
                self._named(name, node)
            self.names.update(keep(self, node))
            return
        row = self.table.get((node.domain, node.op_type))
        if row is None:  # of a body, which is known once a loop or branch is taken apart
            self.refuse_unsupported([node], node.place)
            raise UnsupportedError(f"{node.operator} is not supported here", place=node.place)
        inputs = tuple(self._named(i, node) for i in node.inputs)
        conversion = Conversion(node, inputs, self.attributes(node), self.builder, self.fresh)
        results = convert(row, conversion)
        for name, value in zip(node.outputs, results):
            if name:
                self.names[name] = value
                self._check_declared(name, value, node)

    def _named(self, name: str, node: ForeignNode) -> str | None:
        """The graph's name of a foreign value; None for an omitted input."""
        if not name:
            return None
        if name not in self.names:
            raise ModelError(f"the input {name!r} is defined nowhere before", place=node.place)
        return self.names[name]

    def _check_declared(self, name: str, value: str, node: ForeignNode) -> None:
        """Compare the recorded type with the inferred one; recorded sizes replace dynamic ones."""
        declared = self.foreign.declared.get(name)
        if declared is None or declared.dtype is None:
            return
        inferred = self.builder.types[value]
        dims = list(inferred.dims)
        wrong = declared.dtype != inferred.dtype
        if declared.dims is not None:
            wrong |= len(declared.dims) != inferred.rank
            for axis, (declared_size, inferred_size) in enumerate(
                zip(declared.dims, inferred.dims)
            ):
                if isinstance(declared_size, int) and isinstance(inferred_size, int):
                    wrong |= declared_size != inferred_size
                elif isinstance(declared_size, int) and is_fresh(inferred_size):
                    dims[axis] = declared_size
        if wrong and not self.overrules(declared, inferred):
            printed_dims = "" if declared.dims is None else f"{list(declared.dims)}"
            raise ModelError(
                f"the file records {name!r} as {declared.dtype}{printed_dims}, it is {inferred}",
                place=node.place,
                next_step="the file contradicts itself; strip its value_info or export again",
            )
        if not wrong:
            self.builder.types[value] = inferred.with_dims(dims)

    def overrules(self, declared: ForeignValue, inferred: TensorType) -> bool:
        """Whether a recorded type that differs from the inferred one is merely not used, because
        the format's records bind nobody. A format where they are such says so by overriding."""
        return False


def _as_declared(value: object, type_: TensorType) -> np.ndarray:
    """A value that the user gave, in the input's type if that changes no number."""
    array = np.asarray(value)
    typed = array.astype(type_.dtype.numpy)
    return typed if np.array_equal(typed, array) else array


def _together(refusals: Sequence[UnsupportedError]) -> UnsupportedError:
    """One error that lists each cause once with its count."""
    first = refusals[0]
    if len(refusals) == 1:
        return first
    counts = Counter(error.cause for error in refusals)
    listed = "; ".join(f"{cause} ({count})" for cause, count in counts.items())
    locations = ", ".join(str(error.place) for error in refusals[:LISTED])
    more = f" and {len(refusals) - LISTED} more" if len(refusals) > LISTED else ""
    kinds = (RunningDecidesError, ValueNeededError, UnsupportedError)
    kind = next(k for k in reversed(kinds) if any(type(error) is k for error in refusals))
    return kind(listed, place=f"{locations}{more}", next_step=first.next_step)


def _must_have_room(types: Mapping[str, TensorType]) -> None:
    """Refuse tensors larger than any machine holds: only a damaged file has them."""
    for name, type_ in types.items():
        if math.prod(d for d in type_.dims if isinstance(d, int)) > MAX_ELEMENTS:
            raise ModelError(
                f"the dimensions of {type_} are absurdly large", place=f"value {name!r}"
            )


def _allowed(sizes: Collection[int]) -> str:
    """Allowed sizes in words."""
    if not isinstance(sizes, range) or not sizes:
        return "no size" if not sizes else " or ".join(str(n) for n in sorted(set(sizes)))
    return f"{sizes[0]} and more" if sizes[-1] >= MAX_ELEMENTS else f"{sizes[0]} to {sizes[-1]}"


def _ends(allowed: Collection[int], bounds: Bounds) -> Collection[int]:
    """Allowed sizes, one of which is within the bounds if any is."""
    if not isinstance(allowed, range) or not allowed:
        return allowed
    return (max(allowed[0], bounds[0]),) if bounds[0] <= allowed[-1] else ()


def is_fresh(dim: DimLike) -> bool:
    """Whether a size is one that only running can tell."""
    return any(name.startswith("_") for name in symbols(dim))


def _dim(
    dim: int | str | None, key: str, stated: StatedSizes, symbol_names: dict[str, str]
) -> DimLike:
    """A declared dimension: a number, an expression over declared names, or a symbol of its own."""
    if isinstance(dim, int):
        return dim
    if key in stated.numbers:
        return stated.numbers[key]
    if key in stated.names:
        return symbol(symbol_of(stated.names[key], symbol_names))
    expression = None if dim is None else _expression(dim)
    if expression is not None and symbols(expression) <= {*stated.numbers, *symbol_names}:
        values = {k: symbol(v) for k, v in symbol_names.items()}
        return substitute(expression, {**values, **stated.numbers})
    return symbol(symbol_of(key, symbol_names))


def _expression(text: str) -> DimLike | None:
    """A dimension like `2*n + 1`, None when the text is only a name or cannot be read."""
    if len(text) > 200 or text.isidentifier():
        return None
    try:
        return parse_dim(text)
    except GraphError:
        return None


def _check_type(declared: TensorType, actual: TensorType, location: str) -> None:
    fits = declared.dtype == actual.dtype and declared.rank == actual.rank
    if not fits or any(
        isinstance(substitute(d, {}), int) and d != f for d, f in zip(declared.dims, actual.dims)
    ):
        raise UsageError(f"{actual} is given, the model takes {declared}", place=location)
