"""The zoo at the default level: every network that we know at O3, beside O1 and PyTorch.

What users get by default has to compile and to err like float32 on every architecture, not on the
panel's alone: names that collide, exact zeros that become noise and get divided by their norm. Each
network is compiled in checked mode at O1 and O3, run on inputs with black borders and padded
tokens, and held against float64: at O3 no output may err by more than 16 times what O1 errs there.

    python -m benchmarks.default_level                          # all, an hour
    python -m benchmarks.default_level swinv2 --write docs/default_level.md --rows rows.json

Networks of torchvision are there where it is installed. With --rows what was measured is kept in a
file, and what is in it is not measured again; the table that --write makes has all of it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.honest.architectures import Architecture, module, registry, tensors
from benchmarks.honest.hugging_face import hugging_face
from benchmarks.honest.inputs import PLAIN
from benchmarks.honest.zoo_torchvision import torchvision
from benchmarks.provenance import stamped

import verax
from verax.base.errors import VeraxError

LIMIT = 16.0
"""Times O1's error that O3's may be, as its certificate promises (`statistics.LOST`)."""
SEED = 11
TEXT = {"hidden_size": 384, "num_hidden_layers": 1, "num_attention_heads": 6,
        "intermediate_size": 1536, "vocab_size": 211, "max_position_embeddings": 160}  # fmt: skip
IMAGE = {"hidden_size": 384, "num_hidden_layers": 1, "num_attention_heads": 6,
         "intermediate_size": 1536, "image_size": 224, "patch_size": 16}  # fmt: skip
TOKENS = {
    "bert": ("BertModel", {}), "roberta": ("RobertaModel", {}), "electra": ("ElectraModel", {}),
    "mpnet": ("MPNetModel", {}),
    "modernbert": ("ModernBertModel", {f"{word}_token_id": i for i, word in
                                       enumerate(("pad", "eos", "bos", "cls", "sep"))}),
    "llama": ("LlamaModel", {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3Model", {"num_key_value_heads": 2, "head_dim": 64}),
    "gemma2": ("Gemma2Model", {"num_key_value_heads": 2, "head_dim": 64}),
    "opt": ("OPTModel", {"ffn_dim": 1536, "word_embed_proj_dim": 384}),
    "gpt_neox": ("GPTNeoXModel", {}),
    "phi": ("PhiModel", {}), "t5": ("T5EncoderModel", {"d_model": 384, "d_ff": 1536, "d_kv": 64,
                                                       "num_layers": 1, "num_heads": 6}),
}  # fmt: skip
"""Models of text: the class of transformers, and what it needs beside TEXT."""
PICTURES = {
    "vit": ("ViTModel", IMAGE), "deit": ("DeiTModel", IMAGE), "beit": ("BeitModel", IMAGE),
    "dinov2": ("Dinov2Model", {**IMAGE, "mlp_ratio": 4}), "siglip": ("SiglipVisionModel", IMAGE),
    "swin": ("SwinModel", {"embed_dim": 96, "depths": [1, 2, 1, 1], "num_heads": [3, 6, 12, 24]}),
    "swinv2": ("Swinv2Model", {"embed_dim": 96, "depths": [1, 2, 1, 1], "window_size": 8,
                               "num_heads": [3, 6, 12, 24]}),
    "resnet": ("ResNetModel", {"depths": [1, 2, 2, 1]}),
    "regnet": ("RegNetModel", {"depths": [1, 1, 2, 1]}),
    "convnext": ("ConvNextModel", {"depths": [1, 1, 2, 1]}),
    "convnextv2": ("ConvNextV2Model", {"depths": [1, 1, 2, 1]}),
    "mobilenetv2": ("MobileNetV2Model", {}),
    "segformer": ("SegformerModel", {"depths": [1, 1, 1, 1]}),
    "poolformer": ("PoolFormerModel", {"depths": [1, 1, 2, 1]}),
    "focalnet": ("FocalNetModel", {"depths": [1, 1, 2, 1]}),
    "pvt_v2": ("PvtV2Model", {"depths": [1, 1, 1, 1]}),
    "mobilevitv2": ("MobileViTV2Model", {}),
    "bit": ("BitModel", {"depths": [1, 1, 2, 1]}),
}  # fmt: skip
"""Models of pictures [n, 3, 224, 224]: the class of transformers and its options."""
POINTWISE = (
    "abs acos asinh atan ceil cos erf exp expm1 floor isnan log1p round rsqrt sigmoid sign sin "
    "sqrt square tan tanh trunc"
)
ACTIVATIONS = (
    "celu elu gelu hardshrink hardsigmoid hardswish leaky_relu logsigmoid mish relu6 selu silu "
    "softplus softshrink softsign tanhshrink"
)
CORE = (
    "swin at 224", "vit at 224", "beit at 224", "dinov2 at 224", "resnet at 224",
    "bert of 96 words", "llama of 96 words", "gpt_neox of 96 words", "t5 of 96 words", "pointwise",
    "cosine attention", "descriptors", "logarithm", "instance norm", "masks", "unet",
)  # fmt: skip
"""What CI runs: one network of each kind, the smaller ones of the zoo."""


@dataclass(frozen=True)
class Entry:
    """A network of the zoo. build: its module; inputs: what that takes."""

    name: str
    build: Callable[[], Any]
    inputs: Callable[[np.random.Generator], Sequence[np.ndarray]]


def picture(*shape: int) -> Callable[[np.random.Generator], Sequence[np.ndarray]]:
    """Smooth pictures between black borders of another width on each side."""

    def draw(rng: np.random.Generator) -> Sequence[np.ndarray]:
        n, channels, height, width = shape
        coarse = rng.standard_normal((n, channels, height // 8 + 1, width // 8 + 1))
        x = np.kron(coarse, np.ones((8, 8)))[..., :height, :width]
        x = x + 0.1 * rng.standard_normal(x.shape)
        x[..., : height // 9, :] = x[..., :, -(width // 5) :] = 0
        return [x.astype(np.float32)]

    return draw


def words(count: int, length: int) -> Callable[[np.random.Generator], Sequence[np.ndarray]]:
    """Sentences of 211 words, and which are none: a quarter of the first sentence is padding."""

    def draw(rng: np.random.Generator) -> Sequence[np.ndarray]:
        ids = rng.integers(3, 211, (count, length))
        kept = np.ones((count, length), np.int64)
        kept[0, 3 * length // 4 :] = 0
        return [ids, kept]

    return draw


def rows(*shape: int) -> Callable[[np.random.Generator], Sequence[np.ndarray]]:
    """Rows of very different sizes, some of them zero."""

    def draw(rng: np.random.Generator) -> Sequence[np.ndarray]:
        x = rng.standard_normal(shape) * np.exp(2 * rng.standard_normal((*shape[:-1], 1)))
        x[..., -(shape[-2] // 4) :, :] = 0
        return [x.astype(np.float32)]

    return draw


def _behind(net: Any, function: Callable[[Any], Any]) -> Any:
    """A module: `net`, and a function of its result."""
    from torch import nn

    class Behind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any) -> Any:
            return function(self.net(x))

    return Behind()


def _written() -> Iterator[Entry]:
    """Small networks in which zeros, small rows and wide ranges meet what makes errors large."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    class Cosine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k, self.q = nn.Linear(768, 768, bias=False), nn.Linear(768, 768)

        def forward(self, x: Any) -> Any:
            k, q = f.normalize(self.k(x), dim=-1), f.normalize(self.q(x), dim=-1)
            return torch.softmax(q @ k.transpose(-1, -2) * 20, -1) @ x

    def conv(channels: int = 48, filters: int = 64) -> Any:
        return nn.Conv2d(channels, filters, 3, padding=1, bias=False)

    image = picture(2, 48, 61, 59)
    yield Entry("pointwise", lambda: nn.Sequential(nn.Conv2d(256, 256, 1), nn.ReLU()),
                picture(1, 256, 33, 35))  # fmt: skip
    yield Entry("cosine attention", Cosine, rows(2, 128, 768))
    yield Entry("descriptors", lambda: _behind(conv(), lambda y: f.normalize(y, dim=1)), image)
    yield Entry("logarithm", lambda: _behind(conv(), lambda y: torch.log(y.abs() + 1e-12)), image)
    yield Entry(
        "instance norm", lambda: nn.Sequential(conv(), nn.InstanceNorm2d(64, eps=1e-12)), image
    )
    yield Entry("masks", lambda: _behind(conv(), lambda y: (y != 0).float() + torch.sign(y)), image)
    yield Entry(
        "unet",
        lambda: nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(),
            nn.ConvTranspose2d(128, 64, 2, stride=2), nn.Conv2d(64, 64, 3, padding=1),
        ),
        picture(2, 3, 96, 80),
    )  # fmt: skip


