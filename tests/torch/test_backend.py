"""torch.compile(backend="verax"): the same numbers as eager PyTorch, and an error where not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from verax.base.errors import UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn
import verax.torch as vt  # noqa: E402  (needs torch)
from verax.torch import programs  # noqa: E402  (needs torch)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    vt.reset()
    yield
    torch.compiler.reset()


def drawn(*shape: int, seed: int = 3) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def seeded(make: Any, seed: int = 5) -> Any:
    torch.manual_seed(seed)
    return make()


class Network(nn.Module):
    """Convolution, BatchNorm, a linear layer; also a view of its input, a size, a transposition."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 6 * 5, 7)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.conv(x)))
        return self.head(y.flatten(1)), x[0], y.shape[0], y.transpose(1, 2)


def must_agree(given: Any, wanted: Any) -> None:
    assert len(given) == len(wanted)
    for a, b in zip(given, wanted):
        if isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype and a.stride() == b.stride()
            torch.testing.assert_close(a, b)
        else:
            assert a == b


def test_inference_gives_what_eager_gives_and_shares_memory_as_eager_does() -> None:
    net, x = seeded(Network).eval(), drawn(2, 3, 6, 5)
    fast = torch.compile(net, backend="verax")
    with torch.no_grad():
        given = fast(x)
        must_agree(given, net(x))
    assert given[1].data_ptr() == x.data_ptr()
    (graph,) = vt.report()
    assert graph.kind == "inference" and graph.programs == 1 and not graph.on_reference


def test_other_sizes_make_other_programs_and_the_same_one_none() -> None:
    net = seeded(Network).eval()
    fast = torch.compile(net, backend="verax")
    with torch.no_grad():
        for n in (2, 3, 4, 2, 3, 4):
            must_agree(fast(drawn(n, 3, 6, 5, seed=n)), net(drawn(n, 3, 6, 5, seed=n)))
    graphs = list(vt.report())
    assert len(graphs) <= 2  # Dynamo makes one of fixed and one of open sizes
    assert sum(g.programs for g in graphs) <= 4


def test_only_so_many_programs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "open_graph", lambda graph: None)
    net = seeded(lambda: nn.Sequential(nn.Linear(5, 3), nn.Tanh())).eval()
    fast = torch.compile(net, backend="verax", dynamic=True, options={"programs": 2})
    with torch.no_grad():
        for n in (4, 6, 8, 4):
            torch.testing.assert_close(fast(drawn(n, 5)), net(drawn(n, 5)))
    (graph,) = vt.report()
    assert graph.programs == 4  # the third size pushed the first one out


@pytest.mark.parametrize("change", ["in place", "data", "replaced"])
def test_a_changed_weight_is_noticed(change: str) -> None:
    net, x = seeded(Network).eval(), drawn(2, 3, 6, 5)
    fast = torch.compile(net, backend="verax")
    with torch.no_grad():
        fast(x)
        if change == "in place":
            net.head.weight.mul_(2)
        elif change == "data":
            net.head.weight.data.mul_(2)
        else:
            net.head.weight.data = net.head.weight.data * 2
        must_agree(fast(x), net(x))
    assert sum(g.weight_changes for g in vt.report()) == 1


def test_weights_that_change_all_the_time_become_inputs() -> None:
    net, x = seeded(lambda: nn.Linear(5, 3)).eval(), drawn(4, 5)
    fast = torch.compile(net, backend="verax")
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(fast(x), net(x))
            net.weight.mul_(1.5)
    (graph,) = vt.report()
    assert graph.programs == 3 and "inputs of the program" in graph.notes[0]


def test_a_backward_graph_whose_operators_all_have_kernels_is_compiled() -> None:
    def make() -> Any:
        return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.GELU(), nn.Linear(7, 3))

    net, same, x = seeded(make), seeded(make), drawn(4, 5)
    torch.compile(net, backend="verax")(x).square().sum().backward()
    same(x).square().sum().backward()
    for given, wanted in zip(net.parameters(), same.parameters()):
        torch.testing.assert_close(given.grad, wanted.grad)
    assert [(g.kind, g.programs, g.fallback) for g in vt.report()] == [
        ("forward", 1, ""),
        ("backward", 1, ""),
    ]


def test_a_graph_break_makes_two_graphs() -> None:
    net = seeded(Network).eval()

    def around(x: Any) -> Any:
        y = net.conv(x)
        torch._dynamo.graph_break()
        return torch.relu(net.norm(y)) if y.sum() > -1e9 else y

    with torch.no_grad():
        x = drawn(2, 3, 6, 5)
        torch.testing.assert_close(torch.compile(around, backend="verax")(x), around(x))
    assert len(list(vt.report())) >= 2


def test_an_input_that_is_written_to_is_written_to() -> None:
    def step(x: Any, cache: Any) -> Any:
        cache[:, 1] = x.sum(1)
        return cache * 2

    x, cache, other = drawn(3, 4), drawn(3, 5), drawn(3, 5)
    with torch.no_grad():
        given = torch.compile(step, backend="verax")(x, cache)
        torch.testing.assert_close(given, step(x, other))
    torch.testing.assert_close(cache, other)


