"""HOW operators run: graph -> kernel calls on buffers (layouts, fusion groups, memory, work split).

One file per family of operators mirrors `ops/`; what only integer networks have is in `integer`.
Meanings are imported from there, never restated.
"""
