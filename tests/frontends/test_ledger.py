"""No attribute of a foreign node can be dropped in silence."""

import numpy as np
import pytest
from onnx import helper
from onnx_models import model, one_node

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.ledger import AttributeOutcome, Ledger
from verax.frontends.onnx import load_onnx

X = np.zeros((2, 3, 5), np.float32)


def attributes(**values):
    return Ledger().attributes("node 'n'", "Op", values)


def test_an_unread_attribute_is_refused_by_node_name_and_value():
    a = attributes(axis=1, secret=(3, 4))
    assert a.integer("axis") == 1
    with pytest.raises(UnsupportedError) as error:
        a.close()
    assert "secret = (3, 4)" in str(error.value) and "node 'n'" in str(error.value)


def test_read_attributes_and_irrelevant_ones_are_entered_once_with_reason():
    a = attributes(axis=1, seed=7)
    a.integer("axis")
    a.integer("axis")
    a.irrelevant("seed", "nothing is drawn")
    a.irrelevant("absent", "not there")
    a.close()
    found = [(e.attribute, e.outcome, e.value, e.reason) for e in a.ledger.entries]
    assert found == [
        ("axis", AttributeOutcome.consumed, "1", ""),
        ("seed", AttributeOutcome.irrelevant, "7", "nothing is drawn"),
    ]
    assert a.ledger.counts() == {"consumed": 1, "irrelevant": 1}


@pytest.mark.parametrize(
    ("reader", "value"),
    [
        ("integer", 1.5),
        ("integer", (1,)),
        ("scalar", "1"),
        ("text", 3),
        ("flag", 2),
        ("integers", 3),
        ("integers", (1, 2.5)),
        ("numbers", ("a",)),
        ("tensor", 1.0),
    ],
)
def test_a_value_of_another_type_is_an_error_that_names_it(reader, value):
    with pytest.raises(ModelError, match="attribute a"):
        getattr(attributes(a=value), reader)("a")


def test_numbers_are_those_that_the_file_holds():
    assert attributes().scalar("alpha", 0.01) == float(np.float32(0.01))
    assert attributes(alpha=0.01).scalar("alpha") == float(np.float32(0.01))


def test_expected_values_pass_and_others_are_refused():
    attributes(mode=0).expect("mode", 0, 1)
    with pytest.raises(UnsupportedError, match=r"mode = 2.*not built"):
        attributes(mode=2).expect("mode", 0, 1, reason="not built")


def test_an_unknown_attribute_in_a_model_is_refused():
    with pytest.raises(UnsupportedError, match="wobble = 3"):
        load_onnx(one_node("Relu", [X], 17, wobble=3))


def test_the_ledger_of_a_model_covers_every_attribute():
    proto = model(
        [
            helper.make_node("LeakyRelu", ["x"], ["a"], alpha=0.25, name="leaky"),
            helper.make_node("Dropout", ["a"], ["y"], seed=3),
        ],
        {"x": [2, 3]},
        {"y": [2, 3]},
    )
    loaded = load_onnx(proto)
    assert {(e.operator, e.attribute, str(e.outcome)) for e in loaded.ledger.entries} == {
        ("LeakyRelu", "alpha", "consumed"),
        ("Dropout", "seed", "irrelevant"),
    }
    assert "leaky" in loaded.ledger.entries[0].node
