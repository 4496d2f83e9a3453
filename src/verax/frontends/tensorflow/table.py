"""TensorFlow operators by name: importing the families' rows fills the table."""

from __future__ import annotations

from verax.frontends.tensorflow import (  # noqa: F401  (each registers its rows)
    table_complex,
    table_detection,
    table_elementwise,
    table_images,
    table_movement,
    table_quantized,
    table_reduction,
    table_slicing,
    table_windows,
)
from verax.frontends.tensorflow.rows import TABLE

__all__ = ["TABLE"]
