"""The table of ATen operators, its entry, and `Aten`: a node's arguments as rows read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Applied, Conversion, Result, Row
from verax.frontends.common.ledger import Attributes, show
from verax.frontends.common.table import Table
from verax.frontends.torch.arguments import Ref
from verax.ir.types import DType

OTHER_NAMES = {
    **{"multiply": "mul", "subtract": "sub", "divide": "div"},
    **{"greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le"},
    **{"not_equal": "ne", "negative": "neg", "absolute": "abs", "clip": "clamp"},
    **{"arctan": "atan", "arcsin": "asin", "arccos": "acos", "arctanh": "atanh"},
    **{"arcsinh": "asinh", "arccosh": "acosh", "concat": "cat", "concatenate": "cat"},
    **{"moveaxis": "movedim", "fix": "trunc"},
}
"""PyTorch's other names of operators that have the same overloads and arguments."""
NO_MEANING = "it chooses where or how a tensor is stored, not what is in it"


def enter_other_names() -> None:
    """Rows of operators serve their other names as well, once all rows are entered."""
    for (domain, name), function in list(TABLE.items()):
        kind, _, overload = name.partition(".")
        if domain == "aten":
            for new in (n for n, old in OTHER_NAMES.items() if old == kind):
                TABLE[domain, f"{new}.{overload}"] = function


