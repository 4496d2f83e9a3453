"""The table: one row per Keras layer and operation, by family. Importing this module fills
`TABLE`."""

from verax.frontends.keras import (  # noqa: F401  (each enters its rows)
    table_attention,
    table_functions,
    table_images,
    table_layers,
    table_movement,
    table_normalization,
    table_operations,
    table_recurrent,
    table_windows,
)
from verax.frontends.keras.rows import OPERATIONS, TABLE

TABLE.update(OPERATIONS)

__all__ = ["TABLE"]
