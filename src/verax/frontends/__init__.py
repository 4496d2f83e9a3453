"""Reading trained networks in the formats they come in.

A frontend is a reader (bytes -> plain foreign nodes) and a table (foreign node -> operators). It
may use `ops`, `ir` and `base`, and knows nothing of how a network is run. Bytes are never trusted:
nothing here executes code from a file, leaves its folder, or allocates what the file merely claims.
"""