class Aten(Conversion):
    """A node's arguments by name. Values of the graph are given as their names."""

    @property
    def a(self) -> Attributes:
        return self.attributes

    @property
    def kind(self) -> str:
        """The operator without its overload, under its first name."""
        kind = self.node.op_type.partition(".")[0]
        return OTHER_NAMES.get(kind, kind)

    def wrong(self, name: str, value: object, expected: str) -> NoReturn:
        """Raise `ModelError` for an argument of another kind."""
        raise ModelError(
            f"the argument {name} = {show(value)} should be {expected}", place=self.node.place
        )

    # Tensors

    def cast(self, value: str, to: DType | str) -> str:
        """The value in an element type; itself when it is in it already."""
        dtype = DType(to)
        if self.type(value).dtype is dtype or not dtype.is_narrow:
            return super().cast(value, dtype)
        return self.append(self._narrowed(value, dtype))

    def converted(self, value: str, to: DType) -> Applied:
        """The value in another element type, for a row to return."""
        return self._narrowed(value, to) if to.is_narrow else self.apply("Cast", [value], to=to)

    def _narrowed(self, value: str, to: DType) -> Applied:
        """To a float of 8 bits by way of float32, as PyTorch rounds (2.13 on CPU): what is too
        large becomes the largest number of float8_e4m3fn, infinite or NaN in others. Powers of two
        (float8_e8m0fnu) lose their sign, and what is less than the least one becomes that."""
        value = super().cast(value, DType.float32)
        if to is DType.float8_e8m0fnu:
            smallest = self.constant(2.0**-127, np.float32)
            value = self.add("Max", [self.add("Abs", [value]), smallest])
        return self.apply(
            "Cast", [value], to=to, saturate=to is DType.float8_e4m3fn, round_mode="nearest"
        )

    def tensor(self, name: str) -> str:
        """A required tensor. Raises `ModelError` when it is missing or no tensor."""
        value = self.maybe(name)
        if value is None:
            raise ModelError(f"the argument {name} is missing", place=self.node.place)
        return value

    def maybe(self, name: str) -> str | None:
        """An optional tensor."""
        value = self.a.get(name)
        if value is None:
            return None
        if not isinstance(value, Ref):
            self.wrong(name, value, "a tensor")
        return self.required(value.index)

    def tensors(self, name: str) -> list[str | None]:
        """A list of tensors, None where one is left out."""
        value = self.a.get(name, ())
        if not isinstance(value, tuple) or not all(v is None or isinstance(v, Ref) for v in value):
            self.wrong(name, value, "a list of tensors")
        return [None if v is None else self.required(v.index) for v in value]

    def named_inputs(self, names: Sequence[str]) -> list[str | None]:
        """Tensors by name, one with a question mark being optional."""
        return [self.maybe(n[:-1]) if n.endswith("?") else self.tensor(n) for n in names]

    def constant_of(self, value: str | None) -> np.ndarray | None:
        """The array of a constant."""
        return None if value is None else self.builder.constants.get(value)

    # Numbers

    def integer(self, name: str, default: Any = None) -> Any:
        """An integer, also a symbolic one whose value is known."""
        value = self.a.get(name, default)
        if isinstance(value, Ref):
            value = self._static_integer(value, name)
        if value is not None and type(value) is not int:
            self.wrong(name, value, "an integer")
        return value

    def scalar(self, name: str, default: Any = None) -> Any:
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
        integers = tuple(self._static_integer(v, name) if isinstance(v, Ref) else v for v in items)
        if not all(type(v) is int for v in integers):
            self.wrong(name, value, "integers")
        if rank and len(integers) == 1:
            integers *= rank
        if rank and integers and len(integers) != rank:
            self.wrong(name, value, f"{rank} integers")
        return integers

    def numbers(self, name: str) -> Any:
        """A tuple of numbers, or None."""
        value = self.a.get(name)
        if value is None:
            return None
        if not isinstance(value, tuple) or not all(type(v) in (int, float) for v in value):
            self.wrong(name, value, "numbers")
        return value

    def _static_integer(self, ref: Ref, label: str) -> int:
        value = self.constant_input(ref.index, f"the argument {label}")
        return int(value.reshape(()))

    def sizes(self, name: str) -> str:
        """A list of integers, some perhaps symbolic, as an int64 vector of the graph."""
        value = self.a.get(name, ())
        items = value if isinstance(value, tuple) else (value,)
        return self.vector(items)

    def vector(self, items: Sequence[Any]) -> str:
        """Integers and `Ref`s as an int64 vector of the graph."""
        if all(type(v) is int for v in items):
            return self.ints(items)
        elements: list[str | None] = []
        for item in items:
            if isinstance(item, Ref):
                elements.append(self.add("Unsqueeze", [self.required(item.index), self.ints([0])]))
            elif type(item) is int:
                elements.append(self.ints([item]))
            else:
                raise ModelError(f"{item!r} is no size", place=self.node.place)
        return self.add("Concat", elements, axis=0)

    def axis(self, name: str, value: str, default: Any = None) -> int:
        """An axis of `value`, counted from the front."""
        rank = max(self.rank(value), 1)
        index = self.integer(name, default)
        if index is None or not -rank <= index < rank:
            raise ModelError(f"{name} = {index} is no axis of rank {rank}", place=self.node.place)
        return int(index) % rank

    # Building

    def output(self, index: int, kind: str, inputs: Sequence[str | None], **fields: Any) -> str:
        """Append the node that makes this node's output `index` alone."""
        op, name = self.operator(kind, **fields), self.name_of(index)
        return self.builder.add(op, inputs, [name], self.node.name)

    def name_of(self, index: int) -> str:
        """The name of this node's output `index`; a new one when it has none."""
        names = self.node.outputs
        recorded = names[index] if index < len(names) else ""
        return recorded or self.fresh(f"{self.first_output}.{index}")

    def per_output(
        self, kind: str, inputs: Sequence[Sequence[str | None]], **fields: Any
    ) -> tuple[str, ...]:
        """One node per output of this node, each on inputs of its own."""
        return tuple(self.output(i, kind, operands, **fields) for i, operands in enumerate(inputs))

    def batched(self, x: str, rank: int) -> tuple[str, bool]:
        """`x` with a batch axis in front, and whether that had to be added."""
        if self.rank(x) == rank:
            return x, False
        if self.rank(x) != rank - 1:
            self.refuse(f"its input has rank {self.rank(x)}")
        return self.add("Unsqueeze", [x, self.ints([0])]), True

    def unbatched(
        self, kind: str, inputs: Sequence[str | None], added: bool, **fields: Any
    ) -> tuple[str, ...]:
        """The node's result, its batch axis removed again when it was added."""
        if not added:
            return self.result(kind, inputs, **fields)
        y = self.add(kind, inputs, **fields)
        return self.result("Squeeze", [y, self.ints([0])])


def _with_names(function: Callable[[Aten], Result]) -> Row:
    return lambda c: function(Aten(c.node, c.inputs, c.attributes, c.builder, c.fresh))


TABLE = Table("aten", _with_names, ("self",))
"""Rows by (domain, operator.overload)."""
row = TABLE.row
COMPOSITE: set[str] = set()
"""ATen operators that their rows decompose as PyTorch does; the ledger says so."""
Function = TypeVar("Function", bound=Callable[[Any], Result])


def composite(*operators: str) -> Callable[[Function], Function]:
    """`row` of operators that are nothing but simpler ones."""
    COMPOSITE.update(operators)
    return row(*operators)
