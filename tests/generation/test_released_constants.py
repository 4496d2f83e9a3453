"""A decoder holds its weights once, packed: the constants of the file are given up behind the first
token and read again where another program is needed."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.compiler.decoder_graphs import decoder
from verax import compiling
from verax.base.errors import ModelError
from verax.compiler.kernels.dtypes import contraction
from verax.compiler.kernels.products.block_scaled import BlockProductSpec, block_schedule
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix
from verax.compiler.kernels.target import Target
from verax.generation import Generator
from verax.generation.caches_in_place import CacheInPlace
from verax.ir.deferred import DeferredGraph

PROMPT = [5, 7, 3, 19, 11, 2]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiling, "MANY_BYTES", 0)
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    onnx.save(decoder("grouped", batch="batch_size"), path)
    return path


def with_model(path: Path) -> tuple[Generator, CacheInPlace]:
    generator = Generator(path, room=48, threads=1, cache=False, background=False)
    assert isinstance(generator.decoder, CacheInPlace)
    return generator, generator.decoder


def held(decoder: CacheInPlace) -> list[bool]:
    """Whether each graph of a decoder holds nodes and constants."""
    signature, exe = decoder.signature, decoder.programs[0]
    graphs = (signature.original, signature.graph, exe.graph)
    assert all(isinstance(g, DeferredGraph) for g in graphs)
    return [not g.is_released for g in graphs if isinstance(g, DeferredGraph)]


def test_constants_are_given_up_behind_the_first_token(path: Path) -> None:
    generator, decoder = with_model(path)
    stream = generator.stream(PROMPT, 9)
    next(stream)
    assert any(held(decoder))  # the program for one token is not made yet
    next(stream)
    assert not any(held(decoder))
    again = generator.generate(PROMPT, 9).tokens
    assert again == generator.generate(PROMPT, 9).tokens
    assert not any(held(decoder))


def test_another_room_reads_the_file_again(path: Path) -> None:
    generator, decoder = with_model(path)
    tokens = generator.generate(PROMPT, 9).tokens
    assert not any(held(decoder))
    decoder.room = 32
    assert generator.generate(PROMPT, 9).tokens == tokens
    assert len(decoder.programs) == 2
    path.write_bytes(path.read_bytes()[:-9])
    decoder.room = 24
    with pytest.raises(ModelError, match="gone or has changed"):
        generator.generate(PROMPT, 9)


@pytest.mark.parametrize("name", ["avx512vnni", "avx512", "avxvnni", "avx2", "aarch64"])
@pytest.mark.parametrize("columns", [16, 48, 896])
def test_weights_lie_alike_for_one_row_and_for_many(name: str, columns: int) -> None:
    """Programs for prompts and for one token share the block then."""
    target = Target.named(name)
    types = contraction("float32", "float32", "float32")
    widths = set()
    for rows in (1, 2, 7, 128):
        product = GemmSpec(rows, columns, 64, Matrix(64, 1), Matrix(columns, 1), types=types)
        widths.add(block_schedule(BlockProductSpec(product, 32, 4, False), target).blocks)
    assert len(widths) == 1