def _operators() -> Iterator[Entry]:
    """Every kind of operator behind each algorithm that O3 chooses: a product of Strassen's, a
    convolution of Winograd's, a 1x1 convolution of Strassen's on blocked channels, and a batch that
    is sent through in parts."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    functions: dict[str, Callable[[Any], Any]] = {
        name: getattr(torch, name) for name in POINTWISE.split()
    }
    functions |= {name: getattr(f, name) for name in ACTIVATIONS.split()}
    functions |= {
        "softmax": lambda y: torch.softmax(y, -1),
        "log softmax": lambda y: torch.log_softmax(y, 1),
        "layer norm": lambda y: f.layer_norm(y, y.shape[-1:], eps=1e-12),
        "normalize": lambda y: f.normalize(y, dim=-1),
        "reciprocal": lambda y: 1 / y,
        "itself less its mean": lambda y: y - y.mean(-1, keepdim=True),
        "variance": lambda y: torch.var(y, -1),
        "logsumexp": lambda y: torch.logsumexp(y, -1),
        "norm": lambda y: torch.linalg.vector_norm(y, dim=-1),
        "product": lambda y: torch.prod(y[..., :5], -1),
        "cumulative sum": lambda y: torch.cumsum(y, -1),
        "argmax": lambda y: torch.argmax(y, -1),
        "top": lambda y: torch.topk(y, 5, dim=-1)[0],
        "order": lambda y: torch.sort(y, dim=-1)[1],
        "comparison": lambda y: (y > 0).float() + (y == 0),
        "remainder": lambda y: torch.remainder(y, 0.3),
        "floor divide": lambda y: torch.floor_divide(y, 0.3),
        "clamp": lambda y: torch.clamp(y, -0.2, 0.4),
        "power": lambda y: y.abs() ** 0.37,
        "where": lambda y: torch.where(y != 0, y / y.abs(), 2 * y),
        "gather": lambda y: y.gather(-1, (y[..., :7] > 0).long()),
        "glu": lambda y: f.glu(y, dim=-1) if y.shape[-1] % 2 == 0 else f.glu(y[..., 1:], dim=-1),
        "residue": lambda y: y - y.flip(-1) * 1.0000001,
    }
    layers: dict[str, tuple[Callable[[], nn.Module], Any]] = {
        "a product": (lambda: nn.Linear(768, 768, bias=False), rows(2, 128, 768)),
        "a convolution": (lambda: nn.Conv2d(48, 64, 3, padding=1, bias=False),
                          picture(2, 48, 61, 59)),
        "a 1x1 convolution": (lambda: nn.Conv2d(256, 256, 1, bias=False),
                              picture(1, 256, 33, 35)),
        "a batch": (lambda: nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(),
                                          nn.Conv2d(32, 32, 3, padding=1, bias=False)),
                    picture(6, 3, 112, 120)),
    }  # fmt: skip
    for layer, (build, inputs) in layers.items():
        for name, function in functions.items():
            make = partial(lambda build, function: _behind(build(), function), build, function)
            yield Entry(f"{name} behind {layer}", make, inputs)


def zoo() -> dict[str, Entry]:
    """Every network, by name."""
    found = [*_written(), *_operators()]
    for name, (model, options) in TOKENS.items():
        own = {} if name == "t5" else TEXT
        takes, config = ("input_ids", "attention_mask"), "T5Config" if name == "t5" else ""
        build = hugging_face(model, {**own, "vocab_size": 211, **options}, takes, config=config)
        found.append(Entry(f"{name} of 96 words", build, words(2, 96)))
    for name, (model, options) in PICTURES.items():
        build = hugging_face(model, options, ("pixel_values",))
        found.append(Entry(f"{name} at 224", build, picture(1, 3, 224, 224)))
    if importlib.util.find_spec("torchvision"):
        found += _torchvision()
    for name, known in registry().items():
        found.append(Entry(f"{name}, tiny", _settled(known), _plain(known)))
    return {entry.name: entry for entry in found}


def _torchvision() -> Iterator[Entry]:
    models = torchvision().models
    for name in models.list_models():
        if not name.startswith(("quantized", "raft")) and "rcnn" not in name and "3d" not in name:
            build = lambda name=name: models.get_model(name, weights=None)  # noqa: E731
            side = 299 if name == "inception_v3" else 224
            yield Entry(f"torchvision {name}", build, picture(1, 3, side, side))


def _settled(known: Architecture) -> Callable[[], Any]:
    return lambda: module(known)


def _plain(known: Architecture) -> Callable[[np.random.Generator], Sequence[np.ndarray]]:
    return lambda rng: known.inputs(PLAIN, SEED)


@dataclass(frozen=True)
class Row:
    """What one network gave. errors: the largest over all outputs, each as a part of the largest
    number of its output, at O1, at O3 and of PyTorch; ratio: the largest of any output at O3 over
    that at O1; fast: how many layers have which algorithm; refused: how many stay exact because of
    what is behind them; failed: why there are none of these."""

    name: str
    errors: Mapping[str, float]
    ratio: float = 0.0
    fast: Mapping[str, int] = None  # type: ignore[assignment]
    refused: int = 0
    failed: str = ""
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return not self.failed and self.ratio <= LIMIT


def measured(entry: Entry) -> Row:
    """The network compiled in checked mode at O1 and O3 and run."""
    import torch

    begin = time.perf_counter()
    torch.manual_seed(SEED)
    net = entry.build().eval()
    arrays = entry.inputs(np.random.default_rng(SEED))
    given = tensors(arrays)
    try:
        with torch.no_grad():
            answer = net(*given)
        model = verax.load(net, inputs=given)
        inputs = dict(zip(model.inputs, (np.asarray(a) for a in arrays), strict=True))
        exact = verax.reference(model, inputs)
        results, exe = {}, None
        for level in (1, 3):
            exe = verax.compile(model, opt_level=level, checked=True)
            results[f"O{level}"] = list(exe.run(inputs).values())
        answers = answer if isinstance(answer, tuple | list) else [answer]
        results["PyTorch"] = [np.asarray(t) for t in answers]
    except VeraxError as error:
        return Row(entry.name, {}, fast={}, failed=str(error).splitlines()[0])
    wanted = [_in_float32(np.asarray(v, np.float64)) for v in exact.values()]
    errors = {who: [_error(g, w) for g, w in zip(got, wanted)] for who, got in results.items()}
    ratios = [
        float(three / max(one, float(np.finfo(np.float32).eps)))
        for one, three in zip(errors["O1"], errors["O3"], strict=True)
    ]
    assert exe is not None
    return Row(
        entry.name,
        {who: max(found) for who, found in errors.items()},
        max(ratios),
        dict(Counter(exe.recipe.algorithms.values())),
        len(exe.trace.refused),
        seconds=time.perf_counter() - begin,
    )


def _in_float32(exact: np.ndarray) -> np.ndarray:
    """Exact numbers, those beyond the range of float32 as infinities."""
    beyond = np.abs(exact) > float(np.finfo(np.float32).max)
    return np.where(beyond, np.copysign(np.inf, exact), exact)


def _error(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest error as a part of the largest number; infinite where others are not finite."""
    finite = np.isfinite(wanted)
    got = np.asarray(got, np.float64)
    if got.shape != wanted.shape or (np.isfinite(got) != finite).any():
        return np.inf
    size = float(np.abs(wanted[finite]).max(initial=0.0))
    return float(np.abs(got - wanted)[finite].max(initial=0.0) / size) if size else 0.0


