"""Runtimes of other Python interpreters: another version of ONNX Runtime beside the installed one.

`managed` makes and keeps virtual environments, `script` is what runs in the other interpreter (it
needs NumPy and the runtime, nothing of ours), `interpreter` is the Runner that asks it.
"""
