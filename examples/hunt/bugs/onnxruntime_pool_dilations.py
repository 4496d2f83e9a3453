"""ONNX Runtime 1.32.0: auto_pad of pools forgets the dilations."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 12]>
g (float[1,1,6] x) => (float[1,1,6] y)
{ y = MaxPool<kernel_shape=[3], dilations=[2], auto_pad="SAME_UPPER">(x) }
""")
x = np.array([[[1, 2, 3, 4, 5, 60]]], np.float32)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = session.run(None, {"x": x})
print("given", given[0].tolist(), "should be", [[[3.0, 4.0, 5.0, 60.0, 5.0, 60.0]]])
