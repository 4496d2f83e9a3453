"""A disk that runs one program on an emulated PC (Bochs), and what the program leaves on it.

The program's code is linked behind a boot sector with nothing under it: no operating system, no
library, no floating-point unit but the emulated one. Bochs interprets every instruction by itself,
AVX-512 and VNNI among them, whatever processor it runs on. Needs `bochs`, `bochsbios`, `vgabios`,
`bochs-term` and `gcc` (Debian's names).
"""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from verax.base.errors import UnsupportedError
from verax.runtime.program import numpy_dtype
from verax.runtime.program_binary import CTX_ARENA, CTX_ARRAYS, CTX_WEIGHTS, ProgramBinary, Segment

HERE = Path(__file__).resolve().parent
PROCESSORS = {
    "avx2": "corei7_haswell_4770",
    "avx512": "corei7_skylake_x",
    "avx512vnni": "corei7_icelake_u",
}
"""Bochs's model of a processor for each target; what it lacks is an illegal instruction there."""
SECTOR = 512
CYLINDER = 16 * 63 * SECTOR
MOST_CODE = 0x80000
"""Bytes that the BIOS can read to where the program is linked."""
MEMORY = 512 << 20
SETTINGS = """\
cpu: model={processor}, ips=100000000
memory: guest={megabytes}, host={megabytes}
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0-master: type=disk, path=disk.img, mode=flat
boot: disk
display_library: term
port_e9_hack: enabled=1
clock: sync=none
log: bochs.log
panic: action=fatal
"""


def missing() -> list[str]:
    """What must be installed and is not."""
    files = ["/usr/share/bochs/BIOS-bochs-latest", "/usr/share/vgabios/vgabios.bin"]
    tools = [t for t in ("bochs", "gcc", "ld", "objcopy") if shutil.which(t) is None]
    return tools + [f for f in files if not Path(f).exists()]


