"""The judge on recorded gradients of a GPU, and on mistakes put into them.

    python -m benchmarks.gpu_gradients FOLDER --rows rows.jsonl

FOLDER holds convs.zip, attention.zip and gradients.zip. Each record is judged by all of its
gradients; with --planted also with one mistake each that kernels make. `gpu_records` writes the
page from the rows.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks import gpu_networks, gpu_operators
from benchmarks.gpu_records import Archive, Row, read, row_of, table
from torch.nn import functional

import verax.torch
from verax.torch.gradient_check import ExpectedGradients

OPERATORS, NETWORKS = ("convs.zip", "attention.zip"), "gradients.zip"
BY = "gradients"
"""What stands in a row under `by`."""
Arrays = dict[str, np.ndarray]
_expected: dict[Any, ExpectedGradients] = {}


class Recorded:
    """A record with its function or module, inputs and cotangents."""

    def __init__(self, archive: Archive, record: Mapping[str, Any]) -> None:
        self.archive, self.record = archive, record
        values = archive.arrays(record["file"])
        self.autocast = None
        if "model" in record:
            self.module: Any = gpu_networks.network(record["name"], archive.read(record["model"]))
            self.inputs = {
                k: torch.from_numpy(v) for k, v in archive.arrays(record["inputs"]).items()
            }
            if "autocast" in record["mode"]:
                self.autocast = torch.bfloat16
        else:
            inputs = archive.inputs_of(record)
            dtype = gpu_operators.TYPES.get(values["y"].dtype.name, torch.float32)
            self.module, self.inputs = gpu_operators.differentiable_of(record, inputs, dtype)
            self.inputs["grad_y"] = gpu_operators.tensor_in(inputs["grad_y"], dtype)
        self.cotangent = self.inputs.pop("grad_y")
        self.gradients = {_plain(k): v for k, v in values.items() if k.startswith("grad")}

    def judged(self, gradients: Arrays | None = None, planted: str = "") -> Row:
        """The verdict on these gradients, by default on those that were recorded."""
        given = self.gradients if gradients is None else gradients
        record = dict(self.record)
        if planted:
            record |= {"name": f"{record['name']}: {planted}", "honest": False, "cause": planted}

        return row_of(
            self.archive, record, BY, lambda: self._expected().check(given, explain=False)
        )

    def _expected(self) -> ExpectedGradients:
        """The same for all modes of one type."""
        dtype = str(self.cotangent.dtype)
        key = self.record["name"], dtype, self.record.get("causal"), self.autocast
        if key not in _expected:
            _expected[key] = ExpectedGradients(
                self.module, self.inputs, self.cotangent, autocast=self.autocast
            )
        return _expected[key]

    def mistakes(self) -> Iterator[tuple[str, Arrays]]:
        """Yield the gradients with one mistake each, and its words."""
        for name, gradient in self.gradients.items():
            wide = gradient.astype(np.float64)
            if wide.any() and len(gradient) > 1:
                yield f"1 / {len(gradient)} of {name}", self.but(name, wide / len(gradient))
                break
        square = [k for k, g in self.gradients.items() if g.ndim == 2 and len(set(g.shape)) == 1]
        for name in square[:1]:
            yield f"{name} transposed", self.but(name, self.gradients[name].T)
        if "operator" in self.record:
            yield from self._of_convolutions()
        elif "causal" in self.record:
            yield from self._of_attention()

    def but(self, name: str, gradient: np.ndarray) -> Arrays:
        """The gradients with another one of this name."""
        dtype = self.gradients[name].dtype
        return {**self.gradients, name: np.ascontiguousarray(gradient).astype(dtype)}

    def _of_convolutions(self) -> Iterator[tuple[str, Arrays]]:
        """The input gradient by another padding, and a bias gradient that lacks its last row."""
        gradient = self.gradients["x"]
        shifted = np.roll(gradient.astype(np.float64), 1, -1)
        yield "input gradient padded otherwise", self.but("x", shifted)
        cotangent = self.cotangent.double().numpy()
        axes = (0, *range(2, cotangent.ndim))
        yield (
            "bias gradient without the last row",
            self.but("bias", cotangent[:, :, :-1].sum(axes) if cotangent.ndim > 3 else
                     cotangent[..., :-1].sum(axes)),
        )  # fmt: skip

    def _of_attention(self) -> Iterator[tuple[str, Arrays]]:
        """A softmax's gradient without the sum over its row, added to what was recorded."""
        right, wrong = (self._attention(rows) for rows in (True, False))
        for name in "qk":
            change = wrong[name] - right[name]
            gradient = self.gradients[name].astype(np.float64)
            yield f"row sum left out of grad_{name}", self.but(name, gradient + change)

    def _attention(self, rows: bool) -> Arrays:
        q, k, v = (self.inputs[n].double() for n in "qkv")
        scale = q.shape[-1] ** -0.5
        scores = q @ k.transpose(-1, -2) * scale
        if self.record["causal"]:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~mask, -torch.inf)
        p = torch.softmax(scores, -1)
        dp = self.cotangent.double() @ v.transpose(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) if rows else p * dp
        return {"q": (ds @ k * scale).numpy(), "k": (ds.transpose(-1, -2) @ q * scale).numpy()}


