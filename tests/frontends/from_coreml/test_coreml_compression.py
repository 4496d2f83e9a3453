"""Compressed weights of ML programs: packed numbers of 1 to 6 bits, blocks, tables, sparse ones."""

import importlib.util
import struct

import numpy as np
import pytest
from coreml_operations import Operation, Raw, program

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.coreml import load_coreml
from verax.frontends.coreml.blob import Blobs
from verax.frontends.coreml.packing import CHUNK, unpacked
from verax.reference.evaluate import evaluate

KINDS = {"int4": 4, "uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6}


def packed(values, kind):
    """Numbers of few bits, lowest bits first, bit by bit."""
    bits = KINDS[kind]
    flat = [(int(v) >> i) & 1 for v in np.ravel(values) for i in range(bits)]
    data = bytearray(-(-len(flat) // 8))
    for i, bit in enumerate(flat):
        data[i // 8] |= bit << (i % 8)
    return Raw(bytes(data), kind, np.shape(values))


def drawn(kind, shape, seed=1):
    bits = KINDS[kind]
    low = -(2 ** (bits - 1)) if kind[0] == "i" else 0
    return np.random.default_rng(seed).integers(low, low + 2**bits, shape)


def model(steps, shape, opset=8):
    """x + the constant that the last of some compressed operations gives."""
    made = [Operation("add", {"x": "%x", "y": "%w"})]
    return program([*steps, *made], {"x": ("float32", shape)}, opset)


def weights_of(steps, shape, opset=8):
    """The constant, by an addition to nothing."""
    graph = load_coreml(model(steps, shape, opset).SerializeToString()).graph
    (found,) = evaluate(graph, {"x": np.zeros(shape, np.float32)}).values()
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 7, 64, 257])
def test_numbers_of_few_bits_are_unpacked(kind, count):
    values = drawn(kind, count)
    found = unpacked(packed(values, kind).data, KINDS[kind], count, signed=kind[0] == "i")
    assert np.array_equal(found, values)


def test_long_lists_are_unpacked_piece_by_piece():
    values = drawn("uint3", CHUNK + 9)
    flags = (values.astype(np.uint8)[:, None] >> np.arange(3)) & 1
    raw = np.packbits(flags.ravel().astype(np.uint8), bitorder="little")
    assert np.array_equal(unpacked(raw, 3, len(values), signed=False), values)


@pytest.mark.parametrize("kind", ["int4", "uint4", "int8"])
@pytest.mark.parametrize("has_offset", [False, True])
def test_blocks_have_a_scale_each(kind, has_offset):
    data = np.random.default_rng(2).integers(-8, 8, (4, 6)) + 8 * (kind[0] == "u")
    scale = np.random.default_rng(3).uniform(0.5, 2, (2, 3)).astype(np.float32)
    offset = np.random.default_rng(4).integers(0, 8, (2, 3))
    raw = packed(data, kind) if kind in KINDS else data.astype(np.int8)
    arguments = {"data": raw, "scale": scale}
    if has_offset:
        arguments["offset"] = packed(offset, kind) if kind in KINDS else offset.astype(np.int8)
    found = weights_of(
        [Operation("constexpr_blockwise_shift_scale", arguments, {"w": "float32"})], (4, 6)
    )
    want = np.zeros((4, 6), np.float32)
    for i, j in np.ndindex(4, 6):
        shift = offset[i // 2, j // 2] if has_offset else 0
        want[i, j] = scale[i // 2, j // 2] * np.float32(data[i, j] - shift)
    assert np.array_equal(found, want)


def table(indices, lut, kind, axis=None):
    arguments = {"indices": packed(indices, kind), "lut": np.asarray(lut, np.float32)}
    if axis is not None:
        arguments["vector_axis"] = np.int32(axis)
    return Operation("constexpr_lut_to_dense", arguments, {"w": "float32"})


def test_each_group_has_a_table_of_its_own():
    """The first example of the documentation of constexpr_lut_to_dense."""
    indices = np.reshape([2, 3, 3, 0, 1, 0, 3, 0, 2, 1, 0, 3], (6, 2))
    lut = np.reshape([1, 5, 9, 13, 2, 10, 18, 26], (2, 1, 4, 1))
    found = weights_of([table(indices, lut, "uint2")], (6, 2))
    assert found.tolist() == [[9, 13], [13, 1], [5, 1], [26, 2], [18, 10], [2, 26]]


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_a_table_may_hold_vectors(axis):
    """The second example."""
    indices = np.reshape([0, 0, 1, 0, 1, 1, 0, 0], (2, 2, 2))
    a, b = [1.0, 2.0, 3.0], [10.0, 20.0, 30.0]
    lut = np.reshape([a, b], (1, 1, 1, 2, 3))
    found = weights_of([table(indices, lut, "uint1", axis)], (2, 6, 2) if axis == 1 else (2, 2, 6))
    rows = found[0].T if axis == 1 else found[0]
    assert rows[0].tolist() == (a + b if axis == 1 else a + a)
    assert rows[1].tolist() == (a + a if axis == 1 else b + a)


def test_sparse_weights_are_zero_elsewhere():
    mask = np.random.default_rng(5).random((5, 7)) < 0.4
    values = np.arange(1, mask.sum() + 1, dtype=np.float32)
    arguments = {"nonzero_data": values, "mask": packed(mask, "uint1")}
    found = weights_of(
        [Operation("constexpr_sparse_to_dense", arguments, {"w": "float32"})], (5, 7)
    )
    want = np.zeros((5, 7))
    want[mask] = values
    assert np.array_equal(found, want)
    short = {**arguments, "nonzero_data": values[1:]}
    with pytest.raises(ModelError, match="places"):
        weights_of([Operation("constexpr_sparse_to_dense", short, {"w": "float32"})], (5, 7))


def joined(first):
    """A sparse operation and what makes its two results dense."""
    dense = {"nonzero_data": "%v", "mask": "%m"}
    return [first, Operation("constexpr_sparse_to_dense", dense, {"w": "float32"})]


def test_sparse_weights_may_be_quantised():
    """The example of the documentation, whose dense layout shows one row twice."""
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1], [1, 1, 0, 0]])
    data = np.array([10, 11, 3, 4, 5, 6, 7, 8, 9], np.int8)
    scale = np.array([[0.1, 0.2, 0.3, 0.4]], np.float32)
    offset = np.array([[1, 2, 3, 4]], np.int8)
    arguments = {"data_mask": packed(mask, "uint1"), "nonzero_data": data, "scale": scale,
                 "offset": offset}  # fmt: skip
    first = Operation("constexpr_sparse_blockwise_shift_scale", arguments,
                      {"m": "uint1", "v": "float32"})  # fmt: skip
    found = weights_of(joined(first), (4, 4))
    said = [0.9, 1.8, 0.2, 0.4, 0.6, 0.9, 1.2, 0.7, 1.4]
    assert np.abs(found[mask > 0] - said).max() < 4 * np.finfo(np.float32).eps
    assert not found[mask == 0].any()


MASK = np.array([[1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 1], [0, 1, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0]])


@pytest.mark.parametrize("vector", [False, True])
def test_sparse_weights_may_come_from_a_table(vector):
    """The examples of the documentation of constexpr_lut_to_sparse."""
    lut = np.reshape([[2.0, 2.5], [3.0, 3.5]] if vector else [2.0, 3.0], (1, 1, 2, -1))
    arguments = {"indices_mask": packed(MASK, "uint1"), "lut": lut.astype(np.float32),
                 "indices_nonzero_data": packed([0, 1, 1, 0, 1, 1, 0, 0, 1], "uint1")}  # fmt: skip
    if vector:
        arguments["vector_axis"] = np.int32(0)
    first = Operation("constexpr_lut_to_sparse", arguments, {"m": "uint1", "v": "float32"})
    found = weights_of(joined(first), (8 if vector else 4, 6))
    rows = found[::2] if vector else found
    assert rows[0].tolist() == [2, 3, 0, 0, 0, 0]
    assert rows[2].tolist() == [0, 3, 2, 0, 2, 0]
    if vector:
        assert found[1].tolist() == [2.5, 3.5, 0, 0, 0, 0]


def test_numbers_of_few_bits_are_no_tensors():
    made = Operation("add", {"x": "%x", "y": packed(drawn("uint4", (3,)), "uint4")})
    with pytest.raises(UnsupportedError, match="fewer than 8 bits"):
        load_coreml(program([made], {"x": ("float32", (3,))}, 8).SerializeToString())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"data": np.zeros((4, 6), np.int8), "scale": np.ones((3, 3), np.float32)}, "blocks"),
        ({"data": np.zeros((4, 6), np.int8), "scale": np.ones((2,), np.float32)}, "blocks"),
        ({"data": np.zeros((4, 6), np.int8)}, "arguments"),
        ({"data": Raw(b"\0" * 3, "int4", (4, 6)), "scale": np.ones((1, 1), np.float32)}, "int4"),
        (
            {"data": np.zeros((4, 6), np.int8), "scale": np.ones((2, 2), np.float32),
             "offset": np.zeros((1, 2), np.int8)},
            "offsets",
        ),
    ],
)  # fmt: skip
def test_blocks_that_do_not_fit_are_refused(arguments, said):
    step = Operation("constexpr_blockwise_shift_scale", arguments, {"w": "float32"})
    with pytest.raises(ModelError, match=said):
        load_coreml(model([step], (4, 6)).SerializeToString())


