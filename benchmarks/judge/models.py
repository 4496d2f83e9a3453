"""Honest pairs on real networks: stored answers of their own frameworks, and live runtimes.

The networks are not part of the repository: a folder shared/models beside it holds one folder per
network, with model files and, for each, an .npz with inputs and what a framework answered. What
cannot be loaded yet is counted with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import verax
from verax.base.errors import VeraxError
from verax.campaign.outcomes import CaseOutcome
from verax.frontends.model import Model
from verax.records.verdict import Kind
from verax.runners.arrays import ArraysRunner, load_npz

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "models"
SUFFIXES = (".onnx", ".pt2", ".mlmodel", ".pb", ".tflite", ".h5", "-symbol.json")
LIVE = {".onnx": ("onnxruntime", "openvino", "verax:O1")}
"""Runtimes that run a file of this kind, beside the stored answers."""
EVERYWHERE = ("reference", "verax:O1")
"""Our own implementations run every file that can be read."""


@dataclass(frozen=True)
class ModelCase:
    """A model file and the honest subject that it is judged with: a runner, or a stored .npz."""

    model: Path
    subject: str

    @property
    def kind(self) -> str:
        """Where the file lies, as tables show it."""
        return f"{self.model.parent.name}/{self.model.name}"


def model_cases(folder: Path = FOLDER) -> Iterator[ModelCase]:
    """Every file with its stored answers and every live runner for it."""
    for model in sorted(p for p in folder.glob("*/*") if p.name.endswith(SUFFIXES)):
        own = (f"{model.name}.", f"{_stem(model)}.torch", f"{_stem(model)}.mxnet")
        for stored in sorted(model.parent.glob("*.npz")):
            if stored.name.startswith(own):
                yield ModelCase(model, str(stored))
        for runner in LIVE.get(model.suffix, EVERYWHERE):
            yield ModelCase(model, runner)


def _stem(model: Path) -> str:
    return model.name.removesuffix("-symbol.json").removesuffix(".pt2")


def run_model(case: ModelCase) -> CaseOutcome:
    """Judge one pair; the alarms are its mistakes in words."""
    stored = case.subject.endswith(".npz")
    label = f"{case.kind} by {Path(case.subject).name if stored else case.subject}"
    outcome = CaseOutcome(case.kind, label)
    try:
        model = verax.load(case.model)
        assert isinstance(model, Model)
        verdict = verax.check(model, _stored(case, model) if stored else case.subject)
    except Exception as error:
        cause = error.cause if isinstance(error, VeraxError) else str(error)
        outcome.skipped = f"{type(error).__name__}: {cause}".splitlines()[0][:160]
        return outcome
    outcome.verdict = str(verdict.kind)
    if verdict.kind is Kind.mistake:
        outcome.alarms = [f"{label}: {reason}" for reason in verdict.reasons]
    return outcome


def _stored(case: ModelCase, model: Model) -> ArraysRunner:
    """The recorded answers; a PyTorch program's inputs go by position, as names are not kept."""
    runner = load_npz(case.subject)
    given = runner.stored_inputs or {}
    if len(given) == len(model.inputs) and not set(given) & set(model.inputs):
        runner.stored_inputs = dict(zip(model.inputs, given.values()))
    return runner


def model_to_plain(case: ModelCase) -> dict[str, str]:
    """A pair as workers are sent it; other hosts need the files at the same places."""
    return {"model": str(case.model), "subject": case.subject}


def run_plain_model(plain: dict[str, str]) -> dict[str, Any]:
    """`run_model` of what `model_to_plain` gave, as data."""
    return asdict(run_model(ModelCase(Path(plain["model"]), plain["subject"])))


def model_lost(case: ModelCase, loss: str) -> CaseOutcome:
    """The outcome of a pair that took its process down. loss: why, as the pool says."""
    label = f"{case.kind} by {case.subject}"
    return CaseOutcome(case.kind, label, skipped=f"the process died: {loss}")
