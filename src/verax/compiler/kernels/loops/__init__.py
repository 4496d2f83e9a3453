"""The generic loop kernel over strided accesses: its spec, its plan and its code."""
