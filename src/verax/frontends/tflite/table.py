"""The table: one row per TFLite operator, by family. Importing this module fills `TABLE`."""

from verax.frontends.tflite import (  # noqa: F401  (each enters its rows)
    table_detection,
    table_elementwise,
    table_fourier,
    table_general,
    table_hybrid,
    table_mediapipe,
    table_movement,
    table_quantised,
    table_quantised_arithmetic,
    table_quantised_curves,
    table_quantised_lstm,
    table_quantised_products,
    table_quantised_recurrent,
    table_quantised_reductions,
    table_recurrent,
    table_windows,
)
from verax.frontends.tflite.rows import TABLE

__all__ = ["TABLE"]
