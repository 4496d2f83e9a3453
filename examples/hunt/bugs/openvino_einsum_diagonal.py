"""OpenVINO 2026.4.1: Einsum sums no index that one term repeats."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 12]>
g (float[2,2,2] x) => (float[2] y)
{ y = Einsum<equation="bii">(x) }
""")
x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", np.einsum("bii", x).tolist())
