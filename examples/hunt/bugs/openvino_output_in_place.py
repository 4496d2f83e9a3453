"""OpenVINO 2026.4.1: Abs of int16 writes into the output that it reads."""

import numpy as np
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (int16[1] x, int16[2] z) => (int16[3] y, int16[3] a)
{
  y = Concat<axis=0>(x, z)
  a = Abs(y)
}
""")
x, z = np.array([2], np.int16), np.array([4, -4], np.int16)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
network = openvino.Core().read_model(model.SerializeToString())
given = list(openvino.compile_model(network, "CPU", settings)({"x": x, "z": z}).values())
print("given", given[0].tolist(), "should be", [2, 4, -4])
