"""A coarse arithmetic acquits only a subject that may have used it, and no check that is blind."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.faults.planted import Planted
from tests.judge.regions.test_end_to_end import by_strassen, padded

import verax
from verax.base.option_groups.settings import Settings
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.decide.blindness import unless_blind
from verax.judge.decide.criterion import Decision
from verax.judge.decide.possible import ALL, is_claimed, is_possible, using
from verax.numerics import statistics as st
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Kind, Power
from verax.runners.own import ReferenceRunner, VeraxRunner


@pytest.mark.parametrize(
    ("said", "kind"),
    [(("Strassen",), Kind.precision), (None, Kind.undecided), (("Winograd",), Kind.mistake)],
)
def test_strassen_acquits_who_says_so(said: tuple[str, ...] | None, kind: Kind) -> None:
    graph, inputs = padded(amplifies=False)
    subject = Planted(["product"], by_strassen)
    if said is not None:
        subject.capabilities = dataclasses.replace(
            subject.capabilities, fast_algorithms=frozenset(said)
        )
    found = check(graph, subject, inputs, seed=3)
    product = [f.kind for f in found.nodes if f.node == "product"]
    if kind is Kind.undecided:  # the outputs decide, which are within rounding
        assert product == [] and found.kind is Kind.rounding
        assert any("does not say that it uses it" in n for n in found.notes), found.notes
    else:
        assert product == [kind] and found.kind is kind, found.reasons


@pytest.mark.parametrize(("ruled_out", "kind"), [(False, Kind.precision), (True, Kind.mistake)])
def test_fast_algorithms_that_are_ruled_out_acquit_nobody(ruled_out: bool, kind: Kind) -> None:
    """By whatever the subject says of itself, inside and in every stage of the check."""
    graph, inputs = padded(amplifies=False)
    subject = Planted(["product"], by_strassen)
    subject.capabilities = dataclasses.replace(
        subject.capabilities, fast_algorithms=frozenset({"Strassen"})
    )
    found = check(graph, subject, inputs, seed=3, winograd=not ruled_out, twice=False)
    assert [f.kind for f in found.nodes if f.node == "product"] == [kind]
    assert found.kind is kind, found.reasons


def test_what_our_own_levels_use() -> None:
    assert VeraxRunner(Settings(opt_level=3)).capabilities.fast_algorithms == {
        "Winograd",
        "Strassen",
    }
    for level in range(3):
        assert VeraxRunner(Settings(opt_level=level)).capabilities.fast_algorithms == frozenset()
    assert ReferenceRunner().capabilities.fast_algorithms == frozenset()
    assert Planted().capabilities.fast_algorithms is None
    with using(None):
        assert is_possible("Strassen") and not is_claimed("Strassen") and is_claimed("Winograd")
    assert all(is_claimed(name) for name in ALL)


def test_a_size_is_no_agreement_where_most_is_blind() -> None:
    fits = Decision(Kind.precision, "the errors fit", "Strassen", 0.5)
    blind = [Power(f"v{i}", f"n{i}", 1.0 if i < 7 else 1e-6) for i in range(10)]
    limit = {p.value: 5e-3 for p in blind}
    found = unless_blind(fits, blind, limit)
    assert found.kind is Kind.undecided and "size of Strassen's" in found.reason
    assert unless_blind(fits, blind[5:], limit) == fits
    mistake = Decision(Kind.mistake, "wrong", "sigma", 50.0)
    assert unless_blind(mistake, blind, limit) == mistake


def test_equal_rows_are_one_number() -> None:
    """One of 96 columns errs by 9 sigma in 200 equal rows of 256: a single number may."""
    rng = np.random.default_rng(8)
    expected = rng.standard_normal((1, 256, 96))
    z = rng.standard_normal((1, 256, 96))
    expected[:, 56:], z[:, 56:] = expected[:, 56:57], z[:, 56:57]
    z[:, 56:, 40] = 9.0
    assert st.group_test(z).statistic > 3
    assert st.equal_rows_test(z, expected, z).statistic <= st.ROUNDING_T
    different = rng.standard_normal(expected.shape)
    assert st.equal_rows_test(z, different, z).statistic > 3
    z[:, 56:, 30:60] = 9.0  # many numbers
    assert st.equal_rows_test(z, expected, z).statistic > st.ROUNDING_T


def test_constant_data_is_no_evidence_of_its_own() -> None:
    z, expected = np.full((32, 48), 9.0), np.full((32, 48), 0.25)
    assert st.equal_rows_test(z, expected, z) == st.group_test(z)


def test_right_elements_count_each() -> None:
    """Zeros behind a Relu are right, and no reason to allow more to the others."""
    rng = np.random.default_rng(9)
    expected = np.maximum(0, rng.standard_normal((1, 40, 300)))
    z = np.where(expected > 0, 5 * rng.standard_normal(expected.shape), 0.0)
    assert st.equal_rows_test(z, expected, z) == st.group_test(z)


def test_our_own_product_of_padded_rows_is_rounding() -> None:
    """Of 256 rows 217 are equal, as in T5's encoder behind its padding: no Strassen in O1."""
    rng, b = np.random.default_rng(0), Builder("net")
    x = b.input("x", TensorType.parse("float32[1, 256, 768]"))
    w = rng.standard_normal((768, 384)) / 28 + 0.05 * rng.standard_normal((768, 1))
    weights = b.constant(w.astype(np.float32), "w")
    graph = b.graph([b.add(MatMul(), [x, weights], ["y"], "linear")])
    rows = rng.standard_normal((1, 256, 768)).astype(np.float32)
    rows[:, 40:] = 3 * rows[:, 40:41] * (1 + abs(rng.standard_normal(768)))
    found = check(graph, VeraxRunner(Settings(opt_level=1)), {"x": rows}, twice=False)
    assert found.kind is Kind.rounding, found.reasons
    assert found.nodes[0].test == "sigma, equal rows"


@pytest.mark.slow
def test_padded_rows_of_t5_are_not_strassens() -> None:
    """Equal rows of 231 padding tokens in three layers of T5's encoder: our own O1 rounds."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(1)
    config = transformers.T5Config(
        d_model=768, d_ff=3072, d_kv=64, num_heads=12, num_layers=3, vocab_size=1000
    )
    module = transformers.T5EncoderModel(config).eval()
    ids, mask = torch.randint(2, 1000, (1, 256)), torch.ones(1, 256, dtype=torch.long)
    ids[0, 25:] = mask[0, 25:] = 0
    model = verax.load(module, inputs={"input_ids": ids, "attention_mask": mask})
    arrays = dict(zip(model.inputs, (ids.numpy(), mask.numpy())))
    found = check(model.graph, VeraxRunner(Settings(opt_level=1)), arrays)
    assert found.kind is Kind.rounding, found.reasons
    assert "linear_12" in {f.node for f in found.nodes} and not found.precisions
