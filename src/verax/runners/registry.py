"""Every runner by name, from the `SPEC` of each module in this folder (see `spec`)."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

import verax.runners
from verax.runners.engines import Engine
from verax.runners.spec import RunnerSpec


def _specs() -> Iterator[RunnerSpec]:
    """The specs of all modules of this folder."""
    for module in pkgutil.iter_modules(verax.runners.__path__):
        loaded = importlib.import_module(f"verax.runners.{module.name}")
        if hasattr(loaded, "SPEC"):
            yield loaded.SPEC


SPECS = tuple(sorted(_specs(), key=lambda s: (s.package != "", s.package)))
"""Ours first, then by package."""
ENTRIES = {name: variant for spec in SPECS for name, variant in spec.variants.items()}
"""Everybody who can be judged by name."""
SPEC_OF = {name: spec for spec in SPECS for name in spec.variants}
"""The spec of everybody in ENTRIES."""
DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    spec.package: spec.distributions for spec in SPECS if spec.package and spec.variants
}
"""Package as it is imported -> what it may be called where packages are listed, likeliest first."""
TIMED_ONLY = {name: engine for spec in SPECS for name, engine in spec.timed_only.items()}
"""Engines that are timed and not judged; "verax" is our default level."""
ENGINES: Mapping[str, Engine] = {
    **TIMED_ONLY,
    **{name: entry.engine for name, entry in ENTRIES.items() if entry.engine is not None},
}
"""What `verax bench` can time, by the runner's name."""
RUNNERS = {name: entry.description for name, entry in ENTRIES.items()}
"""Runners by name, and what each is. `torch:FILE`, `litert:FILE`, `tensorflow:FILE`,
`onnxruntime:FILE` and `openvino:FILE` run a file of their own; `cmd:PROGRAM ARGS` runs any
program."""
