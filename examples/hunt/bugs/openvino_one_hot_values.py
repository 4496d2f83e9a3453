"""OpenVINO 2026.4.1: OneHot takes no values whose count is symbolic."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (int64[2] x, float[v] values) => (float[2,3] y)
<int64[1] depth = {3}>
{ y = OneHot(x, depth, values) }
""")
x = np.array([0, 2])
values = np.array([0, 1], np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x, "values": values}).values())
print("given", given[0].tolist(), "should be", [[1, 0, 0], [0, 0, 1]])
