"""The table of ATen operators, its entry, and `Aten`: a node's arguments as rows read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Row
from verax.frontends.common.ledger import show
from verax.frontends.torch.arguments import Ref
from verax.ir.operator import Operator
from verax.ir.types import DType, TensorType

Result = Operator | str | tuple[str, ...]
AtenRow = Callable[["Aten"], Result]
TABLE: dict[tuple[str, str], Row] = {}
"""Rows by (domain, operator.overload)."""

OTHER_NAMES = {
    **{"multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div"},
    **{"greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le"},
    **{"not_equal": "ne", "negative": "neg", "absolute": "abs", "clip": "clamp"},
    **{"arctan": "atan", "arcsin": "asin", "arccos": "acos", "arctanh": "atanh"},
    **{"arcsinh": "asinh", "arccosh": "acosh", "concat": "cat", "concatenate": "cat"},
    **{"swapdims": "transpose", "moveaxis": "movedim", "fix": "trunc"},
}
"""PyTorch's other names of operators that have the same overloads and arguments."""
NO_MEANING = "it chooses where or how a tensor is stored, not what is in it"


def row(*operators: str, domain: str = "aten") -> Callable[[AtenRow], AtenRow]:
    """Enter a function as the row of operators, each given as "name.overload"."""

    def enter(function: AtenRow) -> AtenRow:
        for name in operators:
            assert (domain, name) not in TABLE, name
            TABLE[domain, name] = lambda c: function(Aten(c))
        return function

    return enter


def enter_other_names() -> None:
    """Rows of operators serve their other names as well, once all rows are entered."""
    for (domain, name), function in list(TABLE.items()):
        kind, _, overload = name.partition(".")
        if domain == "aten":
            for new in (n for n, old in OTHER_NAMES.items() if old == kind):
                TABLE[domain, f"{new}.{overload}"] = function


