"""ONNX Runtime 1.32.0: an optimizer writes a QuantizeLinear whose two types disagree."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 23]>
g (float[1,2] x) => (float[2,1] y)
<float s = {0.5}, int8 z = {3}> {
 q = QuantizeLinear(x, s, z)
 d = DequantizeLinear(q, s, z)
 y = Transpose<perm=[1, 0]>(d) }
""")
x = np.array([[1, 2.5]], np.float32)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = session.run(None, {"x": x})
print("given", given[0].tolist(), "should be", [[1.0], [2.5]])
