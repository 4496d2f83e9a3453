"""What `verax hunt` refuses before it begins: times that are none, too many workers, its own store
as the file of a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--run-seconds", "-2"), "--run-seconds -2 is no time"),
        (("--run-seconds", "nan"), "--run-seconds nan is no time"),
        (("--time", "0"), "--time '0' is no time"),
        (("--time", "-3m"), "--time '-3m' is no time"),
        (("--workers", "777"), "too many for this machine"),
    ],
)
def test_numbers_that_cannot_be(
    cli: Cli, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    store = tmp_path / "store"
    done = cli("hunt", "reference", "--cases", 1, "--store", store, *options)
    assert done.code == 2 and said in done.err and "next: " in done.err
    assert not store.exists()


def test_a_result_does_not_replace_the_store(cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    file = store / "hunt.sqlite"
    file.write_bytes(b"what was found")
    done = cli("hunt", "reference", "--cases", 1, "--store", store, "--json", file)
    assert done.code == 2 and "would replace it" in done.err
    assert file.read_bytes() == b"what was found"
