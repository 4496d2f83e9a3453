"""`Table`: the rows of one format, and the ways in which rows are entered.

A row that only says which operator a node is, and where its attributes come from, is one line:
`TABLE.operator("Flatten", axis=integer(1))`. A row of a formula that several formats have is one,
too: `TABLE.formula(formulas.square, "Square")`. Everything else is a function under `TABLE.row`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from verax.frontends.common.context import Applied, Result, Row

Fields = dict[str, Any]
"""An operator's attributes, as `fields_of` takes them."""
Function = TypeVar("Function", bound=Callable[[Any], Result])


@dataclass(frozen=True)
class Reader:
    """Where an operator's attribute comes from: a foreign attribute, of a kind that `Conversion`
    reads, under `name` or the operator's own word for it."""

    kind: str
    default: Any = None
    name: str = ""

    def read(self, c: Any, field: str) -> Any:
        return getattr(c, self.kind)(self.name or field, self.default)


def integer(default: int | None = None, name: str = "") -> Reader:
    return Reader("integer", default, name)


def scalar(default: float | None = None, name: str = "") -> Reader:
    return Reader("scalar", default, name)


def text(default: str | None = None, name: str = "") -> Reader:
    return Reader("text", default, name)


def flag(default: bool = False, name: str = "") -> Reader:
    return Reader("flag", default, name)


def integers(default: tuple[int, ...] | None = None, name: str = "") -> Reader:
    return Reader("integers", default, name)


def fields_of(c: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """An operator's attributes: each a `Reader`, a function of the node, or a value."""
    return {
        name: source.read(c, name)
        if isinstance(source, Reader)
        else source(c)
        if callable(source)
        else source
        for name, source in fields.items()
    }


class Table(dict[tuple[str, str], Row]):
    """Rows by (domain, operator).

    domain: of rows that name none. wrap: makes a row of a function: what every row of the format
    does first, or the arguments by name that its functions take. inputs: names of the inputs of an
    operator or formula that names none, where inputs have names.
    """

    def __init__(
        self,
        domain: str = "",
        wrap: Callable[[Any], Row] | None = None,
        inputs: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.domain, self.inputs = domain, inputs
        self.wrap: Callable[[Any], Row] = wrap or (lambda function: function)

    def row(self, *operators: str, domain: str | None = None) -> Callable[[Function], Function]:
        """Enter a function as the row of operators."""

        def enter(function: Function) -> Function:
            wrapped = self.wrap(function)
            for name in operators:
                key = (self.domain if domain is None else domain, name)
                assert key not in self, key
                self[key] = wrapped
            return function

        return enter

    def operator(
        self,
        kind: str,
        *names: str,
        domain: str | None = None,
        inputs: Sequence[str] | None = None,
        **fields: Any,
    ) -> None:
        """Rows, under `names` or the operator's own, of an operator on the node's inputs."""
        input_names = self.inputs if inputs is None else inputs
        self.row(*(names or (kind,)), domain=domain)(
            lambda c: c.apply(kind, c.named_inputs(input_names), **fields_of(c, fields))
        )

    def operators(
        self, kinds: Mapping[str, str], inputs: Sequence[str] | None = None, **fields: Any
    ) -> None:
        """Rows of operators by the foreign names, all with these attributes."""
        for name, kind in kinds.items():
            self.operator(kind, name, inputs=inputs, **fields)

    def formula(
        self,
        formula: Callable[..., Applied],
        *names: str,
        inputs: Sequence[str] | None = None,
        **arguments: Any,
    ) -> None:
        """Rows of a formula on the node's inputs; arguments are read as an operator's fields."""
        input_names = self.inputs if inputs is None else inputs
        self.row(*names)(
            lambda c: formula(c, *c.named_inputs(input_names), **fields_of(c, arguments))
        )
