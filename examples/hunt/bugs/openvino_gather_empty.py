"""OpenVINO 2026.4.1: Gather from an empty tensor ends the process (SIGFPE)."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[4,0,5] x) => (float[4,0,2] y)
<int64[2] i = {0, 4}>
{ y = Gather<axis=-1>(x, i) }
""")
x = np.zeros((4, 0, 5), np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [[], [], [], []])
