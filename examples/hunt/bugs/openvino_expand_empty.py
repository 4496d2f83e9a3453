"""OpenVINO 2026.4.1: Expand of an empty tensor ends the process (SIGFPE)."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[0,1,2] x) => (float[0,1,2] y)
<int64[1] s = {2}>
{ y = Expand(x, s) }
""")
x = np.zeros((0, 1, 2), np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [])
