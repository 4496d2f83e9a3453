"""Apache TVM 0.27.0.post1: TopK refuses sorted=0."""

import numpy as np
import onnx.parser
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 11]>
g (float[3] x) => (float[2] y, int64[2] i)
<int64[1] k = {2}>
{ y, i = TopK<sorted=0>(x, k) }
""")
x = np.array([1, 3, 2], np.float32)
module = tvm.compile(from_onnx(model, keep_params_in_input=False), target="llvm")
machine = relax.VirtualMachine(module, tvm.cpu())
given = machine["main"](tvm.runtime.tensor(x)).numpy()
print("given", given.tolist(), "should be", "3 and 2 in any order")
