"""OpenVINO 2026.4.1: int32 is compared in float32."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (int32[1] x, int32[1] z) => (bool[1] y)
{ y = Less(x, z) }
""")
x, z = np.array([2**31 - 2], np.int32), np.array([2**31 - 1], np.int32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x, "z": z}).values())
print("given", given[0].tolist(), "should be", [True])
