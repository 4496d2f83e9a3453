"""OpenVINO 2026.4.1: a shift by a negative amount leaves bits."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 28]>
g (int8[1] x) => (int8[1] y)
<int8[1] s = {-1}>
{ y = BitShift<direction="RIGHT">(x, s) }
""")
x = np.array([64], np.int8)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [0])
