"""Apache TVM 0.27.0.post1: PRelu refuses int32."""

import numpy as np
import onnx.parser
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 9]>
g (int32[2] x, int32[2] s) => (int32[2] y)
{ y = PRelu(x, s) }
""")
x, s = np.array([-3, 4], np.int32), np.array([2, 3], np.int32)
module = tvm.compile(from_onnx(model, keep_params_in_input=False), target="llvm")
machine = relax.VirtualMachine(module, tvm.cpu())
given = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(s)).numpy()
print("given", given.tolist(), "should be", [-6, 4])
