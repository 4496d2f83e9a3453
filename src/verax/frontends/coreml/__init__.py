"""CoreML: .mlmodel files.

`messages` parses the protobuf message (with the message classes of coremltools, without importing
that package), `network` makes foreign nodes of a neural network, `table` says what each means,
`importer` puts the graph together.
"""

import verax.ops  # noqa: F401  (registers the operators that the table names)
from verax.base.optional import require

require("google.protobuf", "coreml")  # said in words before this room imports it

from verax.frontends.coreml.importer import load_coreml  # noqa: E402

__all__ = ["load_coreml"]
