"""Apache TVM 0.27.0.post1: MaxPool with indices is refused."""

import numpy as np
import onnx.parser
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 12]>
g (float[1,1,4] x) => (float[1,1,3] y, int64[1,1,3] i)
{ y, i = MaxPool<kernel_shape=[2]>(x) }
""")
x = np.array([[[3, 1, 4, 2]]], np.float32)
module = tvm.compile(from_onnx(model, keep_params_in_input=False), target="llvm")
machine = relax.VirtualMachine(module, tvm.cpu())
given = machine["main"](tvm.runtime.tensor(x)).numpy()
print("given", given.tolist(), "should be", "[[[3.0, 4.0, 4.0]]] and [[[0, 2, 2]]]")
