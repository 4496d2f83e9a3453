"""Apache TVM 0.27.0.post1: OneHot of float32 values gives float64."""

import numpy as np
import onnx.parser
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 11]>
g (int64[2] x) => (float[2,3] y)
<int64 d = {3}, float[2] v = {0.0, 5.0}>
{ y = OneHot(x, d, v) }
""")
x = np.array([-1, 1])
module = tvm.compile(from_onnx(model, keep_params_in_input=False), target="llvm")
machine = relax.VirtualMachine(module, tvm.cpu())
given = machine["main"](tvm.runtime.tensor(x)).numpy()
print("given", given.dtype, "should be", "float32")
