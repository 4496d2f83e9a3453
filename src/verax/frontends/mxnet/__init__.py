"""MXNet: a network is a pair of files, NAME-symbol.json (nodes) and NAME-0000.params (arrays).

`params` reads the arrays, `reader` makes foreign nodes of the symbol, `table` says what each means,
`importer` puts the graph together. Only the standard library and NumPy are needed.
"""

import verax.ops  # noqa: F401  (registers the operators that the table names)
from verax.frontends.mxnet.importer import load_mxnet

__all__ = ["load_mxnet"]
