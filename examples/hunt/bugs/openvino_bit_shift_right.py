"""OpenVINO 2026.4.1: a right shift of a negative number loses its sign."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 28]>
g (int32[1] x) => (int32[1] y)
<int32[1] s = {1}>
{ y = BitShift<direction="RIGHT">(x, s) }
""")
x = np.array([-5], np.int32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [-3])
