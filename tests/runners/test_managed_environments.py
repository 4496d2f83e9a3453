"""`onnxruntime@VERSION`: an environment is made once, whole or not at all, and kept apart.

The packages come from a folder of wheels instead of an index: an onnxruntime 9.9.9 that evaluates
with onnx's reference and has a mistake, and a numpy that is the one of this interpreter.
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import verax
from verax.base.errors import UsageError
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import LeakyRelu
from verax.records.gate import GateChange
from verax.records.verdict import Kind
from verax.runners.environments import managed

RUNTIME = """
__version__ = "9.9.9"
import numpy as np
from onnx.reference import ReferenceEvaluator


class SessionOptions:
    pass


class GraphOptimizationLevel:
    ORT_ENABLE_ALL = ORT_DISABLE_ALL = 0


class Output:
    def __init__(self, name):
        self.name = name


class InferenceSession:
    def __init__(self, model, options, providers, disabled_optimizers):
        self.session = ReferenceEvaluator(model)

    def get_outputs(self):
        return [Output(name) for name in self.session.output_names]

    def run(self, names, inputs):
        return [np.abs(a) for a in self.session.run(names, inputs)]
"""


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """A wheel that holds these files."""
    info = f"{name}-{version}.dist-info"
    texts = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*texts, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in {**texts, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes for all there is, and a cache of our own."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "onnxruntime", "9.9.9", {"onnxruntime/__init__.py": RUNTIME})
    packages = {str(Path(module.__file__).parents[1]) for module in (np, onnx)}  # type: ignore[type-var, arg-type]
    wheel(folder, "numpy", "9.9", {"elsewhere.pth": "\n".join(packages) + "\n"})
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 5, 3]"))
    file = tmp_path / "net.onnx"
    graph = b.graph([b.add(LeakyRelu(alpha=0.25), [x], ["y"], "leaky")])
    file.write_bytes(to_bytes(graph))
    return file


def test_a_version_is_installed_once_judged_and_removed(
    index: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(UserWarning, match=r"making an environment with onnxruntime 9\.9\.9 in "):
        record = verax.gate("verax:O0", "onnxruntime@9.9.9:disabled", model)
    (change,) = record.models
    assert change.change is GateChange.matters and change.new.kind is Kind.mistake
    assert change.new.subject["version"] == "9.9.9"
    assert change.new.blame[0].node == "leaky"
    # It is there now: nothing is made, and no package is needed.
    shutil.rmtree(index)
    texts: list[str] = []
    python = managed.managed_python("9.9.9", texts.append)
    assert texts == [] and python.exists()
    ((folder, size),) = managed.managed_environments()
    assert folder.name.startswith("onnxruntime-9.9.9-python") and size > len(RUNTIME)
    assert managed.remove_environments() == 1
    assert not python.exists() and managed.managed_environments() == []


def test_a_version_that_is_not_there_leaves_nothing_behind(index: Path) -> None:
    for file in index.glob("onnxruntime*"):
        file.unlink()
    texts: list[str] = []
    with pytest.raises(
        UsageError, match=r"No matching distribution found for .*==9\.9\.9"
    ) as caught:
        managed.managed_python("9.9.9", texts.append)
    assert "is a package index reached" in caught.value.cause
    assert str(managed.environments_folder()) in texts[0]
    assert list(managed.environments_folder().iterdir()) == []


def test_a_cache_that_is_off_or_anybodys_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERAX_CACHE", "off")
    assert managed.managed_environments() == []
    with pytest.raises(UsageError, match="cache is off"):
        managed.managed_python("1.20.0")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("VERAX_CACHE", str(open_to_all))
    with pytest.raises(UsageError, match="others may write"):
        managed.managed_python("1.20.0", lambda text: None)


@pytest.mark.slow
def test_an_older_version_from_the_index(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Needs a package index that has it for this Python (3.10 to 3.13)."""
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "cache"))
    assert sys.version_info >= (3, 11)
    record = verax.gate("onnxruntime@1.20.1", "onnxruntime", model)
    (change,) = record.models
    assert change.old.subject["version"] == "1.20.1"
    assert change.change in (GateChange.unchanged, GateChange.harmless)
