"""The package onnx: imported when an ONNX file is read or written, so that nothing else needs it.

Readers of ONNX files import it by themselves: they are imported for such a file only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verax.base.optional import late

if TYPE_CHECKING:
    import onnx
    from google.protobuf import message
    from onnx import checker, helper, numpy_helper, shape_inference
    from onnx import reference as onnx_reference
    from onnx.backend import base as backend
    from onnx.backend.test import runner
else:
    onnx, helper = late("onnx", "onnx"), late("onnx.helper", "onnx")
    numpy_helper, backend = late("onnx.numpy_helper", "onnx"), late("onnx.backend.base", "onnx")
    checker = late("onnx.checker", "onnx")
    onnx_reference = late("onnx.reference", "onnx")
    runner = late("onnx.backend.test.runner", "onnx")
    shape_inference = late("onnx.shape_inference", "onnx")
    message = late("google.protobuf.message", "onnx")

__all__ = [
    *("backend", "checker", "helper", "message", "numpy_helper", "onnx", "runner"),
    *("onnx_reference", "shape_inference"),
]
