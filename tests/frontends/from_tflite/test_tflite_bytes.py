"""Damaged, hostile and odd bytes end in a model or in a `VeraxError`, in bounded time."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np
import pytest
from tests.frontends.from_tflite.float_cases import float_cases
from tests.frontends.from_tflite.quantised_cases import quantised_cases
from tests.frontends.from_tflite.recurrent_cases import recurrent_cases
from tests.frontends.from_tflite.resource_cases import resource_cases
from tests.frontends.from_tflite.tflite_peer import drawn, litert, shared_folder
from tests.frontends.from_tflite.tflite_writer import Op, T, const, model, one

import verax
from verax import load
from verax.base.errors import ModelError, UnsupportedError, UsageError, VeraxError
from verax.frontends.tflite import load_tflite
from verax.records.verdict import Kind

SECONDS = 5.0
"""Most that one small damaged file may take."""


def outcome(data: bytes) -> bool:
    """Whether `data` is a model; anything but a model or a `VeraxError` fails the test."""
    start = time.process_time()
    try:
        load_tflite(data)
        return True
    except VeraxError as error:
        assert error.cause
        return False
    finally:
        assert time.process_time() - start < SECONDS


def mutations(data: bytes, count: int, seed: int) -> list[bytes]:
    """Copies with some bytes replaced: single ones, words of extreme values, cuts."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        copy = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(len(copy)))
            if i % 3 == 0:
                copy[at] = int(rng.integers(256))
            else:
                word = int(rng.choice([0, 1, 2**31 - 1, 2**32 - 1, 2**32 - 4, len(copy), at]))
                copy[at : at + 4] = struct.pack("<I", word)[: len(copy) - at]
        made.append(bytes(copy[: int(rng.integers(len(copy)))] if i % 11 == 0 else copy))
    return made


def fuzz(models: list[bytes], each: int) -> None:
    outcomes = [outcome(m) for i, data in enumerate(models) for m in mutations(data, each, i)]
    assert 0 < sum(outcomes) < len(outcomes)  # some damage is harmless, some is not


def test_mutated_models() -> None:
    fuzz([data for _, data in float_cases()], 8)


def test_mutated_variables_and_sparse_weights() -> None:
    fuzz([data for _, data in resource_cases()], 60)


def test_a_mutated_real_network() -> None:
    path = shared_folder() / "models" / "resnet8" / "pretrainedResnet.tflite"
    fuzz([path.read_bytes()], 24)


@pytest.mark.slow
def test_thousands_of_mutations() -> None:
    fuzz([data for _, data in float_cases()], 100)


def test_every_truncation_is_told() -> None:
    data = one("ADD", [T((2, 3)), const(np.ones(3, np.float32))], T((2, 3)))
    assert not any(outcome(data[:n]) for n in range(0, len(data) - 16, 4))


@pytest.mark.parametrize("data", [b"", b"TFL3", b"\0" * 64, b"<!DOCTYPE html>" * 9])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ModelError):
        load_tflite(data)


def test_random_bytes_are_refused() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        body = rng.integers(0, 256, 400, dtype=np.uint8).tobytes()
        assert not outcome(body[:4] + b"TFL3" + body[8:])


def test_a_gigantic_shape_is_refused_before_memory_is_taken() -> None:
    weights = T((2**31 - 1, 2**31 - 1), data=np.ones(3, np.float32))
    with pytest.raises(ModelError, match="needs"):
        load_tflite(one("ADD", [T((2, 3)), weights], T((2, 3))))


def test_a_missing_and_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load_tflite(tmp_path / "none.tflite")
    (tmp_path / "empty.tflite").write_bytes(b"")
    with pytest.raises(ModelError, match="empty"):
        load(tmp_path / "empty.tflite")


def test_a_value_written_twice_is_refused() -> None:
    tensors = [T((2, 3), name=n) for n in "xy"]
    ops = [Op("ABS", [0], [1]), Op("NEG", [0], [1])]
    with pytest.raises(ModelError, match="defined twice"):
        load_tflite(model(tensors, ops, [0], [1]))


def test_an_option_that_the_schema_lacks_is_refused() -> None:
    """A newer converter's field must not be dropped: MUL has one, ADD's second slot is shown."""
    data = one("ADD", [T((2, 3)), T((2, 3))], T((2, 3)), pot_scale_int16=1)
    changed = data.replace(b"ADD", b"ADD")
    number = data.rindex(bytes([11]))  # the number of AddOptions in the union
    changed = data[:number] + bytes([21]) + data[number + 1 :]
    with pytest.raises(ModelError, match="options of another operator"):
        load_tflite(changed)


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    path.write_bytes(one("ADD", [T((2, 3)), const(weights)], T((2, 3))))
    (array,) = load_tflite(path).graph.constants.values()
    assert not array.flags.owndata
    np.testing.assert_array_equal(array, weights)


def test_constants_behind_the_flatbuffer() -> None:
    """The layout of files of more than 2 GB; LiteRT reads the same bytes."""
    weights = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)
    tensors = [T((2, 3), name="x"), const(weights), const(np.float32([1, -2, 3, 4])),
               T((2, 4), name="y")]  # fmt: skip
    made = model(tensors, [Op("FULLY_CONNECTED", [0, 1, 2], [3])], [0], [3], behind=True)
    loaded = load_tflite(made)
    inputs = drawn(loaded)
    assert verax.check(loaded, litert(made, inputs), inputs=inputs).kind is Kind.rounding
    with pytest.raises(ModelError, match="beyond the file"):
        load_tflite(made[:-1])


def test_tables_and_others_are_listed_with_their_counts() -> None:
    kinds = ("HASHTABLE_FIND", "HASHTABLE", "STABLEHLO_COMPOSITE", "HASHTABLE", "FlexRoll")
    tensors = [T((2, 3), name=f"v{i}") for i in range(1 + len(kinds))]
    ops = [Op(kind, [i], [i + 1]) for i, kind in enumerate(kinds)]
    listed = (
        r"HASHTABLE \(2\), HASHTABLE_FIND \(1\), STABLEHLO_COMPOSITE \(1\), "
        r"custom::FlexRoll \(1\)"
    )
    with pytest.raises(UnsupportedError, match=listed):
        load_tflite(model(tensors, ops, [0], [len(kinds)]))


def test_signatures_are_kept_as_metadata() -> None:
    stored = np.load(Path(__file__).with_name("ssd.npz"))
    loaded = load_tflite(stored["float32/by box.tflite"].tobytes())
    (x,) = loaded.inputs
    assert loaded.metadata["signature serving_default"].startswith(f"image = {x} -> output_0 = ")


def test_a_custom_operator_is_named() -> None:
    with pytest.raises(UnsupportedError, match="custom::Detect"):
        load_tflite(one("Detect", [T((2, 3))], T((2, 3))))


def test_mutated_quantised_models() -> None:
    fuzz([data for _, data in quantised_cases()], 4)


def test_mutated_recurrent_models() -> None:
    fuzz([data for _, data in recurrent_cases()], 6)
