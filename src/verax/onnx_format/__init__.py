"""What ONNX's reader and ONNX's writer both know: codes of element types, operator sets, onnx's own
operator descriptions, and where a model's state is kept. It knows no graph of foreign nodes.
"""
