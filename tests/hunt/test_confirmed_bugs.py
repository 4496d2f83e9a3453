"""The scripts of the bugs that `docs/findings.md` argues: each needs its runtime, onnx and NumPy
alone, and shows the bug in the version that it names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
SCRIPTS = sorted((ROOT / "examples" / "hunt" / "bugs").glob("*.py"))
RUNTIMES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "tvm": "Apache TVM",
    "torch": "PyTorch",
    "litert": "LiteRT",
}
PACKAGES = {"tvm": "apache-tvm", "litert": "ai-edge-litert"}
MODULES = {"litert": "ai_edge_litert"}
"""What is imported, where it is not called as the runtime."""


def named(script: Path) -> tuple[str, str, str]:
    """Runtime, the bug's name, and the runtime's version that a script is about."""
    runtime, _, name = script.stem.partition("_")
    words = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    found = re.match(rf"{RUNTIMES[runtime]} (\d\S*): ", words)
    assert found is not None, words
    return runtime, name, found[1]


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 57


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.stem)
def test_a_script_needs_nothing_of_ours_and_the_page_argues_it(script: Path) -> None:
    runtime, name, _ = named(script)
    tree = ast.parse(script.read_text(encoding="utf-8"))
    imports = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        str(node.module).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert imports <= {MODULES.get(runtime, runtime), "onnx", "numpy", "os", "sys"}
    assert f"`{name}`" in PAGE


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.stem)
def test_a_script_shows_its_bug(script: Path) -> None:
    runtime, _, of = named(script)
    try:
        installed = version(PACKAGES.get(runtime, runtime))
    except PackageNotFoundError:
        pytest.skip(f"{runtime} is not installed")
    if installed.partition("-")[0].partition("+")[0] != of:
        pytest.skip(f"the script is about {of}, {installed} is installed")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode == 0:
        given, words, expected = done.stdout.strip().partition(" should be ")
        assert words and given.rpartition("given ")[2] != expected
    else:
        assert done.returncode < 0 or "Error" in done.stderr or "Exception" in done.stderr
        assert "ModuleNotFoundError" not in done.stderr