def run(
    binary: ProgramBinary, inputs: Mapping[str, np.ndarray], seconds: float = 600
) -> dict[str, np.ndarray]:
    """The outputs of a program on the processor that its target asks for.

    Raises `UnsupportedError` for programs with steps in Python, and where code or data are too
    large or the machine stops: an instruction that the processor lacks stops it.
    """
    functions = [s.function for s in binary.schedule if isinstance(s, Segment)]
    if len(functions) < len(binary.schedule) or binary.pool or binary.state:
        raise UnsupportedError("it has steps in Python, threads or state")
    arrays = [np.ascontiguousarray(inputs[s.name]) for s in binary.inputs]
    made = [np.empty(s.shape, numpy_dtype(s.dtype)) for s in binary.outputs]
    sizes = [a.nbytes for a in (*arrays, *made)]
    weights = _contiguous_weights(binary)
    if binary.arena_bytes + len(weights) + sum(sizes) + (64 << 20) > MEMORY:
        raise UnsupportedError("the program needs more than the emulated memory")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code = _linked(folder, binary, functions, sizes)
        first = 1 + len(code) // SECTOR
        parts = [weights, *arrays]
        data = b"".join(_whole_sectors(np.ascontiguousarray(a).tobytes()) for a in parts)
        room = sum(-(-n // SECTOR) * SECTOR for n in sizes[len(arrays) :])
        disk = _boot_sector(folder, len(code), binary.target) + code + data + bytes(room)
        disk += bytes(-len(disk) % CYLINDER)
        (folder / "disk.img").write_bytes(disk)
        _boot(folder, binary.target, seconds)
        left = (folder / "disk.img").read_bytes()
    found, at = {}, first * SECTOR + len(data)
    for signature, array in zip(binary.outputs, made, strict=True):
        held = np.frombuffer(left, array.dtype, array.size, at)
        found[signature.name] = held.reshape(array.shape)
        at += -(-array.nbytes // SECTOR) * SECTOR
    return found


def _contiguous_weights(binary: ProgramBinary) -> np.ndarray:
    """All weights as `ProgramBinary.weight_regions` counts them."""
    regions = binary.weight_regions()
    start, last = regions[-1]
    weights = np.zeros(start + last.nbytes, np.uint8)
    for start, content in regions:
        weights[start : start + content.nbytes] = content
    return weights


def _whole_sectors(data: bytes) -> bytes:
    return data + bytes(-len(data) % SECTOR)


def _linked(
    folder: Path, binary: ProgramBinary, functions: Sequence[str], sizes: Sequence[int]
) -> bytes:
    """The code of the program and what starts it, in whole sectors."""
    (folder / "network.o").write_bytes(binary.object_code)
    shutil.copy(HERE / "program.c", folder)
    sectors = 0
    starts, last = [start for start, _ in binary.weight_regions()], binary.weight_regions()[-1][1]
    for _ in range(2):  # the second time it knows how long it is
        values = {
            "ARENA": CTX_ARENA, "WEIGHTS": CTX_WEIGHTS, "ARRAYS": CTX_ARRAYS,
            "INPUTS": len(binary.inputs), "OUTPUTS": len(binary.outputs),
            "ARENA_BYTES": binary.arena_bytes, "WEIGHT_BYTES": starts[-1] + last.nbytes,
            "STARTS": f"{{{', '.join(map(str, starts))}}}",
            "DATA_SECTOR": 1 + sectors, "LENGTHS": f"{{{', '.join(map(str, sizes))}}}",
            "SEGMENTS": ", ".join(functions), "SEGMENT_LIST": ", ".join(functions),
        }  # fmt: skip
        lines = "".join(f"#define {name} {value}\n" for name, value in values.items())
        (folder / "layout.h").write_text(lines)
        options = "-c -O1 -ffreestanding -fno-pic -mno-red-zone -mcmodel=large -fno-stack-protector"
        _call(folder, ["gcc", *options.split(), "program.c", "-o", "program.o"])
        script = ["-T", str(HERE / "link.ld"), "-e", "begin", "-o", "program.elf"]
        _call(folder, ["ld", *script, "program.o", "network.o"])
        _call(folder, ["objcopy", "-O", "binary", "program.elf", "program.bin"])
        code = _whole_sectors((folder / "program.bin").read_bytes())
        sectors = len(code) // SECTOR
    if len(code) > MOST_CODE:
        raise UnsupportedError(f"{len(code)} bytes of code do not fit below the BIOS")
    return code


def _boot_sector(folder: Path, code: int, target: str) -> bytes:
    """states: x87, SSE, AVX, and the three of AVX-512 where the processor has them."""
    states = 0xE7 if "512" in target else 0x7
    defined = [f"-DSECTORS={code // SECTOR}", f"-DSTATES={states}"]
    _call(folder, ["gcc", "-c", *defined, str(HERE / "boot.S"), "-o", "boot.o"])
    flat = ["-Ttext", "0x7c00", "--oformat", "binary"]
    _call(folder, ["ld", *flat, "-o", "boot.bin", "boot.o"])
    return (folder / "boot.bin").read_bytes()


def _call(folder: Path, command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise UnsupportedError(f"{command[0]} failed: {done.stderr.strip()[-300:]}")


def _boot(folder: Path, target: str, seconds: float) -> None:
    """Start it and wait until it says that it has finished. Bochs wants a terminal."""
    settings = SETTINGS.format(processor=PROCESSORS[target], megabytes=MEMORY >> 20)
    (folder / "bochsrc").write_text(settings)
    (folder / "commands").write_text("c\n")
    outside, inside = pty.openpty()
    said = b""
    try:
        with subprocess.Popen(
            ["bochs", "-q", "-f", "bochsrc", "-rc", "commands"],
            cwd=folder, stdin=inside, stdout=inside, stderr=inside,
            env={**os.environ, "TERM": "xterm"},
        ) as child:  # fmt: skip
            os.close(inside)
            os.set_blocking(outside, False)
            end = time.monotonic() + seconds
            while child.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
                with contextlib.suppress(OSError):  # nothing was said
                    said += os.read(outside, 1 << 16)
                if b"<bochs:2>" in said:  # it stopped, and asks what to do
                    break
            child.kill()
    finally:
        os.close(outside)
    if b"finished" not in said:
        log = (folder / "bochs.log").read_text(errors="replace") if said else ""
        why = [line for line in log.splitlines() if "exception" in line or "#UD" in line]
        raise UnsupportedError(f"{PROCESSORS[target]} did not finish: {(why or ['no reason'])[-1]}")
