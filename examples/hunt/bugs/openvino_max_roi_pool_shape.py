"""OpenVINO 2026.4.1: MaxRoiPool takes no regions whose shape is symbolic."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[1,1,2,2] x, float[n,m] rois) => (float[n,1,1,1] y)
{ y = MaxRoiPool<pooled_shape=[1, 1]>(x, rois) }
""")
x = np.ones((1, 1, 2, 2), np.float32)
rois = np.array([[0, 0, 0, 1, 1]], np.float32)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
inputs = {"x": x, "rois": rois}
given = list(openvino.compile_model(network, "CPU", settings)(inputs).values())
print("given", given[0].tolist(), "should be", [[[[1.0]]]])