def page(found: Sequence[Row]) -> str:
    """The table in Markdown."""
    wrong = [row for row in found if not row.holds]
    head = "network", "fast layers", "refused", "O1 errs", "O3 errs", "PyTorch errs", "O3 / O1"
    lines = [
        "# The default level on every network that we know",
        "",
        f"**{len(found)} networks: {len(found) - len(wrong)} compile at O3 in checked mode and err "
        f"by at most {LIMIT:g} times what O1 does, {len(wrong)} do not.** Errors are the largest "
        "one as a part of the largest number of its output, on inputs with black borders, padded "
        "sentences and rows of zeros; made by `python -m benchmarks.default_level`. Refused: "
        "layers that stay exact because an operator behind them makes errors large.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
    ]
    for row in found:
        if row.failed:
            lines.append(f"| {row.name} | {row.failed} | | | | | |")
            continue
        fast = ", ".join(f"{count} {name}" for name, count in row.fast.items()) or "none"
        errors = " | ".join(f"{row.errors[who]:.1e}" for who in ("O1", "O3", "PyTorch"))
        lines.append(f"| {row.name} | {fast} | {row.refused} | {errors} | {row.ratio:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="parts of names")
    parser.add_argument("--rows", type=Path, help="where rows are kept")
    parser.add_argument("--write", type=Path, help="where the table goes")
    asked = parser.parse_args()
    kept = json.loads(asked.rows.read_text()) if asked.rows and asked.rows.exists() else {}
    found = []
    for name, entry in zoo().items():
        if asked.only and not any(part in name for part in asked.only):
            continue
        row = Row(**kept[name]) if name in kept else measured(entry)
        found.append(row)
        kept[name] = asdict(row)
        if asked.rows:
            asked.rows.write_text(json.dumps(kept, default=float))
        print(
            f"{'ok  ' if row.holds else 'BAD '} {row.name:32s} {row.ratio:8.2f} {row.fast} "
            f"refused {row.refused} {row.failed} {row.seconds:.1f} s",
            flush=True,
        )
    if asked.write:
        asked.write.write_text(stamped(page([Row(**row) for row in kept.values()])))
    return int(any(not row.holds for row in found))


if __name__ == "__main__":
    raise SystemExit(main())
