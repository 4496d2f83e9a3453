"""Any Graph as an ONNX model: `operators` says how a node is spelled, `writer` makes the file."""

import verax.ops  # noqa: F401  (a graph that is written has its operators)
from verax.export.onnx.writer import to_bytes, to_onnx, write_onnx

__all__ = ["to_bytes", "to_onnx", "write_onnx"]
