"""Apache TVM 0.27.0.post1: a pool with SAME_LOWER gets no pads."""

import numpy as np
import onnx.parser
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[1,1,1,3] x) => (float[1,1,1,2] y)
{ y = MaxPool<kernel_shape=[1,2], strides=[1,2], auto_pad="SAME_LOWER">(x) }
""")
x = np.array([[[[1, 2, 3]]]], np.float32)
module = tvm.compile(from_onnx(model, keep_params_in_input=False), target="llvm")
machine = relax.VirtualMachine(module, tvm.cpu())
given = machine["main"](tvm.runtime.tensor(x)).numpy()
print("given", given.tolist(), "should be", [[[[1.0, 3.0]]]])
