"""The table: one row per ONNX operator, by family.

A row states what the node means in each operator set that it may come from. Importing this module
fills `TABLE`.
"""

from verax.frontends.onnx import (
    table_elementwise,
    table_movement,
    table_quantised,
    table_recurrent,
    table_reduction,
    table_windows,
)
from verax.frontends.onnx.rows import TABLE

__all__ = [
    "TABLE",
    "table_elementwise",
    "table_movement",
    "table_quantised",
    "table_recurrent",
    "table_reduction",
    "table_windows",
]
