"""What the script on the roads through the house counts is what is entered."""

from __future__ import annotations

from benchmarks import walks

from verax.ir.types import TensorType


def test_files_rooms_and_doors_that_are_entered_are_counted() -> None:

    TensorType.parse("float32[2, n]")  # imports
    with walks.Observer() as observer:
        TensorType.parse("float32[2, n]")
    assert "ir/types.py" in observer.files and "ir/dim_forms.py" in observer.files
    assert ("ir/types.py", "ir/dim_forms.py") in observer.doors
    assert not any(file.startswith("judge/") for file in observer.files)
    counts = observer.counts()
    assert counts["files"] == len(observer.files) and counts["rooms"] == 1
    assert counts["stays"] == 0, "all of it lies in one room"


def test_nothing_is_observed_afterwards() -> None:

    with walks.Observer() as observer:
        pass
    before = observer.counts()
    TensorType.parse("float32[3, m]")
    assert observer.counts() == before
