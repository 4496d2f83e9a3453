"""The table: one row per Keras layer, by family. Importing this module fills `TABLE`."""

from verax.frontends.keras import table_layers, table_windows
from verax.frontends.keras.rows import TABLE

__all__ = ["TABLE", "table_layers", "table_windows"]
