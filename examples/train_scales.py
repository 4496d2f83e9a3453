"""Trains a small network whose BatchNorms have scales of both signs, and writes it as ONNX.

A BatchNorm's scale may become negative in training as any other weight. Where it stands behind a
Relu it must not be moved to the convolution in front of it then: relu(s x) is not s relu(x). An
optimization that forgets to ask for the sign spoils such a network, and no other.

Here half of the second's and third's scales begin at -1, instead of all at +1, and are trained like
that: gradient descent has no reason to change a sign, so that about half are negative at the end.
The first's are positive, so that moving those is right. Data:
the 1,797 digits of scikit-learn, 8 x 8 (see `train.py`); the last 360 are never trained on, and are
written beside the network with their labels.

    python examples/train_scales.py     # half a minute on one core; writes examples/digits/scales.*

Two runs on one machine write the same bytes.
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from train import FOLDER, HELD_OUT, Writer

CHANNELS = (1, 12, 18, 26)
EPOCHS = 30


class ScaledNet(nn.Module):
    """Three times convolution, Relu, BatchNorm; then a classifier. Shapes are channels x sides."""

    def __init__(self) -> None:
        super().__init__()
        for i in (1, 2, 3):
            self.add_module(f"conv{i}", nn.Conv2d(CHANNELS[i - 1], CHANNELS[i], 3, padding=1))
            norm = nn.BatchNorm2d(CHANNELS[i])
            if i > 1:
                nn.init.constant_(norm.weight[::2], -1.0)
            self.add_module(f"norm{i}", norm)
        self.classify = nn.Linear(CHANNELS[3], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [n, 10] of images [n, 1, 8, 8]."""
        x = self.norm1(F.relu(self.conv1(x)))  # 12 x 8 x 8
        x = F.max_pool2d(self.norm2(F.relu(self.conv2(x))), 2)  # 18 x 4 x 4
        x = self.norm3(F.relu(self.conv3(x)))  # 26 x 4 x 4
        return self.classify(x.mean(dim=(2, 3)))


def train(images: torch.Tensor, labels: torch.Tensor) -> ScaledNet:
    """The trained network."""
    net = ScaledNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-3)
    for _ in range(EPOCHS):
        order = torch.randperm(len(images))
        for batch in order[: len(order) // 48 * 48].reshape(-1, 48):
            loss = F.cross_entropy(net(images[batch]), labels[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net.eval()


def to_onnx(net: ScaledNet) -> onnx.ModelProto:
    """The network as ONNX, opset 17, batch symbolic, BatchNorm unfolded."""
    w = Writer(net)
    x = "image"
    for i in (1, 2, 3):
        x = w.node("Relu", [w.conv(x, f"conv{i}", pads=[1] * 4)], f"relu{i}")
        x = w.batchnorm(x, f"norm{i}")
        if i == 2:
            x = w.node("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    flat = w.node("Flatten", [w.node("GlobalAveragePool", [x], "mean")], "flat", axis=1)
    gemm = [flat, w.weight("classify.weight", net.classify.weight)]
    gemm.append(w.weight("classify.bias", net.classify.bias))
    w.node("Gemm", gemm, "scores", transB=1)
    graph = helper.make_graph(
        w.nodes,
        "scales",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])],
        w.weights,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="verax examples/train_scales.py",
    )
    helper.set_model_props(model, {"layout": "NCHW", "range": "0..1"})
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> int:
    torch.manual_seed(11)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    data = load_digits()
    pictures = np.round(data.images * (255 / 16)).astype(np.uint8)
    images = torch.from_numpy(pictures[:, None].astype(np.float32) / 255)
    labels = torch.from_numpy(data.target)
    net = train(images[:-HELD_OUT], labels[:-HELD_OUT])
    with torch.no_grad():
        right = (net(images[-HELD_OUT:]).argmax(dim=1) == labels[-HELD_OUT:]).float().mean()
    negative = [int((getattr(net, f"norm{i}").weight < 0).sum()) for i in (1, 2, 3)]
    print(f"right on {right:.1%} of {HELD_OUT} digits never seen; negative scales: {negative}")
    (FOLDER / "scales.onnx").write_bytes(to_onnx(net).SerializeToString())
    held_out = {"images": pictures[-HELD_OUT:], "labels": data.target[-HELD_OUT:].astype(np.uint8)}
    np.savez_compressed(FOLDER / "scales.npz", **held_out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
