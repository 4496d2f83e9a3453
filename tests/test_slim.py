"""The base of the package, without its extras: programs run, recorded arrays are judged, and what
needs an extra says so in words, with the line to type.

Extras are hidden from a process of its own by a finder that finds none of their packages. One slow
test builds the wheel and installs it without extras.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import verax
from tests.test_architecture import MODULES
from verax.base.optional import EXTRAS
from verax.onnx_format import codes

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIGITS = ROOT / "examples" / "digits"
HIDDEN = ("llvmlite", "onnx", "google", "PIL", "coremltools", "torch", "onnxruntime")
BASE = (
    *("numpy", "ml_dtypes", "rich", "jinja2", "markupsafe", "typer", "platformdirs"),
    "threadpoolctl",
)
PLAIN = {  # what may import a package of an extra: that is what it is for, or it says what lacks
    *("frontends.onnx", "frontends.tensorflow", "frontends.coreml"),
    *("onnx_format.package", "compiler.kernels.llvm.library", "images"),
    "repro.scripts",  # writes them into scripts
}
HIDE = f"""
import importlib.abc, sys
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HIDDEN}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""
CALLS = """
import contextlib, io, json
import numpy as np, verax
from verax.base.errors import MissingPackageError
from verax.cli.main import main
commands, net, onnx = json.loads(sys.argv[1]), *sys.argv[2:]
answers = []
for arguments in commands:
    out, err, sys.argv, code = io.StringIO(), io.StringIO(), ["verax", *arguments], 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code or 0
    answers.append((code, out.getvalue(), err.getvalue()))
model = verax.load(net)
x = {n: np.ones(t.shape, np.float32) for n, t in model.inputs.items()}
said = {}
for name, call in {
    "compile": lambda: verax.compile(model),
    "check": lambda: verax.check(model),
    "tune": lambda: verax.tune(model, history="new.jsonl"),
    "substitute": lambda: verax.substitute(model, {"Relu": lambda a: a}),
    "onnx": lambda: verax.load(onnx),
    "convert": lambda: verax.convert(model, "out.onnx"),
    "record": lambda: verax.record("verax:O1", x, "out.npz", model=model),
    "backend": lambda: __import__("verax.onnx_backend"),
}.items():
    try:
        call()
        said[name] = ""
    except MissingPackageError as error:
        said[name] = error.next_step
names = [n for n in verax.__all__ if getattr(verax, n) is not None]
print(json.dumps([answers, said, names == verax.__all__]))
"""
BASE_COMMANDS = [
    ["run", "{folder}/digits.vx", "--input", "{folder}/inputs.npz"],
    ["run", "{folder}/digits.vx"],
    ["check", "digits.tflite", "{folder}/right.npz"],
    ["check", "digits.tflite", "{folder}/right.npz", "--other", "{folder}/wrong.npz"],
    ["check", "digits.tflite", "{folder}/digits.vx"],
    ["inspect", "{folder}/digits.vx"],
    ["inspect", "digits.keras"],
    ["doctor"],
]
REFUSED = {
    "compile": [
        ["run", "digits.tflite"],
        ["compile", "digits.tflite", "-o", "{folder}/new.vx"],
        ["check", "digits.tflite"],
        ["check", "digits.tflite", "verax:O1"],
        ["bisect", "digits.tflite"],
        ["bench", "digits.tflite", "--profile"],
        ["tune", "digits.tflite", "--history", "{folder}/new.jsonl"],
        ["evaluate", "digits.tflite", "--data", "{folder}/samples.npz"],
    ],
    "onnx": [
        ["inspect", "digits.onnx"],
        ["run", "digits.onnx"],
        ["convert", "digits.tflite", "-o", "{folder}/new.onnx"],
        ["check", "digits.tflite", "digits.onnx"],
        ["check", "digits.tflite", "cmd:true {{model}}"],
    ],
    "tensorflow": [["inspect", "digits.pb"]],
    "coreml": [["inspect", "digits.mlmodel"]],
    "images": [["run", "{folder}/digits.vx", "--image", "3.png"]],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled program, inputs, and two recorded answers, the second wrong by a hundredth."""
    found = tmp_path_factory.mktemp("slim")
    model = verax.load(DIGITS / "digits.tflite")
    ((name, type_),) = model.inputs.items()
    x = np.random.default_rng(34).random(type_.shape, np.float32)
    verax.compile(model, opt_level=1).save(found / "digits.vx")
    answer = {n: a.astype(np.float32) for n, a in verax.reference(model, {name: x}).items()}
    np.savez(found / "inputs.npz", **{name: x})
    np.savez(found / "right.npz", **{f"in:{name}": x}, **answer)
    wrong = {n: a * np.float32(1.01) for n, a in answer.items()}
    np.savez(found / "wrong.npz", **{f"in:{name}": x}, **wrong)
    return found


@pytest.fixture(scope="module")
def answers(folder: Path) -> tuple[list[tuple[int, str, str]], dict[str, str], bool]:
    """Where no extra is installed: what commands answer (code, output, errors), what calls say to
    install, and whether every public name is there."""
    size = np.load(folder / "inputs.npz")
    (images,) = size.values()
    np.savez(folder / "samples.npz", images=np.repeat(images, 3, axis=0), labels=np.arange(3))
    typed = [
        [
            str(DIGITS / part) if (DIGITS / part).is_file() else part.format(folder=folder)
            for part in command
        ]
        for command in (*BASE_COMMANDS, *(c for cs in REFUSED.values() for c in cs))
    ]
    files = [str(DIGITS / "digits.tflite"), str(DIGITS / "digits.onnx")]
    done = subprocess.run(
        [sys.executable, "-c", HIDE + CALLS, json.dumps(typed), *files],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert not done.returncode, done.stderr
    found: tuple[list[tuple[int, str, str]], dict[str, str], bool] = json.loads(done.stdout)
    return found


def test_the_base_runs_programs_and_judges_them_and_arrays(answers: Any) -> None:
    found = answers[0][: len(BASE_COMMANDS)]
    assert not any(code for code, _, _ in found), found
    words = ("NaN or inf", "NaN or inf", "IDENTICAL", "wrong.npz", "ROUNDING", "compiled for")
    for (_, out, err), word in zip(found, words, strict=False):
        assert word in out + err, (word, out, err)
    assert "tells right from wrong" in found[-1][1] and "native code" not in found[-1][1]


def test_commands_that_need_an_extra_name_it(answers: Any, folder: Path) -> None:
    cases = [(extra, command) for extra, commands in REFUSED.items() for command in commands]
    for (extra, command), (code, out, err) in zip(
        cases, answers[0][len(BASE_COMMANDS) :], strict=True
    ):
        said = " ".join(err.split())
        assert code == 2, (command, out, err)
        assert f"next: pip install 'verax[{extra}]'" in said, (command, said)
        assert f"error: {EXTRAS[extra][1]} needs the package" in said, (command, said)
        assert "bug of Verax" not in said
    assert not list(folder.glob("new.*"))


def test_calls_that_need_an_extra_name_it(answers: Any) -> None:
    _, said, complete = answers
    compiling, onnx = "pip install 'verax[compile]'", "pip install 'verax[onnx]'"
    assert said == {
        **{"compile": compiling, "check": compiling, "tune": compiling, "substitute": ""},
        **{"onnx": onnx, "convert": onnx, "record": compiling, "backend": onnx},
    }
    assert complete  # every public name is there, whatever is installed


def test_no_module_of_the_base_imports_a_package_of_an_extra() -> None:
    packages = "|".join((*HIDDEN, "cryptography", "openvino", "tvm", "transformers"))
    at_the_margin = re.compile(rf"^(?:import|from) (?:{packages})\b", re.MULTILINE)
    found = [
        module
        for module, path in MODULES.items()
        if not any(module == plain or module.startswith(f"{plain}.") for plain in PLAIN)
        and at_the_margin.search(path.read_text())
    ]
    assert not found, "use verax.base.optional.late, or import it where it is needed"


def test_the_base_requires_what_it_imports_and_no_more() -> None:
    required = {r.partition(">")[0] for r in PROJECT["dependencies"] if ";" not in r}
    assert required == set(BASE)
    for extra, (package, _) in EXTRAS.items():
        assert any(r.startswith(package) for r in PROJECT["optional-dependencies"][extra])
        assert extra in PROJECT["optional-dependencies"]["all"][0]


def test_numbers_of_element_types_are_those_of_onnx() -> None:
    known = dict(onnx.TensorProto.DataType.items())
    ours = {name: code for code, name in codes.NAMES.items()}
    assert {name: ours[name] for name in known if name in ours} == {
        name: code for name, code in known.items() if name in ours
    }
    assert len(ours.keys() & known.keys()) >= 23


def said_of_itself(text: str) -> Message:
    """Metadata of a built distribution."""
    return Parser().parsestr(text)


def assert_well_described(facts: Message) -> None:
    assert facts["Name"] == "verax" and facts["Version"] == verax.__version__
    assert len(facts["Summary"]) > 40 and facts["Author"] == "The Verax maintainers"
    classifiers = facts.get_all("Classifier") or []
    assert {c.partition(" :: ")[0] for c in classifiers} >= {
        *("Development Status", "Intended Audience", "Operating System", "Programming Language"),
        *("Topic", "Typing"),
    }
    for minor in ("3.11", "3.12", "3.13", "3.14"):
        assert f"Programming Language :: Python :: {minor}" in classifiers
    assert facts["Requires-Python"] == ">=3.11" and facts["License-Expression"] == "Apache-2.0"
    assert set(facts.get_all("Provides-Extra") or []) >= {*EXTRAS, "torch", "runners", "all"}
    required = [r for r in facts.get_all("Requires-Dist") or [] if ";" not in r]
    assert len(required) == len(BASE)


@pytest.mark.slow
def test_the_wheel_installs_small_and_works(folder: Path, tmp_path: Path) -> None:
    """Builds it and asks the package index for its few dependencies: minutes."""
    run: Any = {"check": True, "capture_output": True, "text": True, "cwd": tmp_path}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT)], **run)
    (wheel,) = tmp_path.glob("verax-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], **run)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    assert_well_described(said_of_itself(next(site.glob("verax-*.dist-info/METADATA")).read_text()))
    ours = [p for p in site.iterdir() if not p.name.startswith(("pip", "setuptools"))]
    schemas = {p.name for p in (site / "verax" / "schemas").iterdir()}
    assert schemas == {p.name for p in (ROOT / "docs" / "schemas").iterdir()}
    size = sum(f.stat().st_size for p in ours for f in ([p] if p.is_file() else p.rglob("*")))
    assert size < 150e6
    clean = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}
    verax_ = [str(tmp_path / "venv" / "bin" / "verax")]
    program = str(folder / "digits.vx")
    done = subprocess.run([*verax_, "run", program], **run, env=clean)
    assert "NaN or inf" in done.stdout
    net = str(DIGITS / "digits.tflite")
    done = subprocess.run([*verax_, "check", net, str(folder / "right.npz")], **run, env=clean)
    assert "IDENTICAL" in done.stdout
    subprocess.run([*verax_, "skill", "--install", "."], **run, env=clean)
    texts = [(r / "skills/verify-numerics/SKILL.md").read_text() for r in (ROOT, tmp_path)]
    assert texts[0] == texts[1] and "Numbers are judged" in (tmp_path / "AGENTS.md").read_text()
    run["check"] = False
    done = subprocess.run([*verax_, "run", net], **run, env=clean)
    assert done.returncode == 2 and "pip install 'verax[compile]'" in done.stderr
