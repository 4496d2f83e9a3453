"""The typed, immutable graph: dimensions, tensor types, nodes, text form, checker, rewriting.

This room knows no operator's meaning: it sees them through `operator.Operator`. It knows nothing
of files, machines or verdicts.
"""
