"""ONNX Runtime 1.32.0: pools with pads of the size of the window are refused."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[1,1,2] x) => (float[1,1,n] y)
{ y = AveragePool<kernel_shape=[2], pads=[2, 0], count_include_pad=1>(x) }
""")
x = np.array([[[4, 6]]], np.float32)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = session.run(None, {"x": x})
print("given", given[0].tolist(), "should be", [[[0.0, 2.0, 5.0]]])
