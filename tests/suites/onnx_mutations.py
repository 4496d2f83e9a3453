"""ONNX's operator cases, mutated: attributes and sizes that nobody chose.

    python -m tests.suites.onnx_mutations --seconds 600 --seed 7

Every mutant must either be refused by a `VeraxError` or run, and then compiled code gives exactly
the bits that the canonical order promises. Nothing else may happen: no other exception, no crash.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto

from verax.base.errors import VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.frontends.onnx import load_onnx
from verax.ir.graph import Graph
from verax.reference.evaluate import promised

MAX_ELEMENTS = 1_000_000


def mutant(case: Any, rng: random.Random) -> onnx.ModelProto:
    """A case's model with one to three attributes or input sizes changed."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.ClearField("type")
    for _ in range(rng.choice((1, 1, 2, 3))):
        attributes = list(rng.choice(model.graph.node).attribute)
        if attributes and rng.random() < 0.6:
            _change(rng.choice(attributes), rng)
        elif model.graph.input:
            dims = rng.choice(model.graph.input).type.tensor_type.shape.dim
            if dims:
                rng.choice(dims).dim_value = rng.choice((0, 1, 2, 3, 4, 5, 7, 8, 16, 17))
    return model


def _change(attribute: AttributeProto, rng: random.Random) -> None:
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice((0, 1, 2, 3, -1, -2, 4, attribute.i + 1, attribute.i - 1))
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        place = rng.randrange(len(attribute.ints))
        attribute.ints[place] = rng.choice((0, 1, 2, 3, 4, -1, 5))
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice((0, 1, -1, 0.5, 2, attribute.f * 3))


def inputs_for(graph: Graph, case: Any, rng: random.Random) -> dict[str, np.ndarray]:
    """The case's own inputs where they still fit, others at random."""
    own = [np.asarray(v) for v in case.data_sets[0][0] if isinstance(v, np.ndarray)]
    draw = np.random.default_rng(rng.randrange(1 << 30))
    inputs = {}
    for i, name in enumerate(graph.inputs):
        type_ = graph.types[name]
        dims = [d if isinstance(d, int) else 3 for d in type_.dims]
        if np.prod(dims, dtype=float) > MAX_ELEMENTS:
            raise VeraxError("too large to try")
        fits = i < len(own) and own[i].dtype == type_.dtype.numpy and own[i].shape == tuple(dims)
        if fits and rng.random() < 0.8:
            inputs[name] = own[i]
        elif type_.dtype.is_float:
            values = draw.standard_normal(dims) * rng.choice((1, 1, 1, 100))
            inputs[name] = values.astype(type_.dtype.numpy)
        else:
            low, high = rng.choice(((-3, 4), (0, 2)))
            inputs[name] = draw.integers(low, high, dims).astype(type_.dtype.numpy)
    return inputs


def try_mutant(model: onnx.ModelProto, case: Any, rng: random.Random) -> tuple[str, str]:
    """("same" | "refused" | "bug", details)."""
    try:
        graph = load_onnx(model.SerializeToString()).graph
        inputs = inputs_for(graph, case, rng)
        want = promised(graph, inputs)
        found = compile_graph(graph, Settings(threads=1)).run(inputs)
    except VeraxError as error:
        return "refused", error.cause
    except Exception as error:
        places = traceback.extract_tb(error.__traceback__)[-3:]
        where = " ".join(f"{Path(p.filename).name}:{p.lineno}" for p in places)
        return "bug", f"{type(error).__name__}: {error} ({where})"
    for name in graph.outputs:
        a, b = np.asarray(found[name]), np.asarray(want[name])
        same = a.dtype == b.dtype and a.shape == b.shape
        if not same or not np.array_equal(a.astype(float), b.astype(float), equal_nan=True):
            return "bug", f"{name}: compiled {a.dtype}{a.shape} differs from {b.dtype}{b.shape}"
    return "same", ""


def _work(cases: Sequence[Any], seed: int, seconds: float, note: Path, pipe: Any) -> None:
    rng, counts, bugs = random.Random(seed), {"same": 0, "refused": 0, "bug": 0}, {}
    end = time.process_time() + seconds
    while time.process_time() < end:
        case = rng.choice(cases)
        model = mutant(case, rng)
        note.write_bytes(model.SerializeToString())  # what a crash leaves behind
        kind, detail = try_mutant(model, case, rng)
        counts[kind] += 1
        if kind == "bug":
            bugs.setdefault(detail, case.name)
    pipe.send((counts, bugs))


def campaign(
    cases: Sequence[Any], seed: int, seconds: float, note: Path
) -> tuple[dict[str, int], dict[str, str]]:
    """Try mutants in a child process; counts, and bugs with the case that they came from."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_work, args=(cases, seed, seconds, note, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        if not ours.poll(seconds + 120):
            return {"bug": 1}, {"no answer: a mutant hangs": str(note)}
        return ours.recv()
    except EOFError:
        child.join()
        return {"bug": 1}, {f"the process died with exit code {child.exitcode}": str(note)}
    finally:
        child.kill()
        child.join()


def main(argv: Sequence[str] | None = None) -> int:
    """Print counts and bugs; exit code 1 when there is a bug."""
    from tests.suites.onnx_suite import node_cases

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", type=Path, default=Path("mutant.onnx"))
    options = parser.parse_args(argv)
    counts, bugs = campaign(node_cases(), options.seed, options.seconds, options.note)
    for detail, name in bugs.items():
        print(f"{name}: {detail}")
    print(counts)
    return 1 if bugs else 0


if __name__ == "__main__":
    sys.exit(main())
