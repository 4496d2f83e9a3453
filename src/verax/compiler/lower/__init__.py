"""HOW operators run: graph -> kernel calls on buffers (layouts, fusion groups, memory, work split).

One room per family of kernels mirrors `kernels/`, with `movement` beside them; `image` makes the
program of it all, and what only integer networks have is in `integer`. Meanings are imported from
`ops`, never restated.
"""
