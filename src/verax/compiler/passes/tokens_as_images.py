"""Images that a network takes apart into tokens, and tokens that it puts together as images.

A transformer for images turns pixels [n, c, h, w] into tokens [n, h w, c] and back around every
convolution: a Reshape between a Transpose and a convolution, behind which nothing can be fused and
through which no kernel can read. The Reshape moves to the side of the tokens, where it is a view.
"""

from __future__ import annotations

import math

from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.shapes import sizes_array
from verax.ir.text import parse_graph
from verax.ops.movement.reshaping import Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from verax.ops.pointwise.elementwise import Elementwise
from verax.records.trace import Trace

_LAST_TWO = (0, 2, 1)
_VIEWS = (Reshape, Flatten, Squeeze, Unsqueeze)


def tokens_as_images(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Do a Reshape between images and rows of tokens on the side of the tokens.

    Given:  %t = Transpose(perm=(0, 2, 1))(%tokens); %i = Reshape()(%t, [n, c, h, w])
            %c = Conv()(%i, %w); %r = Reshape()(%c, [n, c, h w]); %e = Relu()(%r)
            %y = Transpose(perm=(0, 2, 1))(%e)
    Result: %p = Reshape()(%tokens, [n, h, w, c]); %i = Transpose(perm=(0, 3, 1, 2))(%p)
            %c = Conv()(%i, %w); %e = Relu()(%c); %q = Transpose(perm=(0, 2, 3, 1))(%e)
            %y = Reshape()(%q, [n, h w, c])

    Between the Reshape and the Transpose only elementwise nodes may stand, whose other operands
    have one element; those that follow the Transpose go in front of it. So they can be fused behind
    what makes the image, and the Transpose moves whole pixels.

    Numeric effect: none; elements move, no arithmetic changes its operands or its order.
    """
    return _Mover(graph, limit).run()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "tokens_as_images"
        input %tokens: float32[1, 6, 1]
        const %w: float32[1, 1, 1, 1] = [2.0]
        const %image: int64[4] = [1, 1, 2, 3]
        const %row: int64[3] = [1, 1, 6]
        %t: float32[1, 1, 6] = Transpose(perm=(0, 2, 1))(%tokens)
        %i: float32[1, 1, 2, 3] = Reshape()(%t, %image)
        %c: float32[1, 1, 2, 3] = Conv()(%i, %w)
        %r: float32[1, 1, 6] = Reshape()(%c, %row)
        %e: float32[1, 1, 6] = Relu()(%r)
        %y: float32[1, 6, 1] = Transpose(perm=(0, 2, 1))(%e)
        output %y
        """
    )


