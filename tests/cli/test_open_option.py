"""`verax compile --open`: programs for many sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.cli.conftest import Cli


def test_sizes_stay_open(cli: Cli, digits: Path, tmp_path: Path) -> None:
    model, to = digits, tmp_path / "digits.vx"
    done = cli("compile", model, "-o", to, "--open", "n=3", "--json", tmp_path / "facts.json")
    assert done.code == 0
    assert "for n=3 and all sizes that decide alike" in done.out
    for batch in (1, 4):
        image = tmp_path / "image.npy"
        np.save(image, np.zeros((batch, 1, 24, 20), np.float32))
        done = cli("run", to, "--input", image)
        assert (done.code, f"float32[{batch}," in done.out) == (0, True), done.out
    for arguments, message in (
        ((), "or leave them open with --open n=1"),
        (("--open", "m=3"), "no open size 'm'"),
        (("--open", "n"), "is no size"),
        (("--open", "n=3", "--certify"), "one set of sizes"),
        (("--shape", "n=2", "--open", "n=3"), "no open size 'n'"),
    ):
        refused = cli("compile", model, "-o", to, *arguments)
        assert (refused.code, message in refused.err) == (2, True), refused.err
