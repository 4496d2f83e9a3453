"""OpenVINO 2026.4.1: cubic Resize gives samples outside of the tensor a weight."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[1,1,1,3] x) => (float[1,1,1,1] y)
<float[0] roi = {}, float[4] s = {1,1,1,0.5}>
{ y = Resize<mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1>(x, roi, s) }
""")
x = np.array([[[[1, 2, 4]]]], np.float32)
# sampled at 0.5; the weights of -1, 0, 1, 2 are -1, 9, 9, -1 sixteenths
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x}).values())
print("given", given[0].tolist(), "should be", [[[[(9 * 1 + 9 * 2 - 4) / 17]]]])
