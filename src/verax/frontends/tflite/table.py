"""The table: one row per TFLite operator, by family. Importing this module fills `TABLE`."""

from verax.frontends.tflite import (  # noqa: F401  (each enters its rows)
    table_detection,
    table_elementwise,
    table_fourier,
    table_general,
    table_hybrid,
    table_mediapipe,
    table_movement,
    table_quantized,
    table_quantized_activations,
    table_quantized_arithmetic,
    table_quantized_lstm,
    table_quantized_products,
    table_quantized_recurrent,
    table_quantized_reductions,
    table_recurrent,
    table_stepped_lstm,
    table_windows,
)
from verax.frontends.tflite.rows import TABLE

__all__ = ["TABLE"]
