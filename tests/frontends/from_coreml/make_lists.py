"""Writes lists.npz: ML programs of loops over lists, as coremltools converts recurrent networks.

Run by hand where coremltools is installed; the tests read the file, compute the answers in NumPy
with the weights that are stored beside each model, and draw their own inputs. The operations are
those of coremltools' conversion of TensorFlow's TensorList operators: a tensor is scattered into a
list, each step reads one element and writes one, and what was written is gathered.
"""

from __future__ import annotations

import sys
from pathlib import Path

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb
from make_programs import store

STEPS, BATCH, CHANNELS, UNITS = 6, 3, 5, 4
draw = np.random.default_rng(92)
WEIGHTS = {
    "w": draw.standard_normal((UNITS, CHANNELS)).astype(np.float32),
    "u": draw.standard_normal((UNITS, UNITS)).astype(np.float32),
    "b": draw.standard_normal(UNITS).astype(np.float32),
}
SPECS = [mb.TensorSpec((STEPS, BATCH, CHANNELS)), mb.TensorSpec((BATCH, UNITS))]


def step(x, h):
    own = mb.linear(x=x, weight=WEIGHTS["w"], bias=WEIGHTS["b"])
    return mb.tanh(x=mb.add(x=own, y=mb.linear(x=h, weight=WEIGHTS["u"])))


@mb.program(input_specs=SPECS, opset_version=ct.target.iOS16)
def recurrent(x, h):
    """Every state and the last one."""
    read = mb.make_list(init_length=STEPS, elem_shape=(BATCH, CHANNELS), dynamic_length=False)
    read = mb.list_scatter(ls=read, indices=np.arange(STEPS, dtype=np.int32), value=x)
    written = mb.make_list(init_length=STEPS, elem_shape=(BATCH, UNITS), dynamic_length=False)

    def goes_on(i, h, written):
        return mb.less(x=i, y=np.int32(STEPS))

    def body(i, h, written):
        h = step(mb.list_read(ls=read, index=i), h)
        written = mb.list_write(ls=written, index=i, value=h)
        return mb.add(x=i, y=np.int32(1)), h, written

    _, h, written = mb.while_loop(_cond=goes_on, _body=body, loop_vars=(np.int32(0), h, written))
    ends = mb.range_1d(start=np.int32(0), end=mb.list_length(ls=written), step=np.int32(1))
    states = mb.list_gather(ls=written, indices=ends)
    return mb.identity(x=states, name="states"), mb.identity(x=h, name="last")


@mb.program(input_specs=SPECS, opset_version=ct.target.iOS16)
def growing(x, h):
    """Backwards, into a list that grows; the states of some steps, out of order."""
    written = mb.make_list(elem_shape=(BATCH, "units"))

    def goes_on(i, h, written):
        return mb.greater_equal(x=i, y=np.int32(0))

    def body(i, h, written):
        h = step(mb.squeeze(x=mb.gather(x=x, indices=mb.expand_dims(x=i, axes=[0])), axes=[0]), h)
        place = mb.sub(x=np.int32(STEPS - 1), y=i)
        written = mb.list_write(ls=written, index=place, value=h)
        return mb.sub(x=i, y=np.int32(1)), h, written

    first = np.int32(STEPS - 1)
    _, h, written = mb.while_loop(_cond=goes_on, _body=body, loop_vars=(first, h, written))
    states = mb.list_gather(ls=written, indices=np.int32([4, 1, 2]))
    count = mb.cast(x=mb.list_length(ls=written), dtype="fp32")
    return mb.mul(x=states, y=count, name="states"), mb.identity(x=h, name="last")


def main(target):
    found = dict(WEIGHTS)
    options = {
        "convert_to": "mlprogram",
        "compute_precision": ct.precision.FLOAT32,
        "minimum_deployment_target": ct.target.iOS16,
        "skip_model_load": True,
    }
    for name, made in (("recurrent", recurrent), ("growing", growing)):
        store(found, name, ct.convert(made, **options))
    np.savez_compressed(target, **found)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("lists.npz"))
