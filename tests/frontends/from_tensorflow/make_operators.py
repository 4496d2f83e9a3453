"""Writes what the tests hold: TensorFlow's graphs, inputs and answers, and its attributes.

    python tests/frontends/from_tensorflow/make_operators.py

Needs TensorFlow. Tests then need only operators.npz, sound.npz and op_defs.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tf_cases import CASES, frozen, tf
from tf_cases_complex import COMPLEX, NETWORKS
from tf_cases_detection import DETECTION
from tf_cases_more import MORE

from verax.frontends.tensorflow.table import TABLE

HERE = Path(__file__).parent


def attribute(definition: Any) -> dict[str, Any]:
    """Its type, and the default as the bytes of an AttrValue in hexadecimal, if there is one."""
    found = {"type": definition.type}
    if definition.HasField("default_value"):
        found["default"] = definition.default_value.SerializeToString().hex()
    return found


def definitions() -> dict[str, Any]:
    """What TensorFlow's registry says of every operator in the table."""
    from tensorflow.python.framework import op_def_registry

    found = {}
    for name in sorted({op for _, op in TABLE}):
        op = op_def_registry.get(name)
        found[name] = {
            "outputs": [o.name for o in op.output_arg],
            "attributes": {a.name: attribute(a) for a in op.attr},
        }
    return found


def in_pairs(answer: np.ndarray) -> np.ndarray:
    """Complex numbers as Verax gives them, a last axis of two."""
    return np.stack([answer.real, answer.imag], -1) if answer.dtype.kind == "c" else answer


def answered(cases: Mapping[str, tuple[Any, ...]]) -> dict[str, np.ndarray]:
    """Graph, inputs and answers of each case."""
    arrays: dict[str, np.ndarray] = {}
    for name, (function, *inputs) in cases.items():
        data, answers = frozen(function, tuple(inputs))
        arrays[f"{name}|graph"] = np.frombuffer(data, np.uint8)
        arrays |= {f"{name}|x{i}": x for i, x in enumerate(inputs)}
        arrays |= {f"{name}|y{i}": in_pairs(np.asarray(y)) for i, y in enumerate(answers)}
    return arrays


def main() -> None:
    cases = {**CASES, **DETECTION, **MORE, **COMPLEX}
    np.savez_compressed(HERE / "operators.npz", **answered(cases))
    np.savez_compressed(HERE / "sound.npz", **answered(NETWORKS))
    text = json.dumps(definitions(), indent=1, sort_keys=True)
    (HERE / "op_defs.json").write_text(text + "\n")
    print(f"{len(cases)} graphs by TensorFlow {tf.__version__}")


if __name__ == "__main__":
    main()
