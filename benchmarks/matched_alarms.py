"""How often the projection onto known mistakes accuses honest rounding, on simulated verdicts.

    python -m benchmarks.matched_alarms --verdicts 1000000

A verdict is a tensor of errors that holds no mistake, held against as many effects as a network of
a hundred nodes has within reach. Errors are drawn independently, or shared by all numbers that read
one factor of the data (a row), or of the weights (a channel), and of sizes that vary by 1000;
effects are random, smooth along rows or channels, or in few numbers.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np

from verax.judge.explain.matched_test import projected
from verax.numerics import statistics as st

SHAPE = (2, 13, 48)
EFFECTS = 64
BATCH = 2000
Draw = Callable[[np.random.Generator, int], np.ndarray]


def independent(random: np.random.Generator, count: int) -> np.ndarray:
    """Uniform, as rounding to 16 bits is."""
    return random.uniform(-1, 1, (count, *SHAPE))


def uneven(random: np.random.Generator, count: int) -> np.ndarray:
    """Of sizes that vary with the values' own: by a factor of a thousand."""
    return independent(random, count) * 2.0 ** random.uniform(-5, 5, (count, *SHAPE))


def shared(axes: tuple[int, ...], part: float) -> Draw:
    """Errors of which a part of the variance is common to the slices along these axes."""

    def draw(random: np.random.Generator, count: int) -> np.ndarray:
        shape = tuple(n if a in axes else 1 for a, n in enumerate(SHAPE))
        common = random.standard_normal((count, *shape)) * random.choice((-1, 1), (count, *SHAPE))
        along = random.standard_normal((count, *shape))
        weighted = 0.5 * common + math.sqrt(0.75) * along
        return math.sqrt(part) * weighted + math.sqrt(1 - part) * random.standard_normal(
            (count, *SHAPE)
        )

    return draw


ERRORS: dict[str, Draw] = {
    "independent, uniform": independent,
    "independent, of sizes 1 to 1000": uneven,
    "a third shared by rows": shared((0, 1), 0.33),
    "a third shared by channels": shared((2,), 0.33),
    "nine tenths shared by rows": shared((0, 1), 0.9),
    "nine tenths shared by channels": shared((2,), 0.9),
}


def effects(random: np.random.Generator) -> np.ndarray:
    """[EFFECTS, *SHAPE]: what mistakes change, of sizes that count as one try each."""
    drawn = random.standard_normal((EFFECTS, *SHAPE))
    drawn[::4] = random.standard_normal((EFFECTS // 4, *SHAPE[:2], 1)) * np.abs(drawn[::4])
    drawn[1::4] = random.standard_normal((EFFECTS // 4, 1, 1, SHAPE[2])) * np.abs(drawn[1::4])
    drawn[2::4] *= random.uniform(0, 1, (EFFECTS // 4, *SHAPE)) < 0.1
    sizes = np.sqrt(np.square(drawn).sum(axis=(1, 2, 3), keepdims=True))
    power = np.geomspace(st.MATCHED_LEAST, st.MATCHED_MOST, EFFECTS).reshape(-1, 1, 1, 1)
    return np.asarray(drawn / sizes * random.permutation(power))


def accused(draw: Draw, verdicts: int, seed: int) -> int:
    """How many of these verdicts accuse."""
    random, count = np.random.default_rng(seed), 0
    for done in range(0, verdicts, BATCH):
        of = effects(random)
        flat = of.reshape(EFFECTS, -1)
        errors = draw(random, min(BATCH, verdicts - done))
        errors /= np.sqrt(np.square(errors).mean(axis=(1, 2, 3), keepdims=True))
        shares = errors.reshape(len(errors), -1) @ flat.T / np.square(flat).sum(axis=1)
        # No standard error is below that of independent errors by much: others need no look.
        worth = shares * np.sqrt(np.square(flat).sum(axis=1)) >= st.MATCHED_LEAST
        for verdict in np.flatnonzero(worth.any(axis=1)):
            for k in np.flatnonzero(worth[verdict]):
                if projected(errors[verdict], of[k]).is_detection(EFFECTS):
                    count += 1
                    break
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--verdicts", type=int, default=20_000, help="for each kind of errors")
    parser.add_argument("--seed", type=int, default=361)
    asked = parser.parse_args()
    print("| errors | verdicts | accused |\n|---|---|---|")
    for i, (name, draw) in enumerate(ERRORS.items()):
        begin = time.process_time()
        count = accused(draw, asked.verdicts, asked.seed + i)
        print(f"| {name} | {asked.verdicts:,} | {count} |", flush=True)
        print(f"<!-- {time.process_time() - begin:.0f} s -->", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
