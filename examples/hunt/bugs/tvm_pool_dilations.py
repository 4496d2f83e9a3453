"""Apache TVM 0.27.0.post1: auto_pad of AveragePool forgets the dilations."""

import numpy as np
import onnx.parser
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 19]>
g (float[1,1,6] x) => (float[1,1,6] y)
{ y = AveragePool<kernel_shape=[3], dilations=[2], auto_pad="SAME_UPPER">(x) }
""")
x = np.array([[[1, 2, 3, 4, 5, 60]]], np.float32)
module = tvm.compile(from_onnx(model, keep_params_in_input=False), target="llvm")
machine = relax.VirtualMachine(module, tvm.cpu())
given = machine["main"](tvm.runtime.tensor(x)).numpy()
print("given", given.tolist(), "should be", [[[2.0, 3.0, 3.0, 22.0, 4.0, 32.0]]])
