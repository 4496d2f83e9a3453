"""OpenVINO 2026.4.1: LRN of an even size takes one channel too few."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[1,2,1,1] x) => (float[1,2,1,1] y)
{ y = LRN<size=2, alpha=2.0, beta=1.0, bias=1.0>(x) }
""")
x = np.array([[[[1]], [[3]]]], np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [[[[1 / (1 + 1 + 9)]], [[3 / (1 + 9)]]]])
