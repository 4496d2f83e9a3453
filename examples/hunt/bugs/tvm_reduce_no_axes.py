"""Apache TVM 0.27.0.post1: ReduceL1 of no axes forgets the absolute value."""

import numpy as np
import onnx.parser
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 18]>
g (float[2] x) => (float[2] y)
<int64[0] a = {}>
{ y = ReduceL1<noop_with_empty_axes=1>(x, a) }
""")
x = np.array([-3, 4], np.float32)
module = tvm.compile(from_onnx(model, keep_params_in_input=False), target="llvm")
machine = relax.VirtualMachine(module, tvm.cpu())
given = machine["main"](tvm.runtime.tensor(x)).numpy()
print("given", given.tolist(), "should be", [3.0, 4.0])
