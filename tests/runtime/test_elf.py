"""Object files are checked before LLVM, which would end the process, sees them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.runtime.vx_mutations import SOUND

import verax
from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.target import Target
from verax.compiler.pipeline.levels import run_passes
from verax.compiler.place.program import lower
from verax.runtime.elf import HEADER, RELOCATION, SECTION, SYMBOL, ObjectError, check_object

DIGITS = Path(__file__).resolve().parents[2] / "examples/digits/digits.onnx"


def known(name: str) -> bool:
    return True


def code(kind: str, target: str, threads: int = 3) -> bytes:
    settings = Settings(threads=threads)
    graph, _ = run_passes(SOUND[kind](), settings)
    return lower(graph, Target.named(target), settings).binary.object_code


@pytest.mark.parametrize("target", ["avx2", "avx512", "aarch64"])
@pytest.mark.parametrize("kind", ["convolution", "gathering"])
def test_what_is_compiled_is_sound(kind: str, target: str) -> None:
    data = code(kind, target)
    if data[:4] != b"\x7fELF":
        pytest.skip("this system has object files of another kind")
    needed: list[str] = []
    check_object(data, lambda name: not needed.append(name))
    assert {"pthread_create", "calloc"} <= set(needed)
    with pytest.raises(ObjectError, match="'pthread_create', which is not there"):
        check_object(data, lambda name: name != "pthread_create")


def mapped() -> bytes:
    """Code for AArch64 with constants in two sections: "$d" marks the beginning of both."""
    graph = verax.load(DIGITS, shapes={"n": 2}).graph
    data = lower(
        graph, Target.named("aarch64"), Settings(opt_level=0, threads=1)
    ).binary.object_code
    if data[:4] != b"\x7fELF":
        pytest.skip("this system has object files of another kind")
    return data


def test_marks_of_aarch64_may_be_many_and_nothing_may_lead_to_them() -> None:
    data = mapped()
    header = np.frombuffer(data, HEADER, 1)[0]
    sections = np.frombuffer(data, SECTION, int(header["sections"]), int(header["sections_at"]))
    (table,) = sections[sections["type"] == 2]
    symbols = np.frombuffer(data, SYMBOL, int(table["size"]) // SYMBOL.itemsize, table["offset"])
    marks = [i for i, s in enumerate(symbols) if i and not s["info"] and s["section"]]
    assert len({int(symbols[i]["name"]) for i in marks}) < len(marks)
    check_object(data, known)
    relocation = int(next(s for s in sections if s["type"] == 4)["offset"])
    with pytest.raises(ObjectError, match="for a mark"):
        check_object(spoilt(data, RELOCATION, relocation, {"symbol": marks[0]}), known)
    one = next(i for i, s in enumerate(symbols) if s["info"] & 15 == 2)
    other = {"name": int(symbols[one + 1]["name"])}
    with pytest.raises(ObjectError, match="not told apart"):
        check_object(
            spoilt(data, SYMBOL, int(table["offset"]) + one * SYMBOL.itemsize, other), known
        )


@pytest.fixture(scope="module")
def object_file() -> bytes:
    data = code("convolution", "avx2")
    if data[:4] != b"\x7fELF":
        pytest.skip("this system has object files of another kind")
    return data


def test_no_part_of_one_is_sound(object_file: bytes) -> None:
    rng = np.random.default_rng(61)
    for cut in [0, 3, 63, 64, 200, *rng.integers(0, len(object_file), 60), len(object_file) - 1]:
        with pytest.raises(ObjectError):
            check_object(object_file[:cut], known)


def spoilt(data: bytes, record_type: np.dtype, at: int, fields: dict[str, int]) -> bytes:
    """The file with other fields in the record of this kind at a place."""
    found = bytearray(data)
    record = np.frombuffer(found, record_type, 1, at)
    for name, value in fields.items():
        record[0][name] = value
    return bytes(found)


HUGE = 1 << 62


def test_every_table_is_checked(object_file: bytes) -> None:
    header = np.frombuffer(object_file, HEADER, 1)[0]
    start = int(header["sections_at"])
    sections = np.frombuffer(object_file, SECTION, int(header["sections"]), start)
    place = {int(s["type"]): start + i * SECTION.itemsize for i, s in enumerate(sections)}
    by_type = {int(s["type"]): s for s in sections}
    symbol = int(by_type[2]["offset"]) + SYMBOL.itemsize * int(by_type[2]["info"])
    relocation, target = int(by_type[4]["offset"]), sections[int(by_type[4]["info"])]
    changes: list[tuple[np.dtype, int, dict[str, int]]] = [
        *((HEADER, 0, f) for f in (
            {"kind": 1}, {"order": 2}, {"type": 2}, {"machine": 3}, {"version": 2}, {"size": 65},
            {"section_size": 63}, {"sections": 0}, {"sections": 65535}, {"names": 0},
            {"names": 60000}, {"sections_at": HUGE}, {"sections_at": start + 1},
        )),
        *((SECTION, place[1], f) for f in (
            {"size": HUGE}, {"offset": HUGE}, {"align": 3}, {"align": 1 << 40}, {"name": 1 << 30},
            {"type": 99}, {"type": 8, "size": 1 << 40}, {"flags": 0x400}, {"address": 8},
            {"flags": 4, "size": 1},
        )),
        *((SECTION, place[2], f) for f in (
            {"link": 0}, {"link": 99}, {"info": 1 << 30}, {"entry_size": 23}, {"size": 25},
            {"type": 1}, {"offset": 1},
        )),
        *((SECTION, place[4], f) for f in ({"link": 1}, {"info": 0}, {"info": 99}, {"size": 7})),
        *((SYMBOL, symbol, f) for f in (
            {"name": 1 << 31}, {"section": 99}, {"section": 0xFFF2}, {"value": HUGE},
            {"size": HUGE}, {"info": 6}, {"info": 0xA2}, {"other": 9},
        )),
        *((RELOCATION, relocation, f) for f in (
            {"symbol": 1 << 30}, {"type": 77}, {"offset": HUGE}, {"addend": 1 << 33},
            {"addend": -(1 << 33)}, {"type": 1, "offset": int(target["size"]) - 7},
        )),
    ]  # fmt: skip
    check_object(object_file, known)
    for kind, at, fields in changes:
        with pytest.raises(ObjectError):
            check_object(spoilt(object_file, kind, at, fields), known)
            raise AssertionError(f"{fields} at {at}")


def test_sections_lie_where_their_alignment_says_and_apart(object_file: bytes) -> None:
    """Constants that are read from another place give other numbers in silence."""
    header = np.frombuffer(object_file, HEADER, 1)[0]
    start, count = int(header["sections_at"]), int(header["sections"])
    sections = np.frombuffer(object_file, SECTION, count, start)
    aligned = next(i for i, s in enumerate(sections) if s["align"] >= 16 and s["size"] >= 16)
    place, old = start + aligned * SECTION.itemsize, int(sections[aligned]["offset"])
    for offset, words in (
        (old + 8, "begins at"),
        (old + int(sections[aligned]["align"]), "overlap"),
    ):
        moved = spoilt(object_file, SECTION, place, {"offset": offset})
        with pytest.raises(ObjectError, match=words):
            check_object(moved, known)


def test_what_llvm_adds_to_a_relocation_is_zero(object_file: bytes) -> None:
    """It adds the bytes that are there, whatever the standard says, and then may not reach."""
    header = np.frombuffer(object_file, HEADER, 1)[0]
    sections = np.frombuffer(
        object_file, SECTION, int(header["sections"]), int(header["sections_at"])
    )
    (table,) = [s for s in sections if s["type"] == 4 and sections[int(s["info"])]["flags"] & 4]
    relocation = np.frombuffer(object_file, RELOCATION, 1, int(table["offset"]))[0]
    place = int(sections[int(table["info"])]["offset"]) + int(relocation["offset"])
    found = bytearray(object_file)
    found[place + 3] = 0x7F
    with pytest.raises(ObjectError, match="where a relocation goes"):
        check_object(bytes(found), known)
