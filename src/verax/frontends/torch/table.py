"""ATen operators by name: importing the families' rows fills the table."""

from __future__ import annotations

from verax.frontends.torch.rows import TABLE, enter_other_names
from verax.frontends.torch.tables import (  # noqa: F401  (each registers its rows)
    complex,
    composite,
    counting,
    detection,
    distinct,
    elementwise,
    embedding_bag,
    formulas,
    fourier,
    generation,
    indexing,
    losses,
    movement,
    normalization,
    order,
    polynomials,
    products,
    quantized,
    recurrent,
    reduction,
    resampling,
    scattering,
    sizes,
    unfolding,
    windows,
)

enter_other_names()

__all__ = ["TABLE"]
