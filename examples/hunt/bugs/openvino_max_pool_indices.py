"""OpenVINO 2026.4.1: indices of MaxPool have the last two axes exchanged."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 12]>
g (float[1,1,2,3] x) => (float[1,1,2,3] y, int64[1,1,2,3] i)
{ y, i = MaxPool<kernel_shape=[1,1], storage_order=1>(x) }
""")
x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[1].tolist(), "should be", [[[[0, 2, 4], [1, 3, 5]]]])
