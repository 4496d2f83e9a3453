"""Silent bugs of torch.compile in the manner of those that its users reported: the statements, and
what the compiler made of them.

Each is a class of arXiv 2604.08720's subject (silent bugs of the PyTorch compiler), written anew
and small from an issue of pytorch/pytorch, whose number it has. `wrong` are statements that give
what the compiled program gave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verax.hunt.programs.program import HuntedProgram

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class SilentBug:
    """issue: its number; kind: what went wrong; right, wrong: statements; shapes: of float32
    inputs, and for names that begin with k of integers."""

    issue: int
    kind: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    shapes: Shapes
    outputs: tuple[str, ...] = ("v",)
    written: tuple[str, ...] = ()
    layouts: tuple[tuple[str, str], ...] = ()

    def program(self, wrong: bool = False) -> HuntedProgram:
        random = np.random.default_rng(self.issue)
        inputs: dict[str, np.ndarray] = {}
        for name, shape in self.shapes.items():
            draw = random.standard_normal(shape).astype(np.float32)
            inputs[name] = (draw * 3).astype(np.int64) if name.startswith("k") else draw
        lines = self.wrong if wrong else self.right
        return HuntedProgram(inputs, dict(self.layouts), lines, self.outputs, self.written)


def bug(issue: int, kind: str, right: str, wrong: str, shapes: Shapes, **more: object) -> SilentBug:
    return SilentBug(
        issue,
        kind,
        tuple(right.split("; ")),
        tuple(wrong.split("; ")),
        shapes,
        **more,  # type: ignore[arg-type]
    )


SILENT_BUGS = (
    bug(
        *(197829, "a copy over overlapping memory"),
        *("x[1:] = x[:-1].clone(); v = x * 1", "x[1:] = x[:1]; v = x * 1", {"x": (5, 3)}),
        written=("x",),
    ),
    bug(
        *(138908, "a write by repeated indices is added twice"),
        "v = y.clone(); v[torch.tensor([0, 0])] += v[torch.tensor([0, 0])]",
        *("v = y.clone(); v[0] *= 4", {"y": (2, 7)}),
    ),
    bug(
        *(183082, "argmax of a transposed view, counted in memory order"),
        *("w = x.sin(); v = w.mT.argmax()", "v = x.sin().argmax()", {"x": (5, 7)}),
    ),
    bug(
        *(178964, "indices of a maximum beside a fused sum are zeros"),
        *("v = (x + y).max(1)[1]", "v = (x + y).max(1)[1] * 0", {"x": (8, 8), "y": (8, 8)}),
        layouts=(("x", "transposed"),),
    ),
    bug(
        *(189518, "a rewrite of cumsum(ones) drops the type"),
        "v = torch.ones_like(x, dtype=torch.bool).cumsum(1, dtype=torch.float32)",
        *("v = torch.ones_like(x, dtype=torch.bool).cumsum(1)", {"x": (2, 5)}),
    ),
    bug(
        *(191308, "a product of int8 comes out as int64"),
        "w = k.to(torch.int8); v = torch.matmul(w, w.mT)",
        *("w = k; v = torch.matmul(w, w.mT)", {"k": (2, 3, 4)}),
    ),
    bug(
        *(197091, "a float16 exponent promotes to float32"),
        "v = torch.ldexp(k > 0, x.to(torch.float16))",
        *("v = torch.ldexp(k > 0, x.to(torch.float16)).float()", {"k": (3, 4), "x": (3, 4)}),
    ),
    bug(
        *(195320, "attention matched through a permute of another axis"),
        "v = ((q @ x.permute(2, 1, 3, 0)[..., :3]) / 1.5).softmax(-1) @ q",
        "v = ((q @ x.permute(1, 2, 3, 0)[..., :3]) / 1.5).softmax(-1) @ q",
        {"q": (4, 4, 3, 4), "x": (3, 4, 4, 4)},
    ),
    bug(
        *(183575, "a buffer that is read later is used again"),
        "v = x.clone(); v.lerp_(y, 0.05); w = x - 0.01 * v",
        "v = y.clone(); w = x - 0.01 * torch.lerp(x, y, 0.05)",
        {"x": (6, 5), "y": (6, 5)},
        outputs=("v", "w"),
    ),
    bug(
        *(101950, "flip done in place"),
        "v = x.clone(); v = v + v.flip(0)",
        "v = x.clone(); v[0] += v[-1]; v[1] *= 2; v[2] += v[0]",
        {"x": (3, 4)},
    ),
    bug(
        *(93078, "an output shares memory with what is written later"),
        "w = torch.stack((x, x)); v = w.abs().add(1).reciprocal()",
        "v = torch.stack((x, x)).abs().add(1).reciprocal(); w = v",
        {"x": (3, 5)},
        outputs=("w", "v"),
    ),
    bug(
        *(185702, "strided slices behind a vectorized function"),
        "v = torch.stack((F.softplus(x[..., 16]), torch.erf(x[..., 16])), -1)",
        "v = torch.stack((F.softplus(x[..., 16]), torch.erf(x[..., 15])), -1)",
        {"x": (4, 8, 19)},
    ),
    bug(
        *(159154, "a local buffer of the wrong size"),
        "w = torch.exp(-x.abs()); v = w / w.sum((1, 2), keepdim=True)",
        "w = torch.exp(-x.abs()); v = w / w.sum((1, 2), keepdim=True); v[1:, 0] = v[:1, 0]",
        {"x": (5, 3, 32)},
    ),
    bug(
        *(145268, "interpolation of a single element beside a larger one"),
        "v = F.interpolate(x, size=(1, 9), mode='bilinear')",
        "v = F.interpolate(x, size=(1, 9), mode='bilinear', align_corners=True)",
        {"x": (3, 2, 1, 4)},
    ),
    bug(
        *(186577, "a normalization and a reciprocal in one kernel"),
        "v = F.layer_norm(x, (16,)).abs().add(0.01).reciprocal()",
        "v = F.layer_norm(x, (16,), eps=1e-3).abs().add(0.01).reciprocal()",
        {"x": (6, 16)},
    ),
    bug(
        *(191002, "a view of the input begins at another element"),
        *("w = x[1:]; v = w + 0", "w = x[:-1]; v = w + 0", {"x": (5, 4)}),
        layouts=(("x", "behind an element"),),
    ),
    bug(
        *(113015, "two outputs in one kernel: a strided sum beside a slice"),
        "v = x[::4].sum(0); w = torch.maximum(x[1:2], -x[::4])",
        "v = x[:5].sum(0); w = torch.maximum(x[1:2], -x[::4])",
        {"x": (17, 3)},
        outputs=("v", "w"),
    ),
    bug(
        *(96064, "an unrolled loop that writes into one buffer"),
        "v = x.clone(); v[:, 1] += v[:, 0]; v[:, 2] += v[:, 1]; v[:, 3] += v[:, 2]",
        "v = x.clone(); v[:, 1:] += x[:, :-1]",
        {"x": (5, 4)},
    ),
    bug(
        *(109925, "a scan's value and type"),
        "v = k.to(torch.int8).cumsum(0)",
        *("v = k.to(torch.int8).cumsum(0).to(torch.int8)", {"k": (6, 3)}),
    ),
    bug(
        *(101124, "a pattern matched across a write"),
        "w = x.clone(); v = w.relu(); w.add_(1); v = v + w.relu()",
        "w = x.clone(); v = w.relu(); w.add_(1); v = v + v",
        {"x": (4, 5)},
    ),
    bug(
        *(183761, "casts to float16 and back left out"),
        "v = (x.to(torch.float16) + 100).to(torch.float32) - 100",
        "v = (x + 100) - 100",
        {"x": (4, 6)},
    ),
    bug(
        *(110235, "beta and alpha of addmm"),
        "v = torch.addmm(b, x, y, beta=0.5, alpha=2)",
        *("v = torch.addmm(b, x, y, alpha=2)", {"b": (5,), "x": (3, 4), "y": (4, 5)}),
    ),
    bug(
        *(149278, "the last index is lost"),
        "v = torch.topk(x.flatten(), 4)[1]",
        "v = torch.topk(x.flatten(), 4)[1]; v[-1] = v[0]",
        {"x": (3, 7)},
    ),
    bug(
        *(118333, "a write through a view is lost"),
        "v = x.clone(); v.mT[0].add_(3)",
        *("v = x.clone()", {"x": (4, 6)}),
    ),
)
