"""Object files are linked into one mapping, whatever their references are and wherever memory is.

Witness: LLVM makes the objects, and their code, when it runs, finds what it refers to. The fields
of AArch64's instructions are compared with encodings from the Arm manual; `runtime` runs there too.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import threading

import numpy as np
import pytest
from llvmlite import binding as llvm

from verax.compiler.kernels.target import Target
from verax.runtime.elf import HEADER, RELOCATION, SECTION, ObjectError, check_object
from verax.runtime.engine import load_object
from verax.runtime.linker import AARCH64, PATCHES, X86_64, LinkedObject

MODULE = """
@table = constant [3 x ptr] [ptr @counter, ptr @triple, ptr @labs]
@counter = global i64 5
@zeros = global [100 x i64] zeroinitializer
@shape = private constant [8 x double] [double 1.5, double 2.5, double 3.5, double 4.5,
  double 5.5, double 6.5, double 7.5, double 8.5], align 64
declare i64 @labs(i64)

define i64 @triple(i64 %x) {
  %y = mul i64 %x, 3
  ret i64 %y
}

define i64 @magnitude(i64 %x) {
  %y = call i64 @labs(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}

define i64 @next() {
  %old = load i64, ptr @counter
  %new = add i64 %old, 1
  store i64 %new, ptr @counter
  ret i64 %new
}

define i64 @through_table(i64 %which, i64 %x) {
  %place = getelementptr [3 x ptr], ptr @table, i64 0, i64 %which
  %function = load ptr, ptr %place
  %y = call i64 %function(i64 %x)
  ret i64 %y
}

define double @constant(i64 %which) {
  %place = getelementptr [8 x double], ptr @shape, i64 0, i64 %which
  %y = load double, ptr %place
  ret double %y
}

define i64 @far_zero(i64 %which, i64 %new) {
  %place = getelementptr [100 x i64], ptr @zeros, i64 0, i64 %which
  %old = load i64, ptr %place
  store i64 %new, ptr %place
  ret i64 %old
}

define i64 @switched(i64 %x) {
  switch i64 %x, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c
                                i64 3, label %d  i64 4, label %e ]
a: ret i64 71
b: ret i64 13
c: ret i64 29
d: ret i64 57
e: ret i64 31
other: ret i64 -1
}
"""


def made(target: Target) -> bytes:
    context = llvm.create_context()
    machine = target.machine()
    with llvm.parse_assembly(MODULE, context) as module:
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        return bytes(machine.emit_object(module))


def needs_elf(data: bytes) -> None:
    if data[:4] != b"\x7fELF":
        pytest.skip("this system has object files of another kind")


def test_code_finds_what_it_refers_to() -> None:
    code = made(Target.host())
    needs_elf(code)
    loaded = load_object(code)

    def function(name: str, result: type = ctypes.c_int64) -> ctypes._CFuncPtr:
        return ctypes.CFUNCTYPE(result, ctypes.c_int64, ctypes.c_int64)(loaded.address(name))

    assert [function("triple")(14, 0), function("magnitude")(-9, 0)] == [42, 10]
    assert [function("next")(0, 0) for _ in range(3)] == [6, 7, 8]
    assert [function("through_table")(i, -6) for i in (1, 2)] == [-18, 6]
    constant = function("constant", ctypes.c_double)
    assert [constant(i, 0) for i in range(8)] == [i + 1.5 for i in range(8)]
    assert [function("far_zero")(99, 3), function("far_zero")(99, 4)] == [0, 3]
    assert [function("switched")(i, 0) for i in range(6)] == [71, 13, 29, 57, 31, -1]
    counter = ctypes.c_int64.from_address(loaded.address("counter"))
    assert counter.value == 8
    loaded.close()


def test_two_copies_do_not_share_what_may_be_written() -> None:
    code = made(Target.host())
    needs_elf(code)
    copies = [load_object(code) for _ in range(2)]
    counts = [ctypes.CFUNCTYPE(ctypes.c_int64)(c.address("next")) for c in copies]
    assert [counts[0](), counts[0](), counts[1]()] == [6, 7, 6]


@pytest.mark.skipif(platform.system() != "Linux", reason="looks at Linux's table of mappings")
def test_nothing_that_runs_may_be_written() -> None:
    loaded = load_object(made(Target.host()))
    with open("/proc/self/maps") as table:
        ranges = [line.split()[:2] for line in table]

    def rights(name: str) -> str:
        at = loaded.address(name)
        for span, held in ranges:
            start, _, end = span.partition("-")
            if int(start, 16) <= at < int(end, 16):
                return held[:3]
        return "none"

    assert (rights("triple"), rights("counter")) == ("r-x", "rw-")


@pytest.mark.parametrize("target", ["avx2", "avx512", "aarch64"])
def test_code_of_every_target_is_linked_within_one_mapping(target: str) -> None:
    """Linked but not run: every reference of 32 bits reaches, also those to functions far away."""
    data = made(Target.named(target))
    needs_elf(data)
    check_object(data, lambda name: name in ("labs", "counter"))
    linked = LinkedObject(data, lambda name: (1 << 47) - 4096)
    first, last = (linked.address(n) for n in ("triple", "zeros"))
    assert first and last and abs(last - first) < 1 << 20


def patched(machine: int, kind: int, word: int, target: int, at: int = 0) -> int:
    """A 32-bit word at `base + at` after a relocation of this kind to `target` from base 0x5000."""
    view = np.zeros(64, np.uint8)
    view[at : at + 4] = np.frombuffer(word.to_bytes(4, "little"), np.uint8)
    PATCHES[machine][kind](view, np.array([at]), np.array([target]), 0x5000)
    return int.from_bytes(view[at : at + 4].tobytes(), "little")


@pytest.mark.parametrize(
    ("kind", "word", "target", "wanted"),
    [
        (283, 0x94000000, 0x5008 + 16, 0x94000004),  # bl #16
        (282, 0x14000000, 0x5008 - 4, 0x17FFFFFF),  # b #-4
        (275, 0x90000000, 0x5008 + 0x3000, 0xF0000000),  # adrp x0, 3 pages on
        (275, 0x90000001, 0x1234, 0x90FFFFE1),  # adrp x1, 4 pages back
        (277, 0x91000000, 0x7ABC, 0x912AF000),  # add x0, x0, #0xabc
        (286, 0xF9400000, 0x7AB8, 0xF9455C00),  # ldr x0, [x0, #0xab8]
        (285, 0xBD400000, 0x7AB4, 0xBD4AB400),  # ldr s0, [x0, #0xab4]
        (299, 0x3DC00000, 0x7AB0, 0x3DC2AC00),  # ldr q0, [x0, #0xab0]
        (278, 0x39400000, 0x7AB3, 0x396ACC00),  # ldrb w0, [x0, #0xab3]
    ],
)
def test_instructions_of_aarch64_get_the_fields_of_the_manual(
    kind: int, word: int, target: int, wanted: int
) -> None:
    assert hex(patched(AARCH64, kind, word, target, at=8)) == hex(wanted)


@pytest.mark.parametrize(
    ("machine", "kind", "target"),
    [
        (AARCH64, 299, 0x7AB8),
        (AARCH64, 283, 1 << 30),
        (AARCH64, 275, 1 << 40),
        (X86_64, 2, 1 << 40),
    ],
)
def test_what_cannot_be_reached_is_refused(machine: int, kind: int, target: int) -> None:
    with pytest.raises(ObjectError):
        patched(machine, kind, 0, target)


def test_damaged_relocations_are_refused_or_stay_within_the_mapping() -> None:
    """Whatever `check_object` lets through is linked without touching other memory."""
    data = made(Target.host())
    needs_elf(data)
    header = np.frombuffer(data, HEADER, 1)[0]
    sections = np.frombuffer(data, SECTION, int(header["sections"]), int(header["sections_at"]))
    rng, outcomes = np.random.default_rng(4711), set()
    tables = [s for s in sections if s["type"] == 4 and s["size"]]
    for _ in range(400):
        spoilt = bytearray(data)
        table = tables[int(rng.integers(len(tables)))]
        records = np.frombuffer(
            spoilt, RELOCATION, int(table["size"]) // RELOCATION.itemsize, int(table["offset"])
        )
        field = ("offset", "type", "symbol", "addend")[int(rng.integers(4))]
        records[int(rng.integers(len(records)))][field] = int(rng.integers(0, 60))
        try:
            check_object(bytes(spoilt), lambda name: True)
            LinkedObject(bytes(spoilt), lambda name: 1 << 46).close()
            outcomes.add("linked")
        except ObjectError:
            outcomes.add("refused")
    assert outcomes == {"linked", "refused"}


def test_code_is_loaded_while_other_threads_map_and_unmap() -> None:
    """The loader of version 0.1 looked for holes in memory, and another thread could make new
    ones: the process aborted."""
    code, stop = made(Target.host()), threading.Event()

    def churn(size: int) -> None:
        while not stop.is_set():
            held = [mmap.mmap(-1, size) for _ in range(20)]
            for one in held[::2] + held[1::2]:
                one.close()

    workers = [threading.Thread(target=churn, args=(s,)) for s in (1 << 12, 1 << 30)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(150):
            loaded = load_object(code)
            triple = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("triple"))
            assert triple(5) == 15
            loaded.close()
    finally:
        stop.set()
        for worker in workers:
            worker.join()
