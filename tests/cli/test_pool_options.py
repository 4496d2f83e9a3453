"""`--workers` and `--ray`: an address is optional, and a cluster that is not there is said so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from verax.cli.help import with_address

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
HIDDEN = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name=name)
sys.meta_path.insert(0, Hidden())
from verax.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hunt --ray onnxruntime", "hunt --ray auto onnxruntime"),
        ("hunt --ray 10.0.0.7:6379 onnxruntime", "hunt --ray 10.0.0.7:6379 onnxruntime"),
        ("hunt onnxruntime --ray", "hunt onnxruntime --ray auto"),
        ("hunt --ray --cases 3 x", "hunt --ray auto --cases 3 x"),
        ("hunt --ray ray://head:10001 x", "hunt --ray ray://head:10001 x"),
        ("hunt --ray verax:O1", "hunt --ray auto verax:O1"),
        ("hunt -- --ray", "hunt -- --ray"),
        ("hunt x --ray --", "hunt x --ray auto --"),
    ],
)
def test_an_address_is_optional(words: str, expected: str) -> None:
    assert with_address(words.split()) == expected.split()


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300
    )


def test_without_ray_a_command_says_what_to_install(tmp_path: Path) -> None:
    for words in (
        ("hunt", "verax:O1", "--ray", "--cases", "1", "--store", str(tmp_path / "store")),
        ("evaluate", str(DIGITS), "--data", str(DIGITS.parent), "--ray"),
    ):
        ended = run(HIDDEN, *words)
        assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended.stderr
        assert "working on a cluster needs the package 'ray'" in ended.stderr
        assert "pip install 'verax[ray]'" in ended.stderr


def test_a_cluster_where_nobody_answers_is_said() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'verax[ray]'")
    code = "from verax.cli.main import main; main()"
    ended = run(code, "evaluate", str(DIGITS), "--data", ".", "--ray", "127.0.0.1:1")
    assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended.stderr
    assert "no Ray cluster can be used there" in ended.stderr and "127.0.0.1:1" in ended.stderr
