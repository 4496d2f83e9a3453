"""The table: one row per CoreML layer, by family. Importing this module fills `TABLE`."""

from verax.frontends.coreml import table_elementwise, table_movement, table_windows
from verax.frontends.coreml.rows import TABLE

__all__ = ["TABLE", "table_elementwise", "table_movement", "table_windows"]
