"""Where the panel's peers are installed: in this environment, or each in one of its own.

    python benchmarks/panel.py --install              # makes out/peers/NAME for those not found

A peer's versions of NumPy, protobuf or PyTorch are nobody else's then. An environment that is there
is used as it is; --python NAME=PATH names another.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

ENVIRONMENTS: Mapping[str, tuple[str, ...]] = {
    "ncnn": ("ncnn==1.0.20261020", "pnnx==20261020", "numpy"),
    "mnn": ("MNN==3.6.1", "numpy"),
    "tvm": ("apache-tvm==0.27.0.post1", "onnx", "numpy"),
    "torch-zentorch": ("zentorch==2.13.0.2", "deprecated"),
}
"""Engine -> what pip is told to install for it."""
SEES_THIS = {"torch-zentorch"}
"""Environments that see the packages of this one as well: one PyTorch is large enough."""
PACKAGES: Mapping[str, str] = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "torch": "torch",
    "torch-compiled": "torch",
    "torch-zentorch": "zentorch",
    "ncnn": "ncnn",
    "mnn": "MNN",
    "tvm": "tvm",
    "litert": "ai_edge_litert",
}
"""Engine -> the package that it needs, as it is imported; Verax's own need none."""
WITHOUT_DEPENDENCIES = {
    "pnnx": "its Python part wants PyTorch; its program, which is used, does not"
}
"""Installed alone, and why."""


def python_of(folder: Path, engine: str) -> Path:
    """The interpreter of an engine's own environment, whether it is there or not."""
    return folder / "peers" / engine / "bin" / "python"


def find(engine: str, folder: Path, given: Mapping[str, str]) -> tuple[str, str]:
    """The interpreter of `engine` ("" for this one), and why it cannot be timed ("" if it can)."""
    package = PACKAGES.get(engine, "")
    if engine in given:
        return given[engine], _lacks(given[engine], package)
    own = str(python_of(folder, engine))
    if Path(own).exists():
        return own, _lacks(own, package)
    if not package or importlib.util.find_spec(package) is not None:
        return "", ""
    return "", f"not installed: `python benchmarks/panel.py --install {engine}`"


def _lacks(python: str, package: str) -> str:
    if not package:
        return ""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python} cannot be run ({error})"
    return f"{python} has no package {package!r}" if done.returncode else ""


def install(engines: list[str], folder: Path) -> list[str]:
    """Make the environments of those engines that are not found; what went wrong, in words."""
    wrong = []
    for engine in engines:
        if engine not in ENVIRONMENTS or not find(engine, folder, {})[1]:
            continue
        print(f"installing {engine} into {python_of(folder, engine).parents[1]} ...", flush=True)
        python = python_of(folder, engine)
        alone = [p for p in ENVIRONMENTS[engine] if p.partition("==")[0] in WITHOUT_DEPENDENCIES]
        rest = [p for p in ENVIRONMENTS[engine] if p not in alone]
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        steps = [[sys.executable, "-m", "venv", str(python.parents[1])], [*pip, *rest]]
        steps += [[*pip, "--no-deps", *alone]] if alone else []
        for number, step in enumerate(steps):
            if number == 1 and engine in SEES_THIS:
                for site in python.parents[1].glob("lib/python*/site-packages"):
                    (site / "this.pth").write_text(sysconfig.get_path("purelib") + "\n")
            done = subprocess.run(step, capture_output=True, text=True)
            if done.returncode:
                wrong.append(f"{engine}: {done.stderr.strip().splitlines()[-1][:200]}")
                break
    return wrong
