"""The table: one row per MXNet operator, by family. Importing this module fills `TABLE`."""

from verax.frontends.mxnet import (
    table_detection,
    table_elementwise,
    table_movement,
    table_windows,
)
from verax.frontends.mxnet.rows import TABLE

__all__ = ["TABLE", "table_detection", "table_elementwise", "table_movement", "table_windows"]
