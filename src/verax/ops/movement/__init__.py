"""Operators that move, choose or make numbers: reshapes, slices, gathers, pads, ranges."""
