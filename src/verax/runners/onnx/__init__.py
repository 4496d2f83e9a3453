"""ONNX models for the runtimes that take them: whole, cut, in pieces, in sessions."""
