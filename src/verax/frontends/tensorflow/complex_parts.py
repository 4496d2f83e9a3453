"""Complex tensors of a TensorFlow model: each is two tensors of real numbers.

Which values are complex is told by the operators that make them (Fourier transforms, Complex, casts
and constants), node by node as the model is imported, so that loops which are unrolled and lists of
tensors are followed, too. What moves a complex tensor, or is linear in it, is done to each part;
operators that mix the parts have rows of their own (`table_complex`), on real and imaginary part as
two operands. Any other operator on a complex tensor is refused by name.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn, Protocol

import numpy as np

from verax.base.errors import UnsupportedError
from verax.frontends.common.context import Row
from verax.frontends.common.control import KeptBranch, KeptRepeat
from verax.frontends.common.control_nodes import DOMAIN as CONTROL
from verax.frontends.common.control_nodes import constant
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.common.ledger import Attributes
from verax.ir.graph import Builder

DOMAIN = "complex"
"""Of operators that take or give complex tensors."""
Parts = tuple[str, str]
"""Names of the real and the imaginary part, as the file's are."""
REAL = {"complex64": "float32", "complex128": "float64"}
"""Types of complex numbers, with those of their parts."""
COMPLEX_OF = {real: name for name, real in REAL.items()}
MAKERS = ("RFFT", "RFFT2D", "RFFT3D", "Complex")
"""Operators whose operands are real and whose result is complex; some casts are such as well."""
TO_REAL = (
    *("IRFFT", "IRFFT2D", "IRFFT3D", "Real", "Imag", "ComplexAbs", "Angle", "Cast"),
    *("Equal", "NotEqual"),
)
"""Operators on complex tensors with rows of their own whose result is real."""
BY_PART = {
    *("Identity", "StopGradient", "PreventGradient", "Snapshot", "EnsureShape"),
    *("PlaceholderWithDefault", "Reshape", "Squeeze", "ExpandDims", "Transpose", "Tile"),
    *("BroadcastTo", "ConcatV2", "Concat", "Pack", "Unpack", "Pad", "PadV2", "MirrorPad", "Fill"),
    *("GatherV2", "Gather", "GatherNd", "ScatterNd", "TensorScatterUpdate", "TensorScatterAdd"),
    *("Roll", "ReverseV2", "ReverseSequence", "Slice", "StridedSlice", "Split", "SplitV"),
    *("Select", "SelectV2", "SpaceToBatchND", "BatchToSpaceND", "ZerosLike"),
    *("Add", "AddV2", "Sub", "AddN", "Neg", "Sum", "Mean", "Cumsum"),
}
"""Operators that do to each part what they do to real numbers."""
PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
"""Operators that are linear in each of two operands; of one operand, `Einsum` is done by part."""
CONTROL_BY_PART = {"Identity", "Stack", "Row", "RowAt", "Join", "Unrolled"}
SIZES = {("", "Shape"), ("", "Size"), ("", "Rank"), (CONTROL, "Length")}
"""Operators that the real part answers."""
TYPES = ("T", "Tparams")
"""Attributes that name the type of the operands that may be complex."""


class ComplexImporter(Protocol):
    """What complex tensors need of an import."""

    components: dict[str, Parts]
    names: dict[str, str]
    builder: Builder
    table: dict[tuple[str, str], Row]

    def fresh(self, hint: str) -> str: ...

    def attributes(self, node: ForeignNode) -> Attributes: ...


def named(importer: ComplexImporter, value: str) -> Parts:
    """Names for the parts of a value."""
    return importer.fresh(f"{value}.real"), importer.fresh(f"{value}.imag")


def in_parts(importer: ComplexImporter, node: ForeignNode) -> list[ForeignNode] | None:
    """The nodes on real numbers that one on complex tensors stands for; None for another node.

    Raises `UnsupportedError` for what is not done to complex numbers.
    """
    components = importer.components
    if node.domain == DOMAIN:
        return None
    complex_inputs = [v for v in node.inputs if v in components]
    makes = not node.domain and _makes(node)
    if not complex_inputs and not makes:
        return _constant_parts(importer, node)
    if isinstance(node, KeptBranch | KeptRepeat):
        _refuse(node, "a branch or loop that running decides")
    if type(node).__name__ in ("Branch", "SubgraphCall", "While", "CountedLoop"):
        return None  # written out, or kept, which is refused then
    if (node.domain, node.op_type) in SIZES:
        node = _real_types(importer, node)
        return [
            dataclasses.replace(node, inputs=tuple(components.get(v, (v,))[0] for v in node.inputs))
        ]
    if node.domain == CONTROL and node.op_type in CONTROL_BY_PART:
        return _by_part(importer, node)
    if not node.domain and node.op_type in BY_PART:
        return _by_part(importer, _real_types(importer, node))
    if not node.domain and node.op_type == "IdentityN":
        return _one_by_one(importer, node)
    if not node.domain and node.op_type in PRODUCTS and len(complex_inputs) == len(node.inputs):
        node = _real_types(importer, node)
        if len(node.inputs) == 1:
            return _by_part(importer, node)
        if len(node.inputs) == 2:
            return _product(importer, node)
    if node.domain or (DOMAIN, node.op_type) not in importer.table:
        _refuse(node, node.op_type)
    node = _real_types(importer, node)
    inputs = tuple(p for v in node.inputs for p in components.get(v, (v,)))
    outputs = node.outputs
    if makes or node.op_type not in TO_REAL:
        components[outputs[0]] = outputs = named(importer, outputs[0])
    return [dataclasses.replace(node, domain=DOMAIN, inputs=inputs, outputs=outputs)]


