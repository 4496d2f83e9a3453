"""Writes names.npz as make_operators.py does: networks of the names that neither Gluon nor the
functions of mx.sym write, but older files and other programs do.

Symbols that MXNet writes name an operator by its first name only, so these are written here, node
by node, and MXNet reads them. Run by hand where MXNet 1.9.1 is installed.
"""

from pathlib import Path

import make_operators
from make_operators import mx

mx.npx.set_np()
SHAPE, ROW, IMAGE = (2, 3, 5), (1, 3, 1), (2, 6, 5, 7)


def network(*made):
    """The symbol of nodes (operator, parameters, inputs by name, number of outputs if not 1).

    An input is a variable, or an earlier node as its index among `made`; every node's outputs are
    outputs of the network.
    """
    nodes, at, heads, places = [], {}, [], []
    for operator, parameters, inputs, *count in made:
        for name in inputs:
            if isinstance(name, str) and name not in at:
                at[name] = len(nodes)
                nodes.append({"op": "null", "name": name, "inputs": []})
        places.append(len(nodes))
        heads += [[len(nodes), i, 0] for i in range(*count or (1,))]
        nodes.append(
            {
                "op": operator,
                "name": f"{operator.strip('_')}{len(places)}",
                "attrs": {k: str(v) for k, v in parameters.items()},
                "inputs": [[at[n] if isinstance(n, str) else places[n], 0, 0] for n in inputs],
            }
        )
    return {
        "nodes": nodes,
        "arg_nodes": [i for i, node in enumerate(nodes) if node["op"] == "null"],
        "heads": heads,
        "attrs": {"mxnet_version": ["int", 10901], "is_np_shape": ["int", 1]},
    }


def every(operators, *inputs, **parameters):
    """A network of operators that all read the same."""
    return network(*((name, parameters, inputs) for name in operators.split()))


def cases():
    """(name, symbol, shapes of inputs)."""
    both = ("data", "positive")
    alike = "_Plus _plus _add _Minus _minus _sub _Mul _mul _Div _div _hypot"
    yield "names_alike", every(alike, *both), [SHAPE] * 2
    yield "names_sum", every("ElementWiseSum", *both, num_args=2), [SHAPE] * 2
    yield "names_chosen", every("_Maximum _maximum _Minimum _minimum", *both), [SHAPE] * 2
    yield "names_mod", every("_Mod _mod", *both), [SHAPE] * 2
    yield "names_power", every("_Power _power", "positive", "data"), [SHAPE] * 2
    yield "names_power_axes", every("broadcast_power", "positive", "data"), [SHAPE, ROW]
    axes = "broadcast_plus broadcast_minus broadcast_div"
    yield "names_axes", every(axes, *both), [SHAPE, ROW]
    kept = "identity _copy BlockGrad stop_gradient make_loss"
    yield "names_kept", every(kept, "data"), SHAPE
    forms = "_PlusScalar _MinusScalar _RMinusScalar _MulScalar _DivScalar _RDivScalar"
    yield "names_scalar", every(forms, "positive", scalar=0.6), SHAPE
    forms = "_MaximumScalar _MinimumScalar _PowerScalar _RPowerScalar"
    yield "names_scalar_chosen", every(forms, "positive", scalar=0.6), SHAPE
    yield "names_scalar_mod", every("_ModScalar _RModScalar", "positive", scalar=0.6), SHAPE
    yield from comparisons()
    functions = "arccos arcsin arctan cos cosh sigmoid sin sinh softsign tan tanh"
    yield "names_functions", every(functions, "data"), SHAPE
    yield "names_roots", every("log reciprocal sqrt", "positive"), SHAPE
    yield "names_trunc", network(("trunc", {}, ["eighths"])), SHAPE
    yield from moves()
    yield from layers()
    yield from numpys()


def comparisons():
    whole = ("whole", "other_whole")
    for title, form, kinds in (
        ("compared", "{}", "equal not_equal lesser lesser_equal greater greater_equal"),
        ("logic", "logical_{}", "and or xor"),
    ):
        same, spread, numbers = (
            " ".join(before.format(form.format(kind)) for kind in kinds.split())
            for before in ("_{}", "broadcast_{}", "_{}_scalar")
        )
        yield f"names_{title}", every(same, *whole), [SHAPE] * 2
        yield f"names_{title}_axes", every(spread, *whole), [SHAPE, ROW]
        scalar = -1 if title == "compared" else 0
        yield f"names_{title}_scalar", every(numbers, "whole", scalar=scalar), SHAPE
        yield f"names_{title}_default", every(numbers, "whole"), SHAPE


