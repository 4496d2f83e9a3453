"""OpenVINO 2026.4.1: ReduceL1 and ReduceL2 of no axes forget the absolute value."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 18]>
g (float[2] x) => (float[2] y)
<int64[0] a = {}>
{ y = ReduceL1<noop_with_empty_axes=1>(x, a) }
""")
x = np.array([-3, 4], np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [3.0, 4.0])
