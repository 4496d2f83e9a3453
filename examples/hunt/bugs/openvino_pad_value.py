"""OpenVINO 2026.4.1: Pad ignores a value that is an input."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[2] x, float v) => (float[4] y)
<int64[2] p = {1, 1}>
{ y = Pad(x, p, v) }
""")
x, v = np.array([1, 2], np.float32), np.array(-1.5, np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x, "v": v}).values())
print("given", given[0].tolist(), "should be", [-1.5, 1.0, 2.0, -1.5])
