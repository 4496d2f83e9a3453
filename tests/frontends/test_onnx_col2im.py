"""Col2Im against ONNX's own reference, and what it refuses."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import verax
from verax.base.errors import UnsupportedError
from verax.reference.evaluate import evaluate


def network(
    shape: tuple[int, ...], image: list[int], kernel: list[int], **attributes: Any
) -> onnx.ModelProto:
    node = helper.make_node("Col2Im", ["x", "image", "kernel"], ["y"], name="fold", **attributes)
    constants = [
        numpy_helper.from_array(np.array(v, np.int64), name)
        for name, v in (("image", image), ("kernel", kernel))
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "fold", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


CASES = [
    ((2, 3 * 6, 20), [5, 7], [2, 3], {}),
    ((2, 3 * 6, 12), [5, 7], [2, 3], {"strides": [1, 2]}),
    ((3, 2 * 6, 36), [6, 5], [2, 3], {"pads": [0, 1, 1, 2]}),
    ((1, 4 * 6, 9), [5, 7], [2, 3], {"dilations": [2, 2]}),
    ((2, 2 * 8, 36), [4, 5, 4], [2, 2, 2], {}),
]


@pytest.mark.parametrize(("shape", "image", "kernel", "attributes"), CASES)
def test_it_is_what_the_reference_gives(
    shape: tuple[int, ...], image: list[int], kernel: list[int], attributes: dict[str, Any]
) -> None:
    model = network(shape, image, kernel, **attributes)
    x = np.random.default_rng([61, *shape]).standard_normal(shape).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    given = evaluate(verax.load(model).graph, {"x": x})["y"]
    np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "image", "kernel", "attributes"),
    [
        ((2, 18, 21), [5, 7], [2, 3], {}),
        ((2, 17, 20), [5, 7], [2, 3], {}),
        ((2, 18, 20), [5, 7], [2, 3], {"strides": [1]}),
        ((2, 18, 20), [5, 7], [2, 3], {"dilations": [0, 1]}),
        ((2, 18, 20), [5, 7], [6, 3], {}),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(
    shape: tuple[int, ...], image: list[int], kernel: list[int], attributes: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedError, match="fold"):
        verax.load(network(shape, image, kernel, **attributes))
