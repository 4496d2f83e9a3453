"""ONNX: reading models of opsets 7 and later, and writing any graph as a model.

`reader` makes foreign nodes of a file, `table` says what each means, `importer` puts the graph
together; `writer` goes the other way.
"""

import verax.ops  # noqa: F401  (registers the operators that the table names)
from verax.frontends.onnx.importer import load_onnx
from verax.frontends.onnx.writer import to_bytes, to_onnx, write_onnx

__all__ = ["load_onnx", "to_bytes", "to_onnx", "write_onnx"]
