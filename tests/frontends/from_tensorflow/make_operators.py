"""Writes what the tests hold: TensorFlow's graphs, inputs and answers, and its attributes.

    python tests/frontends/from_tensorflow/make_operators.py

Needs TensorFlow. Tests then need only operators.npz and op_defs.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tf_cases import CASES, frozen, tf
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


def main() -> None:
    arrays: dict[str, np.ndarray] = {}
    for name, (function, *inputs) in {**CASES, **DETECTION, **MORE}.items():
        data, answers = frozen(function, tuple(inputs))
        arrays[f"{name}|graph"] = np.frombuffer(data, np.uint8)
        arrays |= {f"{name}|x{i}": x for i, x in enumerate(inputs)}
        arrays |= {f"{name}|y{i}": np.asarray(y) for i, y in enumerate(answers)}
    np.savez_compressed(HERE / "operators.npz", **arrays)
    text = json.dumps(definitions(), indent=1, sort_keys=True)
    (HERE / "op_defs.json").write_text(text + "\n")
    print(f"{len(CASES) + len(DETECTION) + len(MORE)} graphs by TensorFlow {tf.__version__}")


if __name__ == "__main__":
    main()
