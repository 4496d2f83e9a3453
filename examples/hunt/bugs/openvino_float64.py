"""OpenVINO 2026.4.1: float64 is computed in float32, data movement included."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (double[1] x, double[1] z) => (double[2] y)
{ y = Concat<axis=0>(x, z) }
""")
x, z = np.array([1 + 2.0**-40]), np.array([0.5])
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x, "z": z}).values())
print("given", given[0].tolist(), "should be", [1 + 2.0**-40, 0.5])
