"""HOW operators run: graph -> kernel calls on buffers (layouts, fusion groups, memory, work split).

One file per family mirrors `ops/`. Meanings are imported from there, never restated.
"""
