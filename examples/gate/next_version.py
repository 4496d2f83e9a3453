"""A runtime whose next version brought a mistake: padding of a convolution on the wrong sides.

    python next_version.py MODEL.onnx INPUT.npz OUTPUT.npz

Stands for the build that shall be taken (see the README beside this file). It writes the values
inside of the network as well, so that the mistake has a node.
"""

import sys

import numpy as np
import onnx

import verax


def main(model: str, inputs: str, outputs: str) -> None:
    network = onnx.load(model)
    convolution = next(n for n in network.graph.node if n.op_type == "Conv")
    pads = next(a for a in convolution.attribute if a.name == "pads")
    top, left, bottom, right = pads.ints
    pads.CopyFrom(onnx.helper.make_attribute("pads", [top + bottom, left + right, 0, 0]))
    with np.load(inputs) as arrays:
        named = {name: arrays[name] for name in arrays.files}
    values = verax.reference(verax.load(network), named, keep="all")
    np.savez(outputs, **{name: value.astype(np.float32) for name, value in values.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
