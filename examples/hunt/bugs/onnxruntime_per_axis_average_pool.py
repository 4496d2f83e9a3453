"""ONNX Runtime 1.32.0: a dequantization along an axis is fused into QLinearGlobalAveragePool."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (uint8[1,2,2] x) => (uint8[1,2,1] y)
<float[2] s = {0.5, 1}, uint8[2] z = {4, 8}, float t = {1}, uint8 o = {0}>
{
  d = DequantizeLinear<axis=1>(x, s, z)
  p = GlobalAveragePool(d)
  y = QuantizeLinear(p, t, o)
}
""")
x = np.array([[[8, 16], [9, 13]]], np.uint8)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = session.run(None, {"x": x})
print("given", given[0].tolist(), "should be", [[[4], [3]]])
