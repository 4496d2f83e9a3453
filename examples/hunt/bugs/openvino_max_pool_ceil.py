"""OpenVINO 2026.4.1: MaxPool has a window that lies in the padding alone."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[1,1,1] x) => (float[1,1,n] y)
{ y = MaxPool<kernel_shape=[2], strides=[3], pads=[1,1], ceil_mode=1>(x) }
""")
x = np.array([[[7]]], np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [[[7.0]]])
