"""What programs remember and write to, against PyTorch run for several steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_programs import Call, saved, torch

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.torch import load_torch
from verax.judge import check
from verax.records.verdict import Kind
from verax.runners.torch_file import TorchFileRunner

nn = torch.nn


class Counter(nn.Module):
    """Says how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.tensor(3, dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        return x * self.n


class Average(nn.Module):
    """An exponential moving average in a buffer that is called as a value of the program is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x: Any) -> Any:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.mean, self.mean


class Assigned(nn.Module):
    """The buffer is assigned to, not written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x: Any) -> Any:
        self.total = self.total + x
        return self.total * 2


class Slices(nn.Module):
    """A window of the last four rows, moved on by views of one buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 3))

    def forward(self, x: Any) -> Any:
        before = self.rows.sum()
        self.rows[:-1] = self.rows[1:].clone()
        self.rows[-1].copy_(x[0])
        self.rows[:, 1].add_(0.5)
        return self.rows.t() @ self.rows + before


class Unread(nn.Module):
    """Writes what it never reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(2, 3))

    def forward(self, x: Any) -> Any:
        self.last.copy_(x)
        return x + 1


class Norm(nn.Module):
    """BatchNorm2d, whose running statistics move in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3, momentum=0.3)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.running_mean)

    def forward(self, x: Any) -> Any:
        return self.norm(x) * 2


class Decoder(nn.Module):
    """One attention layer over a static cache of keys and values, written at `place`.

    write: how the cache is written.
    """

    def __init__(self, write: str) -> None:
        super().__init__()
        self.write = write
        self.embed = nn.Embedding(11, 12)
        self.project = nn.Linear(12, 36)
        self.out = nn.Linear(12, 11)
        self.register_buffer("cache_k", torch.zeros(2, 3, 8, 4))
        self.register_buffer("cache_v", torch.zeros(2, 3, 8, 4))

    def forward(self, token: Any, place: Any) -> Any:
        q, k, v = self.project(self.embed(token)).view(2, 1, 9, 4).transpose(1, 2).chunk(3, 1)
        if self.write == "index_copy_":
            self.cache_k.index_copy_(2, place, k)
            self.cache_v.index_copy_(2, place, v)
        else:
            self.cache_k[:, :, place] = k
            self.cache_v[:, :, place] = v
        seen = (torch.arange(8) <= place).view(1, 1, 1, 8)
        attended = nn.functional.scaled_dot_product_attention(
            q, self.cache_k, self.cache_v, attn_mask=seen
        )
        return self.out(attended.transpose(1, 2).reshape(2, 12))


def rows(seed: int, count: int, *shape: int) -> list[tuple[Any, ...]]:
    random = torch.Generator().manual_seed(seed)
    return [(torch.randn(*shape, generator=random),) for _ in range(count)]


def tokens(seed: int) -> list[tuple[Any, ...]]:
    random = torch.Generator().manual_seed(seed)
    drawn = [torch.randint(0, 11, (2, 1), generator=random) for _ in range(8)]
    return [(token, torch.tensor([place])) for place, token in enumerate(drawn)]


CASES: dict[str, tuple[Callable[[], Any], list[tuple[Any, ...]], list[str]]] = {
    "counter": (Counter, rows(31, 4, 2, 3), ["n"]),
    "average": (Average, rows(32, 5, 2, 3), ["self.mean"]),
    "assigned": (Assigned, rows(33, 3, 2, 3), ["total"]),
    "slices": (Slices, rows(34, 6, 1, 3), ["rows"]),
    "unread": (Unread, rows(35, 2, 2, 3), ["last"]),
    "cache, index_put_": (lambda: Decoder("index_put_"), tokens(36), ["cache_k", "cache_v"]),
    "cache, index_copy_": (lambda: Decoder("index_copy_"), tokens(37), ["cache_k", "cache_v"]),
    "BatchNorm in training": (
        lambda: Norm().train(),
        rows(38, 4, 2, 3, 5, 4),
        ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var"],
    ),
}


@pytest.mark.checkered
@pytest.mark.parametrize("decomposed", [False, True], ids=["traced", "decomposed"])
@pytest.mark.parametrize("case", CASES)
def test_every_step_is_that_of_torch(case: str, decomposed: bool) -> None:
    """Outputs and state after each step; and once more from the beginning."""
    make, steps, names = CASES[case]
    torch.manual_seed(30)
    module = make()
    program = torch.export.export(module, steps[0], strict=False)
    if decomposed:
        program = program.run_decompositions({})
    model = saved_file(program)
    assert sorted(model.state) == names
    assert "kept from run to run" in model.metadata["state"]
    exe = verax.compile(model, threads=1, checked=True)
    for _ in range(2):
        live = copy.deepcopy(module)
        for inputs in steps:
            with torch.no_grad():
                want = live(*(x.clone() for x in inputs))
            given = exe.run(dict(zip(exe.inputs, (x.numpy() for x in inputs), strict=True)))
            wanted = want if isinstance(want, tuple) else (want,)
            near(given.values(), wanted)
            buffers = dict(live.named_buffers())
            state = exe.state
            near(state.values(), [buffers[v.removeprefix("self.")] for v in state])
        exe.reset()


def near(given: Any, wanted: Any) -> None:
    """Within what float32 may round in a handful of steps of numbers near 1."""
    for array, tensor in zip(given, wanted, strict=True):
        assert array.dtype == tensor.numpy().dtype
        np.testing.assert_allclose(array, tensor.numpy(), rtol=2e-5, atol=2e-5)


def saved_file(program: Any) -> Any:
    """The program read from an archive's bytes, as a .pt2 file is."""
    return load_torch(saved(program))


