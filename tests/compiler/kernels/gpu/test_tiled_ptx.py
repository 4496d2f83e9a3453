"""The PTX of tiles: rounded to nearest, subnormals kept, and as many registers as there are."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.compiler.kernels.gpu.emulation import ptx
from tests.compiler.kernels.gpu.problems import Product, tile

from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.convolution.winograd import WinogradOutput
from verax.compiler.kernels.convolution.winograd_scales import WinogradScales
from verax.compiler.kernels.convolution.winograd_tiles import Tiling, WinogradInput
from verax.compiler.kernels.dtypes import FLOAT32, ContractionTypes
from verax.compiler.kernels.gpu.attention import HeadSchedule, head_schedule
from verax.compiler.kernels.gpu.block_scaled import block_schedule
from verax.compiler.kernels.gpu.depthwise import strip_schedule
from verax.compiler.kernels.gpu.grouped import FilterSchedule
from verax.compiler.kernels.gpu.stored import rows_schedule
from verax.compiler.kernels.gpu.tiles import TILES, TileSchedule
from verax.compiler.kernels.layout import blocked_strides, planar_strides
from verax.compiler.kernels.products.attention_spec import AttentionSpec, Shared
from verax.compiler.kernels.products.block_scaled import BlockProductSpec
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, PackSpec
from verax.compiler.kernels.products.stored import RowsSpec, Stored
from verax.compiler.kernels.products.strassen import StrassenSpec
from verax.compiler.kernels.search.top import TopSpec
from verax.compiler.kernels.sizes import entry
from verax.compiler.kernels.target import Target

TABLE = Path(__file__).with_name("registers.json")
ARITHMETIC = re.compile(
    r"^\s*((?:add|sub|mul|div|fma|mad|rcp|sqrt|cvt)\.[\w.]*f(?:16|32|64)[\w.]*)", re.M
)
EXACT = re.compile(r"^(?:cvt\.f32\.f16|cvt\.f64\.f32)$")
"""Conversions that round nothing."""


def specs() -> dict[str, Any]:
    """What is held by the table: one of each way that data come."""
    size, border = (1, 28, 28), ((0, 0), (1, 1), (1, 1))
    first = ((0, 0), (3, 3), (3, 3))
    return {
        "product": GemmSpec(512, 768, 768, Matrix(768, 1), Matrix(768, 1), types=FLOAT32),
        "product of odd sizes": GemmSpec(
            333, 509, 417, Matrix(417, 1), Matrix(509, 1), types=FLOAT32
        ),
        "3x3 of blocks": ConvSpec(
            2, 64, 96, size, (1, 3, 3), blocked_strides(64, size, border),
            blocked_strides(96, size), pads=(0, 1, 1), types=FLOAT32,
        ),
        "7x7 of three planes": ConvSpec(
            2, 3, 64, (1, 14, 14), (1, 7, 7), planar_strides(3, size, first),
            blocked_strides(64, (1, 14, 14)), strides=(1, 2, 2), pads=(0, 3, 3), types=FLOAT32,
        ),
    }  # fmt: skip


def families() -> dict[str, tuple[Any, Any]]:
    """A spec and a schedule of what is no tile of a product."""
    size, border = (1, 28, 28), ((0, 0), (1, 1), (1, 1))
    x, y = blocked_strides(96, size, border), blocked_strides(96, size)
    conv = ConvSpec(2, 96, 96, size, (1, 3, 3), x, y, pads=(0, 1, 1), types=FLOAT32)
    deep, small = (dataclasses.replace(conv, groups=groups) for groups in (96, 24))
    tiling = Tiling(4, 2, 28, 28)
    source = WinogradInput(tiling, 96, x, (1, 1))
    heads = AttentionSpec(
        3, 12, 128, 128, 64, 64, Matrix(64, 1, 12 * 128 * 64, 128 * 64),
        Matrix(768, 1, 128 * 768, 64), Shared(12, 1), Shared(12, 1), causal=True,
    )  # fmt: skip
    open_keys = dataclasses.replace(heads, n=entry(0), m=entry(1), causal=False)
    cached = dataclasses.replace(
        heads, n=4, m=entry(1), rows_of=(Matrix(64, 1, 64 * 12 * 500, 64 * 500),) * 2, causal=False
    )
    factor = GemmSpec(1, 90, 64, Matrix(64, 1), Matrix(90, 1), constant_b=False, types=FLOAT32)
    bytes_, shorts = (
        dataclasses.replace(conv, types=ContractionTypes(x, w, "int32", "int32"))
        for x, w in (("uint8", "int8"), ("int16", "int16"))
    )
    target = Target.cuda("sm_80")
    one_row = GemmSpec(1, 896, 896, Matrix(896, 1), Matrix(896, 1), types=FLOAT32)
    few_bits = RowsSpec(one_row, Stored("uint4", 32, zeros=True))
    blocks = BlockProductSpec(one_row, 32, 4, True)
    half = StrassenSpec(514, 768, 768)
    return {
        "depthwise": (deep, strip_schedule(deep)),
        "small groups": (small, FilterSchedule()),
        "attention": (heads, head_schedule(heads, Target.cuda("sm_80"))),
        "attention of open keys": (open_keys, HeadSchedule(16)),
        "attention of rows": (cached, HeadSchedule(4)),
        "convolution of bytes": (bytes_, tile(128, 64)),
        "convolution of 16 bits": (shorts, tile(128, 64)),
        "TopK": (TopSpec((80,), 8400, 300, (8400,), (300,), 1, 1, True, "float32"), None),
        "rows of 4 bits": (few_bits, rows_schedule(few_bits, target)),
        "blocks of 4 bits": (blocks, block_schedule(blocks, target)),
        "packing": (PackSpec(factor, Matrix(1, 64)), tile(32, 32)),
        "Winograd's input": (source, None),
        "Winograd's output": (WinogradOutput(tiling, 96, y, source=source), None),
        "Winograd's scales": (WinogradScales(source), None),
        "Strassen": (half, tile(64, 64)),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("depthwise", "attention", "attention of open keys", "attention of rows"),
        *("Winograd's output", "Strassen"),
    ],
)
def test_other_families_are_rounded_to_nearest(name: str) -> None:
    text = ptx(*families()[name])
    assert ".ftz" not in text and ".approx" not in text and "mad.f32" not in text
    instructions = [i for i in ARITHMETIC.findall(text) if not EXACT.match(i)]
    assert instructions and all(".rn" in i for i in instructions)


def test_all_is_rounded_to_nearest_and_nothing_flushed() -> None:
    for epilogue in ("relu", "gelu", "float16"):
        text = ptx(
            Product(70, 90, 50, bias="column", epilogue=epilogue).problem().spec, tile(32, 32)
        )
        assert ".ftz" not in text and ".approx" not in text
        instructions = [i for i in ARITHMETIC.findall(text) if not EXACT.match(i)]
        assert any(i == "fma.rn.f32" for i in instructions)
        assert not [i for i in instructions if ".rn" not in i and not i.startswith("cvt.rzi")]
        assert "mad.f32" not in text and "wmma" not in text and "mma.sync" not in text


def test_factors_are_copied_sixteen_bytes_at_a_time() -> None:
    text = ptx(specs()["3x3 of blocks"], tile(64, 64))
    assert "cp.async.cg.shared.global" in text and "ld.shared.v4" in text
    old = ptx(specs()["3x3 of blocks"], tile(64, 64), "sm_70")
    assert "cp.async" not in old


def ptxas() -> str | None:
    """The assembler, from the machine or from NVIDIA's wheel."""
    found = shutil.which("ptxas")
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec and not found else []:
        for path in Path(folder).glob("**/bin/ptxas"):
            return str(path)
    return found


