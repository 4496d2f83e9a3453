"""LiteRT's reference kernels as a witness, and the folder of real models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from verax.frontends.model import Model
from verax.ops.common import draw


def shared_folder() -> Path:
    """../shared, or a skip when it is missing."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "shared" / "models").is_dir():
            return parent / "shared"
    pytest.skip("../shared with real networks and suites is missing")


def litert(
    model: bytes, inputs: Mapping[str, np.ndarray], *, reference: bool = True
) -> dict[str, np.ndarray]:
    """What LiteRT's reference (or optimized) kernels give, by the names of the tensors.

    Operators that the reference resolver of the wheel lacks run on the optimized kernels.
    """
    return litert_calls(model, [inputs], reference=reference)[0]


def litert_calls(
    model: bytes, calls: Sequence[Mapping[str, np.ndarray]], *, reference: bool = True
) -> list[dict[str, np.ndarray]]:
    """As `litert`, of one interpreter that is called again and again."""
    module = pytest.importorskip("ai_edge_litert.interpreter")
    resolvers = module.OpResolverType
    resolver = resolvers.BUILTIN_REF if reference else resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        interpreter = module.Interpreter(
            model_content=model, num_threads=1, experimental_op_resolver_type=resolver
        )
    except ValueError as error:
        if not reference or "Didn't find op" not in str(error):
            raise
        return litert_calls(model, calls, reference=False)
    details = {d["name"]: d for d in interpreter.get_input_details()}
    for name, array in calls[0].items():
        interpreter.resize_tensor_input(details[name]["index"], array.shape)
    interpreter.allocate_tensors()
    answers = []
    for inputs in calls:
        for name, array in inputs.items():
            interpreter.set_tensor(details[name]["index"], array)
        interpreter.invoke()
        found = interpreter.get_output_details()
        answers.append({d["name"]: interpreter.get_tensor(d["index"]) for d in found})
    return answers


def drawn(model: Model, batch: int = 2) -> dict[str, np.ndarray]:
    """Seeded inputs: floats in -4 .. 4 with some on a grid, integers over their whole range,
    truth values of both kinds."""
    rng = np.random.default_rng(5)
    found = {}
    for name, type_ in model.inputs.items():
        shape = tuple(d if isinstance(d, int) else batch for d in type_.dims)
        low, high = -4.0, 4.0
        if type_.dtype.is_integer:
            info = np.iinfo(type_.dtype.numpy)
            low, high = float(info.min), float(info.max)
        found[name] = draw(rng, shape, type_.dtype, low, high)
    return found
