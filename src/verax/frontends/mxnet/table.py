"""The table: one row per MXNet operator, by family. Importing this module fills `TABLE`."""

from verax.frontends.mxnet import (  # noqa: F401  (each enters its rows)
    table_activations,
    table_arithmetic,
    table_boxes,
    table_detection,
    table_generation,
    table_lookup,
    table_movement,
    table_normalization,
    table_numpy,
    table_recurrent,
    table_reductions,
    table_sampling,
    table_slicing,
    table_windows,
)
from verax.frontends.mxnet.rows import TABLE

__all__ = ["TABLE"]