def through_a_view(x: Any, y: Any) -> Any:
    x.view(-1)[1:].mul_(2)
    return x + y


@pytest.mark.parametrize("decomposed", [False, True], ids=["traced", "decomposed"])
def test_inputs_that_a_program_writes_to_are_outputs_and_noted(decomposed: bool) -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    program = torch.export.export(Call(through_a_view), (x.clone(), y), strict=False)
    if decomposed:
        program = program.run_decompositions({})
    model = saved_file(program)
    (name, other) = model.inputs
    new = f"{name}.next"
    assert list(model.outputs)[1:] == [new]
    assert model.state == {}
    assert f"output {new}" in model.metadata[f"input {name}"]
    found = verax.compile(model, threads=1).run({name: x.numpy(), other: y.numpy()})
    result = through_a_view(x, y).numpy()
    assert next(iter(found.values())).tobytes() == result.tobytes()
    assert found[new].tobytes() == x.numpy().tobytes()


def test_batch_norm_in_training_knows_an_open_batch() -> None:
    module = Norm().train()
    (first,), (second,) = rows(39, 1, 4, 3, 5, 4)[0], rows(40, 1, 3, 3, 5, 4)[0]
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(module, (first,), dynamic_shapes=({0: batch},), strict=False)
    exe = verax.compile(saved_file(program), threads=1)
    live = copy.deepcopy(module)
    for x in (first, second):
        with torch.no_grad():
            want = live(x)
        near([exe(x.numpy())], [want])
    near([exe.state["norm.running_var"]], [live.norm.running_var])


def test_batch_norm_at_inference_remembers_nothing() -> None:
    program = torch.export.export(Norm().eval(), rows(41, 1, 2, 3, 5, 4)[0], strict=False)
    model = saved_file(program)
    assert model.state == {}
    assert "state" not in model.metadata


def test_instance_norm_that_changes_its_statistics_is_refused() -> None:
    module = nn.InstanceNorm2d(3, track_running_stats=True).train()
    program = torch.export.export(module, rows(42, 1, 2, 3, 5, 4)[0], strict=False)
    with pytest.raises(UnsupportedError, match="changes its running statistics"):
        saved_file(program)


