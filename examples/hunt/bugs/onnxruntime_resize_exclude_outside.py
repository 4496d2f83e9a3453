"""ONNX Runtime 1.32.0: Resize with exclude_outside is refused where it is linear."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 13]>
g (float[1,1,1,2] x) => (float[1,1,1,4] y)
<float[0] roi = {}, float[4] s = {1, 1, 1, 2}>
{ y = Resize<mode="linear", exclude_outside=1>(x, roi, s) }
""")
x = np.array([[[[1, 5]]]], np.float32)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = session.run(None, {"x": x})
print("given", given[0].tolist(), "should be", [[[[1.0, 2.0, 4.0, 5.0]]]])
