"""Living PyTorch modules and programs as subjects: their values are found by what the exported
program tells of the modules called, never because two names happen to be equal."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import InputError, UsageError
from verax.judge import check
from verax.records.verdict import Kind, Verdict
from verax.runners.pytorch.torch_objects import TorchModuleRunner
from verax.runners.subjects.factory import runner_of

torch = pytest.importorskip("torch", reason="torch is not installed")
FINE = (Kind.rounding, Kind.identical)


class Turned(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, *order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: Any) -> Any:
        return torch.permute(x, self.order)


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Submodules are called like nodes of others, one is called twice and writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, (3, 2))
        self.linear_1 = torch.nn.Linear(4, 4)
        self.linear = torch.nn.Linear(4, 4)
        self.shared = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(inplace=True))
        self.drop = torch.nn.Dropout()
        self.permute = Turned(0, 3, 1, 2)

    def forward(self, x: Any) -> Any:
        h = torch.permute(self.conv(x), (0, 2, 3, 1))
        h = self.linear(self.drop(self.linear_1(h)))
        h = self.shared(self.shared(h))
        return {"map": self.permute(h), "mean": {"all": h.mean(), "max": h.amax((1, 2))}}


def seeded(seed: int) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    return Net(), torch.randn(2, 3, 7, 5)


@pytest.fixture(scope="module")
def case() -> tuple[Any, Any, Any]:
    """A module at inference, the model of it, an input."""
    module, x = seeded(21)
    return module.eval(), verax.load(module, inputs=x), x


def judged(verdict: Verdict) -> tuple[list[str], tuple[str, ...]]:
    return [b.value for b in verdict.blame], verdict.notes


def test_a_module_is_judged_by_the_calls_of_its_parts(case: Any) -> None:
    module, model, x = case
    verdict = verax.check(model, module, {"x": x})
    assert verdict.kind in FINE, verdict.reasons
    assert judged(verdict) == ([], ())
    values = {f.value for f in verdict.nodes}
    assert values >= {"conv2d", "linear", "linear_1", "linear_2", "linear_3", "relu_", "relu__1"}


def test_what_a_part_gives_belongs_to_its_own_call(case: Any) -> None:
    module, model, x = case
    assert model.modules["linear"] == ("linear_1", 0)
    assert model.modules["linear_1"] == ("linear", 0)
    assert model.modules["map"] == ("permute", 0)
    assert (model.modules["relu_"], model.modules["relu__1"]) == (("shared.1", 0), ("shared.1", 1))
    keep = list(model.modules)
    runner = TorchModuleRunner(module, calls=model.modules, program=model.program)
    shown = runner.run(model.graph, {"x": x.numpy()}, keep)
    meant = verax.reference(model, {"x": x}, keep=keep)
    for value in keep:
        np.testing.assert_allclose(shown[value], meant[value], rtol=1e-4, atol=1e-5)


def test_a_program_exported_strictly_tells_the_same(case: Any) -> None:
    module, model, x = case
    program = torch.export.export(module, (x,), strict=True)
    assert verax.load(program).modules == model.modules


def test_a_wrong_part_is_named_though_its_name_is_anothers(case: Any) -> None:
    _, model, x = case
    wrong, _ = seeded(21)
    with torch.no_grad():
        wrong.linear.weight[1, 2] += 1e-2
    verdict = verax.check(model, wrong.eval(), {"x": x})
    assert judged(verdict) == (["linear_1"], ())


def test_equal_names_alone_accuse_nobody(case: Any) -> None:
    """The graph by itself does not tell which module gives which value."""
    module, model, x = case
    verdict = check(model.graph, runner_of(module), {"x": x.numpy()})
    assert verdict.kind in FINE, verdict.reasons
    assert verdict.subject["not used"].endswith("the network's values: permute")
    assert any("linear_1, linear of torch:Net are other values" in n for n in verdict.notes)


def test_a_swin_transformer_is_not_accused() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(22)
    config = transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=6, depths=[1, 1], num_heads=[1, 2], window_size=4
    )
    module = transformers.SwinModel(config).eval()
    x = torch.randn(2, 3, 16, 16)
    model = verax.load(module, inputs={"pixel_values": x})
    assert list(model.outputs) == ["last_hidden_state", "pooler_output"]
    verdict = verax.check(model, module, {"pixel_values": x})
    assert verdict.kind is not Kind.mistake, verdict.reasons
    assert judged(verdict) == ([], ())
    assert len(verdict.nodes) > 30


def test_loading_leaves_every_part_in_its_mode() -> None:
    module, x = seeded(23)
    module.shared[0].eval()
    before = {name: part.training for name, part in module.named_modules()}
    assert len(set(before.values())) == 2
    verax.load(module, inputs=(x,))
    assert {name: part.training for name, part in module.named_modules()} == before
    with pytest.raises(UsageError, match="cannot export"):
        verax.load(module, inputs=(torch.randn(2, 4, 7, 5),))
    assert {name: part.training for name, part in module.named_modules()} == before


def test_a_module_in_training_mode_is_judged_as_at_inference_with_a_note() -> None:
    torch.manual_seed(24)
    norm = torch.nn.BatchNorm1d(5)
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), norm, torch.nn.Dropout(0.5)).train()
    module[0].eval()
    x = torch.randn(4, 6)
    verdict = verax.check(verax.load(module, inputs=(x,)), module, {"input": x.numpy()})
    assert verdict.kind is Kind.rounding, verdict.reasons
    assert any("training mode" in note and "eval()" in note for note in verdict.notes)
    assert [part.training for part in module.modules()] == [True, False, True, True]
    assert not norm.running_mean.any() and not norm.num_batches_tracked
    calm = verax.check(verax.load(module, inputs=(x,)), module.eval(), {"input": x.numpy()})
    assert calm.kind is Kind.rounding and not calm.notes


@pytest.mark.parametrize("how", ["tensor", "array", "tuple", "list", "keywords", "gradient"])
def test_example_inputs_of_any_form(case: Any, how: str) -> None:
    module, model, x = case
    given = {
        "tensor": x,
        "array": x.numpy(),
        "tuple": (x,),
        "list": [x.numpy()],
        "keywords": {"x": x},
        "gradient": x.clone().requires_grad_(),
    }[how]
    assert verax.load(module, inputs=given).graph == model.graph


def test_example_inputs_that_are_none_are_refused(case: Any) -> None:
    module, model, _ = case
    with pytest.raises(UsageError, match="cannot be of type int"):
        verax.load(module, inputs=3)
    with pytest.raises(UsageError, match="tells its inputs itself"):
        verax.load(model.program, inputs=(1,))


class Mixed(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Keyword arguments, a list of tensors, a number and None, in no order of the names."""

    def forward(self, b: Any, a: Any, parts: Any = (), mask: Any = None, gain: float = 1.0) -> Any:
        found = b - 2.0 * a
        for part in parts:
            found = found * part
        return found * gain if mask is None else found