@pytest.mark.parametrize("case", ["counter", "average", "cache, index_put_"])
def test_a_program_in_float64_meaning_is_that_of_torch_in_double(case: str) -> None:
    """The reference over two steps, state handed on by its names."""
    make, steps, _ = CASES[case]
    torch.manual_seed(43)
    module = make()
    model = saved_file(torch.export.export(module, steps[0], strict=False))
    wide = copy.deepcopy(module).double()
    state: dict[str, np.ndarray] = {}
    for inputs in steps[:2]:
        double = tuple(x.double() if x.is_floating_point() else x for x in inputs)
        with torch.no_grad():
            want = wide(*double)
        given = dict(zip(model.inputs, (x.numpy() for x in inputs), strict=True))
        found = verax.reference(model, {**given, **state})
        first = want[0] if isinstance(want, tuple) else want
        np.testing.assert_allclose(found[next(iter(model.outputs))], first.numpy(), rtol=1e-6)
        types = {v: t.dtype.numpy for v, t in model.state.items()}
        state = {v: found[o].astype(types[v]) for v, o in model.graph.state.items()}


def given(steps: list[tuple[Any, ...]], names: Any) -> list[dict[str, np.ndarray]]:
    return [dict(zip(names, (x.numpy() for x in inputs), strict=True)) for inputs in steps]


@pytest.mark.parametrize("case", ["average", "slices", "cache, index_put_"])
def test_the_judge_follows_the_state_of_live_objects_and_puts_it_back(case: str) -> None:
    make, steps, _ = CASES[case]
    torch.manual_seed(44)
    module = make()
    program = torch.export.export(module, steps[0], strict=False)
    model = saved_file(program)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    new = {f"{o}{run}" for o in model.graph.state.values() for run in ("", "@2", "@3")}
    for subject in (module, program, "verax:O1"):
        verdict = verax.check(model, subject, given(steps[-3:], model.inputs))
        assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons
        assert new <= {o.value for o in verdict.outputs}
    for held in (module.state_dict(), program.state_dict):
        assert all(torch.equal(before[k], v) for k, v in held.items())


def test_a_module_that_forgets_is_a_mistake() -> None:
    class Forgetful(Average):
        def forward(self, x: Any) -> Any:
            mean = self.mean * 0.9 + x.mean(0) * 0.1
            return x - mean, mean

    steps = CASES["average"][1]
    model = saved_file(torch.export.export(Average(), steps[0], strict=False))
    verdict = verax.check(model, Forgetful(), given(steps[:2], model.inputs))
    assert verdict.kind is Kind.mistake
    assert [c.hypothesis for c in verdict.causes] == ["state dropped"]


def test_buffers_that_the_network_does_not_remember_are_named() -> None:
    """torch.export itself drops what a module inside another assigns."""
    inner = Assigned()
    module = nn.Sequential(inner)
    ((x,),) = rows(45, 1, 2, 3)
    model = saved_file(torch.export.export(module, (x,), strict=False))
    if model.state:
        pytest.skip("this torch exports what a module inside another assigns")
    verdict = verax.check(model, module, {next(iter(model.inputs)): x.numpy()})
    assert verdict.subject["changed, and not remembered by the network"] == "0.total"
    assert torch.equal(inner.total, torch.zeros(2, 3))


def test_inputs_written_to_are_judged_and_said() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    module = Call(through_a_view)
    program = torch.export.export(module, (x.clone(), y), strict=False)
    model = saved_file(program)
    arrays = given([(x, y)], model.inputs)[0]
    name = next(iter(model.inputs))
    for subject in (module, program, "verax:O1"):
        verdict = verax.check(model, subject, arrays)
        assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons
        assert f"{name}.next" in {o.value for o in verdict.outputs}
        assert any(f"writes to its input {name!r}" in note for note in verdict.notes)
    wrong = Call(lambda x, y: through_a_view(x.clone(), y))
    assert verax.check(model, wrong, arrays).kind is Kind.mistake


def test_a_file_run_by_torch_is_followed_over_several_runs(tmp_path: Any) -> None:
    steps = CASES["average"][1][:3]
    path = tmp_path / "average.pt2"
    torch.export.save(torch.export.export(Average(), steps[0], strict=False), path)
    model = verax.load(path)
    subject = TorchFileRunner(path, isolated=False)
    verdict = check(model.graph, subject, given(steps, model.inputs))
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons
    assert "self.mean.next@3" in {o.value for o in verdict.outputs}
