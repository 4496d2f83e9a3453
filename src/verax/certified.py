"""Certified compilation: a program is judged before it is handed over.

The float64 meaning of the network is the judge. First the outputs are held against what O1's
rounding does there, on ordinary inputs and on stressed ones; where they err more, the layers that
do most harm go back to direct summation. Then every node is judged by itself. A layer whose
approximation does not stand goes back, and the program is compiled and judged again. What decides
that are promised bits and float64 numbers, so it is decided alike on every machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np

from verax.base.errors import InputError
from verax.base.machine.cores import deciding
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.cache import ProgramCache, is_cached
from verax.compiler.executable import Executable
from verax.compiler.kernels.target import Target
from verax.compiler.pipeline.recipe import network_hash
from verax.ir.graph import Graph
from verax.ir.pixels import Pixels
from verax.judge.certify import Examined, examine, outputs_ahead
from verax.judge.inputs import draw_inputs
from verax.judge.output_errors import OutputTrials
from verax.judge.regions.budget import Budget, in_context
from verax.judge.regions.network import Ahead, Progress
from verax.records.certificate import Certificate, Draw
from verax.records.environment import array_hash, environment
from verax.records.recipe import BFLOAT16_PRODUCTS
from verax.runners.own import SAME_BITS, VeraxRunner

Arrays = Mapping[str, np.ndarray]
E = TypeVar("E", bound=Executable)


def compile_certified(
    make: Callable[[Settings], E],
    graph: Graph,
    settings: Settings,
    *,
    samples: Arrays | Sequence[Arrays] | None = None,
    draws: int = 1,
    seed: int = 0,
    pixels: Mapping[str, Pixels] | None = None,
    progress: Progress | None = None,
    cache: ProgramCache | None = None,
) -> tuple[E, Certificate]:
    """The program that `make` compiles, and its certificate, which may not hold.

    samples: inputs to judge it on, one set or several; when not given, `draws` sets are drawn.
    cache: where the certificate is kept, and is found if the same program was judged on the same
    inputs before.
    Raises `InputError` when the graph leaves sizes open.
    """
    open_sizes = sorted(graph.symbols())
    if open_sizes:
        raise InputError(
            f"a certificate is for fixed shapes, and {', '.join(open_sizes)} is open",
            next_step=f"load the model with shapes={{{open_sizes[0]!r}: ...}}",
        )
    begin = time.perf_counter()
    input_sets = _samples(graph, samples, draws, seed, pixels)
    key = _key(cache, graph, settings, input_sets, seed) if cache and is_cached(settings) else ""
    if cache and key and (text := cache.text(key)) is not None:
        certificate = Certificate.from_json(text)
        exact = (*settings.keep_exact, *certificate.fallbacks)
        exe = make(dataclasses.replace(settings, keep_exact=exact))
        if exe.recipe.sha256 == certificate.recipe:
            return exe, certificate
    fallbacks: dict[str, str] = {}
    budget = Budget.of(None)
    trials: OutputTrials | None = None
    ahead = _Ahead(graph, input_sets[0][0], seed, budget)
    while True:
        exact_settings = dataclasses.replace(
            settings, keep_exact=(*settings.keep_exact, *fallbacks)
        )
        exe = make(exact_settings)
        runner = VeraxRunner(exact_settings, exe)
        recipe = exe.recipe
        if trials is None and recipe.algorithms:
            has_bf16 = BFLOAT16_PRODUCTS in recipe.algorithms.values()
            trials = OutputTrials(
                graph,
                input_sets,
                partial(_without_approximations, make, settings),
                seed=seed,
                allows_bf16=has_bf16,
            )
        if trials is not None:
            own = [
                n for n, algorithm in recipe.algorithms.items() if algorithm != BFLOAT16_PRODUCTS
            ]
            with budget.as_current():
                harmful = trials.failing(runner, own)
            if harmful:
                fallbacks |= harmful
                continue
        examinations: list[Examined] = []
        for i, (arrays, origins) in enumerate(input_sets):
            with budget.as_current():
                examined = examine(
                    graph,
                    runner,
                    arrays,
                    origins,
                    recipe.algorithms,
                    seed=seed + i,
                    progress=progress,
                    ahead=ahead.take() if i == 0 else None,
                )
            examinations.append(examined)
            if examinations[-1].failing:
                break
        failing = {node: reason for one in examinations for node, reason in one.failing.items()}
        fallbacks |= failing
        if not failing:
            break
    certificate = Certificate(
        recipe=recipe.sha256,
        network=recipe.network,
        opt_level=exact_settings.opt_level,
        draws=_with_ratios([one.draw for one in examinations], trials),
        stressed=trials.stressed if trials else (),
        fallbacks=fallbacks,
        power=max(one.power for one in examinations),
        problems=tuple(
            dict.fromkeys(
                [
                    *(p for one in examinations for p in one.problems),
                    *(trials.problems if trials else ()),
                ]
            )
        ),
        notes=tuple(
            dict.fromkeys(
                [*(n for one in examinations for n in one.notes), *(trials.notes if trials else ())]
            )
        ),
        seconds=time.perf_counter() - begin,
        environment=environment(),
    )
    if cache and key:
        cache.keep_text(key, certificate.to_json())
    return exe, certificate


def _without_approximations(make: Callable[[Settings], E], settings: Settings) -> VeraxRunner:
    """The same network at the level that changes no bit."""
    plain = dataclasses.replace(
        settings,
        opt_level=SAME_BITS,
        disable=(),
        require=(),
        allow=(),
        keep_exact=(),
        quick=True,
    )
    return VeraxRunner(plain, make(plain))


def _with_ratios(draws: Sequence[Draw], trials: OutputTrials | None) -> tuple[Draw, ...]:
    """The draws, whose outputs say how far they err beside O1."""
    if trials is None or len(trials.ratios) < len(draws):
        return tuple(draws)
    return tuple(
        dataclasses.replace(
            draw,
            outputs=tuple(
                dataclasses.replace(o, ratio=ratios.get(o.value, o.ratio)) for o in draw.outputs
            ),
        )
        for draw, ratios in zip(draws, trials.ratios)
    )


class _Ahead:
    """What is found out about the outputs while the program is compiled, used once: the float64
    meaning and what rounding may do to it need no program. With one core it would gain nothing."""

    def __init__(self, graph: Graph, inputs: Arrays, seed: int, budget: Budget) -> None:
        self._future: Future[Ahead] | None = None
        if deciding().threads > 1:
            pool = ThreadPoolExecutor(1, "verax-judge")
            with budget.as_current():
                self._future = pool.submit(in_context(outputs_ahead), graph, inputs, seed)
            pool.shutdown(wait=False)

    def take(self) -> Callable[[], Ahead] | None:
        future, self._future = self._future, None
        return None if future is None else future.result


def _key(
    cache: ProgramCache,
    graph: Graph,
    settings: Settings,
    input_sets: Sequence[tuple[Arrays, Mapping[str, str]]],
    seed: int,
) -> str:
    """The name of a certificate's entry: what decides the program, and what it is judged on."""
    inputs = [
        [f"{v} {array_hash(a)} {origins.get(v)}" for v, a in arrays.items()]
        for arrays, origins in input_sets
    ]
    program = cache.key(network_hash(graph), {}, Target.named(settings.target), settings)
    return hashlib.sha256(json.dumps(["certificate/2", program, inputs, seed]).encode()).hexdigest()


def _samples(
    graph: Graph,
    samples: Arrays | Sequence[Arrays] | None,
    draws: int,
    seed: int,
    pixels: Mapping[str, Pixels] | None,
) -> list[tuple[Arrays, Mapping[str, str]]]:
    """Sets of inputs, state included, and how each array came about."""
    if samples is None:
        return [draw_inputs(graph, seed + i, None, pixels) for i in range(max(1, draws))]
    input_sets = [samples] if isinstance(samples, Mapping) else list(samples)
    if not input_sets:
        raise InputError("no inputs were given to judge the program on")
    return [({**graph.initial, **one}, dict.fromkeys(one, "given")) for one in input_sets]
