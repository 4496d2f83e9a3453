"""Writes numpy.npz as make_operators.py does: networks of MXNet's NumPy interface (mx.np, mx.npx),
whose operators have names and rules of their own.

Run by hand where MXNet 1.9.1 is installed.
"""

from pathlib import Path

import make_operators
from make_operators import mx

mx.npx.set_np()
NP, NPX = mx.sym.np, mx.sym.npx
SHAPE = (2, 3, 5)


def x(name="data"):
    return make_operators.x(name).as_np_ndarray()


def cases():
    """(name, symbol, shapes of inputs)."""
    other = x("other")
    for name in ("add", "subtract", "multiply", "true_divide", "maximum", "minimum", "mod"):
        yield f"np_{name}", getattr(NP, name)(x(), other), [SHAPE, (1, 3, 1)]
    yield "np_power", NP.power(NP.abs(x()) + 0.5, other), [SHAPE, (3, 1)]
    yield "np_scalars", 3 - 2 / (1.5 + x() * x() * 0.25) - (x() - 0.5) / 4 + (-x()) % 0.3, SHAPE
    yield "np_powers", (NP.abs(x()) + 1) ** 1.5 + 2 ** (x() + 1), SHAPE
    yield "np_extremes", NP.maximum(NP.minimum(x(), 0.5), -0.25), SHAPE
    for name in ("exp", "abs", "negative", "floor", "ceil", "tanh", "square", "sign", "sin"):
        yield f"np_{name}", getattr(NP, name)(x()), SHAPE
    yield "np_log", NP.log(NP.square(x()) + 0.25), SHAPE
    yield "np_roots", NP.sqrt(NP.abs(x())) + NP.reciprocal(x() + 3), SHAPE
    yield "np_clip", NP.clip(x(), -0.5, 0.25), SHAPE
    for name in ("relu", "sigmoid"):
        yield f"npx_{name}", getattr(NPX, name)(x()), SHAPE
    yield "npx_softmax", NPX.softmax(x(), axis=1), SHAPE
    yield "npx_log_softmax", NPX.log_softmax(x(), axis=-1), SHAPE
    yield "npx_gelu", NPX.leaky_relu(x(), act_type="gelu"), SHAPE
    yield "npx_layer_norm", NPX.layer_norm(x(), x("n_gamma"), x("n_beta"), eps=0.1), SHAPE
    for name in ("sum", "mean", "max", "min"):
        reduced = getattr(NP, name)
        yield f"np_{name}", reduced(x(), axis=(0, 2), keepdims=True), SHAPE
        yield f"np_{name}_all", reduced(x()), SHAPE
        yield f"np_{name}_last", reduced(x(), axis=-1), SHAPE
    yield "np_argmax", NP.argmax(x(), axis=1), SHAPE
    old = make_operators.x()
    whole = [getattr(make_operators.S, n)(old) for n in ("sum", "max", "norm", "argmax")]
    kept = make_operators.S.argmax(old, keepdims=True)
    yield "np_old_reductions", make_operators.S.Group([*whole, kept]), SHAPE
    yield "np_reshape", x().reshape((3, -1)), SHAPE
    for i, (codes, shape) in enumerate(
        (
            ((-2, -1), (2, 3, 4)),
            ((-3, -4), (1, 3, 4)),
            ((-5, -4), (2, 3, 4)),
            ((-6, 2, -1, -2), (6, 5)),
            ((-2, -6, -1, 2, -4), (3, 8, 5)),
        )
    ):
        yield f"npx_reshape_{i}", NPX.reshape(x(), codes), shape
    yield "np_transpose", NP.transpose(x(), (2, 0, 1)), SHAPE
    yield "np_transpose_all", x().T, SHAPE
    yield "np_squeeze", NP.squeeze(x(), axis=1), (2, 1, 5)
    yield "np_expand", NP.expand_dims(x(), axis=-2), SHAPE
    yield "np_concatenate", NP.concatenate([x(), other], axis=2), [SHAPE, (2, 3, 4)]
    yield "np_concatenate_flat", NP.concatenate([x(), other], axis=None), [SHAPE, (2, 3)]
    yield "np_stack", NP.stack([x(), other], axis=1), [SHAPE] * 2
    parts = NP.split(x(), (1, 3), axis=2)
    yield "np_split", parts[2] - parts[1], SHAPE
    halves = NP.split(x(), 2, axis=1)
    yield "np_split_equal", halves[0] * halves[1], (3, 4, 5)
    yield "np_swapaxes", NP.swapaxes(x(), 0, 2), SHAPE
    yield "np_moveaxis", NP.moveaxis(x(), 0, 2), SHAPE
    yield "np_flip", NP.flip(x(), axis=1), SHAPE
    yield "np_broadcast_to", NP.broadcast_to(x(), (4, 2, 5)), (2, 1)
    yield "np_matmul", NP.matmul(x(), other), [SHAPE, (5, 4)]
    yield "np_dot", NP.dot(x(), other), [(3, 5), (5, 4)]
    yield "np_slice", x()[:, 1:, ::-2], SHAPE
    for name in ("equal", "less", "greater_equal"):
        compared = getattr(NP, name)(NP.floor(3 * x()), NP.floor(3 * other))
        yield f"np_{name}", NP.where(compared, x(), other), [SHAPE, (3, 1)]
    yield "np_above", NP.where(x() > 0.25, x(), other), [SHAPE] * 2
    yield "np_tile", NP.tile(x(), (2, 1, 3)), SHAPE
    yield "np_repeat", NP.repeat(x(), 2, axis=1), SHAPE
    yield "np_take", NP.take(x(), x("places"), axis=1, mode="clip"), [SHAPE, (4,)]
    yield "np_pad", NP.pad(x(), ((0, 0), (1, 2), (3, 0)), mode="constant"), SHAPE
    yield "np_conv", block(), (2, 3, 9, 8)


def block():
    """A few of Gluon's layers in the NumPy interface."""
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="block_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D())
        net.add(nn.Conv2DTranspose(3, 2, strides=2), nn.PReLU(), nn.Swish(), nn.GlobalAvgPool2D())
        net.add(nn.Dense(6), nn.Dropout(0.5), nn.LayerNorm(), nn.SELU())
    return net(x())


if __name__ == "__main__":
    make_operators.write(Path(__file__).with_name("numpy.npz"), cases())
