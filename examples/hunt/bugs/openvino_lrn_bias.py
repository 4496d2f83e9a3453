"""OpenVINO 2026.4.1: the bias of LRN is cut to an integer."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[1,1,1,1] x) => (float[1,1,1,1] y)
{ y = LRN<size=1, alpha=0.5, beta=1.0, bias=2.5>(x) }
""")
x = np.array([[[[0.0625]]]], np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [[[[0.0625 / (2.5 + 0.5 * 0.0625**2)]]]])