def test_an_index_beyond_the_table_is_refused():
    lut = np.zeros((1, 1, 2, 1))
    with pytest.raises(ModelError, match="index 3"):
        weights_of([table(np.full((2, 3), 3), lut, "uint2")], (2, 3))


def record(number, data, unused=0, size=None):
    """A weight file of one record."""
    head = struct.pack("<IIQQQ", 0xDEADBEEF, number, len(data) if size is None else size, 128,
                       unused)  # fmt: skip
    return bytes(64) + head.ljust(64, b"\0") + data


@pytest.mark.parametrize(
    ("kind", "number"),
    [("int4", 8), ("uint1", 9), ("uint2", 10), ("uint4", 11), ("uint3", 12), ("uint6", 13)],
)
def test_a_weight_file_holds_packed_numbers(kind, number, tmp_path):
    values = drawn(kind, (3, 5))
    data = packed(values, kind).data
    unused = 8 * len(data) - 15 * KINDS[kind]
    file = tmp_path / "w.bin"
    file.write_bytes(record(number, data, unused))
    found = Blobs(tmp_path).read("@model_path/w.bin", 64, (3, 5), kind, "here")
    assert np.array_equal(found, values)
    for wrong in (record(number, data, unused + 1), record(3, data, unused),
                  record(number, data + b"\0", unused)):  # fmt: skip
        file.write_bytes(wrong)
        with pytest.raises(ModelError):
            Blobs(tmp_path).read("@model_path/w.bin", 64, (3, 5), kind, "here")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("coremltools") is None or importlib.util.find_spec("torch") is None,
    reason="coremltools or torch is missing",
)
def test_what_coremltools_compresses_is_what_it_decompresses(tmp_path):
    import coremltools as ct
    import coremltools.optimize.coreml as cto
    import torch
    from torch import nn

    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 1)).eval()
    trace = torch.jit.trace(network, torch.zeros(1, 3, 6, 7))
    plain = ct.convert(
        trace, inputs=[ct.TensorType("x", (1, 3, 6, 7))], skip_model_load=True,
        compute_precision=ct.precision.FLOAT32, minimum_deployment_target=ct.target.iOS18,
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((1, 3, 6, 7)).astype(np.float32)
    few = {"weight_threshold": 8}
    blocks = cto.OpLinearQuantizerConfig(
        dtype="int4", granularity="per_block", block_size=16, **few
    )
    groups = cto.OpPalettizerConfig(
        mode="kmeans", nbits=3, granularity="per_grouped_channel", group_size=8, **few
    )
    vectors = cto.OpPalettizerConfig(mode="kmeans", nbits=2, cluster_dim=2, **few)
    pruned = cto.OpMagnitudePrunerConfig(target_sparsity=0.5, **few)
    ways = {
        "blocks": [(cto.linear_quantize_weights, blocks)],
        "groups": [(cto.palettize_weights, groups)],
        "vectors": [(cto.palettize_weights, vectors)],
        "sparse": [(cto.prune_weights, pruned)],
        "sparse int8": [(cto.prune_weights, pruned), (
            cto.linear_quantize_weights, cto.OpLinearQuantizerConfig(dtype="int8", **few))],
        "sparse table": [(cto.prune_weights, pruned), (
            cto.palettize_weights, cto.OpPalettizerConfig(mode="uniform", nbits=4, **few))],
    }  # fmt: skip
    seen = set()
    for name, steps in ways.items():
        small = plain
        for i, (way, config) in enumerate(steps):
            options = {"joint_compression": True} if i else {}
            small = way(small, cto.OptimizationConfig(global_config=config), **options)
        paths = [tmp_path / f"{name}.{kind}.mlpackage" for kind in ("small", "whole")]
        small.save(str(paths[0]))
        cto.decompress_weights(small).save(str(paths[1]))
        answers = [next(iter(evaluate(load_coreml(p).graph, {"x": x}).values())) for p in paths]
        assert np.array_equal(*answers), name
        block = small.get_spec().mlProgram.functions["main"].block_specializations["CoreML8"]
        seen |= {o.type for o in block.operations if o.type.startswith("constexpr")}
    assert len(seen) == 5
