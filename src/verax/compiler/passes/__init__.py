"""Passes: Graph -> (Graph, Trace), one file each. `levels` says which run when."""
