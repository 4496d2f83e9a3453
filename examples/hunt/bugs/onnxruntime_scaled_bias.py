"""ONNX Runtime 1.32.0: the bias of a quantized product with a scale per row is scaled by it too."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 11]>
g (float[2,2] x) => (float[2,2] y)
<int8[2,2] w = {1, 2, 3, 4}, float[2,1] f = {1, 10}, float[1,2] b = {7, 9}> {
 q, s, z = DynamicQuantizeLinear(x)
 p = MatMulInteger(q, w, z)
 pf = Cast<to=1>(p)
 sf = Mul(s, f)
 m = Mul(pf, sf)
 y = Add(m, b) }
""")
x = np.array([[0, 255], [255, 0]], np.float32)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = session.run(None, {"x": x})
print(
    "given", given[0].tolist(), "should be", (x @ [[1, 2], [3, 4]] * [[1], [10]] + [7, 9]).tolist()
)
