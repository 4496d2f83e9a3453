"""State of programs for a GPU lies in its memory between runs: on the emulated GPU, which counts
what is copied, and on a card whose driver is a fake that does all late.

The witness of bits is the CPU's program.
"""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.compiler import growing_decoder as growing
from tests.compiler.decoder_graphs import CACHES, VOCABULARY, decoder
from tests.compiler.test_state_in_place import BODY, Arrays, equal, graph, inputs, written
from tests.runtime.fake_cuda import FakeDriver, install

from verax.base.errors import InputError
from verax.base.gpu import cuda_driver
from verax.base.option_groups.compile_options import CompilationOptions
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.growing_executable import GrowingExecutable
from verax.frontends.onnx.importer import load_onnx
from verax.generation import Generator
from verax.ir.dim import symbol
from verax.ir.graph import Graph, specialize
from verax.runtime.gpu.cache_rows import DeviceCacheRows
from verax.runtime.gpu.code import unpacked
from verax.runtime.gpu.devices import device_of
from verax.runtime.gpu.emulated import EmulatedDevice
from verax.runtime.gpu.state import StateArray

EMULATED = "cuda-emulated"
READ_ELSEWHERE = BODY.replace(
    "output %sums", "%other: float32[2, 7, 5] = Relu()(%keys)\noutput %other\noutput %sums"
)
"""Of which one state is written in place and one is not."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    gc.collect()
    cuda_driver.driver.cache_clear()


@pytest.fixture(params=["emulated", "card", "saved"])
def build(request: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A function that compiles a network for a GPU."""

    def emulated(network: Graph) -> Any:
        return compile(network, Settings(threads=1, opt_level=1, target=EMULATED))

    def on_card(network: Graph) -> Executable:
        fake.emulate(unpacked(emulated(network).specialized.binary.object_code))
        return compile(network, Settings(threads=1, opt_level=1, target="cuda"))

    def saved(network: Graph) -> SavedExecutable:
        save(emulated(network), tmp_path / "state.vx")
        return SavedExecutable(tmp_path / "state.vx")

    if request.param == "card":
        fake = FakeDriver(("NVIDIA H100", 9, 0))
        install(monkeypatch, fake)
    return {"emulated": emulated, "card": on_card, "saved": saved}[request.param]


class Copies:
    """What is copied between host and emulated device from now on, in bytes."""

    def __init__(self) -> None:
        device = device_of(EMULATED)
        assert isinstance(device, EmulatedDevice)
        self.device, self.before = device, (device.bytes_written, device.bytes_read)

    @property
    def to_device(self) -> int:
        return self.device.bytes_written - self.before[0]

    @property
    def to_host(self) -> int:
        return self.device.bytes_read - self.before[1]


def nbytes(arrays: Arrays) -> int:
    return sum(a.nbytes for a in arrays.values())


@pytest.mark.parametrize("text", [BODY, READ_ELSEWHERE])
def test_each_run_writes_its_rows(build: Any, text: str) -> None:
    exe, host = build(graph(text)), compile(graph(text), Settings(threads=1, opt_level=1))
    state = exe.state
    for turn in range(5):
        one = inputs(turn, [turn, turn + 1, turn % 3], [6 - turn, -7, turn])
        state = written(state, one)
        found, want = exe.run(one), host.run(one)
        assert {v: a.tobytes() for v, a in found.items()} == {
            v: a.tobytes() for v, a in want.items()
        }
        assert all(type(a) is StateArray for a in exe._state.values())
        if turn % 2:
            equal(exe.state, state)
    assert all(type(a) is np.ndarray for a in exe.state.values())


