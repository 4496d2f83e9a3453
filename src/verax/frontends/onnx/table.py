"""The table: one row per ONNX operator, by family.

A row states what the node means in each operator set that it may come from. Importing this module
fills `TABLE`.
"""

from verax.frontends.onnx import (  # noqa: F401  (each enters its rows)
    table_elementwise,
    table_learning,
    table_microsoft,
    table_microsoft_attention,
    table_microsoft_decoders,
    table_microsoft_quantized,
    table_movement,
    table_normalization,
    table_products,
    table_quantized,
    table_recurrent,
    table_reduction,
    table_signal,
    table_trees,
    table_windows,
)
from verax.frontends.onnx.rows import TABLE

__all__ = ["TABLE"]
