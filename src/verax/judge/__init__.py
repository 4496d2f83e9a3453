"""The judge: says of every number a subject gives whether it is rounding or a mistake, and where.

It knows operators by their meaning only and nothing of our compiler, so that its word can be
trusted on the compiler too. Subjects reach it through `protocol.Runner`; `check` and `bisect` put
the rooms together, each of which may use those before it:

decide    one value or one node
regions   several nodes between known values, up to a whole network
locate    where a mistake is
explain   what it is: rival meanings, weights, the shape of the error
align     two networks side by side
harness   faults around the network
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verax.base.lazy import lazy

if TYPE_CHECKING:
    from verax.judge.check import check
    from verax.judge.inputs import draw_inputs
    from verax.judge.protocol import Runner

_HOMES = {
    "Runner": "verax.judge.protocol",
    "check": "verax.judge.check",
    "draw_inputs": "verax.judge.inputs",
}

__all__ = ["Runner", "check", "draw_inputs"]


__getattr__ = lazy(__name__, _HOMES)  # the child of a subject needs the protocol, not the judge
