"""The networks of the recorded gradients as PyTorch's modules, with the weights of their files.

An ONNX file says what a network computes and not how its gradients are; the modules do. Where the
exporter transposed, merged or renamed a weight, it is read back here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

Weights = Mapping[str, np.ndarray]
HEADS, GROUPS, GATES = 4, 6, 4


class Inverted(nn.Module):
    """A block of MobileNetV2."""

    def __init__(self, channels: int, inner: int, out: int, stride: int) -> None:
        super().__init__()
        self.up = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.dw = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.down = nn.Conv2d(inner, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.adds = stride == 1 and channels == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu6(self.bn1(self.up(x)))
        y = self.bn3(self.down(functional.relu6(self.bn2(self.dw(y)))))
        return x + y if self.adds else y


class MobileNet(nn.Module):
    """The MobileNetV2-like network."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        sizes = ((16, 64, 16, 1), (16, 64, 24, 2), (24, 96, 24, 1), (24, 96, 40, 2))
        self.blocks = nn.Sequential(*(Inverted(*s) for s in (*sizes, (40, 160, 40, 1))))
        self.last = nn.Conv2d(40, 160, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(160)
        self.fc = nn.Linear(160, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.blocks(functional.relu6(self.bn(self.stem(x))))
        return self.fc(functional.relu6(self.bn2(self.last(y))).mean((2, 3)))


class Attention(nn.Module):
    """Causal attention of a transformer's block."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, size = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, HEADS, size // HEADS).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(n, t, size))


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.n1, self.attn = nn.LayerNorm(size), Attention(size)
        self.n2, self.fc1, self.fc2 = (
            nn.LayerNorm(size),
            nn.Linear(size, inner),
            nn.Linear(inner, size),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.n1(x))
        return x + self.fc2(functional.gelu(self.fc1(self.n2(x))))


class Transformer(nn.Module):
    """The transformer of three blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(200, 64)
        self.blocks = nn.Sequential(*(Block(64, 232) for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 48)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.emb(ids))))


class ConvNeXt(nn.Module):
    """The ConvNeXt-like network."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 48, 4, 4)
        self.dw = nn.ModuleList(nn.Conv2d(48, 48, 7, padding=3, groups=48) for _ in range(3))
        self.gn = nn.ModuleList(nn.GroupNorm(GROUPS, 48) for _ in range(3))
        self.up = nn.ModuleList(nn.Conv2d(48, 192, 1) for _ in range(3))
        self.down = nn.ModuleList(nn.Conv2d(192, 48, 1) for _ in range(3))
        self.fc = nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for dw, gn, up, down in zip(self.dw, self.gn, self.up, self.down):
            x = x + down(functional.gelu(up(gn(dw(x)))))
        return self.fc(x.mean((2, 3)))


class Recurrent(nn.Module):
    """The LSTM of two layers in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(24, 56, 2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(112, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.lstm(x)[0])


NETWORKS = {
    "mobilenet": MobileNet,
    "tf": Transformer,
    "convnext": ConvNeXt,
    "lstm": Recurrent,
}


def network(name: str, file: bytes) -> nn.Module:
    """A recorded network with the weights of its ONNX file, for inference."""
    model = onnx.load_model_from_string(file)
    weights = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    module: nn.Module = NETWORKS[name]().eval()
    read = {
        **dict(_linear(model.graph, weights)),
        **dict(_group_norms(model.graph, weights)),
        **dict(_recurrent(model.graph, weights)),
    }
    state = module.state_dict()
    for key in state:
        if not key.endswith("num_batches_tracked"):
            array = read[key] if key in read else weights[key]
            state[key] = torch.from_numpy(np.array(array)).reshape(state[key].shape)
    module.load_state_dict(state)
    return module


def _linear(graph: onnx.GraphProto, weights: Weights) -> Iterator[tuple[str, np.ndarray]]:
    """Weights of linear layers, which MatMul holds transposed: the bias after it tells the name."""
    for product, added in zip(graph.node, graph.node[1:]):
        if product.op_type == "MatMul" and added.op_type == "Add":
            biases = [v for v in added.input if v.endswith(".bias")]
            if biases and product.input[1] in weights:
                yield biases[0][: -len("bias")] + "weight", weights[product.input[1]].T


def _group_norms(graph: onnx.GraphProto, weights: Weights) -> Iterator[tuple[str, np.ndarray]]:
    """Factors and shifts of GroupNorm, in the order of the layers."""
    cast = [weights[n.input[0]] for n in graph.node if n.op_type == "CastLike"]
    for i, (factor, shift) in enumerate(zip(cast[::2], cast[1::2])):
        yield f"gn.{i}.weight", factor
        yield f"gn.{i}.bias", shift


def _recurrent(graph: onnx.GraphProto, weights: Weights) -> Iterator[tuple[str, np.ndarray]]:
    """What the exporter merged of the LSTMs: both directions, gates in the order i o f c."""
    for layer, node in enumerate(n for n in graph.node if n.op_type == "LSTM"):
        parts = {"weight_ih": node.input[1], "bias": node.input[3]}
        for kind, name in parts.items():
            if name not in weights:
                continue  # sliced in the graph, and there under its own name
            for direction, array in zip(("", "_reverse"), weights[name]):
                if kind == "bias":
                    own, recurrent = np.split(array, 2)
                    yield f"lstm.bias_ih_l{layer}{direction}", _in_order(own)
                    yield f"lstm.bias_hh_l{layer}{direction}", _in_order(recurrent)
                else:
                    yield f"lstm.weight_ih_l{layer}{direction}", _in_order(array)


def _in_order(array: np.ndarray) -> np.ndarray:
    """Gates in PyTorch's order i f g o."""
    i, o, f, g = np.split(array, GATES)
    return np.concatenate([i, f, g, o])
