"""MXNet symbol (JSON) and params -> foreign nodes. Whatever is wrong with the files is a
`ModelError`.

Variables that the params lack are the network's inputs. A symbol does not say their shapes; where
an input reaches a convolution before anything changes its shape, rank and channels are the
weights'. Labels of losses are not inputs: they serve training only.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue, refuse_many
from verax.frontends.mxnet.params import TYPES, read_params
from verax.ir.types import DType

MAX_BYTES = 512 << 20
"""Symbols larger than this are refused; the largest real ones have a few MB."""

LOSSES = {
    "SoftmaxOutput": 1,
    "Softmax": 1,
    "SVMOutput": 1,
    "LinearRegressionOutput": 1,
    "LogisticRegressionOutput": 1,
    "MAERegressionOutput": 1,
}
"""Inputs of a loss that matter when it is only evaluated."""

LISTED = 20
"""Arrays that a message names."""

SEVERAL = {"SliceChannel", "split", "_split_v2", "amp_multicast", "sort", "topk",
           "_contrib_box_nms", "_contrib_box_non_maximum_suppression"}  # fmt: skip
"""Operators with several outputs, shown or not, whose values' names are numbered."""

FIRST = {"_npi_concatenate": "out", "_npi_matmul": "out", "make_loss": "loss"}
"""What some operators call their only output."""

FURTHER = {"RNN": ("state_output", "statecell_output")}
"""Names of an operator's second output and on."""

AUX = {"BatchNorm": ("moving_mean", "moving_var"), "BatchNorm_v1": ("moving_mean", "moving_var")}
"""States that the oldest symbols do not list as inputs."""

STORED = ("_weight", "_bias", "_gamma", "_beta", "_alpha", "_moving_mean", "_moving_var",
          "_running_mean", "_running_var", "_parameters")  # fmt: skip
"""How MXNet names the variables that a params file holds."""

KEEP_SHAPE = {"BatchNorm", "Activation", "LeakyReLU", "Cast", "identity", "_copy", "BlockGrad"}
_LITERAL = re.compile(r"(?:[\d\s.,()\[\]eE+\-L]|True|False|None)+")


@dataclass
class SymbolNode:
    """A node of the symbol: its operator ("null" for a variable) and (node, output) inputs."""

    op: str
    name: str
    inputs: list[tuple[int, int]]
    attributes: dict[str, Any] = field(default_factory=dict)


def read_model(
    symbol: str | bytes, params: str | os.PathLike[str] | bytes, name: str, location: str
) -> ForeignModel:
    """The content of a symbol's JSON text and its params file."""
    entries, heads, version = parse_symbol(symbol, location)
    arrays: dict[str, np.ndarray] = {}
    for key, array in read_params(params).items():
        bare = key.removeprefix("arg:").removeprefix("aux:")
        if bare in arrays:
            raise ModelError(f"the params file has {bare!r} twice", place=location)
        arrays[bare] = array
    _add_states(entries, arrays)
    _drop_labels(entries)
    used = _reachable(entries, heads)
    values = _value_names(entries, used, heads)
    nodes, constants, inputs = [], {}, []
    missing: list[str] = []
    for i, entry in enumerate(entries):
        if i not in used:
            continue
        if entry.op == "null":
            if entry.name in arrays:
                constants[entry.name] = arrays[entry.name]
            elif entry.name.endswith(STORED) and "__shape__" not in entry.attributes:
                missing.append(entry.name)
            else:
                inputs.append(_input(i, entries, arrays))
            continue
        outputs = tuple(values.get((i, k), "") for k in range(1 + max(used[i])))
        read = tuple(values[source] for source in entry.inputs)
        nodes.append(
            ForeignNode(entry.op, read, outputs, entry.attributes, entry.name, "", version)
        )
    unread = sorted(arrays.keys() - constants.keys())
    if missing:
        raise _lacking(missing, unread, location)
    outputs_of_model = list(dict.fromkeys(values[h] for h in heads))
    metadata = {"mxnet_version": str(version)} if version else {}
    if unread:
        metadata["arrays that no node reads"] = _listed(unread)
    return ForeignModel(
        name=name,
        inputs=tuple(inputs),
        outputs=tuple(ForeignValue(v, None, None) for v in outputs_of_model),
        nodes=tuple(nodes),
        constants=constants,
        declared={},
        versions={"mxnet": version},
        metadata=metadata,
    )


