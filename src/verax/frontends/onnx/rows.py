"""The table's registry, and what rows of several families share."""

from __future__ import annotations

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion
from verax.frontends.common.table import Table

TABLE = Table()
"""Rows by (domain, operator)."""
row = TABLE.row
MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""

Pads = tuple[tuple[int, int], ...]


def moved_to_input(c: Conversion, attribute: str, since: int, index: int) -> str | None:
    """An integer list that was an attribute before opset `since` and is input `index` after."""
    if c.version >= since:
        return c.input(index)
    values = c.integers(attribute)
    return None if values is None else c.ints(values)


def require_test_mode(c: Conversion) -> None:
    """In opset 6 training is the default, and `is_test` says otherwise."""
    if not c.flag("is_test"):
        c.refuse("without is_test = 1 it means training, which is not supported")


def pads_per_axis(c: Conversion, flat: tuple[int, ...], name: str = "pads") -> Pads:
    """(b0, b1, ..., e0, e1, ...) as ((b0, e0), (b1, e1), ...)."""
    if len(flat) % 2:
        raise ModelError(
            f"{name} = {flat} must hold a begin and an end per axis", place=c.node.place
        )
    half = len(flat) // 2
    return tuple(zip(flat[:half], flat[half:]))


def window_pads(c: Conversion) -> Pads | str:
    """Pads of a window operator from `pads` and `auto_pad`."""
    rule = c.text("auto_pad", "NOTSET")
    if rule == "NOTSET":
        return pads_per_axis(c, c.integers("pads", ()))
    if rule not in ("VALID", "SAME_UPPER", "SAME_LOWER"):
        c.attributes.refuse(
            "auto_pad", "no such rule; supported: NOTSET, VALID, SAME_UPPER, SAME_LOWER"
        )
    if any(c.integers("pads", ())):
        c.attributes.refuse("pads", f"the node has auto_pad = {rule} as well")
    return () if rule == "VALID" else rule