class Aten:
    """A node's arguments by name. Values of the graph are given as their names."""

    def __init__(self, c: Conversion) -> None:
        self.c = c
        self.a = c.attributes

    @property
    def kind(self) -> str:
        """The operator without its overload, under its first name."""
        kind = self.c.node.op_type.partition(".")[0]
        return OTHER_NAMES.get(kind, kind)

    def wrong(self, name: str, value: object, wanted: str) -> NoReturn:
        """Raise `ModelError` for an argument of another kind."""
        raise ModelError(
            f"the argument {name} = {show(value)} should be {wanted}", place=self.c.node.place
        )

    def type(self, value: str) -> TensorType:
        return self.c.builder.types[value]

    def rank(self, value: str) -> int:
        return self.type(value).rank

    # Tensors

    def tensor(self, name: str) -> str:
        """A required tensor. Raises `ModelError` when it is missing or no tensor."""
        value = self.maybe(name)
        if value is None:
            raise ModelError(f"the argument {name} is missing", place=self.c.node.place)
        return value

    def maybe(self, name: str) -> str | None:
        """An optional tensor."""
        value = self.a.get(name)
        if value is None:
            return None
        if not isinstance(value, Ref):
            self.wrong(name, value, "a tensor")
        return self._value(value)

    def tensors(self, name: str) -> list[str | None]:
        """A list of tensors, None where one is left out."""
        value = self.a.get(name, ())
        if not isinstance(value, tuple) or not all(v is None or isinstance(v, Ref) for v in value):
            self.wrong(name, value, "a list of tensors")
        return [None if v is None else self._value(v) for v in value]

    def _value(self, ref: Ref) -> str:
        return self.c.required(ref.index)

    def constant_of(self, value: str | None) -> np.ndarray | None:
        """The array of a constant."""
        return None if value is None else self.c.builder.constants.get(value)

    # Numbers

    def integer(self, name: str, default: Any = None) -> Any:
        """An integer, also a symbolic one whose value is known."""
        value = self.a.get(name, default)
        if isinstance(value, Ref):
            value = self._known(value, name)
        if value is not None and type(value) is not int:
            self.wrong(name, value, "an integer")
        return value

    def number(self, name: str, default: Any = None) -> Any:
        """A number in double precision, as torch keeps it."""
        value = self.a.get(name, default)
        if value is not None and type(value) not in (int, float, bool):
            self.wrong(name, value, "a number")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.a.get(name, default)
        if type(value) is not bool:
            self.wrong(name, value, "true or false")
        return value

    def text(self, name: str, default: Any = None) -> Any:
        value = self.a.get(name, default)
        if value is not None and not isinstance(value, str):
            self.wrong(name, value, "text")
        return value

    def integers(self, name: str, default: Any = None, rank: int = 0) -> Any:
        """A tuple of integers; with `rank`, a single one stands for that many."""
        value = self.a.get(name, default)
        if value is None:
            return None
        items = value if isinstance(value, tuple) else (value,)
        found = tuple(self._known(v, name) if isinstance(v, Ref) else v for v in items)
        if not all(type(v) is int for v in found):
            self.wrong(name, value, "integers")
        if rank and len(found) == 1:
            found *= rank
        if rank and found and len(found) != rank:
            self.wrong(name, value, f"{rank} integers")
        return found

    def numbers(self, name: str) -> Any:
        """A tuple of numbers, or None."""
        value = self.a.get(name)
        if value is None:
            return None
        if not isinstance(value, tuple) or not all(type(v) in (int, float) for v in value):
            self.wrong(name, value, "numbers")
        return value

    def _known(self, ref: Ref, name: str) -> int:
        value = self.c.constant_input(ref.index, f"the argument {name}")
        return int(value.reshape(()))

    def sizes(self, name: str) -> str:
        """A list of integers, some perhaps symbolic, as an int64 vector of the graph."""
        value = self.a.get(name, ())
        items = value if isinstance(value, tuple) else (value,)
        return self.vector(items)

    def vector(self, items: Sequence[Any]) -> str:
        """Integers and `Ref`s as an int64 vector of the graph."""
        if all(type(v) is int for v in items):
            return self.c.ints(items)
        parts: list[str | None] = []
        for item in items:
            if isinstance(item, Ref):
                parts.append(self.add("Unsqueeze", [self._value(item), self.c.ints([0])]))
            elif type(item) is int:
                parts.append(self.c.ints([item]))
            else:
                raise ModelError(f"{item!r} is no size", place=self.c.node.place)
        return self.add("Concat", parts, axis=0)

    def axis(self, name: str, value: str, default: Any = None) -> int:
        """An axis of `value`, counted from the front."""
        rank = max(self.rank(value), 1)
        found = self.integer(name, default)
        if found is None or not -rank <= found < rank:
            raise ModelError(f"{name} = {found} is no axis of rank {rank}", place=self.c.node.place)
        return int(found) % rank

    def irrelevant(self, *names: str, reason: str = NO_MEANING) -> None:
        """State that arguments cannot change what is computed."""
        for name in names:
            self.a.irrelevant(name, reason)

    # Building

    def op(self, kind: str, **fields: Any) -> Operator:
        return self.c.operator(kind, **fields)

    def add(self, kind: str, inputs: Sequence[str | None], **fields: Any) -> str:
        """Append an inner node; returns its value."""
        return self.c.add(kind, inputs, **fields)

    def result(self, kind: str, inputs: Sequence[str | None], **fields: Any) -> tuple[str, ...]:
        """Append the node that makes this node's outputs."""
        return self.c.result(kind, inputs, **fields)

    def output(self, index: int, kind: str, inputs: Sequence[str | None], **fields: Any) -> str:
        """Append the node that makes this node's output `index` alone."""
        op, name = self.op(kind, **fields), self.name_of(index)
        return self.c.builder.add(op, inputs, [name], self.c.node.name)

    def name_of(self, index: int) -> str:
        """The name of this node's output `index`; a new one when it has none."""
        names = self.c.node.outputs
        given = names[index] if index < len(names) else ""
        return given or self.c.fresh(f"{self.c.first_output}.{index}")

    def each(
        self, kind: str, inputs: Sequence[Sequence[str | None]], **fields: Any
    ) -> tuple[str, ...]:
        """One node per output of this node, each on inputs of its own."""
        return tuple(self.output(i, kind, given, **fields) for i, given in enumerate(inputs))

    def constant(self, value: Any, dtype: Any = None) -> str:
        return self.c.constant(value, dtype)

    def ints(self, values: Sequence[int]) -> str:
        return self.c.ints(values)

    def cast(self, value: str, dtype: DType) -> str:
        """`value` in `dtype`; itself when it is in it already."""
        if self.type(value).dtype == dtype:
            return value
        return self.add("Cast", [value], to=dtype)

    def batched(self, x: str, rank: int) -> tuple[str, bool]:
        """`x` with a batch axis in front, and whether that had to be added."""
        if self.rank(x) == rank:
            return x, False
        if self.rank(x) != rank - 1:
            self.c.refuse(f"its input has rank {self.rank(x)}")
        return self.add("Unsqueeze", [x, self.ints([0])]), True

    def unbatched(
        self, kind: str, inputs: Sequence[str | None], added: bool, **fields: Any
    ) -> tuple[str, ...]:
        """The node's result, its batch axis removed again when it was added."""
        if not added:
            return self.result(kind, inputs, **fields)
        y = self.add(kind, inputs, **fields)
        return self.result("Squeeze", [y, self.ints([0])])
