"""The table: one row per CoreML layer, and per operation of ML programs, by family.

Importing this module fills `TABLE`.
"""

from verax.frontends.coreml import (  # noqa: F401  (each enters its rows)
    mil_elementwise,
    mil_indexing,
    mil_movement,
    mil_recurrent,
    mil_sampling,
    mil_windows,
    table_dense,
    table_elementwise,
    table_indexing,
    table_movement,
    table_recurrent,
    table_sampling,
    table_shapes,
    table_stages,
    table_volumes,
    table_windows,
)
from verax.frontends.coreml.mil_rows import OPERATIONS
from verax.frontends.coreml.rows import TABLE

TABLE.update(OPERATIONS)

__all__ = ["TABLE"]
