"""Writes `out/durations.txt` from the last `make test` and `make quick`: what a first case takes.

That is the case `make quick` runs, with whatever is made once for all of them. What the sample left
out keeps the figure for which it was, if that is larger: in a whole run others may have made what
it needs. (Remove the file to have all of it measured again.) Functions none of whose cases
takes time are left out. Run it (`make durations`) on a machine that does
nothing else, when `make quick` has grown slow.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as tree
from collections import defaultdict
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.sample import DURATIONS  # noqa: E402  (found by the line above)

NOTHING = 0.01
"""Mean seconds of its cases below which all of a function are run in the sample."""


def functions(report: Path) -> dict[str, list[float]]:
    """Seconds of every case that ran, by function as pytest names it."""
    found = defaultdict(list)
    for case in tree.parse(report).iter("testcase") if report.exists() else ():
        if case.find("skipped") is None:
            parts = case.attrib["classname"].split(".")
            classes = [part for part in parts if part.startswith("Test")]
            file = "/".join(parts[: len(parts) - len(classes)]) + ".py"
            function = case.attrib["name"].partition("[")[0]
            found["::".join([file, *classes, function])].append(float(case.attrib["time"]))
    return found


def main() -> None:
    whole, sample = (functions(ROOT / "out" / f"{name}.xml") for name in ("tests", "quick"))
    if not whole:
        sys.exit("there is no report of a whole run; run `make test` first")
    before = DURATIONS.read_text().splitlines() if DURATIONS.exists() else []
    past = {name: [float(seconds)] for seconds, name in map(str.split, before)}
    lines = []
    for name, times in sorted(whole.items()):
        first = max(times[0], *(sample.get(name) or past.get(name) or [0.0])[:1])
        if mean(times) >= NOTHING or first >= 10 * NOTHING:
            lines.append(f"{first:7.2f} {name}\n")
    DURATIONS.write_text("".join(lines))
    print(f"{DURATIONS.relative_to(ROOT)}: {len(lines)} functions that take {NOTHING} s or more")


if __name__ == "__main__":
    main()
