"""HOW operators run: graph -> kernel calls on buffers (layouts, fusion groups, memory, work split).

One file per family of operators mirrors `ops/`. Meanings are imported from there, never restated.
"""