def must_not_be_real(importer: ComplexImporter, node: ForeignNode) -> None:
    """Refuse an operator that has a row on complex numbers alone, where none is given."""
    here = not node.domain and node.op_type not in MAKERS and (DOMAIN, node.op_type)
    if here and here in importer.table and ("", node.op_type) not in importer.table:
        cause = f"{node.op_type} of real numbers is not supported"
        raise UnsupportedError(cause, place=node.place)


def _makes(node: ForeignNode) -> bool:
    if node.op_type == "Cast":
        return node.attributes.get("DstT") in REAL
    return node.op_type in MAKERS


def _constant_parts(importer: ComplexImporter, node: ForeignNode) -> list[ForeignNode] | None:
    """A complex constant of a loop's or branch's body."""
    if node.domain != CONTROL or node.op_type != "Constant":
        return None
    array: Any = node.attributes["value"]
    if array.dtype.kind != "c":
        return None
    importer.components[node.outputs[0]] = names = named(importer, node.outputs[0])
    real, imaginary = np.ascontiguousarray(array.real), np.ascontiguousarray(array.imag)
    return [constant(names[0], real), constant(names[1], imaginary)]


def _real_types(importer: ComplexImporter, node: ForeignNode) -> ForeignNode:
    """The node with the type of the parts where it states that of complex operands."""
    real = [importer.components[v][0] for v in node.inputs if v in importer.components]
    names = [importer.names[v] for v in real if v in importer.names]  # the others were refused
    component_types = {str(importer.builder.types[name].dtype) for name in names}
    changed = {}
    for name in TYPES:
        stated = node.attributes.get(name)
        if not component_types or not isinstance(stated, str):
            continue
        if REAL.get(stated) not in component_types:
            operand_types = ", ".join(COMPLEX_OF[real] for real in sorted(component_types))
            importer.attributes(node).refuse(name, f"the operands are {operand_types}")
        changed[name] = REAL[stated]
    return dataclasses.replace(node, attributes={**node.attributes, **changed})


def _by_part(importer: ComplexImporter, node: ForeignNode) -> list[ForeignNode]:
    """The node on the real and on the imaginary parts."""
    components = importer.components
    outputs = [named(importer, o) if o else ("", "") for o in node.outputs]
    copies = [
        dataclasses.replace(
            node,
            inputs=tuple(components[v][i] if v in components else v for v in node.inputs),
            outputs=tuple(o[i] for o in outputs),
        )
        for i in (0, 1)
    ]
    components.update((o, pair) for o, pair in zip(node.outputs, outputs) if o)
    return copies


def _product(importer: ComplexImporter, node: ForeignNode) -> list[ForeignNode]:
    """The four products of parts, and their sums. A transposed factor (`adj_x`, `adj_y`) of a
    batched product is conjugated, too: its imaginary part counts negative."""
    (a, b), (p, q) = (importer.components[v] for v in node.inputs)
    output = node.outputs[0]
    importer.components[output] = real, imaginary = named(importer, output)
    signs = [bool(node.attributes.get(name)) for name in ("adj_x", "adj_y")]
    operands = {"ap": (a, p), "bq": (b, q), "aq": (a, q), "bp": (b, p)}
    names = {key: importer.fresh(f"{output}.{key}") for key in operands}
    products = [
        dataclasses.replace(node, inputs=pair, outputs=(names[key],))
        for key, pair in operands.items()
    ]

    def combined(minus: bool, first: str, second: str, result: str) -> ForeignNode:
        kind, inputs = "Sub" if minus else "AddV2", (names[first], names[second])
        return ForeignNode(kind, inputs, (result,), {}, node.name, depth=node.depth)

    sums = [combined(signs[0] == signs[1], "ap", "bq", real)]
    if all(signs):
        negative = importer.fresh(f"{output}.negative")
        sums.append(combined(False, "aq", "bp", negative))
        sums.append(ForeignNode("Neg", (negative,), (imaginary,), {}, node.name, depth=node.depth))
    elif signs[0]:
        sums.append(combined(True, "aq", "bp", imaginary))
    elif signs[1]:
        sums.append(combined(True, "bp", "aq", imaginary))
    else:
        sums.append(combined(False, "aq", "bp", imaginary))
    return [*products, *sums]


def _one_by_one(importer: ComplexImporter, node: ForeignNode) -> list[ForeignNode]:
    importer.attributes(node).irrelevant("T", "each value is handed on in its own type")
    return [
        ForeignNode("Identity", (v,), (o,), {}, node.name, depth=node.depth)
        for v, o in zip(node.inputs, node.outputs)
    ]


def _refuse(node: ForeignNode, description: str) -> NoReturn:
    raise UnsupportedError(
        f"{description} of complex numbers is not supported",
        place=node.place,
        next_step="export the network with this written in real and imaginary parts (tf.math.real, "
        "tf.math.imag, tf.complex), or the part behind it",
    )
