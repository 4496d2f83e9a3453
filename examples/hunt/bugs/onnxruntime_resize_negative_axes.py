"""ONNX Runtime 1.32.0: Resize with negative axes and a policy for the ratio keeps the size."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 18]>
g (float[1,1,2,3] x) => (float[1,1,h,w] y)
<int64[2] sizes = {4, 3}>
{ y = Resize<axes=[-2, -1], keep_aspect_ratio_policy="not_smaller">(x, "", "", sizes) }
""")
x = np.zeros((1, 1, 2, 3), np.float32)
# the larger scale is 4 / 2
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = session.run(None, {"x": x})
print("given", list(given[0].shape), "should be", [1, 1, 4, 6])
