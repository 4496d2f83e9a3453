"""OpenVINO 2026.4.1: SpaceToDepth ignores the mode CRD."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 28]>
g (float[1,2,2,2] x) => (float[1,8,1,1] y)
{ y = SpaceToDepth<blocksize=2, mode="CRD">(x) }
""")
x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].flatten().tolist(), "should be", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
