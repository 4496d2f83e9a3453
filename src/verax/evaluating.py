"""`evaluate`: accuracy on labeled samples, in this process or by a pool of workers.

A worker makes what it needs from plain data: it is sent the network, as text and arrays, and the
files that foreign runtimes are given; it compiles, and runs shards of the samples.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from verax.api import ShareProgress, Subject, pixels_of, subject_of
from verax.base.errors import GraphError, UsageError
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import PassKeywords, PassOptions, changed
from verax.base.option_groups.settings import DEFAULT_LEVEL, Settings
from verax.base.process.helpers import helper_scope
from verax.base.storage.reading import stamp
from verax.compiling import Network, graph_of, model_of
from verax.distributed import Reference, WorkerPool, fetch, open_pool
from verax.distributed.messages import pack, unpack
from verax.evaluation import evaluate as evaluate_samples
from verax.evaluation.data import InputFormat
from verax.evaluation.metric import Metric
from verax.evaluation.shards import Plain, of_plain, scored_by, scores, to_plain
from verax.evaluation.sides import ClassifierSide, side_of
from verax.frontends.common.ledger import Ledger
from verax.frontends.model import Model
from verax.images import ImageOptions
from verax.ir.pixels import Pixels
from verax.ir.text import parse_graph
from verax.judge.protocol import Runner
from verax.loading import load
from verax.records.evaluation import EvaluationRecord
from verax.replay import network_hash
from verax.runners.own import VeraxRunner
from verax.runners.subjects.resolve import ModelFile, Resolved, TextSubject, resolve


@with_options(PassOptions)
def evaluate(
    model: Network,
    data: Any,
    labels: Any = None,
    *,
    against: Subject | None = None,
    opt_level: int | None = None,
    threads: int = 0,
    timeout: float | None = None,
    output: str | None = None,
    classes: Sequence[str] | str | os.PathLike[str] = (),
    arrays: tuple[str, str] | None = None,
    image: ImageOptions | None = None,
    pixels: Mapping[str, Pixels] | None = None,
    metric: Metric | str | None = None,
    batch: int = 0,
    workers: int = 0,
    ray: str | None = None,
    readers: int = 0,
    resume: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: ShareProgress | None = None,
    **keywords: Unpack[PassKeywords],
) -> EvaluationRecord:
    """How often a model, compiled by Verax, is right on labelled samples; with `against`, on which
    of them another implementation chooses differently, and whether rounding explains it.

    data: a folder of images, a Parquet file or a folder of these, an .npz file, an array [n, ...]
    or arrays by name. labels: a file, or an array [n] of class numbers or names; what the data
    state if not given. against: a subject as `check` takes it. opt_level, threads: of the compiled
    model. timeout: seconds for one run of `against`.

    workers, ray: processes that run the samples, or workers of a Ray cluster, as
    `verax.distributed.open_pool` takes them; with 0 and None this process does. The subject has to
    be a text, for each makes it anew, and compiles for itself, for one thread unless `threads` says
    more; the record is the same as that of one process.

    Other arguments, and what is raised: those of `verax.evaluation.evaluate.evaluate`; keywords:
    fields of `PassOptions`, of the compiled model.
    """
    network = model_of(model)
    passes = changed(PassOptions(), keywords)
    level = DEFAULT_LEVEL if opt_level is None else opt_level
    stated = pixels_of(network) if pixels is None else pixels
    with ExitStack() as stack:
        scorer = None
        if workers or ray is not None:
            options = {"opt_level": level, "threads": threads, "timeout": timeout}
            view = {"output": output, "image": _image_plain(image), "pixels": _plain(stated)}
            sent = _Sent(network, _text_subject(against), passes)
            pool = stack.enter_context(open_pool(workers, ray))
            scorer = partial(scored_by, pool, shard_scores, {**sent.setup(pool), **options, **view})
        return evaluate_samples(
            graph_of(network),
            _own(level, threads, passes),
            data,
            labels,
            against=_network_or_subject(against, network, threads, timeout),
            output=output,
            classes=classes,
            arrays=arrays,
            image=image,
            pixels=stated,
            metric=metric,
            batch=batch,
            readers=readers,
            scorer=scorer,
            resume=resume,
            seed=seed,
            progress=progress,
        )


def _own(level: int, threads: int, passes: PassOptions) -> VeraxRunner:
    settings = dataclasses.replace(Settings(), opt_level=level, threads=threads)
    return VeraxRunner(settings).with_passes(passes)


def _network_or_subject(
    subject: Subject | None, model: Network, threads: int, timeout: float | None
) -> Runner | None:
    """As `subject_of`; but a model's file, ONNX among them, is compiled by Verax."""
    if subject is None:
        return None
    resolved = resolve(subject)
    if isinstance(resolved, ModelFile):
        resolved = resolve(load(resolved.text))
    return subject_of(resolved, model, threads, timeout)


