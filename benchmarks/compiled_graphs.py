"""torch.compile(backend="verax") on real architectures: graphs, breaks, recompiles, numbers, time.

Each network (`benchmarks.honest`: tiny, random weights) is called three times on its inputs, then,
where it takes another batch, on a larger one and on one larger still: Dynamo may trace once more
for open sizes, and not again. Counted are Dynamo's graphs and breaks, what it compiled anew for
equal sizes, Verax's programs, nodes without a kernel, and graphs that stayed in eager PyTorch.
Writes a table in Markdown; `docs/compiled_graphs.md` is its last one.

    python -m benchmarks.compiled_graphs                     # thirty networks, minutes
    python -m benchmarks.compiled_graphs gpt2 resnet18       # some
    python -m benchmarks.compiled_graphs --write docs/compiled_graphs.md
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from benchmarks import rows
from benchmarks.honest.architectures import Architecture, module, registry, tensors
from benchmarks.honest.inputs import PLAIN

import verax.torch

SEED = 9
ROUNDS = 7
NETWORKS = (
    *("ast", "whisper_encoder", "tcn", "convnext", "efficientnet", "mobilenetv2", "regnet"),
    *("resnet18", "densenet", "swin", "vit", "deit", "bert", "distilbert", "roberta", "albert"),
    *("gpt2", "llama", "mistral", "qwen2", "t5", "bart", "electra", "mobilebert", "clip"),
    *("unet", "lstm", "gru", "mlp_mixer", "detr", "segformer", "wav2vec2", "hubert", "opt"),
    *("bloom", "gemma", "phi", "xlnet", "funnel", "deberta", "mpnet", "squeezebert", "pitch"),
)
"""Those of them that the registry has, the first thirty; then others of it in its order."""
HEAD = (
    *("architecture", "graphs", "breaks", "compiled anew", "with other sizes", "programs"),
    *("without kernel", "in eager", "agrees", "ms a call", "eager"),
)


@dataclass
class Row:
    """One architecture. graphs, breaks: Dynamo's, for the first sizes. anew: graphs more after two
    more calls; sizes: graphs more after two larger batches, None where the network takes no other.
    programs: of Verax, in all. eager: graphs that eager PyTorch kept. agrees: within rounding of
    eager PyTorch, "" or what is wrong."""

    name: str
    graphs: int = 0
    breaks: int = 0
    anew: int = 0
    sizes: int | None = None
    programs: int = 0
    reference: int = 0
    eager: int = 0
    wrong: str = ""
    times: Sequence[float] = (float("nan"), float("nan"))

    def cells(self) -> list[str]:
        sizes = "one size" if self.sizes is None else str(self.sizes)
        own, others = self.times
        return [self.name, str(self.graphs), str(self.breaks), str(self.anew), sizes,
                str(self.programs), str(self.reference), str(self.eager), self.wrong or "yes",
                f"{own:.2f}", f"{others / own:.2f}x"]  # fmt: skip


def measure(architecture: Architecture) -> Row:
    """The row of one architecture."""
    row = Row(architecture.name)
    net = module(architecture)
    inputs = tensors(architecture.inputs(PLAIN, SEED))
    torch.compiler.reset()
    verax.torch.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    fast = torch.compile(net, backend="verax", options={"threads": 1, "fallback": "eager"})
    try:
        with torch.no_grad():
            row.wrong = _difference(fast(*inputs), net(*inputs))
            row.graphs = counters["stats"]["unique_graphs"]
            row.breaks = sum(counters["graph_break"].values())
            for _ in range(2):
                fast(*inputs)
            row.anew = counters["stats"]["unique_graphs"] - row.graphs
            row.times = rows.milliseconds([lambda: fast(*inputs), lambda: net(*inputs)], ROUNDS)
            row.wrong = row.wrong or _other_sizes(row, fast, net, inputs)
    except Exception as error:
        row.wrong = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:120]}"
    for graph in verax.torch.report():
        row.programs += graph.programs
        row.reference += len(graph.on_reference)
        row.eager += bool(graph.fallback)
    return row


def _other_sizes(row: Row, fast: Any, net: Any, inputs: Sequence[Any]) -> str:
    """Two larger batches; what is wrong with their results."""
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    wrong = ""
    for times in (2, 3):
        larger = [torch.cat([t] * times) for t in inputs]
        try:
            wanted = net(*larger)
        except Exception:  # a batch that is part of the network, or inputs that have none
            return ""
        wrong = wrong or _difference(fast(*larger), wanted)
    row.sizes = torch._dynamo.utils.counters["stats"]["unique_graphs"] - before
    return wrong


def _difference(given: Any, wanted: Any) -> str:
    """Nothing when both hold the same tensors but for rounding."""
    try:
        torch.testing.assert_close(given, wanted, rtol=2e-3, atol=2e-4)
    except AssertionError as error:
        return str(error).partition("\n\n")[0].replace("\n", " ")[:120]
    return ""


def page(found: Sequence[Row]) -> str:
    """The page."""
    many = [r for r in found if r.sizes is not None]
    lines = [
        "# Networks through torch.compile",
        "",
        "Made by `python -m benchmarks.compiled_graphs`: tiny networks of random weights through "
        '`torch.compile(backend="verax")` at the default level, one thread. *compiled anew*: '
        "graphs that Dynamo traced again for equal sizes; *with other sizes*: those that it traced "
        "for two larger batches (one with open sizes is meant to serve both; Verax makes its "
        "programs inside). *in eager*: graphs that Verax could not take. The last column is eager "
        "PyTorch's time as a multiple of ours, Dynamo's guards included.",
        "",
        f"**{len(found)} networks: {sum(not r.wrong for r in found)} agree with eager PyTorch, "
        f"{sum(not r.breaks for r in found)} without a graph break, {sum(r.anew for r in found)} "
        f"graphs compiled anew, {sum(r.sizes == 1 for r in many)} of {len(many)} need one more "
        f"graph for all other batches, {sum(not r.reference for r in found)} have a kernel for "
        f"every node, {sum(r.eager for r in found)} graphs stay in eager PyTorch; faster than "
        f"eager PyTorch: {sum(r.times[0] < r.times[1] for r in found)}.**",
        "",
        f"PyTorch {torch.__version__}, {platform.machine()}.",
        "",
        *rows.table(HEAD, sorted(found, key=lambda r: r.name)),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    known = registry()
    first = list(dict.fromkeys([*(n for n in NETWORKS if n in known), *known]))[:30]
    return rows.run(
        __doc__,
        Row,
        lambda asked: rows.among(known, asked) or first,
        lambda name: measure(known[name]),
        page,
    )


if __name__ == "__main__":
    raise SystemExit(main())
