"""Dimensions in other forms: text read as a dimension, dimensions of other sizes, repeated ones."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from verax.base.errors import GraphError
from verax.ir.dim import (
    Atom,
    Dim,
    DimLike,
    Maximum,
    Symbol,
    ceildiv,
    floordiv,
    maximum,
    same,
    symbol,
)


def broadcasts(size: DimLike, to: DimLike) -> bool:
    """Whether an axis of `size` is repeated to `to`, or is it; where neither is one expression,
    decided by sizes as `==` is."""
    return same(size, 1) or same(size, to) or size == 1 or size == to


def substitute(dim: DimLike, values: Mapping[str, DimLike]) -> DimLike:
    """`dim` with symbols replaced by `values`; symbols not in `values` stay."""
    if not isinstance(dim, Dim):
        return int(dim)
    total: DimLike = 0
    for monomial, factor in dim.terms:
        term: DimLike = factor
        for atom, power in monomial:
            for _ in range(power):
                term = term * _substitute_atom(atom, values)
        total = total + term
    return total


def _substitute_atom(atom: Atom, values: Mapping[str, DimLike]) -> DimLike:
    if isinstance(atom, Symbol):
        return values.get(atom.name, symbol(atom.name))
    if isinstance(atom, Maximum):
        return maximum(substitute(atom.left, values), substitute(atom.right, values))
    return (ceildiv if atom.ceiling else floordiv)(
        substitute(atom.numerator, values), substitute(atom.denominator, values)
    )


def parse_dim(text: str) -> DimLike:
    """Read the text form of a dimension. Raises `GraphError` on anything else."""
    try:
        return _from_ast(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise GraphError(
            f"{text!r} is not a dimension", next_step="write e.g. 2*n + h//2"
        ) from error


def _from_ast(node: ast.expr) -> DimLike:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.Attribute():
            return symbol(ast.unparse(node))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return 0 - _from_ast(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _from_ast(left) + _from_ast(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _from_ast(left) - _from_ast(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _from_ast(left) * _from_ast(right)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return floordiv(_from_ast(left), _from_ast(right))
        case ast.Call(func=ast.Name(id="ceildiv"), args=[left, right]):
            return ceildiv(_from_ast(left), _from_ast(right))
        case ast.Call(func=ast.Name(id="max"), args=[left, right]):
            return maximum(_from_ast(left), _from_ast(right))
    raise ValueError(ast.dump(node))
