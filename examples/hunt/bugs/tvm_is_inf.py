"""Apache TVM 0.27.0.post1: IsInf ignores detect_positive and detect_negative."""

import numpy as np
import onnx.parser
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 10]>
g (float[2] x) => (bool[2] y)
{ y = IsInf<detect_positive=0>(x) }
""")
x = np.array([np.inf, -np.inf], np.float32)
module = tvm.compile(from_onnx(model, keep_params_in_input=False), target="llvm")
machine = relax.VirtualMachine(module, tvm.cpu())
given = machine["main"](tvm.runtime.tensor(x)).numpy()
print("given", given.tolist(), "should be", [False, True])
