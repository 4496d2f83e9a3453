"""The code of a program on a GPU: kernels, and what each of its segments launches.

It takes the place of the object code of a program for a CPU: a zip archive that holds the digest of
the binary that it belongs to, as object code does (`program_binary.contract`), launches as JSON,
and the kernels: PTX as text, one module each, or for an emulated GPU one object file. Behind them
may be machine code that a driver made of kernels for cards of one compute capability each.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Mapping

from verax.base.errors import CompileError
from verax.runtime.gpu.launches import DeviceStep, as_json, from_json, launches

CONTRACT_ENTRY, LAUNCHES_ENTRY, OBJECT_ENTRY = "contract", "launches.json", "kernels.o"
PTX_SUFFIX, CUBIN_SUFFIX = ".ptx", ".cubin"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclasses.dataclass(frozen=True)
class GpuCode:
    """segments: what each launches, by its name. ptx: by kernel. object_code: of the emulation.
    machine_code: by compute capability, as "8.6", and kernel."""

    contract: bytes
    segments: Mapping[str, tuple[DeviceStep, ...]]
    ptx: Mapping[str, bytes]
    object_code: bytes = b""
    machine_code: Mapping[str, Mapping[str, bytes]] = dataclasses.field(default_factory=dict)


def packed(code: GpuCode) -> bytes:
    """The archive; the same for equal code."""
    described = {name: as_json(steps) for name, steps in code.segments.items()}
    entries = {
        CONTRACT_ENTRY: code.contract,
        LAUNCHES_ENTRY: json.dumps(described, separators=(",", ":")).encode(),
        **{name + PTX_SUFFIX: text for name, text in code.ptx.items()},
        **({OBJECT_ENTRY: code.object_code} if code.object_code else {}),
        **{
            f"{capability}/{name}{CUBIN_SUFFIX}": content
            for capability, kernels in sorted(code.machine_code.items())
            for name, content in kernels.items()
        },
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            is_digest = name == CONTRACT_ENTRY  # which is looked for among the bytes
            info.compress_type = zipfile.ZIP_STORED if is_digest else zipfile.ZIP_DEFLATED
            archive.writestr(info, content, compresslevel=1)
    return stream.getvalue()


def unpacked(data: bytes) -> GpuCode:
    """The code in an archive. Raises `CompileError` where it is none."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        described = json.loads(entries[LAUNCHES_ENTRY])
        segments = {str(name): from_json(steps) for name, steps in described.items()}
        contract = entries[CONTRACT_ENTRY]
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CompileError(
            f"the code for the GPU cannot be read: {error}",
            next_step="compile the model again",
        ) from error
    ptx = {n.removesuffix(PTX_SUFFIX): c for n, c in entries.items() if n.endswith(PTX_SUFFIX)}
    machine_code: dict[str, dict[str, bytes]] = {}
    for name, content in entries.items():
        capability, slash, kernel = name.partition("/")
        if slash and kernel.endswith(CUBIN_SUFFIX):
            kernels = machine_code.setdefault(capability, {})
            kernels[kernel.removesuffix(CUBIN_SUFFIX)] = content
    return GpuCode(contract, segments, ptx, entries.get(OBJECT_ENTRY, b""), machine_code)


def kernel_count(data: bytes) -> int:
    """How many kernels the code in an archive launches. Raises as `unpacked`."""
    segments = unpacked(data).segments.values()
    return len({launch.kernel for steps in segments for launch in launches(steps)})


def capabilities(data: bytes) -> list[str]:
    """Of the cards for which there is machine code in an archive, too. Raises as `unpacked`."""
    return sorted(unpacked(data).machine_code)
