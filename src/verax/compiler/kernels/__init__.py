"""Machine code for single operators, written with llvmlite and fast by construction.

A kernel knows shapes, strides and schedules, all constants in its spec; it knows nothing of
graphs, names or memory plans. Only numerics, base, llvmlite and NumPy may enter.
"""
