"""Samples in shards: what a pool's workers are sent, what they do with it, and what they answer.

A shard is some batches of samples, the very batches that one process would run, so that the scores
are the same bits. Samples travel as they lie in the data set; workers prepare them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.distributed import Reference, WorkerPool, fetch
from verax.evaluation.data import InputFormat, Samples, prepared
from verax.evaluation.sides import ClassifierSide, scores_of
from verax.ir.types import DType
from verax.judge.protocol import Runner

SHARD = 64
"""Samples of a shard, or one batch where that is more."""
Plain = dict[str, Any]


def scored_by(
    pool: WorkerPool,
    function: Callable[[Plain], list[Plain]],
    setup: Mapping[str, Any],
    side: ClassifierSide,
    samples: Samples,
    missing: Callable[[int], list[range]],
) -> Generator[tuple[int, Sequence[np.ndarray]]]:
    """First sample and scores of every batch that is missing, by a pool, in any order.

    function: is sent shards, each with `setup` and the size of a batch, and answers what `scores`
    gives. Raises what workers raise, and `VeraxError` for a shard whose worker died twice.
    """
    size = side.batch * max(1, SHARD // side.batch)

    def shards() -> Generator[Plain]:
        for own in missing(size):
            starts = range(own.start, own.stop, side.batch)
            batches = [range(first, min(first + side.batch, own.stop)) for first in starts]
            yield {
                "setup": {**setup, "batch": side.batch},
                "kind": samples.kind,
                "batches": [_batch(pool, samples, batch) for batch in batches],
            }

    for outcome in pool.run(function, shards()):
        batches = outcome.task["batches"]
        if outcome.loss:
            locations = batches[0]["locations"][0], batches[-1]["locations"][-1]
            raise VeraxError(
                f"no worker could run these samples: {outcome.loss}",
                place=f"{locations[0]} to {locations[1]}, on {outcome.worker}",
                next_step="what was done is noted with --resume FILE; run these alone, or with "
                "fewer workers",
            )
        for answer in outcome.result():
            yield answer["first"], [of_plain(plain) for plain in answer["scores"]]
        for item in (item for batch in batches for item in batch["items"]):
            if isinstance(item, Reference):
                pool.forget(item)


def _batch(pool: WorkerPool, samples: Samples, batch: range) -> Plain:
    locations = [samples.location_of(i) for i in batch]
    items = [_sent(pool, samples, i) for i in batch]
    return {"first": batch.start, "locations": locations, "items": items}


def _sent(pool: WorkerPool, samples: Samples, i: int) -> Any:
    """Sample i as a task holds it."""
    raw = samples.raw(i)
    if samples.kind == "file":
        return pool.put(raw)
    return raw if isinstance(raw, bytes) else to_plain(np.asarray(raw))


def scores(
    shard: Plain, side: ClassifierSide, runners: Sequence[Runner], input_format: InputFormat
) -> list[Plain]:
    """The scores of every batch of a shard, in a worker. Raises as `evaluate`."""
    answers = []
    for batch in shard["batches"]:
        arrays = [
            prepared(shard["kind"], _received(item), input_format, location)[0]
            for item, location in zip(batch["items"], batch["locations"])
        ]
        own = [to_plain(scores_of(side, runner, arrays)) for runner in runners]
        answers.append({"first": batch["first"], "scores": own})
    return answers


def _received(item: Any) -> Any:
    if isinstance(item, Reference):
        return fetch(item)
    return item if isinstance(item, bytes) else of_plain(item)


def to_plain(array: np.ndarray) -> Plain:
    """An array as tasks and contents hold it."""
    content = np.ascontiguousarray(array).tobytes()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "content": content}


def of_plain(plain: Plain) -> np.ndarray:
    """The array of `to_plain`, for reading only."""
    dtype = DType(plain["dtype"]).numpy
    return np.frombuffer(plain["content"], dtype).reshape(plain["shape"])
