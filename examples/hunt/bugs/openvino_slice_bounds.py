"""OpenVINO 2026.4.1: Slice backwards to the least int64, known by running, ends too early."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[3] x, int64[1] s, int64[1] e) => (float[n] y)
<int64[1] a = {0}, int64[1] t = {-1}>
{ y = Slice(x, s, e, a, t) }
""")
x = np.array([1, 2, 3], np.float32)
s, e = np.array([-1]), np.array([np.iinfo(np.int64).min])
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x, "s": s, "e": e}).values())
print("given", given[0].tolist(), "should be", x[::-1].tolist())
