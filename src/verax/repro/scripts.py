"""`show.py` of a minimal case: about ten lines that need the subject's own runtime and NumPy."""

from __future__ import annotations

from collections.abc import Mapping

ONNX_RUNTIME = """\
import onnxruntime as ort

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.{level}
session = ort.InferenceSession(here / "model.onnx", options, ["CPUExecutionProvider"])
names = [o.name for o in session.get_outputs()]
given = dict(zip(names, session.run(names, inputs)))
"""
OPENVINO = """\
import openvino

settings = {settings}
compiled = openvino.Core().compile_model(str(here / "model.onnx"), "CPU", settings)
given = {{port.get_any_name(): np.array(a) for port, a in compiled(inputs).items()}}
"""
TVM = """\
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

module = from_onnx(onnx.load(here / "model.onnx"), keep_params_in_input=False)
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
result = machine["main"](*(tvm.runtime.tensor(a) for a in inputs.values()))
result = [result] if hasattr(result, "numpy") else list(result)
given = {{name: a.numpy() for name, a in zip({outputs!r}, result)}}
"""
VERAX = """\
import verax

given = verax.compile(here / "model.onnx", opt_level={level}).run(inputs)
"""
LITERT = """\
from ai_edge_litert.interpreter import Interpreter, OpResolverType

resolver = OpResolverType.{resolver}
interpreter = Interpreter(str(here / "model.tflite"), experimental_op_resolver_type=resolver)
slots = {{d["name"]: d["index"] for d in interpreter.get_input_details()}}
for name, array in inputs.items():
    interpreter.resize_tensor_input(slots[name], array.shape)
interpreter.allocate_tensors()
for name, array in inputs.items():
    interpreter.set_tensor(slots[name], array)
interpreter.invoke()
details = interpreter.get_output_details()
given = {{d["name"]: interpreter.get_tensor(d["index"]) for d in details}}
"""
COMMAND = """\
import shlex
import subprocess

words = shlex.split({command!r})
if not any("{{input}}" in word or "{{output}}" in word for word in words):
    words += ["{{input}}", "{{output}}"]
places = {{"{{input}}": "input.npz", "{{output}}": "again.npz", "{{model}}": "model.onnx"}}
for mark, name in places.items():
    words = [word.replace(mark, str(here / name)) for word in words]
subprocess.run(words, check=True)
given = dict(np.load(here / "again.npz"))
given = {{name: given[name] for name in {outputs!r}}}
"""
RECORDED = """\
given = dict(np.load(here / "given.npz"))  # recorded: the subject was not run by itself
"""
FRAME = '''\
"""{title}"""

from pathlib import Path

import numpy as np
{runtime}
for name, y in given.items():
    right = expected[name + ".float64"]
    if y.shape != right.shape:
        print(f"{{name}}: shape {{y.shape}}, should be {{right.shape}}")
        continue
    difference = np.abs(y.astype(np.float64) - right)
    at = np.unravel_index(np.argmax(difference), y.shape)
    where = [int(i) for i in at]
    numbers = f"{{y[at]}}, should be {{right[at]:.9g}}; difference {{difference[at]:.3g}}"
    print(f"{{name}}{{where}}: {{numbers}}")
'''
LOADING = """\
here = Path(__file__).parent
inputs, expected = dict(np.load(here / "input.npz")), np.load(here / "expected.npz")
"""
KERNELS = {
    "reference kernels": "BUILTIN_REF",
    "builtin kernels": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
}
"""LiteRT's resolvers by how its runner calls what they choose."""
EXACT_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


def show_script(
    title: str, runtime: str, facts: Mapping[str, str], outputs: list[str], *, alone: bool
) -> str:
    """The text of show.py.

    title: its docstring. runtime: the package to import ("onnxruntime", "verax", ...); facts:
    what the subject tells of itself. outputs: names in order. alone: False prints what was
    recorded, as for a subject that has no runtime of its own to call.
    """
    return FRAME.format(
        title=title.replace('"""', "'''").replace("\\", "\\\\"),
        runtime=_runtime(runtime, facts, outputs, alone),
    )


def _runtime(kind: str, facts: Mapping[str, str], outputs: list[str], alone: bool) -> str:
    """Imports, then loading, then the run."""
    if not alone:
        text = RECORDED
    elif kind == "onnxruntime":
        text = ONNX_RUNTIME.format(level=EXACT_LEVELS[facts.get("optimization", "all")])
    elif kind == "openvino":
        precision = facts.get("precision", "default")
        settings = {} if precision == "default" else {"INFERENCE_PRECISION_HINT": precision}
        text = OPENVINO.format(settings=repr(settings).replace("'", '"'))
    elif kind == "tvm":
        text = TVM.format(outputs=outputs)
    elif kind == "litert":
        text = LITERT.format(resolver=KERNELS.get(facts.get("mode", ""), "AUTO"))
    elif kind == "cmd":
        text = COMMAND.format(command=facts.get("command", ""), outputs=outputs)
    elif kind == "verax":
        text = VERAX.format(level=facts.get("opt_level", "1"))
    else:
        text = RECORDED
    imports, _, body = text.partition("\n\n") if "import " in text else ("", "", text)
    lines = [*([imports] if imports else []), "", LOADING + body.rstrip("\n")]
    return "\n".join(lines)
