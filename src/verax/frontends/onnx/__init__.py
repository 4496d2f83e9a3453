"""ONNX: reading models of opsets 6 and later.

`reader` makes foreign nodes of a file, `table` says what each means, `importer` puts the graph
together. `verax.export.onnx` goes the other way.
"""

import verax.ops  # noqa: F401  (registers the operators that the table names)
from verax.base.optional import require

require("onnx", "onnx")  # said in words before this room imports it

from verax.frontends.onnx.importer import load_onnx  # noqa: E402

__all__ = ["load_onnx"]
