"""Floating point itself: formats, ulps, exact fused multiply-add, canonical functions and orders,
error models, statistics of rounding. Knows arrays, not graphs."""
