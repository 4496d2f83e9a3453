"""Kernel families with a mapping of their own on GPUs: a thread for an element, a warp for a row, a
block for a tile. What has none runs as on a CPU, a thread for each work item (`llvm.gpu`)."""
