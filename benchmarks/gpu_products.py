"""Counts how many recorded bits of a GPU's products the simulated matrix units reproduce.

Run: python -m benchmarks.gpu_products --records FOLDER [--verbose]. FOLDER holds products.zip
(records of one H100: random products, probes, single instructions, orders of summation) and
convs.zip (convolutions). Prints one line per kind of record, with the records that fall short;
--verbose one per record. Exits 1 if a product with a known route is not reproduced in full.
Convolutions have no known route: the one is counted that is found among the candidates.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from benchmarks.gpu_arrays import stored_arrays

from verax.numerics.matrix_units import simulate, units
from verax.numerics.matrix_units.convolution import (
    ConvolutionReproduction,
    reproduces_convolution,
)
from verax.numerics.matrix_units.reproduction import equal_bits
from verax.numerics.matrix_units.routes import (
    ROUTES,
    Route,
    predicted,
    recorded,
    sums,
)

Arrays = dict[str, np.ndarray]
DTYPES: dict[str, Any] = {
    "tf32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
INSTRUCTIONS = {"tf32": units.TF32, "bf16": units.BF16, "fp16": units.FP16}
NO_ROUTE = "without a known route"


class Records:
    """The records of an archive and their arrays."""

    def __init__(self, archive: Path) -> None:
        self.archive = zipfile.ZipFile(archive)
        manifest = json.loads(self.archive.read("manifest.json"))
        self.records = [r for r in manifest["records"] if "error" not in r]
        self.by_name = {(r["name"], r["mode"]): r for r in self.records}

    def arrays(self, file: str) -> Arrays:
        return stored_arrays(self.archive.read(file))

    def inputs(self, record: dict[str, Any]) -> tuple[Arrays, dict[str, Any]]:
        source = self.by_name[record["inputs_of"], "-"]
        return self.arrays(source["file"]), source

    def starting(self, prefix: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for record in self.records:
            name = record["name"]
            if name.startswith(prefix) and not name.endswith("inputs"):
                yield name, record["mode"], record


def route_of(mode: str, k: int, fmt: str) -> Route | None:
    """The route of a record's mode for factors in the format `fmt`; None where none is known."""
    words = mode.split()
    if mode == "cublas strict":
        name = "cuBLAS, float32"
    elif mode == "cublas tf32":
        name = "cuBLAS, TF32 allowed"
    elif mode.endswith("fp16 accumulation"):
        name = "cuBLAS, fp16 accumulation" + (", short" if k <= 32 else "")
    elif words[0] == "cublas":
        odd = words[1] == "fp16" and k % 8
        name = f"cuBLAS, {words[1]}" + (", rows not of 16 bytes" if odd else "")
    elif words[0] == "scaled_mm":
        name = f"scaled_mm {words[1]}" + ("" if words[-1] == "off" else ", fast accumulation")
    elif words[0] == "torch._int_mm" or words[1] == "int8":
        name = "int8"
    elif words[0] == "triton":
        name = "Triton, fp16 accumulation" if "accumulation" in mode else f"Triton, {words[1]}"
        if words[1] in ("e4m3", "e5m2") and mode.endswith("tile 16"):
            name += " by mma.sync"
    elif fmt != "tf32":
        name = f"JAX, {fmt}"
    else:
        same = {"high": "default", "TF32_TF32_F32": "default"}
        name = f"JAX, {same.get(words[1], words[1])}"
    return recorded(name, k)


def product(mode: str, a: np.ndarray, b: np.ndarray, fmt: str, dtype: Any) -> np.ndarray | None:
    """a (M, K) times b (K, N) as the mode computes it; None where no route is known."""
    route = route_of(mode, a.shape[1], fmt)
    if route is None:
        return None
    if mode.startswith("scaled_mm e5m2"):
        b = second_e5m2(b)
    return predicted(route, a, b, dtype=dtype)


def second_e5m2(b: np.ndarray) -> np.ndarray:
    """The recorded call took no two e5m2 factors: the second one was rounded to e4m3."""
    with np.errstate(all="ignore"):
        return np.clip(b.astype(np.float32), -448, 448).astype(ml_dtypes.float8_e4m3fn)