def test_statistics_of_batch_norm_follow_in_training_mode_without_gradients() -> None:
    net, same, x = seeded(Network), seeded(Network), drawn(2, 3, 6, 5)
    with torch.no_grad():
        must_agree(torch.compile(net, backend="verax")(x), same(x))
    for given, wanted in zip(net.buffers(), same.buffers()):
        torch.testing.assert_close(given, wanted)
    assert int(net.norm.num_batches_tracked) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_its_bits(dtype: Any) -> None:
    net = seeded(lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU())).to(dtype).eval()
    x = drawn(4, 5).to(dtype)
    with torch.no_grad():
        given = torch.compile(net, backend="verax")(x)
        torch.testing.assert_close(given, net(x))
    assert given.dtype == dtype


def test_autocast_and_inference_mode_mean_what_they_mean_in_eager() -> None:
    net = seeded(lambda: nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 3))).eval()
    fast, x = torch.compile(net, backend="verax"), drawn(4, 5)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), net(x))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        given, wanted = fast(x), net(x)
    assert given.dtype == wanted.dtype == torch.bfloat16
    torch.testing.assert_close(given, wanted)


def strange(x: Any) -> Any:
    return torch.linalg.eigvalsh(x @ x.T).sum()


def test_what_cannot_be_compiled_is_an_error_with_the_users_line() -> None:
    with torch.no_grad(), pytest.raises(Exception, match=r"linalg_eigvalsh.*\n(.*\n)*.*in strange"):
        torch.compile(strange, backend="verax")(drawn(3, 4))


def test_eager_is_a_fallback_only_when_asked_for_and_is_reported() -> None:
    x = drawn(3, 4)
    with torch.no_grad():
        given = torch.compile(strange, backend="verax", options={"fallback": "eager"})(x)
        torch.testing.assert_close(given, strange(x))
    (graph,) = vt.report()
    assert "linalg_eigvalsh" in graph.fallback and graph.programs == 0
    assert "runs in eager PyTorch" in str(vt.report())


def test_options_and_modes() -> None:
    net, x = seeded(Network).eval(), drawn(2, 3, 6, 5)
    options = {"opt_level": 2, "certify": True, "threads": 1, "require_native": True}
    with torch.no_grad():
        must_agree(torch.compile(net, backend="verax", options=options)(x), net(x))
        must_agree(torch.compile(net, backend="verax", mode="max-autotune")(x), net(x))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"opt_levle": 3}, "is 'opt_level' meant"),
        ({"opt_level": 7}, "the option opt_level is 7"),
        ({"allow": "bf61"}, "the option allow is"),
        ({"allow": ("bf16",), "opt_level": 2}, "the option allow is"),
        ({"fallback": "none"}, "the option fallback is 'none'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        vt.options_of(vt.CompileOptions, options, None, "verax")
    with pytest.raises(UsageError, match="no mode 'fastest'"):
        vt.options_of(vt.CompileOptions, {}, "fastest", "verax")


def test_reset_makes_it_compile_again() -> None:
    net, x = seeded(lambda: nn.Linear(5, 3)).eval(), drawn(4, 5)
    fast = torch.compile(net, backend="verax")
    with torch.no_grad():
        fast(x)
        torch.compiler.reset()
        vt.reset()
        assert not list(vt.report())
        fast(x)
    assert [g.programs for g in vt.report()] == [1]


@pytest.mark.parametrize("name", ["verax", "verax_judge"])
def test_dynamos_own_reset_resets_the_backends_too(name: str) -> None:
    net, x = seeded(lambda: nn.Linear(5, 3)).eval(), drawn(4, 5)
    options = {"inner": "eager"} if name == "verax_judge" else {"opt_level": 1}
    with torch.no_grad():
        for _ in range(2):  # PyTorch writes down at torch.compile which backends to reset
            fast = torch.compile(net, backend=name, options=options)
            torch.testing.assert_close(fast(x), net(x))
            assert [g.runs for g in vt.report()] == [1]
            torch._dynamo.reset()
            assert not list(vt.report())


def test_the_backends_are_registered_once_and_verax_alone_does_not_import_torch() -> None:
    code = (
        "import sys, verax; assert 'torch' not in sys.modules; verax.torch; verax.torch;"
        "import torch; assert {'verax'} <= set(torch._dynamo.list_backends());"
        "from torch._dynamo.backends.registry import lookup_backend; lookup_backend('verax')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_dynamo_explains_without_a_break_and_the_report_stays_as_it_was() -> None:
    net, x = seeded(Network).eval(), drawn(2, 3, 6, 5)
    with torch.no_grad():
        told = torch._dynamo.explain(net)(x)
        assert (told.graph_count, told.graph_break_count, told.break_reasons) == (1, 0, [])
        assert not list(vt.report())
        must_agree(torch.compile(net, backend="verax", fullgraph=True)(x), net(x))
    assert [g.programs for g in vt.report()] == [1]
