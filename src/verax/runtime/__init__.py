"""Owns the ABI: loads object code, binds weights, runs. Knows nothing of graphs or compilers.

A compiled program is an `ProgramBinary` (plain data, what a .vx file holds) turned into a
`Program`."""
