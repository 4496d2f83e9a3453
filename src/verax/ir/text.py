"""The text form of a graph: printed by `inspect`, carried in bug reports, parsed back to an equal
graph. Small constants are written out; large ones are named by a hash and supplied on parsing.

    graph "net"
    input %x: float32[n, 3, 224, 224]
    const %axes: int64[2] = [2, 3]
    const %w: float32[64, 3, 7, 7] = sha256:9f86d081884c7d65
    %y: float32[n, 64, 112, 112] = Conv(strides=(2, 2))(%x, %w, _) @ "conv1"
    output %y

Sizes between which a symbol of the inputs is stated to lie follow them:

    size n: 1 to 512
    size h: 32 and more

State is an input with its initial value; an output that is the new content of an input (state or
not) says of which one:

    state %count: int64[] = [0]
    %count.next: int64[] = Add()(%count, %one)
    output %count.next -> %count
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping

import numpy as np

from verax.base.errors import GraphError
from verax.ir.graph import Graph, Node
from verax.ir.operator import REGISTRY, Operator
from verax.ir.printer import content_hash
from verax.ir.types import TensorType, split_commas

_VALUE = re.compile(r'%(?:"(?:[^"\\]|\\.)*"|[A-Za-z0-9_./\-]+(?::[A-Za-z0-9_./\-]+)*)')

_BOUNDS = re.compile(r"([\w.]+): (\d+) (?:to (\d+)|and more)")


def parse_graph(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """Read a text form; `constants` supplies the arrays (initial values of state too) that the
    text names only by hash.

    Raises `GraphError` with the line when the text is not one or an array does not fit its hash.
    """
    reader = _Reader(constants or {})
    for line_number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            reader.line(line.strip())
        except GraphError as error:
            raise GraphError(
                error.cause,
                place=f"line {line_number}: {line.strip()[:120]}",
                next_step=error.next_step,
            ) from error
        except (ValueError, SyntaxError, KeyError, TypeError) as error:
            raise GraphError(
                f"cannot read the text form: {error}",
                place=f"line {line_number}: {line.strip()[:120]}",
            ) from error
    return reader.graph()


def _name(text: str) -> str:
    return json.loads(text[1:]) if text.startswith('%"') else text[1:]


class _Reader:
    def __init__(self, constants: Mapping[str, np.ndarray]) -> None:
        self.given = constants
        self.name = "graph"
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self.types: dict[str, TensorType] = {}
        self.updates: dict[str, str] = {}
        self.initial: dict[str, np.ndarray] = {}
        self.bounds: dict[str, tuple[int, int | None]] = {}

    def graph(self) -> Graph:
        return Graph(
            tuple(self.inputs),
            tuple(self.outputs),
            tuple(self.nodes),
            self.constants,
            self.types,
            self.name,
            self.updates,
            self.initial,
            self.bounds,
        )

    def line(self, line: str) -> None:
        keyword, _, declaration = line.partition(" ")
        if keyword == "graph":
            self.name = json.loads(declaration)
        elif keyword == "input":
            self.inputs.append(self._typed(declaration))
        elif keyword == "output":
            self._output(declaration)
        elif keyword == "const":
            self._filled(declaration, self.constants)
        elif keyword == "state":
            self.inputs.append(self._filled(declaration, self.initial))
        elif keyword == "size":
            self._size(declaration)
        else:
            self._node(line)

    def _size(self, text: str) -> None:
        match = _BOUNDS.fullmatch(text)
        if match is None:
            raise GraphError(f"expected a symbol and its bounds, n: 1 to 512, found {text!r}")
        name, low, high = match.groups()
        self.bounds[name] = (int(low), None if high is None else int(high))

    def _typed(self, text: str) -> str:
        match = _VALUE.match(text)
        if match is None or not text[match.end() :].startswith(": "):
            raise GraphError(f"expected %name: type, found {text!r}")
        name = _name(match.group())
        self.types[name] = TensorType.parse(text[match.end() + 2 :])
        return name

    def _output(self, text: str) -> None:
        names = _VALUE.findall(text)
        if " -> ".join(names) != text or len(names) not in (1, 2):
            raise GraphError(f"expected %name or %name -> %input, found {text!r}")
        self.outputs.append(_name(names[0]))
        if len(names) == 2:
            self.updates[_name(names[1])] = _name(names[0])

    def _filled(self, text: str, arrays: dict[str, np.ndarray]) -> str:
        """Read a typed name with its content into `arrays`."""
        left, _, right = text.rpartition(" = ")
        name = self._typed(left)
        type_ = self.types[name]
        if right.startswith("sha256:"):
            if name not in self.given:
                raise GraphError(
                    f"the constant {name!r} is large and was not supplied",
                    next_step="pass it in `constants`",
                )
            array = np.asarray(self.given[name])
            if content_hash(array) != right[7:] or TensorType.of(array) != type_:
                raise GraphError(f"the array supplied for {name!r} is another one")
        else:
            values = eval_literal(right)
            array = np.array(values, type_.dtype.numpy).reshape(type_.shape)
        arrays[name] = array
        return name

    def _node(self, line: str) -> None:
        name = ""
        match = re.search(r' @ ("(?:[^"\\]|\\.)*")\Z', line)
        if match:
            name, line = json.loads(match.group(1)), line[: match.start()]
        left, _, right = _split_equals(line)
        outputs = tuple(self._typed(output) for output in split_commas(left))
        head, tail = _split_call(right)
        inputs = tuple(None if v == "_" else _name(v) for v in split_commas(tail))
        self.nodes.append(Node(parse_operator(head), inputs, outputs, name))


def _split_equals(line: str) -> tuple[str, str, str]:
    match = re.search(r"\] = (?=[A-Z]\w*\()", line)
    if match is None:
        raise GraphError("expected '%value: type = Operator(...)(...)'")
    return line[: match.start() + 1], "=", line[match.end() :]


def _split_call(text: str) -> tuple[str, str]:
    """Split `Op(attributes)(inputs)` into `Op(attributes)` and `inputs`."""
    depth, quote = 0, ""
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote and text[i - 1] != "\\" else quote
        elif c in "\"'":
            quote = c
        elif c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
            if depth == 0:
                return text[: i + 1], text[i + 2 : -1]
    raise GraphError(f"unbalanced brackets in {text!r}")


def parse_operator(text: str) -> Operator:
    """Read `Conv(strides=(2, 2))`. Raises `GraphError` for unknown operators and attributes."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise GraphError(f"{text!r} is not an operator")
    cls = REGISTRY.get(call.func.id)
    if cls is None:
        raise GraphError(f"there is no operator {call.func.id!r}", next_step="see `verax ops`")
    attributes = {k.arg or "": _literal(k.value) for k in call.keywords}
    return cls(**attributes)


def eval_literal(text: str) -> object:
    """A Python literal in which `inf` and `nan` are numbers."""
    return _literal(ast.parse(text, mode="eval").body)


def _literal(node: ast.expr) -> object:
    match node:
        case ast.Name(id="inf" | "nan" as name):
            return float(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _literal(operand)
            assert isinstance(value, int | float)
            return -value
        case ast.Tuple(elts=items):
            return tuple(_literal(i) for i in items)
        case ast.List(elts=items):
            return [_literal(i) for i in items]
    return ast.literal_eval(node)
