"""The files of a language model, as exporters write them: which network runs when.

A folder is read if it has ONNX Runtime GenAI's `genai_config.json`, Optimum's
`decoder_model_merged.onnx`, or `decoder_model.onnx` beside `decoder_with_past_model.onnx`, or one
.onnx file, there or in its folder `onnx`. `config.json` and `generation_config.json` beside it say
how much room there is and which tokens stop; weights and shapes are in the ONNX files alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UsageError
from verax.compiling import releasable_graph
from verax.frontends.model import Model
from verax.ir.graph import Graph
from verax.loading import load

GENAI, MERGED = "genai_config.json", "decoder_model_merged.onnx"
WITHOUT_PAST, WITH_PAST = "decoder_model.onnx", "decoder_with_past_model.onnx"
BRANCH = "use_cache_branch"
NO_PADDING = ("GroupQueryAttention",)
"""Operators that place keys by the number of tokens before them, so that padding on the left is
none of theirs."""
LARGEST_CONFIG = 1 << 24
"""Bytes of a configuration that is read."""


@dataclasses.dataclass(frozen=True)
class Networks:
    """A language model that was read.

    main: takes tokens, and the past if there is one. first: takes a prompt without a past, where
    that is another network. room: tokens that it has places for; stop: ids that end a text. pads:
    whether prompts may be padded on the left.
    """

    main: Graph
    first: Graph | None = None
    room: int | None = None
    stop: tuple[int, ...] = ()
    pads: bool = True


def networks(source: Any) -> Networks:
    """What a file, a folder, a `Model` or a graph is.

    Raises `UsageError` where there is no model, and what `load` raises.
    """
    if isinstance(source, Graph):
        return Networks(source)
    if isinstance(source, Model):
        return Networks(releasable_graph(source), pads=_pads(source))
    if not isinstance(source, str | os.PathLike):
        model = load(source)
        assert isinstance(model, Model)
        return networks(model)
    path = Path(source)
    main, first = _files(path) if path.is_dir() else (path, None)
    room, stop = _stated(path if path.is_dir() else path.parent)
    model, beginning = _read(main)
    if first is not None:
        beginning = releasable_graph(_read(first)[0])
    return Networks(releasable_graph(model), beginning, room, stop, _pads(model))


def _files(folder: Path) -> tuple[Path, Path | None]:
    """The network that takes a past, and the one for a prompt, if it is another's file."""
    config = _json(folder / GENAI)
    if config:
        name = _at(config, "model", "decoder", "filename")
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(
                "it names no file of a decoder in its folder",
                place=str(folder / GENAI),
                next_step="model.decoder.filename is the name of the .onnx file",
            )
        return folder / name, None
    for location in (folder, folder / "onnx"):
        if (location / MERGED).exists():
            return location / MERGED, None
        if (location / WITH_PAST).exists() and (location / WITHOUT_PAST).exists():
            return location / WITH_PAST, location / WITHOUT_PAST
        models = sorted(location.glob("*.onnx"))
        if len(models) == 1:
            return models[0], None
        if (location / "model.onnx") in models:
            return location / "model.onnx", None
        if models:
            raise UsageError(
                f"the folder has {len(models)} models: {', '.join(f.name for f in models)}",
                place=str(location),
                next_step="give one of the files",
            )
    raise UsageError(
        "there is no ONNX decoder in the folder",
        place=str(folder),
        next_step=f"give one with {GENAI}, {MERGED}, {WITHOUT_PAST} and {WITH_PAST}, or model.onnx",
    )


def _read(path: Path) -> tuple[Model, Graph | None]:
    """The network of a file; of a merged one, that of a past, and that of a prompt if it has to be
    another."""
    model = load(path)
    if not isinstance(model, Model):
        raise UsageError(
            "a compiled program cannot be used to generate",
            place=str(path),
            next_step="give the model that it was compiled from",
        )
    if BRANCH not in model.inputs:
        return model, None
    main, first = (load(path, values={BRANCH: np.array([flag])}) for flag in (True, False))
    assert isinstance(main, Model) and isinstance(first, Model)
    return main, _without_past(first.graph)


def _without_past(graph: Graph) -> Graph | None:
    """`graph` without the inputs of a past that it does not read; None where it reads them."""
    read = {v for node in graph.nodes for v in node.inputs} | set(graph.outputs)
    spare = [v for v in graph.inputs if v.startswith("past")]
    if not spare or any(v in read for v in spare):
        return None
    return dataclasses.replace(graph, inputs=tuple(v for v in graph.inputs if v not in spare))


def _pads(model: Model) -> bool:
    operators = {entry.operator.rpartition("::")[2] for entry in model.ledger.entries}
    return not operators.intersection(NO_PADDING)


def _stated(folder: Path) -> tuple[int | None, tuple[int, ...]]:
    """Room and ids that stop, where the files beside a model say so."""
    genai, config = _json(folder / GENAI), _json(folder / "config.json")
    generation = _json(folder / "generation_config.json")
    rooms = [
        _at(genai, "model", "context_length"),
        *(config.get(name) for name in ("max_position_embeddings", "n_positions")),
    ]
    stops = [
        _at(genai, "model", "eos_token_id"),
        generation.get("eos_token_id"),
        config.get("eos_token_id"),
    ]
    room = next((r for r in rooms if isinstance(r, int) and r > 0), None)
    stop = next((s for s in stops if s is not None), ())
    listed = stop if isinstance(stop, list | tuple) else [stop]
    return room, tuple(int(s) for s in listed if isinstance(s, int))


def _at(config: Any, *names: str) -> Any:
    """What is under these names, one inside the other; None where nothing is."""
    for name in names:
        config = config.get(name) if isinstance(config, dict) else None
    return config


def _json(path: Path) -> dict[str, Any]:
    """A configuration; empty where there is none. Raises `ModelError` for what is no JSON."""
    if not path.exists():
        return {}
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            raise ValueError("it is too long for a configuration")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the configuration cannot be read: {error}", place=str(path)) from None
    return content if isinstance(content, dict) else {}
