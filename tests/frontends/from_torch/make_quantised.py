"""Writes quantised.npz: programs that PT2E and torchao quantised, with what PyTorch answers.

Run by hand where torch and torchao are installed, with the names of the cases to write again, or of
none for all; the tests read the file, and need neither. A case
holds the bytes of a `.pt2` file without sample inputs and lines of Python, an input, and the answer
of PyTorch's own run.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchao.quantization as ao
from torch import nn
from torch.nn import functional as F
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86


class Images(nn.Module):
    """Convolutions, one grouped, a pool, a residual sum, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, groups=2, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm(self.a(x)))
        y = F.max_pool2d(F.relu(self.b(y)) + y, 2)
        return self.head(y.mean((2, 3)))


class Words(nn.Module):
    """Linear layers over a batch of sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 24)

    def forward(self, x: Any) -> Any:
        return self.down(F.gelu(self.up(x)))


IMAGE, SEQUENCE = (2, 3, 6, 8), (2, 5, 32)


def pt2e(dynamic: bool, training: bool = False) -> Any:
    def make() -> tuple[Any, Any]:
        x = torch.randn(IMAGE)
        net = Images() if training else Images().eval()
        program = torch.export.export(net, (x,), strict=False).module()
        quantizer = x86.X86InductorQuantizer()
        chosen = x86.get_default_x86_inductor_quantization_config(
            is_qat=training, is_dynamic=dynamic
        )
        quantizer.set_global(chosen)
        prepared = (prepare_qat_pt2e if training else prepare_pt2e)(program, quantizer)
        prepared(x)
        return convert_pt2e(prepared), x

    return make


def torchao(config: Any) -> Any:
    def make() -> tuple[Any, Any]:
        net = Words().eval()
        ao.quantize_(net, config)
        return net, torch.randn(SEQUENCE)

    return make


def static(granularity: Any, scale: Any, zero: Any = None) -> Any:
    """Both layers' inputs quantised by the same scales, which a calibration would have chosen."""
    mapping = ao.MappingType.SYMMETRIC if zero is None else ao.MappingType.ASYMMETRIC
    config = ao.Int8StaticActivationInt8WeightConfig(
        act_quant_scale=scale,
        act_quant_zero_point=zero,
        granularity=granularity,
        act_mapping_type=mapping,
    )
    return torchao(config)


ONE_SCALE = torch.full((1, 1, 1), 0.025)
"""Some of the normal numbers saturate."""
BY_ROW = torch.linspace(0.02, 0.03, 10).view(2, 5, 1)
BOTH = [ao.granularity.PerTensor(), ao.granularity.PerRow()]
SYMMETRIC = ao.granularity.PerGroup(16)
CASES = {
    "pt2e, static": pt2e(False),
    "pt2e, dynamic": pt2e(True),
    "pt2e, trained": pt2e(False, True),
    "int8 weights": torchao(ao.Int8WeightOnlyConfig()),
    "int8 weights, dynamic int8": torchao(ao.Int8DynamicActivationInt8WeightConfig()),
    "int4 weights in groups": torchao(
        ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=SYMMETRIC)
    ),
    "int4 weights in groups, dynamic int8": torchao(
        ao.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=SYMMETRIC
        )
    ),
    "int8 weights by channel, dynamic int8": torchao(
        ao.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int8, weight_granularity=ao.granularity.PerAxis(0)
        )
    ),
    "int8 weights, static int8": static(ao.granularity.PerTensor(), ONE_SCALE),
    "int8 weights by channel, static int8": static(BOTH, ONE_SCALE),
    "int8 weights by channel, static int8 by row": static(ao.granularity.PerRow(), BY_ROW),
    "int8 weights by channel, static int8 around 7": static(
        BOTH, ONE_SCALE, torch.full((1, 1, 1), 7, dtype=torch.int8)
    ),
}


def stored(program: Any) -> np.ndarray:
    """The file, without what only PyTorch and people read."""
    buffer, small = io.BytesIO(), io.BytesIO()
    torch.export.save(program, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(small, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if "sample_inputs" in name:
                continue
            if name.endswith("models/model.json"):
                read = json.loads(data)
                for node in read["graph_module"]["graph"]["nodes"]:
                    node["metadata"] = {}
                data = json.dumps(read).encode()
            new.writestr(name, data)
    return np.frombuffer(small.getvalue(), np.uint8)


def main() -> None:
    warnings.simplefilter("ignore")
    path, asked = Path(__file__).with_name("quantised.npz"), sys.argv[1:] or [*CASES]
    found = dict(np.load(path)) if sys.argv[1:] else {}
    for i, (name, make) in enumerate(CASES.items()):
        if name not in asked:
            continue
        torch.manual_seed(80 + i)
        net, x = make()
        program = torch.export.export(net, (x,), strict=False)
        with torch.no_grad():
            answer = net(x)
        # Without this the weights that torchao wraps are stored as pickles.
        found[f"{name}|program"] = stored(program.run_decompositions({}))
        found[f"{name}|x"], found[f"{name}|y"] = x.numpy(), answer.numpy()
    np.savez_compressed(path, **found)


if __name__ == "__main__":
    main()
