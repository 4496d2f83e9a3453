"""The recipe of a program: read off what the passes did to the graph."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from verax.base.errors import CompileError
from verax.base.option_groups.settings import Settings
from verax.compiler.pipeline.levels import Change
from verax.ir.graph import Graph, Node
from verax.numerics import strassen
from verax.numerics.version import ARITHMETIC
from verax.numerics.winograd import NAMES
from verax.ops.pointwise.factors import Bfloat16Factor
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.sums.strassen import StrassenMatMul
from verax.ops.windows.convolution import Conv
from verax.ops.windows.strassen import StrassenConv
from verax.ops.windows.winograd import WinogradConv
from verax.records.environment import array_hash, verax_version
from verax.records.recipe import BFLOAT16_PRODUCTS, Recipe, Rewriting


def recipe_of(
    graph: Graph,
    optimized: Graph,
    changes: Sequence[Change],
    settings: Settings,
    network: str = "",
) -> Recipe:
    """The recipe of a program.

    graph: with its sizes known, before the passes; optimized: after them; changes: what those did
    that may change numbers; network: the hash of `graph` if it is known.
    """
    return Recipe(
        network=network or network_hash(graph),
        arithmetic=ARITHMETIC,
        rewritings=tuple(map(_rewriting, changes)),
        algorithms={
            node.name or node.outputs[0]: algorithm
            for node in optimized.nodes
            if (algorithm := _algorithm(optimized, node))
        },
        opt_level=settings.opt_level,
        disable=settings.disable,
        require=settings.require,
        keep_exact=settings.keep_exact,
        passes=settings.passes,
        steps=settings.steps,
        allow=settings.allow,
        inputs={v: str(graph.types[v]) for v in graph.inputs},
        verax=verax_version(),
    )


def _algorithm(graph: Graph, node: Node) -> str:
    """How a node is computed that is not in its canonical order, "" for one that is."""
    if isinstance(node.op, WinogradConv):
        return NAMES[node.op.tile]
    if isinstance(node.op, StrassenMatMul | StrassenConv):
        return strassen.NAME
    maker = graph.producers.get(node.inputs[0] or "") if node.inputs else None
    product = isinstance(node.op, Conv | MatMul | Gemm)
    factors = product and maker is not None and isinstance(maker.op, Bfloat16Factor)
    return BFLOAT16_PRODUCTS if factors else ""


def follow(recipe: Recipe, settings: Settings) -> Settings:
    """`settings` with the options of `recipe`."""
    return dataclasses.replace(
        settings,
        opt_level=recipe.opt_level,
        disable=recipe.disable,
        require=recipe.require,
        keep_exact=recipe.keep_exact,
        passes=recipe.passes,
        steps=recipe.steps,
        allow=recipe.allow,
    )


def require_same(required: Recipe, recipe: Recipe) -> None:
    """Raise `CompileError` unless a program of `recipe` has the bits that `required` promises."""
    apart = required.differs(recipe)
    if apart:
        raise CompileError(
            f"the recipe cannot be followed: {apart}",
            place=f"recipe {required.sha256[:16]}, written by Verax {required.verax}",
            next_step=f"use the model and the version that it was made with, or compile without it "
            f"(that gives recipe {recipe.sha256[:16]})",
        )


def network_hash(
    graph: Graph, known_hashes: dict[int, tuple[np.ndarray, str]] | None = None
) -> str:
    """SHA-256 of what a graph computes with: inputs, outputs, nodes, all bytes of constants.

    known_hashes: by identity of the constants, which nobody may write; new ones are added.
    """
    digest = hashlib.sha256()
    by_identity = {} if known_hashes is None else known_hashes
    new = {v: a for v, a in graph.constants.items() if id(a) not in by_identity}
    by_identity |= {id(new[v]): (new[v], text) for v, text in _hashes(new).items()}
    hashes = {v: by_identity[id(a)][1] for v, a in graph.constants.items()}
    for v in (*graph.inputs, *graph.outputs):
        digest.update(f"{v}: {graph.types[v]}\n".encode())
    for v, updated in graph.updates.items():
        digest.update(f"{v} <- {updated}\n".encode())
    for v, array in graph.initial.items():
        digest.update(f"{v} = {array_hash(array)}\n".encode())
    for node in graph.nodes:
        digest.update(_line(node, hashes).encode())
    return digest.hexdigest()


def _rewriting(change: Change) -> Rewriting:
    """What a recipe says of one pass."""
    ids = tuple(one.id for one in change.rewrites)
    return Rewriting(change.name, ids, tuple(map(str, change.rewrites)), _digest(change))


def _digest(change: Change) -> str:
    """SHA-256 of the nodes that a pass made or changed, with the bytes of their constants."""
    before, after = change.before, change.after
    old = {(str(n.op), n.inputs, n.outputs) for n in before.nodes}
    new = {v: a for v, a in after.constants.items() if before.constants.get(v) is not a}
    hashes = _hashes(new)
    digest = hashlib.sha256()
    for node in after.nodes:
        fresh = (str(node.op), node.inputs, node.outputs) not in old
        if fresh or any(v in new for v in node.inputs):
            digest.update(_line(node, hashes).encode())
    return digest.hexdigest()


def _hashes(constants: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The hash of every constant; two at a time, for hashing lets other threads run."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(constants, pool.map(array_hash, constants.values())))


def _line(node: Node, hashes: Mapping[str, str]) -> str:
    """A node in words; a constant is its hash, whatever it is called."""
    inputs = ", ".join("_" if v is None else hashes.get(v, v) for v in node.inputs)
    return f"{', '.join(node.outputs)} = {node.op}({inputs})\n"
