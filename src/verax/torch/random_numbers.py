"""Random numbers in a graph of AOTAutograd: PyTorch draws them, from its own generator and in the
order of eager PyTorch, and the program gets them as inputs. So dropout keeps the numbers that it
has in eager training with the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verax.base.errors import UnsupportedError
from verax.base.optional import optional
from verax.frontends.torch.lines import line_of

torch: Any = optional("torch", "to use verax.torch")
FUNCTIONS = frozenset((
    *("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout"),
    *("dropout_", "feature_alpha_dropout", "rand", "randn", "randint", "randperm", "rand_like"),
    *("randn_like", "randint_like", "bernoulli", "bernoulli_", "normal", "normal_", "uniform_"),
    *("multinomial", "poisson", "exponential_", "gumbel_softmax", "rrelu", "random_"),
))  # fmt: skip
"""Names in PyTorch of what draws random numbers, in some of its uses."""
LIKE = ("bernoulli.p", "rand_like", "randn_like", "randint_like")
"""ATen operators that take only the form of a tensor."""


def draws(graph: Any) -> bool:
    """Whether a graph of Dynamo calls something that may draw random numbers."""
    return any(
        str(getattr(n.target, "__name__", n.target)) in FUNCTIONS
        for n in graph.graph.nodes
        if n.op.startswith("call")
    )


def taken_out(graph: Any) -> tuple[Any, Callable[[Sequence[Any]], list[Any]]]:
    """The graph with an input, behind its others, for each node that draws; and what draws them,
    given the other arguments.

    Raises `UnsupportedError` for numbers whose distribution or count other nodes decide.
    """
    aten = torch.ops.aten
    for node in graph.graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        _spell_out(graph.graph, node)
    drawing_nodes = [n for n in graph.graph.nodes if _is_drawn(n)]
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    last = placeholders[-1:]
    makers = []
    for index, node in enumerate(drawing_nodes):
        makers.append(_maker(node))
        anchor = last[-1] if last else next(iter(graph.graph.nodes))
        insert = graph.graph.inserting_after if last else graph.graph.inserting_before
        with insert(anchor):
            placeholder = graph.graph.placeholder(f"drawn_{index}")
        placeholder.meta.update(node.meta)
        node.replace_all_uses_with(placeholder)
        graph.graph.erase_node(node)
        last = [placeholder]
    graph.recompile()
    forms = [p.meta.get("val") for p in placeholders]

    def drawn(arguments: Sequence[Any]) -> list[Any]:
        sizes = _sizes(forms, arguments) if makers else {}
        return [make(sizes) for make in makers]

    return graph, drawn


def _spell_out(graph: Any, node: Any) -> None:
    """A dropout by its mask, which is drawn in the memory order of its input."""
    aten = torch.ops.aten
    x, p, train = (*node.args, None)[:3]
    with graph.inserting_before(node):
        if train is False or p == 0:
            result, mask = (
                x,
                graph.call_function(aten.ones_like.default, (x,), {"dtype": torch.bool}),
            )
        elif p == 1:
            result = graph.call_function(aten.zeros_like.default, (x,))
            mask = graph.call_function(aten.zeros_like.default, (x,), {"dtype": torch.bool})
        else:
            mask_values = graph.call_function(bernoulli_in_place, (x, 1 - p))
            mask_values.meta.update(x.meta)
            scaled = graph.call_function(aten.div.Scalar, (mask_values, 1 - p))
            result = graph.call_function(aten.mul.Tensor, (x, scaled))
            mask = graph.call_function(aten.to.dtype, (mask_values, torch.bool))
    for user in list(node.users):
        user.replace_all_uses_with((result, mask)[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(node)


def bernoulli_in_place(form: Any, p: float) -> Any:
    """Ones with probability p, drawn in the memory order of `form`."""
    return torch.empty_like(form).bernoulli_(p)


def _is_drawn(node: Any) -> bool:
    tags = getattr(node.target, "tags", ())
    seeded = torch.Tag.nondeterministic_seeded in tags or node.target is bernoulli_in_place
    return node.op == "call_function" and seeded


def _maker(node: Any) -> Callable[[Mapping[Any, int]], Any]:
    """Draws the numbers of a node, for the values of symbols that stand for sizes."""
    args, kwargs = list(node.args), dict(node.kwargs)
    of_form = str(node.target).startswith(tuple(f"aten.{name}" for name in LIKE))
    if of_form or node.target is bernoulli_in_place:
        args[0] = _Form(args[0].meta["val"])
    leaves, tree = torch.utils._pytree.tree_flatten((args, kwargs))
    leaves = [_size_of(leaf) if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]
    if any(isinstance(leaf, torch.fx.Node) for leaf in leaves):
        line = line_of(node)
        raise UnsupportedError(
            f"{node.target} draws random numbers whose distribution or count the graph computes"
            + (f" ({line})" if line else ""),
            next_step="draw them outside of the compiled function and give them as an argument",
        )

    def draw(sizes: Mapping[Any, int]) -> Any:
        filled = [
            leaf.tensor(sizes) if isinstance(leaf, _Form) else concrete_size(leaf, sizes)
            for leaf in leaves
        ]
        positional, named = torch.utils._pytree.tree_unflatten(filled, tree)
        return node.target(*positional, **named)

    return draw


class _Form:
    """Shape, strides and type of a tensor, of which some sizes may be open."""

    def __init__(self, value: Any) -> None:
        self.shape, self.strides, self.dtype = value.shape, value.stride(), value.dtype

    def tensor(self, sizes: Mapping[Any, int]) -> Any:
        shape, strides = ([concrete_size(n, sizes) for n in t] for t in (self.shape, self.strides))
        return torch.empty_strided(shape, strides, dtype=self.dtype)


def _size_of(node: Any) -> Any:
    """The symbolic size that a node gives; the node when it gives something else."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.SymInt) else node


def concrete_size(value: Any, sizes: Mapping[Any, int]) -> Any:
    """A size in numbers; anything else as it is."""
    return int(value.node.expr.xreplace(sizes)) if isinstance(value, torch.SymInt) else value


def _sizes(forms: Sequence[Any], arguments: Sequence[Any]) -> dict[Any, int]:
    """What the symbols in the forms of a graph's inputs are for these arguments."""
    sizes: dict[Any, int] = {}
    for form, value in zip(forms, arguments):
        pairings = [(form, value)]
        if isinstance(form, torch.Tensor):
            pairings = list(zip(form.shape, value.shape))
        for symbol, size in pairings:
            if isinstance(symbol, torch.SymInt) and symbol.node.expr.is_symbol:
                sizes[symbol.node.expr] = int(size)
    return sizes