def _listed(names: Sequence[str]) -> str:
    """Names, and how many more there are."""
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def _lacking(missing: Sequence[str], unread: Sequence[str], location: str) -> ModelError:
    """The error for a params file without arrays that the symbol must have."""
    step = "is it the params file of this network?"
    if unread:
        step += f" It has {_listed(unread)}, which no node reads"
    if any(re.fullmatch(r"[\w.]+\.\w+", name) for name in unread):
        step = (
            "Gluon's save_parameters wrote the arrays under names of blocks: write both files "
            "with HybridBlock.export instead"
        )
    quoted = _listed([repr(name) for name in missing])
    return ModelError(f"the params file lacks {quoted}", place=location, next_step=step)


def parse_symbol(
    text: str | bytes, location: str
) -> tuple[list[SymbolNode], list[tuple[int, int]], int]:
    """Nodes, heads and MXNet's version (10901 for 1.9.1; 0 when it is not stated)."""
    if len(text) > MAX_BYTES:
        raise ModelError(f"the symbol has {len(text)} bytes", place=location)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"this is not an MXNet symbol: it is no JSON ({str(error)[:100]})", place=location
        ) from error
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), list):
        raise ModelError("this is not an MXNet symbol: it has no list of nodes", place=location)
    refuse_many(len(data["nodes"]), location)
    entries = [_entry(i, node) for i, node in enumerate(data["nodes"])]
    heads = _references(data.get("heads"), len(entries), "heads")
    if not heads:
        raise ModelError("the symbol has no outputs", place=location)
    for i, entry in enumerate(entries):
        if not entry.name or (entry.op == "null" and entry.inputs):
            raise ModelError(f"node {i} is unnamed or a variable with inputs", place=location)
    variables = [e.name for e in entries if e.op == "null"]
    if len(set(variables)) != len(variables):
        raise ModelError("two variables have the same name", place=location)
    stated = data.get("attrs")
    version = stated.get("mxnet_version") if isinstance(stated, dict) else None
    is_stated = isinstance(version, list) and len(version) == 2 and isinstance(version[1], int)
    return entries, heads, version[1] if is_stated else 0  # type: ignore[index]


def _entry(index: int, node: Any) -> SymbolNode:
    location = f"node {index} of the symbol"
    if not isinstance(node, dict) or not all(isinstance(node.get(k), str) for k in ("op", "name")):
        raise ModelError("a node has no operator or no name", place=location)
    if node.get("subgraphs"):
        raise UnsupportedError(f"{node['op']} holds a subgraph (control flow)", place=location)
    attributes: dict[str, Any] = {}
    for key in ("attr", "attrs", "param"):
        table = node.get(key, {})
        if not isinstance(table, dict):
            raise ModelError(f"{key} is not a table", place=location)
        for name, value in table.items():
            attributes[name] = literal(value) if isinstance(value, str) else value
    return SymbolNode(
        node["op"], node["name"], _references(node.get("inputs"), index, location), attributes
    )


def _references(listed: Any, limit: int, location: str) -> list[tuple[int, int]]:
    """Pairs (node, output); each node must come before number `limit`."""
    if not isinstance(listed, list):
        raise ModelError("inputs are not a list", place=location)
    references = []
    for item in listed:
        pair = item[:2] if isinstance(item, list) else []
        if len(pair) != 2 or not all(type(v) is int for v in pair):
            raise ModelError(f"{str(item)[:40]} is no reference to a node's output", place=location)
        node, output = pair
        if not 0 <= node < limit or not 0 <= output < 4096:
            raise ModelError(
                f"node {node} is not defined before it is read",
                place=location,
                next_step="the nodes are not sorted, form a cycle, or the file is damaged",
            )
        references.append((node, output))
    return references


def literal(text: str) -> Any:
    """A parameter's text as a number, a flag, None or a tuple of these; other text as it is."""
    if len(text) > 100_000 or not _LITERAL.fullmatch(text.strip()):
        return text
    try:
        return _plain(ast.literal_eval(re.sub(r"(\d)L\b", r"\1", text.strip())))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return text


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _add_states(entries: list[SymbolNode], arrays: Mapping[str, np.ndarray]) -> None:
    """Symbols written before MXNet 0.9 leave BatchNorm's moving statistics out of its inputs."""
    for entry in list(entries):
        if entry.op in AUX and len(entry.inputs) == 3:
            for state in AUX[entry.op]:
                name = f"{entry.name}_{state}"
                if name not in arrays:
                    raise ModelError(f"the params lack {name!r}", place=f"node {entry.name!r}")
                entry.inputs.append((len(entries), 0))
                entries.append(SymbolNode("null", name, []))


