"""Any Graph as an ONNX model: `writer` makes the file, every other module spells nodes.

A spelling is registered where it is written (`emission.written_for`), in any file of this folder.
"""

import verax.ops  # noqa: F401  (a graph that is written has its operators)
from verax.base.discovery import import_modules
from verax.export.onnx.writer import to_bytes, to_onnx, write_onnx

import_modules(__name__, __path__)

__all__ = ["to_bytes", "to_onnx", "write_onnx"]
