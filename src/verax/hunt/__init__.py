"""The hunt: many generated cases, run by a subject in worker processes, judged and kept in a store.

`generate` makes case number i of a seed, `workers` judge cases one process each, `store` keeps what
came out, `findings` shrinks, asks a second opinion and writes folders, `session` ties them
together. A case is an ONNX model that the standard's own checker accepts; nothing here decides what
is right, that is the judge's.
"""
