"""Digests of arrays: computed once where nobody can write them, and never of what was before."""

from __future__ import annotations

import gc
import hashlib

import numpy as np
import pytest

from verax.base.storage import digests
from verax.base.storage.digests import WORTH, content_sha256


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of arrays that were hashed."""
    sizes: list[int] = []
    real = digests._computed

    def counting(array: np.ndarray) -> str:
        sizes.append(array.nbytes)
        return real(array)

    monkeypatch.setattr(digests, "_computed", counting)
    return sizes


def frozen(seed: int, rows: int = WORTH) -> np.ndarray:
    content = memoryview(np.random.default_rng(seed).bytes(3 * rows)).toreadonly()
    return np.frombuffer(content, np.uint8).reshape(rows, 3)


def test_read_only_bytes_are_hashed_once_however_they_are_seen(computed: list[int]) -> None:
    array = frozen(1)
    expected = hashlib.sha256(array.tobytes()).hexdigest()
    assert content_sha256(array) == content_sha256(array.reshape(-1)) == expected
    assert content_sha256(array[:]) == expected and len(computed) == 1
    assert content_sha256(array[:-1]) == hashlib.sha256(array[:-1].tobytes()).hexdigest()
    assert content_sha256(array.T) == hashlib.sha256(array.T.tobytes()).hexdigest()


def test_what_can_be_written_is_hashed_each_time() -> None:
    array = np.array(frozen(2))
    view = array[:]
    view.flags.writeable = False
    before = content_sha256(view)
    array[5] ^= 1
    assert content_sha256(view) != before == content_sha256(frozen(2))
    buffer = bytearray(frozen(3).tobytes())
    shown = np.frombuffer(memoryview(buffer).toreadonly(), np.uint8)
    assert content_sha256(shown) == content_sha256(frozen(3))


def test_a_digest_is_forgotten_with_its_array() -> None:
    array = frozen(4)
    place = array.ctypes.data, array.nbytes
    content_sha256(array)
    assert place in digests._digests
    del array
    gc.collect()
    assert place not in digests._digests
