"""Names that a terminal obeys, that C ends at, or that no text can hold."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.formats.confined import outcomes
from tests.formats.hostile_files import ESCAPE, named, wild_names
from tests.formats.small_files import written

from verax.cli.main import main

OBEYED = ("\x1b", "\x07", "\x08", "\x9b", "\r")


def test_wild_names_give_a_model_or_a_clear_error(tmp_path: Path) -> None:
    entries = list(wild_names())
    paths = [written(tmp_path / str(i), files) for i, (_, files) in enumerate(entries)]
    for (label, _), found in zip(entries, outcomes(paths)):
        assert found.clear, (label, found)
        assert "surrogate" not in label or found.kind == "ModelError", (label, found)


@pytest.mark.parametrize("kind", ["onnx", "pb", "tflite", "mlmodel", "mxnet", "h5", "pt2"])
def test_no_escape_sequence_reaches_the_terminal(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Shown, not obeyed: in a listing of the model and in an error that names it."""
    path = str(written(tmp_path, named(ESCAPE)[kind]))
    texts = []
    for arguments in (
        ["inspect", path, "--graph", "--ledger"],
        ["inspect", path, "--shape", f"{ESCAPE}=1,2,3,4,5"],
    ):
        monkeypatch.setattr(sys, "argv", ["verax", *arguments])
        try:
            main()
        except SystemExit as end:
            assert end.code in (0, 2)
        captured = capsys.readouterr()
        texts.append(captured.out + captured.err)
    assert not [c for c in OBEYED if c in "".join(texts)]
    assert all("owned" in text for text in texts), "the name is shown"
