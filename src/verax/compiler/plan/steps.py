"""The decisions as steps of the pipeline: named, counted, to be disabled or stopped at.

A step lists what it would do one thing at a time and asks before each (`Decisions.allows`). So a
search for a faulty optimization can stop between two of them, as it can between rewrites of passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from verax.base.option_groups.settings import Settings
from verax.compiler.passes.base import PassClass
from verax.records.trace import Rewrite


@dataclass(frozen=True)
class DecisionKind:
    """A kind of decision. kind: what it may do to numbers, as for passes; help: what it does;
    by_target: what the target multiplies decides whether there is anything to do."""

    name: str
    kind: PassClass
    help: str
    by_target: bool = False


FUSE = DecisionKind(
    "fuse_elementwise",
    PassClass.exact,
    "An elementwise node is computed where the value that it reads is made, in one kernel; nothing "
    "is rounded that was not, and the value is not stored.",
)
BLOCK = DecisionKind(
    "block_layouts",
    PassClass.exact,
    "A value stays in blocks of 16 channels between the kernels that make and read it so, instead "
    "of going back to rows. Numbers are moved, not changed.",
)
DIVIDE = DecisionKind(
    "divide_batch",
    PassClass.exact,
    "A large batch goes through the network a few images at a time, so that what lies in between "
    "stays in the cache, where no operator takes anything of one image to another.",
)
STORE_BYTES = DecisionKind(
    "store_in_bytes",
    PassClass.exact,
    "Integers of 16 bits that are bytes in value are stored as bytes, where everything that reads "
    "them multiplies bytes on the target.",
    by_target=True,
)
STORE_BFLOAT16 = DecisionKind(
    "store_in_bfloat16",
    PassClass.exact,
    "A factor that was rounded to bfloat16 is stored in 16 bits, where everything that reads it "
    "multiplies pairs of bfloat16 on the target.",
    by_target=True,
)
STEPS = (DIVIDE, STORE_BYTES, STORE_BFLOAT16, FUSE, BLOCK)
"""Every step, in the order in which they run, after all passes."""


@dataclass
class Decisions:
    """What may be decided, and what was.

    names: the steps that run. limit: decisions that are left to be made, None for all. records:
    those that were made. selected: ids of the only ones that may be made, None for all. location:
    a suffix of ids and texts, for decisions in a body of a branch or loop.
    """

    names: frozenset[str] = frozenset(s.name for s in STEPS)
    limit: int | None = None
    records: list[Rewrite] = field(default_factory=list)
    selected: tuple[str, ...] | None = None
    location: str = ""

    def inside(self, body: str) -> Decisions:
        """Decisions of the body of a node (named `body`), with the same records and limit."""
        return replace(self, location=f"{self.location} (in {body})")

    @staticmethod
    def of(settings: Settings, classes: frozenset[PassClass], done: int) -> Decisions:
        """classes: what the level admits. done: rewrites that the passes did."""
        names = {
            s.name
            for s in STEPS
            if s.name in settings.require
            or (
                s.kind in classes
                and s.name not in settings.disable
                and (settings.passes is None or s.name in settings.passes)
            )
        }
        stop = settings.stop_after
        left = None if stop is None else max(0, stop - done)
        return Decisions(frozenset(names), left, selected=settings.steps)

    def runs(self, step: DecisionKind) -> bool:
        return step.name in self.names

    def allows(
        self, step: DecisionKind, text: str, subject: str, values: tuple[str, ...] = ()
    ) -> bool:
        """True if this one decision may be made; it is then recorded.

        text: a message; subject: what tells its id from the step's others, made of names in the
        graph; values: the values it concerns.
        """
        if not self.runs(step) or (self.limit is not None and len(self.records) >= self.limit):
            return False
        note = f"{step.name}: {text}{self.location}"
        one = Rewrite.of(note, f"{subject}{self.location}", (), values)
        if self.selected is not None and not one.is_in(self.selected):
            return False
        self.records.append(one)
        return True
