"""OpenVINO 2026.4.1: an input that only Dropout reads loses its name."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[2] x) => (float[2] y)
{ y = Dropout(x) }
""")
x = np.array([1, 2], np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [1.0, 2.0])
