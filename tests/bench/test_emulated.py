"""Programs on an emulated processor with nothing under them, where an emulator is installed."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import emulated
from benchmarks.emulated import __main__, machine
from tests.compiler.test_byte_products import convolution

from verax.base.errors import UnsupportedError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.reference import promised


def test_what_is_not_installed_is_said(monkeypatch, capsys) -> None:
    assert emulated.__doc__
    monkeypatch.setattr(machine, "missing", lambda: ["bochs"])
    assert __main__.main(["net.onnx"]) == 2
    assert "not installed: bochs" in capsys.readouterr().err


def test_programs_with_steps_in_python_are_refused() -> None:
    graph, x = convolution("uint8", 0, 1)
    binary = compile(graph, Settings(threads=2)).specialized.binary
    if not binary.pool:
        pytest.skip("one core makes no pool")
    with pytest.raises(UnsupportedError, match="threads"):
        machine.run(binary, {"x": x})


@pytest.mark.slow
@pytest.mark.skipif(bool(machine.missing()), reason="no emulator is installed")
@pytest.mark.parametrize("target", machine.PROCESSORS)
def test_bytes_on_processors_that_are_not_here(target: str) -> None:
    graph, x = convolution("int8", -128, 1, 67)
    binary = compile(graph, Settings(opt_level=1, threads=1, target=target)).specialized.binary
    (name, want), *_ = promised(graph, {"x": x}).items()
    assert machine.run(binary, {"x": x}, 300)[name].tobytes() == np.asarray(want).tobytes()


@pytest.mark.slow
@pytest.mark.skipif(bool(machine.missing()), reason="no emulator is installed")
def test_an_instruction_that_a_processor_lacks_stops_it(monkeypatch) -> None:
    monkeypatch.setitem(machine.PROCESSORS, "avx512vnni", machine.PROCESSORS["avx512"])
    graph, x = convolution("uint8", 0, 1, 67)
    settings = Settings(opt_level=1, threads=1, target="avx512vnni")
    with pytest.raises(UnsupportedError, match="did not finish"):
        machine.run(compile(graph, settings).specialized.binary, {"x": x}, 300)
