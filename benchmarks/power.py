"""Writes docs/power.md: what the judge sees of each operator, by conditioning.

Run: python benchmarks/power.py [--check]. With --check nothing is written. Exits 1 if a claim of
the judge's is false: an error of the size that it says it sees passes as rounding.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from provenance import stamped
from verax.campaign.power import Seen, Situation, is_seen, measure, situations

PAGE = Path(__file__).parents[1] / "docs" / "power.md"
TEXT = """# What a check of one node sees

Made by `python benchmarks/power.py`. Where rounding moves an operator's result far (sums that \
cancel, numbers far off zero that a mean is taken from, a logarithm near 1), honest errors are \
large, and so is the smallest mistake that can be told from them. A verdict's coverage counts a \
node as seen only if a relative error of the stated size would have shown in it, and \
`--require-power` refuses the others.

Each row is one operator on inputs of one conditioning, named with its number. *says*: the \
relative error, spread over the whole result, from which on the judge says that it sees. *sees*: \
the result in its promised bits was multiplied by 1 + 10^(-k/2), and this is the smallest such \
error from which on every larger one was called more than rounding. *honest*: the statistic T of \
the promised bits and of plain NumPy in float32 (at most 1 is rounding). Sums allow any order, one \
number after the other included, which NumPy's own sums do not need: their T is small.

A two-argument arc tangent is no operator: it is imported as a quotient, an arc tangent and a \
choice, which are judged one by one.

|operator|condition|says|sees|honest: promised|honest: NumPy|
|---|---|---|---|---|---|
"""


def row(situation: Situation, seen: Seen) -> str:
    """One line of the table."""
    promised, plain = (f"{t:.2g}" for t in seen.baseline)
    smallest = "none" if math.isinf(seen.smallest) else f"{seen.smallest:.1e}"
    name = situation.op.kind
    mode = getattr(situation.op, "mode", "")
    training = " in training" if getattr(situation.op, "training_mode", False) else ""
    title = f"{name}{training}" + (f" ({mode})" if mode else "")
    return f"|{title}|{situation.condition}|{seen.claimed:.1e}|{smallest}|{promised}|{plain}|"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    rows, false = [], []
    for situation in situations():
        seen = measure(situation)
        rows.append(row(situation, seen))
        print(rows[-1], flush=True)
        if seen.claimed < 1 and not is_seen(situation, situation.promised(), seen.claimed):
            false.append(rows[-1])
    if not options.check:
        PAGE.write_text(stamped(TEXT + "\n".join(rows) + "\n"))
    for line in false:
        print(f"false: {line}", file=sys.stderr)
    return bool(false)


if __name__ == "__main__":
    sys.exit(main())
