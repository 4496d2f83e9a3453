"""ONNX Runtime 1.32.0: ConvInteger without input channels leaves its output unwritten."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 10]>
g (uint8[1,0,2,2] x) => (int32[1,1,1,1] y)
<int8[1,0,2,2] w = {}>
{ y = ConvInteger(x, w) }
""")
x = np.zeros((1, 0, 2, 2), np.uint8)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
binding = session.io_binding()
binding.bind_cpu_input("x", x)
given = np.full((1, 1, 1, 1), 77, np.int32)  # what nobody writes shows
binding.bind_output("y", "cpu", 0, np.int32, given.shape, given.ctypes.data)
session.run_with_iobinding(binding)
print("given", given.tolist(), "should be", [[[[0]]]])
