"""Kernels of GPUs in which the threads of a block work together.

A family of specs that is not here, and a spec that these kernels do not take, has the kernel of its
CPU family, with a thread for each work item. Specs, operands, packed weights and bits are the same;
only tiles, shared memory and the division into threads are this room's.
"""

from verax.compiler.kernels.gpu import (  # noqa: F401  (register the emitters)
    attention,
    packing,
    products,
    strassen,
    winograd,
)
