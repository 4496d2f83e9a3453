"""From a plan to kernel calls on buffers: layouts, memory, and the program of it all.

One room per family of kernels mirrors `kernels/`, with `movement` beside them; `image` makes the
program, and what only integer networks have is in `integer`. What operators compute is imported
from `ops`, never restated.
"""
