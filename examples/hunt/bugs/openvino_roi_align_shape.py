"""OpenVINO 2026.4.1: RoiAlign takes no regions whose shape is symbolic."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 16]>
g (float[1,1,2,2] x, float[n,m] rois, int64[k] i) => (float[n,1,1,1] y)
{ y = RoiAlign<output_height=1, output_width=1, sampling_ratio=1>(x, rois, i) }
""")
x = np.ones((1, 1, 2, 2), np.float32)
rois, i = np.array([[0, 0, 1, 1]], np.float32), np.array([0])
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
inputs = {"x": x, "rois": rois, "i": i}
given = list(openvino.compile_model(network, "CPU", settings)(inputs).values())
print("given", given[0].tolist(), "should be", [[[[1.0]]]])