@pytest.mark.parametrize("text", [BODY, READ_ELSEWHERE])
def test_no_byte_of_the_state_is_copied(text: str) -> None:
    """But once, when it is set, and when somebody asks for it."""
    exe = compile(graph(text), Settings(threads=1, opt_level=1, target=EMULATED))
    checks = 4 * len(exe.specialized.binary.checks)
    for turn in range(4):
        one, copies = inputs(turn, [turn, 3, 1], [6 - turn, 0, turn]), Copies()
        outputs = exe.run(one)
        assert copies.to_device == nbytes(one) + (nbytes(exe._initial) if turn == 0 else 0)
        assert copies.to_host == nbytes(outputs) + checks
    copies = Copies()
    former = exe.exchange_state({})
    assert (copies.to_device, copies.to_host) == (0, 0)
    exe.exchange_state(former)
    exe.run(inputs(5, [0, 1, 2], [3, 4, 5]))
    assert copies.to_device < nbytes(exe._initial) + nbytes(one)
    copies = Copies()
    assert nbytes(exe.state) == copies.to_host == nbytes(exe._initial)


def test_a_run_that_fails_brings_back_what_it_overwrote(build: Any) -> None:
    exe = build(graph())
    exe.run(inputs(3, [0, 1, 2], [2, 3, 4]))
    before = exe.state
    for first, second in (([0, 9, 2], [1, 2, 3]), ([4, 4, 1], [5, 0, -8])):
        with pytest.raises(InputError, match="index"):
            exe.run(inputs(4, first, second))
        equal(exe.state, before)
    good = inputs(5, [4, 5, 6], [1, 1, 0])
    exe.run(good)
    equal(exe.state, written(before, good))


def test_state_may_be_set_between_runs(build: Any) -> None:
    exe = build(graph())
    exe.run(inputs(7, [0, 1, 2], [3, 4, 5]))
    mine = {"keys": np.full((2, 7, 5), 7, np.float32)}
    exe.state = mine
    state, one = exe.state, inputs(8, [3, 4, 5], [0, 1, 2])
    exe.run(one)
    equal(exe.state, written(state, one))
    assert (mine["keys"] == 7).all()
    exe.reset()
    equal(exe.state, dict(graph().initial))
    exe.run(one)
    equal(exe.state, written(dict(graph().initial), one))
    outputs, after = exe.step(one, state)
    equal(after, written(state, one))
    assert all(type(a) is np.ndarray for a in (*outputs.values(), *after.values()))


@pytest.mark.parametrize("text", [BODY, READ_ELSEWHERE])
def test_two_states_take_turns(build: Any, text: str) -> None:
    """Each is its caller's while the other one is in use, whatever becomes of that."""
    require_own_states(build(graph(text)))


@pytest.mark.parametrize("text", [BODY, READ_ELSEWHERE])
def test_two_states_of_the_processor_take_turns(text: str) -> None:
    require_own_states(compile(graph(text), Settings(threads=1, opt_level=1)))


def require_own_states(exe: Executable) -> None:
    states = [dict(graph().initial), dict(graph().initial)]
    held: list[Any] = [{}, {}]
    for turn in range(6):
        which = turn % 2
        held[1 - which] = exe.exchange_state(held[which])
        if turn == 3:
            exe.reset()
            states[which] = dict(graph().initial)
        one = inputs(20 + turn, [turn, 1, 4], [0, 6 - turn, 2])
        exe.run(one)
        states[which] = written(states[which], one)
        equal(exe.state, states[which])
        if turn:
            equal({v: np.asarray(a) for v, a in held[1 - which].items()}, states[1 - which])


# --- decoders


@functools.cache
def bound(kind: str, target: str) -> Executable:
    network = specialize(load_onnx(decoder(kind)).graph, {"past_length": 40})
    settings = Settings(threads=1, opt_level=1, target=target, background=False)
    return compile(network, settings).bind(CACHES)


