"""What an evaluation found, in sentences."""

from __future__ import annotations

from verax.records.evaluation import Accuracy, ComparedImplementation, Share

CHANCE = 0.05
"""McNemar's p-value below which a difference of accuracies is called more than chance."""


def reasons(
    accuracy: Accuracy, comparison: ComparedImplementation | None, model: str
) -> tuple[str, ...]:
    """The findings, the accuracy first."""
    sentences = [_accuracy(model, accuracy)]
    if comparison is not None:
        subject = comparison.subject["name"]
        sentences += [
            _accuracy(subject, comparison.accuracy),
            _choices(comparison),
            _difference(comparison, accuracy.top1.of, model, subject),
        ]
    return tuple(sentences)


def _accuracy(name: str, accuracy: Accuracy) -> str:
    top1, topk = accuracy.top1, accuracy.topk
    text = (
        f"{name} is right on {_share(top1)}; on a large set of the same kind between "
        f"{_ends(top1)} (with 95 % confidence)"
    )
    if accuracy.k > 1:
        text += f"; among its {accuracy.k} best is the right class on {_share(topk)}"
        text += f", between {_ends(topk)}"
    if accuracy.no_number:
        text += f"; {accuracy.no_number} samples gave a NaN"
    return text


def _share(share: Share) -> str:
    return f"{share.right} of {share.of} ({100 * share.value:.2f} %)"


def _ends(share: Share) -> str:
    return f"{100 * share.low:.1f} and {100 * share.high:.1f} %"


def _choices(comparison: ComparedImplementation) -> str:
    total = len(comparison.flips)
    if not total:
        return "both choose the same class on every sample"
    counts = [
        (comparison.near_ties, "near ties that rounding decides"),
        (comparison.unexplained, "beyond what float32 rounding explains"),
        (comparison.undecided, "undecided"),
    ]
    listed = ", ".join(f"{n} {kind}" for n, kind in counts if n)
    text = f"{total} choice{'s' * (total != 1)} differ{'s' * (total == 1)}: {listed}"
    if comparison.unexplained:
        text += "; `verax check` and `verax bisect` on one of these say why, and where"
    return text


def _difference(comparison: ComparedImplementation, samples: int, model: str, subject: str) -> str:
    a, b = comparison.only_model, comparison.only_subject
    if a == b == 0:
        return "no sample is right with one and wrong with the other"
    split = f"{a} samples are right with {model} only, {b} with {subject} only"
    p = f"McNemar's exact test: p = {comparison.p_value:.2g}"
    if comparison.p_value < CHANCE:
        return f"{split}: the accuracies differ by more than chance ({p})"
    return f"{split}: {samples} samples do not show that the accuracies differ ({p})"
