"""OpenVINO 2026.4.1: Softmax of operator set 11 does not flatten its input."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 11]>
g (float[2,2,2] x) => (float[2,2,2] y)
{ y = Softmax<axis=1>(x) }
""")
x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print(
    "given",
    given[0].tolist(),
    "should be",
    (np.exp(x) / np.exp(x).sum((1, 2), keepdims=True)).tolist(),
)
