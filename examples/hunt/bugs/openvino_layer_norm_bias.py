"""OpenVINO 2026.4.1: LayerNormalization takes no bias that broadcasts."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 17]>
g (float[2,3] x, float[2,3] s, float[3] b) => (float[2,3] y)
{ y = LayerNormalization<axis=0>(x, s, b) }
""")
x, s = np.array([[1, 2, 4], [3, 0, 1]], np.float32), np.ones((2, 3), np.float32)
b = np.array([1, 2, 3], np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x, "s": s, "b": b}).values())
print(
    "given", given[0].tolist(), "should be", ((x - x.mean()) / np.sqrt(x.var() + 1e-5) + b).tolist()
)
