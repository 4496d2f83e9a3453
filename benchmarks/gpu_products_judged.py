"""The judge on recorded products of a GPU's matrix units, and on mistakes put into them.

    python -m benchmarks.gpu_products_judged FOLDER --only e4m3 --terms 32 512

FOLDER holds products.zip: products of one H100 in every format, by cuBLAS, Triton and JAX, of
normal, positive, widely spread and cancelling numbers. Each is judged against its factors' exact
product. Then each is judged with a mistake: some last terms that the meaning has otherwise (a tail
that was not read), a last tile of rows shifted by one, one number that is 2 % off, all of them off
by twice the format's roundoff.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.gpu_products import Records, second_e5m2

import verax
from verax.records.verdict import Verdict

TYPES: dict[str, Any] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}
SEED = 36
ACQUITTED = ("identical", "rounding", "precision", "precision lost")


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor of its type."""
    if array.dtype.kind == "f" and array.dtype.itemsize > 1:
        return torch.from_numpy(array.copy())
    unsigned = array.view(f"u{array.dtype.itemsize}").copy()
    return torch.from_numpy(unsigned).view(TYPES[array.dtype.name])


def meaning_of(a: np.ndarray, y: np.ndarray) -> Callable[..., Any]:
    """The product with factors like `a` and an answer like `y`."""
    if a.dtype == y.dtype:
        return torch.matmul
    output = TYPES[y.dtype.name]
    if output is torch.float32:
        return lambda left, right: left.float() @ right.float()
    return lambda left, right: (left.float() @ right.float()).to(output)


def judged(a: np.ndarray, b: np.ndarray, y: np.ndarray) -> Verdict:
    """The verdict on a product."""
    return verax.check(meaning_of(a, y), y, (tensor_of(a), tensor_of(b)))


Case = tuple[np.ndarray, np.ndarray, np.ndarray]


def mistakes(
    a: np.ndarray, b: np.ndarray, y: np.ndarray, unit: float
) -> Iterator[tuple[str, Case]]:
    """Yield the name of a mistake, and factors and answer with it."""
    k, rng = a.shape[1], np.random.default_rng(SEED)
    tail = max(1, min(8, k // 8))
    other = b.copy()
    other[-tail:] = np.roll(b[-tail:], 1, axis=1)
    yield "last terms of another column", (a, other, y)
    rows = y.copy()
    rows[-len(y) // 4 :] = np.roll(y, 1, axis=0)[-len(y) // 4 :]
    yield "last rows shifted", (a, b, rows)
    element = y.copy()
    at = tuple(int(rng.integers(n)) for n in y.shape)
    element[at] = _scaled(y[at], 1.02)
    if element[at] != y[at]:
        yield "one number 2 % off", (a, b, element)
    yield f"all numbers {100 * unit:.2g} % off", (a, b, _scaled(y, 1 + unit))


def _scaled(y: Any, factor: float) -> Any:
    return (np.asarray(y).astype(np.float64) * factor).astype(y.dtype)


UNITS = {"fp8": 2.0**-4, "bf16": 2.0**-7, "fp16": 2.0**-9, "tf32": 2.0**-9}
"""A scale that is wrong by this much is looked for: twice the unit roundoff of the factors."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("folder", type=Path, help="where products.zip lies")
    parser.add_argument("--only", default="", help="records whose format or mode contains this")
    parser.add_argument("--terms", type=int, nargs="*", help="lengths of sums; all without it")
    parser.add_argument("--verbose", action="store_true", help="a line per verdict that is wrong")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    records = Records(asked.folder / "products.zip")
    kinds: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    seconds, count = time.process_time(), 0
    for name, mode, record in records.starting("random."):
        if asked.only not in f"{name} {mode}" or "int8" in name:
            continue
        inputs, fmt = records.inputs(record)[0], name.split(".")[1]
        unit = UNITS["fp8" if fmt.startswith("e") else fmt]
        for question, y in records.arrays(record["file"]).items():
            if asked.terms and int(question.rpartition("K")[2]) not in asked.terms:
                continue
            a, b = inputs[f"A_{question}"], inputs[f"B_{question}"]
            b = second_e5m2(b) if mode.startswith("scaled_mm e5m2") else b
            for mistake, case in [("", (a, b, y)), *mistakes(a, b, y, unit)]:
                verdict, count = judged(*case), count + 1
                kind = str(verdict.kind.value)
                kinds[fmt, mistake][kind] += 1
                if asked.verbose and (kind in ACQUITTED) == bool(mistake):
                    test = verdict.nodes[0].test if verdict.nodes else ""
                    print(f"{kind}: {fmt}, {mode}, {question}, {mistake or 'as recorded'}: {test}")
    for (fmt, mistake), counts in kinds.items():
        said = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
        print(f"{fmt:5} {mistake or 'as recorded':30} {said}")
    print(f"{(time.process_time() - seconds) / max(1, count):.2f} s of processor time each")
    accused = sum(c["mistake"] for (_, mistake), c in kinds.items() if not mistake)
    return 1 if accused else 0


if __name__ == "__main__":
    raise SystemExit(main())
