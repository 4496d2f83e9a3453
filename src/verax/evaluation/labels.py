"""Labels: the right class of every sample, from sub-folders, a text, an .npy or an array.

A label is the number of a class or its name. What names mean is stated: by a list of classes
(--classes), or, if there are as many as the network has classes, by their alphabetical order, as
most training scripts number folders; that is said aloud, for it is a guess.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import InputError
from verax.base.storage.npz import read_npy
from verax.base.storage.reading import plain_bytes

MAX_TEXT = 1 << 28
"""Bytes of a text of labels; more is refused."""
SEPARATORS = (",", "\t", " ")
FORMS = "lines `name,label`, or one label per line in the order of the names, or an .npy array"


def read_labels(path: str | os.PathLike[str], names: Sequence[str]) -> list[str] | np.ndarray:
    """A file's labels in the order of the samples' `names`. Raises `UsageError`, `InputError`."""
    file = Path(path)
    if file.suffix.lower() != ".npy":
        return _of_text(file, names)
    return read_npy(file)


def read_classes(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Names of classes, one per line, class 0 first. Raises `UsageError`, `InputError`."""
    lines = _lines(Path(path))
    twice = [name for name in set(lines) if lines.count(name) > 1]
    if twice or not lines:
        raise InputError(
            f"the class {sorted(twice)[0]!r} is listed twice" if twice else "no class is listed",
            place=str(path),
            next_step="give one name per line, class 0 first",
        )
    return tuple(lines)


def _lines(file: Path) -> list[str]:
    data = plain_bytes(file, limit=MAX_TEXT)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"this is no text in UTF-8 ({error.reason} at byte {error.start})", place=str(file)
        ) from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def _of_text(file: Path, names: Sequence[str]) -> list[str]:
    lines = _lines(file)
    if not lines:
        raise InputError("the file holds no label", place=str(file), next_step=f"write {FORMS}")
    for separator in SEPARATORS:
        split_lines = [line.rpartition(separator) for line in lines]
        known_names = {*names, *(n.rpartition("/")[2] for n in names)}
        if separator == " " and not any(left.strip() in known_names for left, _, _ in split_lines):
            continue  # names of classes may hold blanks
        if all(middle for _, middle, _ in split_lines):
            cells = [(_bare(left), _bare(right)) for left, _, right in split_lines]
            return _by_name(file, cells, names)
    if len(lines) != len(names):
        raise _miscounted(len(lines), len(names), str(file))
    return [_bare(line) for line in lines]


def _bare(cell: str) -> str:
    return cell.strip().strip('"').strip().removeprefix("./")


def _by_name(file: Path, cells: list[tuple[str, str]], names: Sequence[str]) -> list[str]:
    """Labels of lines `name,label`; a name is a path within the folder, or a file's name."""
    short: dict[str, list[str]] = {}
    for name in names:
        short.setdefault(name.rpartition("/")[2], []).append(name)
    known_names, label_of = set(names), dict[str, str]()
    for i, (sample, label) in enumerate(cells):
        meant = [sample] if sample in known_names else short.get(sample, [])
        if not meant and i == 0:
            continue  # a line of headings
        if len(meant) != 1:
            problem = f"{len(meant)} images are called so" if meant else "there is no such sample"
            raise InputError(
                f"a label is given for {sample!r}, and {problem}",
                place=str(file),
                next_step="name images by their paths within the folder",
            )
        if label_of.setdefault(meant[0], label) != label:
            raise InputError(f"{sample!r} is given two labels", place=str(file))
    missing = [name for name in names if name not in label_of]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(names)} samples have no label, such as {missing[0]!r}",
            place=str(file),
            next_step="add a line for each, or take them out of the data",
        )
    return [label_of[name] for name in names]


def _miscounted(labels: int, samples: int, location: str) -> InputError:
    return InputError(
        f"there are {labels} labels for {samples} samples",
        place=location,
        next_step="give one label for each sample",
    )


def numbered(
    values: Any, names: Sequence[str], classes: tuple[str, ...], count: int | None, location: str
) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Labels as class numbers int64 [n], the names of the classes, and what was assumed, in words.

    values: numbers or names, in the samples' order; classes: their names, () when none are given;
    count: how many classes the network has, None when its shape does not tell. Raises `InputError`.
    """
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iufUSb":
        raise InputError(
            f"labels are {array.dtype}{list(array.shape)}, not one number or name per sample",
            place=location,
        )
    if len(array) != len(names):
        raise _miscounted(len(array), len(names), location)
    if classes and count is not None and len(classes) != count:
        raise InputError(
            f"{len(classes)} classes are listed, the network gives {count} scores", place=location
        )
    words: tuple[str, ...] = ()
    if array.dtype.kind in "US":
        texts = [t.decode(errors="replace") if isinstance(t, bytes) else t for t in array.tolist()]
        if classes and set(texts) <= set(classes):
            index = {name: i for i, name in enumerate(classes)}
            array = np.array([index[t] for t in texts])
        elif all(_is_number(t) for t in texts):
            array = np.array([int(t) for t in texts])
        else:
            array, classes, words = _in_order(texts, classes, count, location)
    rounded = array.astype(np.int64)
    if array.dtype.kind == "f" and not np.array_equal(rounded, array):
        raise InputError("labels are class numbers, and some are no whole numbers", place=location)
    require_classes(rounded, names, len(classes) or count, location)
    return rounded, classes, words


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 10


def _in_order(
    texts: list[str], classes: tuple[str, ...], count: int | None, location: str
) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Names numbered in alphabetical order, where there are as many as classes."""
    if classes:
        strange = next(t for t in texts if t not in classes)
        raise InputError(
            f"the label {strange!r} is none of the {len(classes)} classes listed", place=location
        )
    ordered = tuple(sorted(set(texts)))
    if count != len(ordered):
        count_text = "an unknown number of" if count is None else str(count)
        raise InputError(
            f"the labels are {len(ordered)} names, such as {ordered[0]!r}, and the network gives "
            f"{count_text} scores: nothing says which name is which score",
            place=location,
            next_step="give --classes FILE with one name per line, class 0 first, or use numbers",
        )
    index = {name: i for i, name in enumerate(ordered)}
    words = (
        f"assumed, as nobody says: classes are numbered in alphabetical order, {ordered[0]!r} is 0"
    )
    return np.array([index[t] for t in texts]), ordered, (words,)


def require_classes(
    labels: np.ndarray, names: Sequence[str], count: int | None, location: str
) -> None:
    """Raise `InputError` for a label that is no class of a network with `count` scores."""
    wrong = np.flatnonzero((labels < 0) | (labels >= (1 << 31 if count is None else count)))
    if len(wrong):
        i = int(wrong[0])
        raise InputError(
            f"the label of {names[i]!r} is {labels[i]}, and the network's classes are "
            f"0 to {(count or 0) - 1}",
            place=location,
            next_step="number classes from 0; some data sets begin at 1 or have a class more",
        )


def as_written(values: Any, names: Sequence[str]) -> tuple[Any, str]:
    """Labels from whatever the user gives (a path, or an array or list), and where from."""
    if isinstance(values, str | os.PathLike):
        return read_labels(values, names), os.fspath(values)
    if isinstance(values, Mapping):
        missing = [n for n in names if n not in values]
        if missing:
            raise InputError(f"{len(missing)} samples have no label, such as {missing[0]!r}")
        return [values[n] for n in names], "labels"
    return values, "labels"
