"""Which BatchNorms a runtime may fold into the convolutions before them."""

from __future__ import annotations

from verax.judge.regions.sampler import Sampler
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.windows.convolution import Conv


def norms_to_fold(sampler: Sampler) -> dict[str, str]:
    """Output of each convolution that one BatchNorm with known numbers reads -> its output."""
    norm_of: dict[str, str] = {}
    for node in sampler.region.nodes:
        readers = sampler.graph.consumers.get(node.outputs[0], ())
        if not isinstance(node.op, Conv) or len(readers) != 1:
            continue
        norm = readers[0]
        has_constants = all(v in sampler.observed for v in norm.inputs[1:])
        hidden = node.outputs[0] in sampler.region.hidden
        if (
            isinstance(norm.op, BatchNormalization)
            and has_constants
            and hidden
            and len(norm.outputs) == 1
        ):
            norm_of[node.outputs[0]] = norm.outputs[0]
    return norm_of