def _text_subject(subject: Subject | None) -> TextSubject | None:
    """The subject, which has to be a text. Raises `UsageError`."""
    if subject is None:
        return None
    resolved: Resolved = resolve(subject)
    if not isinstance(resolved, TextSubject):
        raise UsageError(
            "workers make the subject anew, from a text",
            next_step="give a runner's name, a model's file or cmd:PROGRAM, or leave workers out",
        )
    return resolved


@dataclasses.dataclass(frozen=True)
class _Sent:
    """What workers make their runners of."""

    model: Network
    against: TextSubject | None
    passes: PassOptions

    def setup(self, pool: WorkerPool) -> Plain:
        """As data, with contents. Raises `UsageError`."""
        if self.passes.inject:
            raise UsageError(
                "workers run installed code only, no passes of a file",
                place=str(self.passes.inject[0]),
                next_step="leave workers and ray out",
            )
        graph, against = graph_of(self.model), self.against
        constants = {k: to_plain(v) for k, v in graph.constants.items()}
        network = {"text": str(graph), "constants": constants, "hash": network_hash(graph)}
        passes = None if self.passes.passes is None else list(self.passes.passes)
        return {
            "network": pool.put(pack(network), "network"),
            "source": self._source(pool),
            "against": None if against is None else against.text,
            "files": {} if against is None else {f: pool.put(f) for f in against.files},
            "passes": passes,
            "disable": list(self.passes.disable),
        }

    def _source(self, pool: WorkerPool) -> Plain | None:
        """The model's file, with those that it names by where they lie beside it, if there is one
        and it is what was loaded."""
        model = self.model
        if not isinstance(model, Model) or not model.source or not os.path.exists(model.source):
            return None
        if model.stamp and model.stamp != stamp(model.source):
            return None
        path = Path(model.source)
        origin = (
            model.origin if model.origin and model.origin.path == str(path.absolute()) else None
        )
        names = [path.name, *(origin.companions if origin else ())]
        references = [pool.put(path.parent / name) for name in names]
        if len(references) == 1:
            return {"files": references[0], "name": "", "format": model.format}
        files = (dataclasses.replace(r.files[0], name=n) for r, n in zip(references, names))
        folder = Reference(tuple(files), references[0].host, is_folder=True)
        return {"files": folder, "name": path.name, "format": model.format}


def _image_plain(image: ImageOptions | None) -> Plain | None:
    return None if image is None else dataclasses.asdict(image)


def _plain(pixels: Mapping[str, Pixels]) -> Plain:
    return {k: dataclasses.asdict(v) for k, v in pixels.items()}


@dataclasses.dataclass
class _ShardStation:
    """What a worker has ready for the shards of one evaluation."""

    setup: Plain
    side: ClassifierSide
    runners: list[Runner]
    input_format: InputFormat
    stack: ExitStack


_stations: list[_ShardStation] = []
"""In a worker: the last one."""


def shard_scores(shard: Plain) -> list[Plain]:
    """The scores of a shard, in a worker (see `evaluation.shards`)."""
    if not _stations or _stations[0].setup != shard["setup"]:
        if _stations:
            _stations.pop().stack.close()
        _stations.append(_station(shard["setup"]))
    station = _stations[0]
    return scores(shard, station.side, station.runners, station.input_format)


def _station(setup: Plain) -> _ShardStation:
    network = unpack(fetch(setup["network"]).read_bytes())
    graph = parse_graph(network["text"], {k: of_plain(v) for k, v in network["constants"].items()})
    if network_hash(graph) != network["hash"]:
        raise GraphError(
            "the network's text means another network in the worker",
            next_step="report it with the model; leave workers and ray out meanwhile",
        )
    model: Network = graph
    if setup["source"] is not None:
        source = fetch(setup["source"]["files"]) / setup["source"]["name"]
        described = setup["source"]["format"]
        model = Model(graph, Ledger(), described, str(source), stamp=stamp(source))
    image = None if setup["image"] is None else ImageOptions(**_tuples(setup["image"]))
    pixels = {k: Pixels(**_tuples(v)) for k, v in setup["pixels"].items()}
    side, input_format = side_of(graph, setup["output"], image, pixels)
    threads = setup["threads"] or 1
    passes = setup["passes"]
    options = PassOptions(None if passes is None else tuple(passes), tuple(setup["disable"]))
    stack = ExitStack()
    stack.enter_context(helper_scope())
    runners: list[Runner] = [_own(setup["opt_level"], threads, options)]
    if setup["against"] is not None:
        paths = {path: str(fetch(reference)) for path, reference in setup["files"].items()}
        own = resolve(setup["against"])
        text = own.at(paths) if isinstance(own, TextSubject) else setup["against"]
        runner = _network_or_subject(text, model, threads, setup["timeout"])
        assert runner is not None
        runners.append(runner)
    side = dataclasses.replace(side, batch=setup["batch"])
    return _ShardStation(setup, side, runners, input_format, stack)


def _tuples(fields: Plain) -> Plain:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
