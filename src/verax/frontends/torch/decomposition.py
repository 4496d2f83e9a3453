"""What the table lacks, in simpler operators: PyTorch's own decompositions of a program in memory.

Only what was refused is decomposed, as the table knows many operators whole that PyTorch's core set
does not have, and kernels are better for those.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from verax.base.errors import UnsupportedError
from verax.base.optional import optional
from verax.frontends.common.ledger import AttributeOutcome, Ledger, LedgerEntry

ROUNDS = 8
"""How often what decompositions give may be decomposed again."""
_OPERATOR = re.compile(r"(\w+)::(\w+)\.(\w+)")
MEANINGS: dict[Any, Callable[..., Any]] = {}
"""Operators of `torch.library` that were made with a meaning: the function of PyTorch of the same
tensors (`meant` enters them)."""
HOW: dict[str, str] = {}
"""What the ledger says of each of those."""


def meant(operator: Any, like: Callable[..., Any]) -> None:
    """Enter what an operator of `torch.library` means."""
    MEANINGS[operator] = like
    HOW[_printed(operator)] = "those of the function that it was said to be like"


def refused_operators(error: UnsupportedError) -> set[tuple[str, str, str]]:
    """Library, name and overload of every operator of PyTorch that an error names."""
    matches = _OPERATOR.finditer(f"{error.cause} {error.place}")
    return {("aten" if m[1] == "complex" else m[1], m[2], m[3]) for m in matches}


def decomposed(program: Any, names: set[tuple[str, str, str]]) -> tuple[Any, Counter[str]]:
    """The program with these operators in simpler ones, and how many of each there were.

    The program itself and no counts when PyTorch has no decomposition of any of them. Where one of
    them came with a meaning, values keep their names, so that what the operator itself gives can be
    compared with what it means.
    """
    torch = optional("torch", "to read torch's own objects")
    called = Counter(
        node.target
        for _, graph in _graphs(torch, program.graph_module)
        for node in graph.nodes
        if node.op == "call_function" and _name(node.target) in names
    )
    table = torch.export.default_decompositions()
    own, composite = [], []
    for operator in called:
        if (
            operator in MEANINGS
            or operator in table
            or operator in torch._decomp.decomposition_table
        ):
            own.append(operator)
        elif operator._can_decompose():
            composite.append(operator)  # views, which never stay whole
    if not own and not composite:
        return program, Counter()
    done = [*own, *composite]
    for operator in [o for o in table if o not in own]:
        del table[operator]
    for operator in own:
        if operator not in table:
            reference = MEANINGS.get(operator)
            table[operator] = reference or torch._decomp.decomposition_table[operator]
    try:
        simpler = program.run_decompositions(table)
    except Exception as error:
        listed = ", ".join(map(_printed, done))
        raise UnsupportedError(
            f"{listed}: not supported, and PyTorch cannot decompose it here "
            f"({str(error).partition(chr(10))[0][:200]})",
            next_step="`verax ops` lists the supported operators",
        ) from error
    if any(operator in MEANINGS for operator in called):
        _name_as_before(simpler)
    return simpler, Counter({_printed(o): called[o] for o in done})


def _name_as_before(simpler: Any) -> None:
    """Give values of a decomposed program the names that they had; values inside of one operator
    get its name with a number."""
    nodes_by_source: dict[str, list[Any]] = {}
    for node in simpler.graph.nodes:
        sources = node.meta.get("from_node") or ()
        if node.op == "call_function" and sources:
            nodes_by_source.setdefault(sources[-1].name, []).append(node)
    names: dict[str, str] = {}
    used_names = {node.name for node in simpler.graph.nodes} | nodes_by_source.keys()
    for source, nodes in nodes_by_source.items():
        inside = [f"{source}_inside_{i}" for i in range(len(nodes) - 1)]
        while used_names & set(inside):
            inside = [f"{name}_" for name in inside]
        for node, name in zip(nodes, [*inside, source]):
            names[node.name] = node.name = name
    for spec in simpler.graph_signature.output_specs:
        spec.arg.name = names.get(spec.arg.name, spec.arg.name)


def holds_meant(program: Any) -> bool:
    """Whether a program calls an operator that was made with a meaning."""
    torch = optional("torch", "to read torch's own objects")
    nodes = [n for _, graph in _graphs(torch, program.graph_module) for n in graph.nodes]
    return any(n.op == "call_function" and n.target in MEANINGS for n in nodes)


def unwrapped(program: Any) -> Any:
    """The program with its weights of types of their own (torchao's quantized ones) as the tensors
    inside of them; the program itself when it has none."""
    torch = optional("torch", "to read torch's own objects")
    wrapper = getattr(torch.utils._python_dispatch, "is_traceable_wrapper_subclass", None)
    tensors = [*program.state_dict.values(), *program.constants.values()]
    if wrapper is None or not any(isinstance(t, torch.Tensor) and wrapper(t) for t in tensors):
        return program
    return program.run_decompositions({})


def enter_unwrapped(ledger: Ledger) -> None:
    """Write down that weights were taken apart."""
    ledger.entries.append(
        LedgerEntry(
            *("the program", "weights", "their type", "a type of tensor of its own"),
            *(AttributeOutcome.consumed, "given as the tensors inside"),
        )
    )


def enter(ledger: Ledger, counts: Counter[str]) -> None:
    """Write down what was decomposed."""
    for operator, count in sorted(counts.items()):
        times = "once" if count == 1 else f"{count} times"
        ledger.entries.append(
            LedgerEntry(
                "the program",
                operator,
                "the operator itself",
                f"called {times}",
                AttributeOutcome.consumed,
                f"decomposed into simpler operators, {HOW.get(operator, 'as PyTorch does it')}",
            )
        )


def _graphs(torch: Any, module: Any) -> Any:
    return [
        (name, submodule.graph)
        for name, submodule in module.named_modules()
        if isinstance(submodule, torch.fx.GraphModule)
    ]


def _name(target: Any) -> tuple[str, str, str]:
    """("aten", "diff", "default") of torch.ops.aten.diff.default; empty texts of anything else."""
    components = str(target).split(".")
    return (components[0], components[1], components[2]) if len(components) == 3 else ("", "", "")


def _printed(target: Any) -> str:
    space, name, overload = _name(target)
    return f"{space}::{name}.{overload}"
