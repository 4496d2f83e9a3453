"""Kernels that compare, sort, choose and place: TopK, NonZero, scatters, boxes, regions."""
