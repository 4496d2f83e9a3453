"""OpenVINO 2026.4.1: Hardmax of an axis of 18 does not take the first maximum."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[1,18] x) => (float[1,18] y)
{ y = Hardmax(x) }
""")
x = np.array([[0] + [5] * 17], np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [[0.0, 1.0] + [0.0] * 16])
