"""Mistakes are planted in networks that compute with integers on the way, too."""

import numpy as np

from verax.campaign.faults import NodeRewrite, evaluate_rewrite
from verax.ir.graph import Node
from verax.ops.pointwise.arithmetic import Div, Mul


def test_a_rival_of_an_integer_node_is_computed_in_integers() -> None:
    node = Node(Div(), ("x", "by"), ("y",), "share")
    arrays = [np.array([[12, 20, 8]]), np.array([4])]
    found = evaluate_rewrite(NodeRewrite(Mul(), ("x", "by")), node, arrays)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, [[48, 80, 32]])
