"""Operators of integer arithmetic: quantize, dequantize, requantize."""