def measured(assembler: str, spec: Any, schedule: Any, folder: Path) -> list[int]:
    """Registers of a thread, and bytes that it spills."""
    source = folder / "kernel.ptx"
    source.write_text(ptx(spec, schedule))
    command = [assembler, "-v", "-arch", "sm_90", str(source), "-o", str(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    registers = re.search(r"Used (\d+) registers", done.stderr)
    spilled = re.search(r"(\d+) bytes spill stores", done.stderr)
    assert registers and spilled, done.stderr
    return [int(registers[1]), int(spilled[1])]


def name_of(schedule: TileSchedule) -> str:
    s = schedule
    thread = f"{s.thread_pixels}x{s.thread_filters}"
    return f"{s.pixels}x{s.filters} by {thread}"


def held(name: str, measurements: dict[str, list[int]]) -> None:
    """The row of the table must have no less. VERAX_WRITE_REGISTERS=1 writes it anew."""
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    if os.environ.get("VERAX_WRITE_REGISTERS"):
        table[name] = measurements
        TABLE.write_text(json.dumps(table, indent=1) + "\n")
        return
    for kind, (registers, spilled) in measurements.items():
        limits = table[name][kind]
        assert registers <= limits[0] and spilled <= limits[1], kind


@pytest.fixture
def assembler() -> str:
    path = ptxas()
    if path is None:
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    return path


@pytest.mark.slow
def test_registers_and_spills_of_other_families(assembler: str, tmp_path: Path) -> None:
    found = {n: measured(assembler, *pair, tmp_path) for n, pair in families().items()}
    held("families", found)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", TILES, ids=name_of)
def test_registers_and_spills_are_those_of_the_table(
    schedule: TileSchedule, assembler: str, tmp_path: Path
) -> None:
    found = {n: measured(assembler, spec, schedule, tmp_path) for n, spec in specs().items()}
    held(name_of(schedule), found)
