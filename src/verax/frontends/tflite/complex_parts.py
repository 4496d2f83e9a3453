"""Complex tensors of a TFLite model: each is two tensors of real numbers.

TFLite has complex numbers between a Fourier transform (RFFT2D) and what takes their real part,
imaginary part or size, with little but movement in between. What moves a complex tensor moves both
of its parts; a cast to real numbers takes the real one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from verax.frontends.common.foreign import ForeignNode

TRANSFORM = "RFFT2D"
MOVING = ("SQUEEZE", "RESHAPE", "EXPAND_DIMS", "TRANSPOSE", "SLICE", "STRIDED_SLICE")
"""Operators that may move a complex tensor, their first operand."""
Parts = tuple[str, str]
"""Names of the real and the imaginary part."""


def in_parts(nodes: Iterable[ForeignNode], fresh: Callable[[str], str]) -> Iterator[ForeignNode]:
    """The nodes on real numbers. fresh: makes a name that the file has not.

    Another operator on a complex tensor is given as one that no table has.
    """
    components: dict[str, Parts] = {}
    for node in nodes:
        complex_inputs = [name for name in node.inputs if name in components]
        if node.op_type == TRANSFORM and not node.domain and len(node.outputs) == 1:
            components[node.outputs[0]] = _named(node, fresh)
            yield dataclasses.replace(node, outputs=components[node.outputs[0]])
        elif not complex_inputs or node.domain:
            yield node
        elif complex_inputs != [node.inputs[0]] or len(node.outputs) != 1:
            yield _refused(node)
        elif node.op_type in MOVING:
            before, after = components[complex_inputs[0]], _named(node, fresh)
            components[node.outputs[0]] = after
            for component, new in zip(before, after):
                yield dataclasses.replace(
                    node, inputs=(component, *node.inputs[1:]), outputs=(new,)
                )
        elif node.op_type == "COMPLEX_ABS":
            yield dataclasses.replace(node, inputs=components[complex_inputs[0]])
        elif node.op_type in ("REAL", "IMAG", "CAST") and len(node.inputs) == 1:
            component = components[complex_inputs[0]][node.op_type == "IMAG"]
            yield dataclasses.replace(node, inputs=(component,))
        else:
            yield _refused(node)


def _named(node: ForeignNode, fresh: Callable[[str], str]) -> Parts:
    return fresh(f"{node.outputs[0]}.real"), fresh(f"{node.outputs[0]}.imag")


def _refused(node: ForeignNode) -> ForeignNode:
    """The node as one of an operator that nobody has, to be listed with all others."""
    return dataclasses.replace(node, op_type=f"{node.op_type} of complex numbers")
