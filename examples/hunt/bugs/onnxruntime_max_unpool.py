"""ONNX Runtime 1.32.0: MaxUnpool takes indices as those of output_shape."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 11]>
g (float[1,1,1,1] x, int64[1,1,1,1] i) => (float[1,1,3,3] y)
<int64[4] s = {1, 1, 3, 3}>
{ y = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(x, i, s) }
""")
x, i = np.array([[[[7]]]], np.float32), np.array([[[[3]]]])
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = session.run(None, {"x": x, "i": i})
print(
    "given", given[0].tolist(), "should be", [[[[0.0, 0.0, 0.0], [0.0, 7.0, 0.0], [0.0, 0.0, 0.0]]]]
)
