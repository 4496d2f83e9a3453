"""OpenVINO 2026.4.1: Celu of float16 is refused, a constant being float32."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 28]>
g (float16[2] x) => (float16[2] y)
{ y = Celu<alpha=0.5>(x) }
""")
x = np.array([-1, 2], np.float16)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", np.where(x > 0, x, 0.5 * np.expm1(x / 0.5)).tolist())