def _plain(name: str) -> str:
    """A gradient's name as that of what it is a gradient of."""
    for prefix in ("grad_input.", "grad.", gpu_operators.GRADIENT):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def norm_mistakes() -> Iterator[tuple[str, Any, dict[str, torch.Tensor], Any, Arrays]]:
    """Yield (words, function, inputs, cotangent, gradients) of norms whose input gradient lacks one
    of its means."""
    random = np.random.default_rng(17)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.from_numpy(random.standard_normal(shape, np.float32))

    def layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, weight.shape, weight, bias)

    def group(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.group_norm(x, 3, weight, bias)

    sizes = (
        ("LayerNorm", layer, (5, 37), (37,), (1, 37)),
        ("GroupNorm", group, (2, 12, 7, 9), (12,), (1, 12, 1, 1)),
    )
    for name, function, shape, channels, broadcast in sizes:
        x, weight, bias, dy = drawn(*shape), drawn(*channels), drawn(*channels), drawn(*shape)
        inputs = {"x": x, "weight": weight, "bias": bias}
        rows = (shape[0], -1) if name == "LayerNorm" else (shape[0], 3, -1)
        wide = x.double().reshape(rows)
        g = (dy.double() * weight.double().reshape(broadcast)).reshape(rows)
        centered = wide - wide.mean(-1, keepdim=True)
        inverse = torch.rsqrt(centered.square().mean(-1, keepdim=True) + 1e-5)
        normal = centered * inverse
        first = g.mean(-1, keepdim=True)
        second = normal * (g * normal).mean(-1, keepdim=True)
        kinds: tuple[tuple[str, Callable[[], torch.Tensor]], ...] = (
            ("", lambda g=g, f=first, s=second: g - f - s),  # type: ignore[misc]
            ("without its first mean", lambda g=g, s=second: g - s),  # type: ignore[misc]
            ("without its second mean", lambda g=g, f=first: g - f),  # type: ignore[misc]
        )
        for words, result in kinds:
            dx = (inverse * result()).reshape(shape).float().numpy()
            yield f"{name} {words}".strip(), function, inputs, dy, {"x": dx}


def every(folder: Path, asked: argparse.Namespace) -> Iterator[Recorded]:
    """Yield the records that are to be judged."""
    for name in (n for n in (*OPERATORS, NETWORKS) if asked.archive in n):
        archive = Archive(folder / name)
        for record in archive.manifest:
            fits = "model" in record or gpu_operators.has_gradients(record)
            is_asked = asked.only in record["name"] and asked.mode in ("", record["mode"])
            if "error" not in record and fits and is_asked:
                yield Recorded(archive, record)


def judged_norms() -> Iterator[Row]:
    """Yield the verdicts on the gradients of norms, right and wrong."""
    for words, function, inputs, dy, gradients in norm_mistakes():
        begin = time.process_time()
        verdict = verax.torch.check_gradients(function, gradients, inputs, dy)
        seconds = time.process_time() - begin
        is_honest = " " not in words
        yield Row("norms", words, "strict", BY, is_honest, verdict.kind.value, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    warnings.simplefilter("ignore")
    parser.add_argument("folder", type=Path, help="where the archives lie")
    parser.add_argument("--only", default="", help="records whose names contain this")
    parser.add_argument("--mode", default="", help="records of this mode")
    parser.add_argument("--archive", default="", help="of archives whose names contain this")
    parser.add_argument("--planted", action="store_true", help="with mistakes, too")
    parser.add_argument("--rows", type=Path, help="JSON lines of what was judged before, and then")
    asked = parser.parse_args()
    rows = read(asked.rows)
    done = {r.key for r in rows}

    def enter(row: Row) -> None:
        rows.append(row)
        print(f"{row.kind:10} {row.seconds:5.1f} s  {row.name} | {row.mode}", flush=True)
        if asked.rows is not None:
            with asked.rows.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")

    for recorded in every(asked.folder, asked):
        record, archive = recorded.record, recorded.archive
        if (archive.name, record["name"], record["mode"], BY) not in done:
            enter(recorded.judged())
        for words, gradients in recorded.mistakes() if asked.planted else ():
            if (archive.name, f"{record['name']}: {words}", record["mode"], BY) not in done:
                enter(recorded.judged(gradients, words))
    if asked.planted and not asked.only and not asked.mode:
        for row in judged_norms():
            if row.key not in done:
                enter(row)
    print("\n".join(table([r for r in rows if r.by == BY])))
    return 0 if rows else 2


if __name__ == "__main__":
    raise SystemExit(main())