@pytest.mark.parametrize("kind", ["grouped", "scattered"])
def test_prompts_and_tokens_share_one_buffer_on_the_device(kind: str) -> None:
    exe, host = bound(kind, EMULATED), bound(kind, "host")
    exe.reset()
    host.reset()
    seen, buffers = 0, []
    for turn, count in enumerate((5, 1, 1, 7, 1, 3, 1, 1)):
        given: Arrays = {"input_ids": np.random.default_rng(turn).integers(0, 23, (1, count))}
        if kind == "scattered":
            given["first"] = np.array([seen])
        else:
            given["attention_mask"] = np.ones((1, seen + count), np.int64)
        seen, copies = seen + count, Copies()
        found = exe.run(given)
        assert found["logits"].tobytes() == host.run(given)["logits"].tobytes()
        if turn > 4:  # all programs are made; a table of sizes goes there when they change
            assert copies.to_device < nbytes(given) + nbytes(exe._initial) // 8
        assert copies.to_host <= found["logits"].nbytes + 64
        buffers.append([a.address for a in exe._state.values()])  # type: ignore[attr-defined]
    assert all(b == buffers[0] for b in buffers)
    equal(exe.state, host.state)


@functools.cache
def growing_executable(target: str) -> GrowingExecutable:
    total = symbol("length") + symbol("tokens")
    network = specialize(load_onnx(growing.growing_decoder("plain")).graph, {"total": total})
    settings = Settings(threads=1, opt_level=2, target=target, background=False)
    exe = compile(network, settings).bind(growing.CACHES)
    assert isinstance(exe, GrowingExecutable)
    return exe


@pytest.mark.parametrize("batch", [1, 3])
def test_caches_that_grow_stay_on_the_device(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verax.runtime.cache_rows.SMALLEST_ROOM", 8)
    exe, host = growing_executable(EMULATED), growing_executable("host")
    exe.reset()
    host.reset()
    seen, held = 0, None
    for turn, count in enumerate((3, 1, 1, 4, 1, 9, 1)):
        given, copies = growing.given(batch, seen, count, turn), Copies()
        found, want = exe.run(given), host.run(given)
        equal(found, want)
        if count == 1 and turn > 1:  # the program is there; its sizes change
            assert exe._last_roomy is not None
            table = exe._last_roomy.program._first._table.nbytes
            assert copies.to_device <= nbytes(given) + table + 1
            assert copies.to_host <= nbytes(found) + 64
        if turn:
            assert type(exe._rows) is DeviceCacheRows
        seen += count
        if turn == 4:  # another stream in between
            copies = Copies()
            held, at = exe.exchange_state({}), host.state
            assert (copies.to_device, copies.to_host) == (0, 0)
            assert not exe.state or not any(a.size for a in exe.state.values())
            exe.run(growing.given(2, 0, 5, 77))
            exe.run(growing.given(2, 5, 1, 78))
            equal({v: np.asarray(a) for v, a in held.items()}, at)
            exe.exchange_state(held)
    equal(exe.state, host.state)
    exe.state = {v: a[:, :, :2] for v, a in host.state.items()}
    host.state = {v: a[:, :, :2] for v, a in host.state.items()}
    for turn in range(2):
        given = growing.given(batch, 2 + turn, 1, 90 + turn)
        equal(exe.run(given), host.run(given))
    equal(exe.state, host.state)


@pytest.mark.parametrize("kind", ["grouped", "growing"])
def test_a_generator_gives_the_tokens_of_the_processor(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = decoder("grouped", batch="batch_size") if kind == "grouped" else decoder("many")
    onnx.save(model, path)
    tokens = []
    for target in ("host", EMULATED):
        options = CompilationOptions(
            opt_level=2, threads=1, cache=False, background=False, target=target
        )
        generator = Generator(path, options=options, **({"room": 48} if kind == "grouped" else {}))
        made = generator.generate([5, 7, 3, 19, 11, 2], 9, top_k=9, seed=5)
        tokens.append((made.tokens, made.log_probabilities))
        if target == EMULATED:
            copies = Copies()
            stream = generator.stream([4, 2, 8], 7)
            next(stream)
            start, room = copies.to_device, 48 * len(CACHES) * 2 * 16 * 4
            rest = list(itertools.islice(stream, 6))
            assert len(rest) == 6 and copies.to_device - start < room
            assert max(itertools.chain(*made.tokens)) < VOCABULARY
    assert tokens[0] == tokens[1]
