"""ONNX Runtime 1.32.0: LRN of another rank than 4 is refused."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[1,2,1] x) => (float[1,2,1] y)
{ y = LRN<size=3, alpha=3.0, beta=1.0, bias=1.0>(x) }
""")
x = np.array([[[1], [3]]], np.float32)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = session.run(None, {"x": x})
print("given", given[0].tolist(), "should be", [[[1 / (1 + 1 + 9)], [3 / (1 + 1 + 9)]]])