def test_keywords_lists_and_constants_reach_the_module() -> None:
    torch.manual_seed(24)
    a, b, p, q = (torch.randn(3, 4) for _ in range(4))
    module = Mixed()
    model = verax.load(module, inputs={"a": a, "b": b, "parts": [p, q], "mask": None, "gain": 0.5})
    assert len(model.inputs) == 4
    for subject in (module, "torch", "verax:O1"):
        verdict = verax.check(model, subject)
        assert verdict.kind in FINE, (subject, verdict.reasons)


def test_a_program_and_a_module_are_compiled_and_checked(case: Any) -> None:
    module, model, x = case
    expected = module(x)
    for exe in (verax.compile(module, inputs=(x,)), verax.compile(model.program)):
        given = exe.run({"x": x.requires_grad_()})
        assert list(given) == ["map", "mean.all", "mean.max"]
        np.testing.assert_allclose(given["map"], expected["map"].detach(), rtol=1e-4, atol=1e-5)
        assert exe(x)["map"].shape == (2, 4, 5, 4)
    x.requires_grad_(False)
    assert verax.check(model.program, module, {"x": x}).kind in FINE
    with pytest.raises(UsageError, match="give example inputs"):
        verax.compile(module)


def test_a_loaded_program_is_run_by_torch(case: Any) -> None:
    _, model, x = case
    verdict = verax.check(model, "torch", {"x": x})
    assert verdict.kind in FINE, verdict.reasons
    assert verdict.subject["kind"] == "torch ExportedProgram"
    assert len(verdict.nodes) > 9
    assert verax.check(model.program, "torch", {"x": x}).kind in FINE
    graph_only = dataclasses.replace(model, program=None)
    with pytest.raises(UsageError, match="runs model files"):
        verax.check(graph_only, "torch", {"x": x})


def test_tensors_of_bfloat16_and_with_gradients_are_inputs() -> None:
    torch.manual_seed(25)
    module = torch.nn.Linear(5, 3, dtype=torch.bfloat16)
    x = torch.randn(4, 5, dtype=torch.bfloat16, requires_grad=True)
    model = verax.load(module, inputs=x)
    exe = verax.compile(model)
    assert exe(x).dtype == torch.bfloat16
    (name,) = model.inputs
    assert verax.reference(model, {name: x})
    assert verax.check(model, module, {name: x}).kind is not Kind.mistake
    dump = {name: x, next(iter(model.outputs)): module(x)}
    assert verax.check(model, dump).kind is not Kind.mistake
    with pytest.raises(InputError, match="cannot be read as an array"):
        exe.run({name: torch.eye(5).to_sparse()})


def test_an_onnx_program_is_a_model() -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    torch.manual_seed(26)
    module, x = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU()), torch.randn(4, 5)
    program = torch.onnx.export(module.eval(), (x,), dynamo=True, verbose=False)
    model = verax.load(program)
    assert verax.check(model, module).kind in FINE
    assert verax.check(verax.load(module, inputs=x), program).kind in FINE
