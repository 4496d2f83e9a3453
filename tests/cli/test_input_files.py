"""Arrays given as .npy files: read, not mapped, and refused when they claim what is not there."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from .conftest import Cli


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_in_either_order(cli: Cli, tiny: Path, tmp_path: Path, order: str) -> None:
    image = np.random.default_rng(95).random((2, 1, 9, 7), np.float32)
    results = []
    for kept in ("C", order):
        np.save(tmp_path / "x.npy", np.array(image, order=kept))  # type: ignore[call-overload]
        given = ("--input", f"image={tmp_path / 'x.npy'}", "-o", tmp_path / "out.npz")
        assert cli("run", tiny, *given).code == 0
        with np.load(tmp_path / "out.npz") as stored:
            results.append(stored["scores"].tobytes())
    assert results[0] == results[1]


def bad_files() -> dict[str, bytes]:
    stream = io.BytesIO()
    np.save(stream, np.ones((2, 1, 9, 7), np.float32))
    whole = stream.getvalue()
    objects = io.BytesIO()
    np.save(objects, np.array([{}], object), allow_pickle=True)
    return {
        "empty": b"",
        "cut": whole[:-1],
        "header only": whole[:40],
        "huge": whole.replace(b"(2, 1, 9, 7)", b"(2<<40,9,7,)"),
        "large": whole.replace(b"(2, 1, 9, 7), }", b"(2000000, 9999), }")[: len(whole)],
        "negative": whole.replace(b"(2, 1, 9, 7)", b"(-2, 1,9, 7)"),
        "objects": objects.getvalue(),
        "text": b"hello",
    }


@pytest.mark.parametrize("label", bad_files())
def test_what_is_no_array_is_refused(cli: Cli, tiny: Path, tmp_path: Path, label: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(bad_files()[label])
    found = cli("run", tiny, "--input", f"image={path}")
    assert found.code == 2
    assert str(path) in found.err
    assert "cannot be read as an .npy file" in found.err
