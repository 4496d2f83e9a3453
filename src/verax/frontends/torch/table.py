"""ATen operators by name: importing the families' rows fills the table."""

from __future__ import annotations

from verax.frontends.torch import (  # noqa: F401  (each registers its rows)
    table_bags,
    table_complex,
    table_composite,
    table_counting,
    table_detection,
    table_elementwise,
    table_formulas,
    table_fourier,
    table_indexing,
    table_losses,
    table_making,
    table_movement,
    table_normalization,
    table_order,
    table_polynomials,
    table_products,
    table_quantized,
    table_recurrent,
    table_reduction,
    table_resampling,
    table_scattering,
    table_sizes,
    table_unfolding,
    table_windows,
)
from verax.frontends.torch.rows import TABLE, enter_other_names

enter_other_names()

__all__ = ["TABLE"]
