"""OpenVINO 2026.4.1: a Cast to float16 and back is left out, with its rounding."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (double[1] x) => (float[1] y)
{ h = Cast<to=10>(x)
  y = Cast<to=1>(h) }
""")
x = np.array([1.0009])
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", np.float16(x).astype(np.float32).tolist())
