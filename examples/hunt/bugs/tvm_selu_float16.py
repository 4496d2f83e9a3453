"""Apache TVM 0.27.0.post1: Selu of float16 is refused: its constants are float32."""

import numpy as np
import onnx.parser
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 6]>
g (float16[2] x) => (float16[2] y)
{ y = Selu<alpha=1.0, gamma=2.0>(x) }
""")
x = np.array([0, 1.5], np.float16)
module = tvm.compile(from_onnx(model, keep_params_in_input=False), target="llvm")
machine = relax.VirtualMachine(module, tvm.cpu())
given = machine["main"](tvm.runtime.tensor(x)).numpy()
print("given", given.tolist(), "should be", [0.0, 3.0])
