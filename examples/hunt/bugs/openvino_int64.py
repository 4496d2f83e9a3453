"""OpenVINO 2026.4.1: int64 is computed in int32 (Sign, ArgMax, TopK, Relu, LessOrEqual)."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (int64[2] x) => (int64[2] y)
{ y = Sign(x) }
""")
x = np.array([2**32, -(2**33)])
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [1, -1])
