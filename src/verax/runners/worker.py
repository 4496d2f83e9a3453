"""The child process of `child.run_in_child`: `python -m verax.runners.worker FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from verax.base.errors import VeraxError
from verax.runners import litert, onnx_runtime, openvino, tensorflow_file, torch_file, tvm
from verax.runners.child import INPUTS, OUTPUTS, REPLY, REQUEST, load_arrays, save_arrays

TASKS = {
    "onnxruntime": onnx_runtime.answer,
    "openvino": openvino.answer,
    "tvm": tvm.answer,
    "torch": torch_file.answer,
    "litert": litert.answer,
    "tensorflow": tensorflow_file.answer,
}
"""What a child can do: request and inputs -> reply and outputs."""


def main(folder: Path) -> int:
    """Do the task in `folder` and write the reply; a refusal is a reply too."""
    request = json.loads((folder / REQUEST).read_text())
    inputs = load_arrays(folder / INPUTS, request["inputs"])
    try:
        reply, outputs = TASKS[request["task"]](request, inputs)
        reply["outputs"] = save_arrays(folder / OUTPUTS, outputs)
    except VeraxError as error:
        reply = {"error": error.cause, "next_step": error.next_step}
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        reply = {"error": text, "next_step": "the text above is the runtime's own"}
    (folder / REPLY).write_text(json.dumps(reply))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