def answers(mode: str, record: dict[str, Any], i: Arrays, probe: str, fmt: str) -> np.ndarray:
    """Row by row of a probe: C + sum(A * B)."""
    a, b = (i[f"{probe}.{side}"].T for side in "AB")
    c = i.get(f"{probe}.C") if record.get("takes_accumulator") else None
    if not mode.startswith("mma."):
        route = route_of(mode, len(a), fmt)
        assert route is not None, "probes have K = 32, for which every route is known"
        return sums(route, a, b, c, stored_type(mode))
    return instruction(mode, a, b, c, fmt)


def instruction(
    mode: str, a: np.ndarray, b: np.ndarray, c: np.ndarray | None, fmt: str
) -> np.ndarray:
    """One instruction mma.sync with its accumulator."""
    if fmt in ("e4m3", "e5m2"):
        return sums(ROUTES["mma.sync, fp8"], a, b, c)
    start = 0.0 if c is None else c
    with np.errstate(all="ignore"):
        if mode.endswith("acc16"):
            narrow = np.asarray(start).astype(np.float16)
            return simulate.chain(units.FP16_ACCUMULATION, a, b, narrow).astype(np.float16)
        return simulate.chain(INSTRUCTIONS[fmt], a, b, start).astype(np.float32)


def stored_type(mode: str) -> Any:
    if "to bf16" in mode or "bfloat16" in mode:
        return ml_dtypes.bfloat16
    is_half = "to fp16" in mode or "accumulation tile" in mode
    return np.float16 if is_half else np.float32


def same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return equal_bits(x.astype(y.dtype), y)


Line = tuple[str, str, dict[str, np.ndarray]]


def probes(r: Records, prefix: str) -> Iterator[Line]:
    for name, mode, record in r.starting(prefix):
        i, fmt = r.inputs(record)[0], name.split(".")[1]
        found = r.arrays(record["file"])
        yield (
            name,
            mode,
            {q: same(answers(mode, record, i, q, fmt), found[q]) for q in found if q != "order"},
        )


def orders(r: Records) -> Iterator[Line]:
    for name, mode, record in r.starting("order."):
        i, source = r.inputs(record)
        fmt, dtype, k = name.split(".")[1], DTYPES[name.split(".")[1]], source["K"]
        left = r.arrays(record["file"])["left"]
        a, b = np.full((len(left), k), source["unit"]), np.ones((len(left), k))
        large, other = source["M"], 1.0
        if fmt == "e4m3" and large > 256:  # beyond one factor: each carries the root
            a[:] = b[:] = source["unit"] ** 0.5
            large = other = large**0.5
        rows = np.arange(len(left))
        for column, sign in ((i["i"], 1.0), (i["j"], -1.0)):
            a[rows, column], b[rows, column] = sign * large, other
        a, b = a.astype(dtype), b.astype(dtype)
        route = route_of(mode, k, fmt)
        assert route is not None, "orders were recorded of known routes only"
        y = sums(route, a.T, b.T, None, stored_type(mode)).astype(float)
        yield name, mode, {"left": same((y / source["unit"]).astype(np.float32), left)}
    for name, mode, record in r.starting("mma."):
        base = record["inputs_of"].replace(".inputs", ".order.inputs")
        i = r.arrays(r.by_name[base, "-"]["file"])
        y = instruction(mode, i["A"].T, i["B"].T, i["C"], name.split(".")[1])
        yield f"{name}.order", mode, {"left": same(y, r.arrays(record["file"])["order"])}


def random(r: Records, is_x3: bool) -> Iterator[Line]:
    for name, mode, record in r.starting("random."):
        if mode.endswith("X3") != is_x3:
            continue
        i, found, fmt = r.inputs(record)[0], r.arrays(record["file"]), name.split(".")[1]
        hits = {}
        for q, expected in found.items():
            y = product(mode, i["A_" + q], i["B_" + q], fmt, expected.dtype)
            hits[q] = np.zeros(expected.shape, bool) if y is None else same(y, expected)
        yield name, mode, hits


