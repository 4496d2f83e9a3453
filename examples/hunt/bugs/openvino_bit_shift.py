"""OpenVINO 2026.4.1: BitShift saturates what is shifted out."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 11]>
g (uint8[1] x) => (uint8[1] y)
<uint8[1] s = {1}>
{ y = BitShift<direction="LEFT">(x, s) }
""")
x = np.array([200], np.uint8)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [144])