def _drop_labels(entries: list[SymbolNode]) -> None:
    for entry in entries:
        input_count = LOSSES.get(entry.op)
        if input_count is not None and len(entry.inputs) > input_count:
            labels = [entries[i].name for i, _ in entry.inputs[input_count:]]
            entry.attributes["label (input)"] = ", ".join(labels)
            del entry.inputs[input_count:]


def _reachable(
    entries: Sequence[SymbolNode], heads: Sequence[tuple[int, int]]
) -> dict[int, set[int]]:
    """Nodes that the heads need, with those of their outputs that are read."""
    used: dict[int, set[int]] = {}
    pending = list(heads)
    while pending:
        i, k = pending.pop()
        if i not in used:
            pending.extend(entries[i].inputs)
        used.setdefault(i, set()).add(k)
    return used


def _value_names(
    entries: Sequence[SymbolNode], used: Mapping[int, set[int]], heads: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], str]:
    """Names of values as MXNet lists them: `name_output`, `name_output2`, or the variable's."""
    names: dict[tuple[int, int], str] = {}
    used_names = {e.name for e in entries if e.op == "null"}
    for i, outputs in used.items():
        entry = entries[i]
        for k in sorted(outputs):
            if entry.op == "null":
                names[i, k] = entry.name
                continue
            numbered = entry.op in SEVERAL and not _is_single(entry)
            suffix = FIRST.get(entry.op, "output")
            base = f"{entry.name}_{suffix}" + (str(k) if numbered or k else "")
            if 0 < k <= len(FURTHER.get(entry.op, ())):
                base = f"{entry.name}_{FURTHER[entry.op][k - 1]}"
            candidate = base
            repeat = 1
            while candidate in used_names:
                repeat += 1
                candidate = f"{base}.{repeat}"
            used_names.add(candidate)
            names[i, k] = candidate
    return names


def _is_single(entry: SymbolNode) -> bool:
    """Whether an operator that may have several outputs has one."""
    if entry.op == "topk":
        return entry.attributes.get("ret_typ", "indices") in ("indices", "mask")
    return entry.attributes.get("num_outputs") == 1


def _input(
    index: int, entries: Sequence[SymbolNode], arrays: Mapping[str, np.ndarray]
) -> ForeignValue:
    """A variable without an array, with what can be known of its type."""
    entry = entries[index]
    dims, dtype = _from_weights(index, entries, arrays)
    stated = entry.attributes.get("__shape__")
    if isinstance(stated, tuple) and all(type(d) is int for d in stated) and stated:
        dims = tuple(d if d > 0 else None for d in stated)
    flag = entry.attributes.get("__dtype__")
    if flag in TYPES:
        dtype = TYPES[flag]
    return ForeignValue(entry.name, DType.of(dtype), dims)


def _from_weights(
    index: int, entries: Sequence[SymbolNode], arrays: Mapping[str, np.ndarray]
) -> tuple[tuple[int | None, ...] | None, np.dtype]:
    """Dims of an input that a convolution reads, and the dtype of that convolution's weights (or
    of a dense layer's, which say nothing of ranks)."""
    same = {index}
    for i, entry in enumerate(entries[index + 1 :], index + 1):
        if not entry.inputs or entry.inputs[0][0] not in same:
            continue
        if entry.op in KEEP_SHAPE or entry.op.lower().endswith("scalar"):
            same.add(i)
        if entry.op not in ("Convolution", "Convolution_v1", "Deconvolution", "FullyConnected"):
            continue
        weights = arrays.get(entries[entry.inputs[1][0]].name) if len(entry.inputs) > 1 else None
        if entry.op == "FullyConnected" and weights is not None and entry.inputs[0][0] == index:
            return None, weights.dtype
        groups = entry.attributes.get("num_group", 1)
        if weights is None or weights.ndim < 3 or type(groups) is not int:
            continue
        is_direct = entry.inputs[0][0] == index
        is_last = str(entry.attributes.get("layout")).endswith("C")
        own = weights.shape[-1 if is_last else 1] * groups
        channels = weights.shape[0] if entry.op == "Deconvolution" else own
        dtype = weights.dtype if is_direct else np.dtype(np.float32)
        spatial = (None,) * (weights.ndim - 2)
        return (None, *spatial, channels) if is_last else (None, channels, *spatial), dtype
    return None, np.dtype(np.float32)
