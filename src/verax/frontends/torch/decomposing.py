"""What the table lacks, in simpler operators: PyTorch's own decompositions of a program in memory.

Only what was refused is decomposed, as the table knows many operators whole that PyTorch's core set
does not have, and kernels are better for those.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from verax.base.errors import UnsupportedError
from verax.base.optional import optional
from verax.frontends.common.ledger import Entry, Ledger, Outcome

ROUNDS = 8
"""How often what decompositions give may be decomposed again."""
_OPERATOR = re.compile(r"(?:aten|complex)::(\w+)\.(\w+)")


def refused_operators(error: UnsupportedError) -> set[tuple[str, str]]:
    """Name and overload of every ATen operator that an error names."""
    return {(m[1], m[2]) for m in _OPERATOR.finditer(f"{error.cause} {error.place}")}


def decomposed(program: Any, names: set[tuple[str, str]]) -> tuple[Any, Counter[str]]:
    """The program with these operators in simpler ones, and how many of each there were.

    The program itself and no counts when PyTorch has no decomposition of any of them.
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
        if operator in table or operator in torch._decomp.decomposition_table:
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
            table[operator] = torch._decomp.decomposition_table[operator]
    try:
        simpler = program.run_decompositions(table)
    except Exception as error:
        listed = ", ".join(f"aten::{'.'.join(_name(o))}" for o in done)
        raise UnsupportedError(
            f"{listed}: not supported, and PyTorch cannot decompose it here "
            f"({str(error).partition(chr(10))[0][:200]})",
            next_step="`verax ops` lists the supported operators",
        ) from error
    return simpler, Counter({f"aten::{'.'.join(_name(o))}": called[o] for o in done})


def unwrapped(program: Any) -> Any:
    """The program with its weights of types of their own (torchao's quantised ones) as the tensors
    inside of them; the program itself when it has none."""
    torch = optional("torch", "to read torch's own objects")
    wrapper = getattr(torch.utils._python_dispatch, "is_traceable_wrapper_subclass", None)
    held = [*program.state_dict.values(), *program.constants.values()]
    if wrapper is None or not any(isinstance(t, torch.Tensor) and wrapper(t) for t in held):
        return program
    return program.run_decompositions({})


def enter_unwrapped(ledger: Ledger) -> None:
    """Write down that weights were taken apart."""
    ledger.entries.append(
        Entry(
            *("the program", "weights", "their type", "a type of tensor of its own"),
            *(Outcome.consumed, "given as the tensors inside"),
        )
    )


def enter(ledger: Ledger, counts: Counter[str]) -> None:
    """Write down what was decomposed."""
    for operator, count in sorted(counts.items()):
        times = "once" if count == 1 else f"{count} times"
        ledger.entries.append(
            Entry(
                "the program",
                operator,
                "the operator itself",
                f"called {times}",
                Outcome.consumed,
                "decomposed into simpler operators, as PyTorch does it",
            )
        )


def _graphs(torch: Any, module: Any) -> Any:
    return [
        (name, part.graph)
        for name, part in module.named_modules()
        if isinstance(part, torch.fx.GraphModule)
    ]


def _name(target: Any) -> tuple[str, str]:
    """("diff", "default") of torch.ops.aten.diff.default; ("", "") of anything else."""
    parts = str(target).split(".")
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "aten" else ("", "")
