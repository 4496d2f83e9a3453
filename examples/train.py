"""Trains the small network that the demo and the tests use, and writes it as ONNX.

Data: the 1,797 handwritten digits that come with scikit-learn (8x8, 17 grey levels; UCI Optical
Recognition of Handwritten Digits, CC BY 4.0), enlarged to 24 rows x 20 columns. The network says
which digit it sees and, through a decoder, draws it again.

It is small, but what goes wrong when networks move between frameworks is in it: SAME padding at
stride 2 on even and odd sizes (pads 0 before and 1 after; once as `pads`, once as `auto_pad`),
BatchNorm kept as nodes, a depthwise convolution, a residual connection, ReLU6, transposed
convolutions whose output_padding differs between the axes, and a symbolic batch.

    python examples/train.py            # under two minutes on one core; writes examples/digits/

Layout is NCHW, one grey channel, ink is 1 and paper is 0. Two runs on one machine write the same
bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

FOLDER = Path(__file__).parent / "digits"
ROWS, COLUMNS = 24, 20
EPOCHS = 24
HELD_OUT = 360
"""The last digits of the data set, never trained on; the images come from them."""


class DigitNet(nn.Module):
    """Encoder, classifier and decoder. Shapes in comments are channels x rows x columns."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 12, 3, padding=1, bias=False)
        self.stem_bn = nn.BatchNorm2d(12)
        self.down1 = nn.Conv2d(12, 16, 3, stride=2, bias=False)
        self.down1_bn = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, (3, 5), padding=(1, 2), groups=16, bias=False)
        self.depthwise_bn = nn.BatchNorm2d(16)
        self.pointwise = nn.Conv2d(16, 16, 1, bias=False)
        self.pointwise_bn = nn.BatchNorm2d(16)
        self.down2 = nn.Conv2d(16, 24, 3, stride=2, bias=False)
        self.down2_bn = nn.BatchNorm2d(24)
        self.down3 = nn.Conv2d(24, 32, 3, stride=2)
        self.classify = nn.Linear(32, 10)
        self.up1 = nn.ConvTranspose2d(32, 20, 3, stride=2, padding=1, output_padding=(1, 0))
        self.up2 = nn.ConvTranspose2d(20, 14, 3, stride=2, padding=1, output_padding=(1, 1))
        self.up3 = nn.ConvTranspose2d(14, 1, 3, stride=2, padding=1, output_padding=(1, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [n, 10] and the drawing's logits [n, 1, 24, 20] of images [n, 1, 24, 20]."""
        x = F.relu(self.stem_bn(self.stem(x)))  # 12 x 24 x 20
        x = F.relu6(self.down1_bn(self.down1(F.pad(x, (0, 1, 0, 1)))))  # 16 x 12 x 10
        y = F.relu(self.depthwise_bn(self.depthwise(x)))
        x = F.relu(x + self.pointwise_bn(self.pointwise(y)))
        x = F.relu(self.down2_bn(self.down2(F.pad(x, (0, 1, 0, 1)))))  # 24 x 6 x 5
        x = F.relu(self.down3(F.pad(x, (1, 1, 0, 1))))  # 32 x 3 x 3
        logits = self.classify(x.mean(dim=(2, 3)))
        drawing = F.relu(self.up1(x))  # 20 x 6 x 5
        drawing = F.relu(self.up2(drawing))  # 14 x 12 x 10
        return logits, self.up3(drawing)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [1797, 24, 20] and labels [1797]."""
    data = load_digits()
    images = [
        np.asarray(
            Image.fromarray(np.uint8(picture * (255 / 16))).resize(
                (COLUMNS, ROWS), Image.Resampling.BICUBIC
            )
        )
        for picture in data.images
    ]
    return np.stack(images), data.target


def train(images: torch.Tensor, labels: torch.Tensor) -> DigitNet:
    """The trained network; prints the loss."""
    net = DigitNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 8e-3, total_steps=EPOCHS * (len(images) // 48)
    )
    for epoch in range(EPOCHS):
        order = torch.randperm(len(images))
        for batch in order[: len(order) // 48 * 48].reshape(-1, 48):
            logits, drawing = net(images[batch])
            loss = F.cross_entropy(logits, labels[batch], label_smoothing=0.05)
            loss = loss + F.binary_cross_entropy_with_logits(drawing, images[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if epoch % 6 == 5:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}")
    return net.eval()


class Writer:
    """Appends ONNX nodes whose weights come from torch layers."""

    def __init__(self, net: DigitNet) -> None:
        self.net = net
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def weight(self, name: str, tensor: torch.Tensor) -> str:
        self.weights.append(numpy_helper.from_array(tensor.detach().numpy().copy(), name))
        return name

    def conv(self, x: str, name: str, **attributes: object) -> str:
        """A convolution or transposed convolution with the attributes of torch's layer `name`."""
        layer = getattr(self.net, name)
        transposed = isinstance(layer, nn.ConvTranspose2d)
        if transposed and any(layer.output_padding):
            attributes["output_padding"] = list(layer.output_padding)
        inputs = [x, self.weight(f"{name}.weight", layer.weight)]
        if layer.bias is not None:
            inputs.append(self.weight(f"{name}.bias", layer.bias))
        return self.node(
            "ConvTranspose" if transposed else "Conv",
            inputs,
            name,
            kernel_shape=list(layer.kernel_size),
            strides=list(layer.stride),
            group=layer.groups,
            **attributes,
        )

    def batchnorm(self, x: str, name: str) -> str:
        layer = getattr(self.net, name)
        parameters = {
            "scale": layer.weight,
            "shift": layer.bias,
            "mean": layer.running_mean,
            "variance": layer.running_var,
        }
        inputs = [x, *(self.weight(f"{name}.{key}", t) for key, t in parameters.items())]
        return self.node("BatchNormalization", inputs, name, epsilon=layer.eps)


def to_onnx(net: DigitNet, accuracy: float) -> onnx.ModelProto:
    """The network as ONNX, opset 17, batch symbolic, BatchNorm unfolded."""
    w = Writer(net)
    x = w.node("Relu", [w.batchnorm(w.conv("image", "stem", pads=[1] * 4), "stem_bn")], "stem_relu")
    low = w.weight("zero", torch.tensor(0.0))
    high = w.weight("six", torch.tensor(6.0))
    x = w.batchnorm(w.conv(x, "down1", pads=[0, 0, 1, 1]), "down1_bn")
    x = w.node("Clip", [x, low, high], "down1_relu6")
    y = w.batchnorm(w.conv(x, "depthwise", pads=[1, 2, 1, 2]), "depthwise_bn")
    y = w.node("Relu", [y], "depthwise_relu")
    y = w.batchnorm(w.conv(y, "pointwise"), "pointwise_bn")
    x = w.node("Relu", [w.node("Add", [x, y], "residual")], "residual_relu")
    x = w.batchnorm(w.conv(x, "down2", auto_pad="SAME_UPPER"), "down2_bn")
    x = w.node("Relu", [x], "down2_relu")
    x = w.node("Relu", [w.conv(x, "down3", auto_pad="SAME_UPPER")], "features")
    pooled = w.node("Flatten", [w.node("GlobalAveragePool", [x], "pool")], "flat", axis=1)
    gemm = [pooled, w.weight("classify.weight", net.classify.weight)]
    gemm.append(w.weight("classify.bias", net.classify.bias))
    w.node("Softmax", [w.node("Gemm", gemm, "classify", transB=1)], "probabilities", axis=1)
    y = w.node("Relu", [w.conv(x, "up1", pads=[1] * 4)], "up1_relu")
    y = w.node("Relu", [w.conv(y, "up2", pads=[1] * 4)], "up2_relu")
    w.node("Sigmoid", [w.conv(y, "up3", pads=[1] * 4)], "drawing")
    picture = ["n", 1, ROWS, COLUMNS]
    graph = helper.make_graph(
        w.nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, picture)],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", 10]),
            helper.make_tensor_value_info("drawing", TensorProto.FLOAT, picture),
        ],
        w.weights,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="verax examples/train.py",
        doc_string="Handwritten digits, 24 x 20, NCHW, one grey channel, ink 1, paper 0.",
    )
    helper.set_model_props(
        model, {"layout": "NCHW", "range": "0..1", "held_out_accuracy": f"{accuracy:.4f}"}
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> int:
    torch.manual_seed(7)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    pictures, targets = digits()
    images = torch.from_numpy(pictures[:, None].astype(np.float32) / 255)
    labels = torch.from_numpy(targets)
    net = train(images[:-HELD_OUT], labels[:-HELD_OUT])
    with torch.no_grad():
        found = net(images[-HELD_OUT:])[0].argmax(dim=1)
    accuracy = float((found == labels[-HELD_OUT:]).float().mean())
    print(f"right on {accuracy:.1%} of {HELD_OUT} digits never seen")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "digits.onnx").write_bytes(to_onnx(net, accuracy).SerializeToString())
    for digit in (3, 5, 8):
        at = len(targets) - HELD_OUT + int(np.flatnonzero(targets[-HELD_OUT:] == digit)[0])
        Image.fromarray(pictures[at]).save(FOLDER / f"{digit}.png", optimize=True)
    (FOLDER / "accuracy.json").write_text(
        json.dumps({"held_out": HELD_OUT, "accuracy": round(accuracy, 4)}) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
