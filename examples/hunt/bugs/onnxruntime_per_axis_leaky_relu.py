"""ONNX Runtime 1.32.0: LeakyRelu between quantization along an axis is fused and then refused."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (uint8[1,2] x) => (uint8[1,2] y)
<float[2] s = {1, 2}, uint8[2] z = {0, 0}, float t = {1}, uint8 u = {0}> {
 d = DequantizeLinear<axis=1>(x, s, z)
 r = LeakyRelu(d)
 y = QuantizeLinear(r, t, u) }
""")
x = np.array([[3, 4]], np.uint8)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = session.run(None, {"x": x})
print("given", given[0].tolist(), "should be", [[3, 8]])