def convolutions(r: Records, verbose: bool) -> None:
    """Prints by mode how many outputs of convolutions a candidate reproduces."""
    by_mode: dict[str, list[tuple[str, ConvolutionReproduction, int]]] = {}
    for name, mode, record in r.starting("conv"):
        if name.startswith("conv_transpose") or mode == "-":
            continue
        i, y = r.arrays(r.by_name[f"{name}.inputs", "-"]["file"]), r.arrays(record["file"])["y"]
        x, w, b = (i[k] for k in ("x", "weight", "bias"))
        if y.dtype.itemsize == 2:
            x, w, b = (v.astype(y.dtype) for v in (x, w, b))
        said = re.search(r"bias, (\{.*?\})\)", record["how"])
        arguments = ast.literal_eval(said[1]) if said else {}
        strides, pads, dilations = (
            value if isinstance(value, tuple) else (value,) * (w.ndim - 2)
            for value in (
                arguments.get(k, d) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1))
            )
        )
        found = reproduces_convolution(
            y, x, w, strides=strides, pads=pads + pads, dilations=dilations,
            groups=arguments.get("groups", 1), bias=b,
        )  # fmt: skip
        by_mode.setdefault(mode, []).append((name, found, y.size))
        if verbose:
            words = "no route"
            if found.route is not None and found.order is not None:
                words = f"{found.route.name}, {found.order.name}, bias {found.route.epilogue}"
            print(f"    {name:34} {mode:24} {found.equal:6,} of {found.of:6,} {words}", flush=True)
    for mode, lines in by_mode.items():
        equal = sum(f.equal for _, f, _ in lines if f.route is not None)
        full = sum(f.route is not None and f.equal == f.of for _, f, _ in lines)
        missing = ", ".join(name for name, f, _ in lines if f.route is None)
        print(
            f"{mode:24} {equal:7,} of {sum(n for *_, n in lines):7,}; all numbers of {full} of "
            f"{len(lines)}" + (f"; no route: {missing}" if missing else "")
        )


def count(title: str, lines: Iterator[Line], verbose: bool) -> bool:
    """Prints the sum of the lines and those that fall short; True if none of a known route does."""
    equal = of = 0
    short = []
    for name, mode, hits in lines:
        n, size = sum(int(h.sum()) for h in hits.values()), sum(h.size for h in hits.values())
        equal, of = equal + n, of + size
        if verbose:
            print(f"    {name:22} {mode:48} {n:7,} of {size:7,}", flush=True)
        fails = [q for q, h in hits.items() if not h.all()]
        is_known = all(route_of(mode, int(q.rsplit("K", 1)[1]), "tf32") for q in fails if "_K" in q)
        if fails:
            short.append((name, mode, fails, is_known))
    print(f"{title:44} {equal:9,} of {of:9,} {100 * equal / of:8.3f} %", flush=True)
    for name, mode, fails, is_known in short:
        why = "" if is_known else f" ({NO_ROUTE})"
        print(f"    short: {name} {mode}: {', '.join(fails)}{why}")
    return not any(is_known for *_, is_known in short)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, required=True, help="folder with products.zip")
    parser.add_argument("--verbose", action="store_true", help="a line per record")
    options = parser.parse_args()
    r = Records(options.records / "products.zip")
    with np.errstate(all="ignore"):
        complete = [
            count("single instructions, all probes", probes(r, "mma."), options.verbose),
            count("probes of routes, K = 32", probes(r, "probes."), options.verbose),
            count("orders of summation", orders(r), options.verbose),
            count("random data", random(r, is_x3=False), options.verbose),
            count("random data, JAX X3", random(r, is_x3=True), options.verbose),
        ]
        print("\nConvolutions: equal numbers under the best candidate, by mode")
        convolutions(Records(options.records / "convs.zip"), options.verbose)
    return 0 if all(complete) else 1


if __name__ == "__main__":
    sys.exit(main())
