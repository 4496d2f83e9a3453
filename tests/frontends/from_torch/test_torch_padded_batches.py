"""Language models of transformers on padded batches: reference and compiled code give PyTorch's
numbers, where a query sees nothing, one key, or a window only, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from torch_padded import batches, builders
from torch_programs import torch

import verax
from verax.numerics.error_model import U

BUILDERS = builders()
QUICK = ("bert_eager", "mistral_near", "modernbert_near", "t5_encoder")
"""Tried in every run of the tests; all of them in the slow ones."""
REFUSED = {
    "longformer": "data-dependent expression",  # torch.export's own words
}
"""What is not read, and the words that say so."""
UNITS = 200
"""Units of roundoff of the largest number by which two layers may differ from PyTorch's."""


def compared(name: str, levels: tuple[int, ...], shapes: tuple[str, ...]) -> int:
    """Hold the reference and the levels against PyTorch; how many batches were tried."""
    torch.manual_seed(5)
    module, tried = BUILDERS[name]().eval(), 0
    for group in shapes:
        own = {k: b for k, b in batches().items() if (k == "single") == (group == "single")}
        first = tuple(torch.from_numpy(a) for a in next(iter(own.values())))
        model = verax.load(module, inputs=first)
        runs = [verax.compile(model, opt_level=n, threads=1, cache=False) for n in levels]
        for batch, arrays in own.items():
            feeds = dict(zip(model.inputs, arrays))
            with torch.no_grad():
                given = module(*map(torch.from_numpy, arrays))
            wanted = (given[0] if isinstance(given, tuple) else given).numpy()
            assert np.isfinite(wanted).any()
            agree(name, batch, wanted, verax.reference(model, feeds))
            for run in runs:
                agree(name, batch, wanted, run.run(feeds))
            tried += 1
    return tried


def agree(name: str, batch: str, wanted: np.ndarray, found: Mapping[str, Any]) -> None:
    y = np.asarray(next(iter(found.values())), np.float64)
    most = UNITS * U * np.abs(wanted[np.isfinite(wanted)]).max()
    np.testing.assert_allclose(y, wanted, rtol=0, atol=most, err_msg=f"{name}, {batch}")


@pytest.mark.parametrize("name", QUICK)
def test_a_padded_batch_gives_pytorchs_numbers(name: str) -> None:
    assert compared(name, (1,), ("full",)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(BUILDERS) - set(REFUSED)))
def test_every_model_gives_pytorchs_numbers_at_every_level(name: str) -> None:
    assert compared(name, (1, 3), ("full", "single")) == 5


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_says_why(name: str) -> None:
    with pytest.raises(verax.VeraxError, match=REFUSED[name]):
        compared(name, (1,), ("full",))