def moves():
    data = ["data"]
    yield (
        "names_moved",
        network(
            ("flip", {"axis": (0, 2)}, data),
            ("swapaxes", {"dim1": 1, "dim2": 2}, data),
            ("reshape", {"shape": (0, -1)}, data),
            ("flatten", {}, data),
            ("crop", {"begin": (0, 1, 4), "end": (1, 2, 0), "step": (1, 1, -2)}, data),
            ("split", {"num_outputs": 3, "axis": 1, "squeeze_axis": True}, data, 3),
            ("concat", {"dim": 2, "num_args": 2}, ["data", "other"]),
            ("cast", {"dtype": "float64"}, data),
        ),
        [SHAPE, (2, 3, 4)],
    )
    spread = {"axis": (0, 2), "size": (3, 4)}
    yield "names_spread", network(("broadcast_axes", spread, data)), (1, 2, 1)
    widths = {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 2, 3, 0), "constant_value": 0.5}
    yield "names_pad", network(("pad", widths, data)), IMAGE
    yield (
        "names_reduced",
        network(
            ("sum_axis", {"axis": 1, "keepdims": True}, data),
            ("max_axis", {"axis": (0, 2)}, data),
            ("min_axis", {"axis": 1, "exclude": True}, data),
            ("prod", {"axis": (1, 2)}, data),
            ("cumsum", {"axis": 1}, data),
        ),
        SHAPE,
    )
    turned = {"transpose_b": True, "alpha": 0.5}
    shapes = [(2, 3, 4), (2, 5, 4)]
    yield "names_gemm", network(("linalg_gemm2", turned, ["data", "other"])), shapes


def layers():
    conv = {"kernel": (3, 2), "num_filter": 4, "stride": (2, 1), "pad": (1, 0), "dilate": (1, 2)}
    yield (
        "names_conv",
        network(("Convolution_v1", conv, ["data", "weight", "bias"])),
        IMAGE,
    )
    groups = {"kernel": (3, 2), "num_filter": 4, "num_group": 2, "no_bias": True}
    yield "names_conv_groups", network(("Convolution_v1", groups, ["data", "weight"])), IMAGE
    pool = {"kernel": (3, 2), "stride": (2, 2)}
    for convention in ("valid", "full"):
        pools = [
            ("Pooling_v1", {"pool_type": kind, "pooling_convention": convention, **more}, ["data"])
            for kind in ("max", "avg", "sum")
            for more in ({**pool, "pad": (1, 0)}, {**pool, "global_pool": True})
        ]
        yield f"names_pool_{convention}", network(*pools), (2, 3, 8, 9)
    arrays = ["data", "gamma", "beta", "moving_mean", "moving_var"]
    for name, more in {
        "BatchNorm_v1": {},
        "_contrib_SyncBatchNorm": {"key": "all"},
        "_npx_batch_norm": {"axis": 3},
    }.items():
        fixed, free = ({"fix_gamma": v, "eps": 0.1, **more} for v in (True, False))
        text = name.strip("_")
        yield f"names_{text}_fixed", network((name, fixed, arrays)), IMAGE
        yield f"names_{text}", network((name, free, arrays)), IMAGE
    for name in ("Softmax", "LinearRegressionOutput", "MAERegressionOutput"):
        yield f"names_{name}", network((name, {}, ["data", "label"])), (3, 5)
    for form in ("multi_output", "preserve_shape"):
        yield f"names_{form}", network(("Softmax", {form: True}, ["data", "label"])), SHAPE
    both = {"id_index": 0, "force_suppress": True, "background_id": 1}
    for i, form in enumerate(
        (
            {"id_index": 0, "overlap_thresh": 0.3},
            {"overlap_thresh": 0.2, "topk": 5, "valid_thresh": 0.25},
            {"overlap_thresh": 0.1, **both},
        )
    ):
        suppressed = network(("_contrib_box_non_maximum_suppression", form, ["rows"]))
        yield f"names_nms_{i}", suppressed, (2, 9, 6)
    for name in ("_rnn_param_concat", "_npi_rnn_param_concat"):
        joined = network((name, {"num_args": 2, "dim": 0}, ["data", "other"]))
        yield f"names{name}", joined, [(4,), (7,)]


def numpys():
    data = ["data"]
    yield (
        "names_np_reduced",
        network(
            ("_np_amax", {"axis": (0, 2), "keepdims": True}, data),
            ("_np_amin", {"axis": 1}, data),
            ("_np_prod", {"axis": (1, 2)}, data),
            ("_np_product", {}, data),
            ("_npi_argmin", {"axis": 1, "keepdims": True}, data),
            ("_npi_cos", {}, data),
            ("_npi_tan", {}, data),
        ),
        SHAPE,
    )
    counted = {"start": 1, "stop": 4, "step": 0.5}
    yield (
        "names_np_made",
        network(
            ("_npi_arange", counted, []),
            ("_npi_ones", {"shape": (2, 3)}, []),
            ("_npi_zeros", {"shape": (3,), "dtype": "float64"}, []),
            ("_npi_cos", {}, data),
        ),
        SHAPE,
    )
    kinds = "equal not_equal less less_equal greater greater_equal"
    whole = ("whole", "other_whole")
    names = [f"_npi_{kind}" for kind in kinds.split()]
    yield "names_np_compared", every(" ".join(names), *whole), [SHAPE, ROW]
    scalars = " ".join(f"{name}_scalar" for name in names)
    yield "names_np_compared_scalar", every(scalars, "whole", scalar=-1), SHAPE
    yield "names_np_compared_default", every(scalars, "whole"), SHAPE
    shapes = [SHAPE, (2, 4)]
    yield "names_np_gather", network(("_npx_gather_nd", {}, ["data", "numbers"])), shapes


if __name__ == "__main__":
    make_operators.DRAWN |= {
        "positive": lambda v: abs(v) + 0.25,
        "whole": lambda v: (3 * v).round(),
        "other_whole": lambda v: (2 * v).round(),
        "eighths": lambda v: (8 * v).round() / 2,
    }
    make_operators.write(Path(__file__).with_name("names.npz"), cases())