class _Mover:
    """late: old values whose elements a NEW image holds: (image, whether they are tokens and not
    rows of pixels)."""

    def __init__(self, graph: Graph, limit: int | None) -> None:
        self.graph, self.rewriter = graph, Rewriter(graph, limit)
        self.late: dict[str, tuple[str, bool]] = {}
        self.graph_outputs = {*graph.outputs, *graph.updates.values()}

    def run(self) -> tuple[Graph, Trace]:
        for node in self.graph.nodes:
            if self._in_image(node):
                continue
            for value in node.inputs:
                if value in self.late and value not in self.rewriter.values:
                    self._emit_tokens(value)
            if self.rewriter.spent or not (self._starts(node) or self._from_tokens(node)):
                self.rewriter.keep(node)
        return self.rewriter.finish()

    def _in_image(self, node: Node) -> bool:
        """A node of single elements, or one that turns rows, behind a Reshape that was put off."""
        late = [self.late[v] for v in node.inputs if v in self.late]
        if not late or len(node.outputs) != 1:
            return False
        value, (first, tokens) = node.outputs[0], late[0]
        if isinstance(node.op, Transpose) and not tokens:
            self.late[value] = first, True
            if value in self.graph_outputs:
                self._emit_tokens(value)
            return True
        types = self.rewriter.new.types
        if not isinstance(node.op, Elementwise) or value in self.graph_outputs:
            return False
        if any(is_token != tokens or types[i] != types[first] for i, is_token in late):
            return False
        if not all(v is None or v in self.late or self._is_number(v) for v in node.inputs):
            return False
        inputs = [self.late[v][0] if v in self.late else self._scalar(v) for v in node.inputs]
        self.late[value] = self.rewriter.add(node.op, inputs, node.name), tokens
        return True

    def _emit_tokens(self, value: str) -> None:
        """Emit the pending value [n, tokens, c] from its image [n, c, height, width, ...]."""
        image, tokens = self.late[value]
        assert tokens, "rows are read by what is late, too"
        rank = self.rewriter.new.types[image].rank
        last = self.rewriter.add(Transpose(perm=(0, *range(2, rank), 1)), [image])
        names = [value] if value not in self.rewriter.new.types else []
        shape = self.rewriter.constant(sizes_array(self.graph.types[value].shape))
        self.rewriter.values[value] = self.rewriter.add(Reshape(), [last, shape], "", names)

    def _is_number(self, value: str) -> bool:
        return value in self.graph.constants and self.graph.constants[value].size == 1

    def _scalar(self, value: str | None) -> str | None:
        """A constant of one element, without axes: it may have more than an image."""
        if value is None:
            return None
        return self.rewriter.constant(self.graph.constants[value].reshape(()))

    def _starts(self, node: Node) -> bool:
        """Put off a Reshape of an image to rows, if only Transposes of the rows need it."""
        source, value = node.inputs[0] if node.inputs else None, node.outputs[0]
        if not isinstance(node.op, _VIEWS) or source is None or source in self.graph.constants:
            return False
        if not _is_row(self.graph, image=source, row=value) or not self._ends_in_transposes(value):
            return False
        self.late[value] = self.rewriter.map(source) or "", False
        self.rewriter.record(node, "tokens_as_images")
        return True

    def _ends_in_transposes(self, row: str) -> bool:
        """True if every path from `row` is elementwise nodes and then a Transpose."""
        graph, rows, ends = self.graph, [row], False
        for value in rows:
            if value in self.graph_outputs:
                return False
            for node in graph.consumers.get(value, ()):
                if isinstance(node.op, Transpose) and _perm(node, 3) == _LAST_TWO:
                    ends = True
                elif not isinstance(node.op, Elementwise) or len(node.outputs) != 1:
                    return False
                elif node.outputs[0] not in rows:
                    rows.append(node.outputs[0])
        all_rows = {*rows}
        return ends and all(
            v in all_rows or self._is_number(v)
            for row_value in rows[1:]
            for v in graph.producers[row_value].inputs
            if v is not None
        )

    def _from_tokens(self, node: Node) -> bool:
        """True if the node reshapes transposed tokens to an image; it then becomes a Reshape to
        [n, height, width, c] and a Transpose."""
        source, value = node.inputs[0] if node.inputs else None, node.outputs[0]
        transpose = self.graph.producers.get(source or "")
        if transpose is None or not isinstance(node.op, _VIEWS) or value in self.graph.outputs:
            return False
        if not isinstance(transpose.op, Transpose) or _perm(transpose, 3) != _LAST_TWO:
            return False
        if not _is_row(self.graph, image=value, row=source or ""):
            return False
        tokens = self.rewriter.map(transpose.inputs[0]) or ""
        n, c, *space = self.graph.types[value].shape
        shape = self.rewriter.constant(sizes_array((n, *space, c)))
        pixels = self.rewriter.add(Reshape(), [tokens, shape], node.name)
        names = self.rewriter.names(node)
        output = self.rewriter.add(
            Transpose(perm=_first(len(space))), [pixels], transpose.name, names
        )
        self.rewriter.replace(node, output, "tokens_as_images")
        return True


def _first(axes: int) -> tuple[int, ...]:
    """The permutation that brings channels in front of so many axes of pixels."""
    return (0, axes + 1, *range(1, axes + 1))


def _perm(node: Node, rank: int) -> tuple[int, ...]:
    assert isinstance(node.op, Transpose)
    perm = node.op.perm
    return tuple(range(rank))[::-1] if perm is None else tuple(p % rank for p in perm)


def _is_row(graph: Graph, image: str, row: str) -> bool:
    """True if `row` is [n, c, pixels] with the elements of `image` [n, c, height, width, ...]."""
    image_type, flat = graph.types[image], graph.types[row]
    if not image_type.is_static or not flat.is_static or flat.rank != 3 or image_type.rank < 4:
        return False
    n, c, *space = image_type.shape
    return 0 not in image_type.shape and flat.shape == (n, c, math.prod(space))
