"""Kernel families with a mapping of their own on GPUs: a thread for an element, a warp for a row, a
block for a tile.

A family that is not here, and a spec that these kernels do not take, has the kernel of its CPU
family, with a thread for each work item (`llvm.gpu`). Specs, operands, packed weights and bits are
the same; only tiles, shared memory and the division into threads are this room's.
"""
