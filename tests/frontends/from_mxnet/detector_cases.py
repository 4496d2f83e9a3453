"""More cases for make_operators.py: what detectors and the rest of Gluon's models are made of."""

IMAGE = (2, 6, 5, 7)
LAST = (2, 5, 7, 6)
ROWS, ROIS = (2, 9, 6), (5, 5)


def cases(S, x):
    """(name, symbol, shapes of inputs). S: mxnet.symbol. x: gives the variable of a name."""
    yield from boxes(S, x)
    yield from windows(S, x)
    yield from lookups(S, x)
    yield from moves(S, x)
    yield from elements(S, x)


def boxes(S, x):
    nms = S.contrib.box_nms
    both = {"id_index": 0, "force_suppress": True, "background_id": 1}
    for i, form in enumerate(
        (
            {"id_index": 0, "overlap_thresh": 0.3},
            {"overlap_thresh": 0.2, "topk": 5, "valid_thresh": 0.25},
            {"overlap_thresh": 0.1, **both},
            {"in_format": "center", "overlap_thresh": 0.3},
            {"in_format": "center", "out_format": "center", "overlap_thresh": 0.3},
            {"out_format": "center", "id_index": 0, "overlap_thresh": 0.4},
            {"topk": 0},
        )
    ):
        yield f"box_nms_{i}", nms(x("rows"), **form), ROWS
    turned = S.Concat(S.slice_axis(x("rows"), axis=2, begin=2, end=6), x("rows"), dim=2)
    form = {"coord_start": 0, "score_index": 5, "id_index": 4, "overlap_thresh": 0.3}
    yield "box_nms_placed", nms(turned, out_format="center", **form), ROWS
    for kind in ("corner", "center"):
        found = S.contrib.box_iou(x("boxes"), x("anchors"), format=kind)
        yield f"box_iou_{kind}", found, [(2, 3, 4), (5, 4)]
        stds = {f"std{i}": v for i, v in enumerate((0.1, 0.2, 0.3, 0.4))}
        found = S.contrib.box_decode(x(), x("anchors"), format=kind, **stds)
        yield f"box_decode_{kind}", found, [(2, 7, 4), (1, 7, 4)]
    found = S.contrib.box_decode(x(), x("anchors"), clip=0.25)
    yield "box_decode_clip", found, [(2, 7, 4), (1, 7, 4)]
    yield (
        "roi_pooling",
        S.ROIPooling(x(), x("rois"), pooled_size=(3, 2), spatial_scale=0.5),
        [(2, 3, 9, 11), ROIS],
    )
    for i, form in enumerate(({"sample_ratio": 2}, {"aligned": True}, {})):
        found = S.contrib.ROIAlign(x(), x("rois"), pooled_size=(2, 3), spatial_scale=0.6, **form)
        yield f"roi_align_{i}", found, [(2, 3, 9, 11), ROIS]


def windows(S, x):
    pool = {"kernel": (3, 2), "stride": (2, 2), "layout": "NHWC"}
    for kind in ("max", "avg", "sum"):
        yield f"pool_{kind}_last", S.Pooling(x(), pool_type=kind, pad=(1, 0), **pool), LAST
    globally = S.Pooling(x(), pool_type="avg", global_pool=True, layout="NHWC")
    yield "pool_global_last", globally, LAST
    wide = S.Pooling(x(), kernel=(3,), stride=(2,), pool_type="max", layout="NWC")
    yield "pool_1d_last", wide, (2, 8, 3)
    deep = S.Pooling(x(), kernel=(2, 1, 2), pool_type="avg", layout="NDHWC")
    yield "pool_3d_last", deep, (2, 4, 3, 5, 2)
    parts = S.contrib.AdaptiveAvgPooling2D(x(), output_size=(3, 4))
    yield "pooled_overlapping", parts, (2, 3, 7, 9)
    yield "layer_norm_axis", S.LayerNorm(x(), axis=1, eps=0.02), (2, 3, 5)
    up = {"scale": 4, "sample_type": "nearest", "num_args": 2}
    for mode in ("concat", "sum"):
        shapes = [(2, 3, 5, 4), (2, 3 if mode == "sum" else 2, 10, 8)]
        yield f"up_{mode}", S.UpSampling(x(), x("other"), multi_input_mode=mode, **up), shapes
    resize = S.contrib.BilinearResize2D
    for mode in ("to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
        yield f"resize_{mode}", resize(x(), mode=mode), (2, 3, 5, 6)
    scales = {"scale_height": 2.5, "scale_width": 1.5}
    yield "resize_odd_scale", resize(x(), mode="odd_scale", **scales), (2, 3, 5, 6)
    yield "resize_scale", resize(x(), align_corners=False, **scales), (2, 3, 5, 6)
    yield "resize_like", resize(x(), x("other"), mode="like"), [(2, 3, 5, 6), (1, 1, 7, 9)]
    yield "negative_gamma", S.BatchNorm(x(), fix_gamma=False, name="turned"), IMAGE
    yield "fixed_gamma", S.BatchNorm(x(), fix_gamma=True, name="turned"), IMAGE

    form = {"transform_type": "affine", "target_shape": (4, 6)}
    shapes = [(2, 3, 5, 7), (2, 6)]
    turned = S.SpatialTransformer(x(), x("other"), sampler_type="bilinear", **form)
    yield "spatial_transformer", turned, shapes
    yield "grid_affine", S.GridGenerator(x(), **form), (2, 6)
    yield "grid_warp", S.GridGenerator(3 * x(), transform_type="warp"), (2, 2, 5, 4)
    yield "sampler", S.BilinearSampler(x(), 1.2 * x("other")), [(2, 3, 5, 7), (2, 2, 4, 6)]


def lookups(S, x):
    places = x("places")
    yield "take", S.take(x(), places, axis=1), [(2, 3, 5), (2, 4)]
    yield "take_wrap", S.take(x(), places, axis=2, mode="wrap"), [(2, 3, 5), (4,)]
    yield "pick", S.pick(x(), places, axis=1), [(2, 3, 5), (2, 5)]
    yield "pick_wrap", S.pick(x(), places, mode="wrap", keepdims=True), [(2, 3), (2,)]
    yield "one_hot", S.one_hot(places, depth=4, on_value=2.0, off_value=-0.5), (2, 3)
    yield "gather_nd", S.gather_nd(x(), x("numbers")), [(2, 3, 5), (2, 4)]
    for kind in ("value", "indices", "both"):
        found = S.topk(x(), k=2, axis=1, ret_typ=kind)
        yield f"topk_{kind}", S.Group(list(found)) if kind == "both" else found, (2, 4, 5)
    yield "topk_rising", S.topk(x(), k=3, is_ascend=True), (2, 3, 5)
    yield "topk_flat", S.topk(x(), k=4, axis=None, ret_typ="value"), (2, 3, 5)
    yield "sort", S.sort(x(), axis=1), (2, 3, 5)
    yield "sort_falling", S.sort(x(), axis=None, is_ascend=False), (2, 3, 5)
    yield "argsort", S.argsort(x(), is_ascend=False), (2, 3, 5)
    yield "argmax_flat", S.argmax(x()), (2, 3, 5)
    yield "argmax_flat_kept", S.argmax(x(), keepdims=True), (2, 3, 5)
    yield "argmax_channel", S.argmax_channel(x()), (3, 5)
    form = {"use_sequence_length": True}
    lengths = x("lengths")
    yield "sequence_mask", S.SequenceMask(x(), lengths, value=-2.0, **form), [(4, 2, 3), (2,)]
    yield "sequence_mask_1", S.SequenceMask(x(), lengths, axis=1, **form), [(2, 4, 3), (2,)]
    yield "sequence_reverse", S.SequenceReverse(x(), lengths, **form), [(4, 2, 3), (2,)]
    yield "sequence_reverse_all", S.SequenceReverse(x()), (4, 2, 3)
    yield "sequence_last", S.SequenceLast(x(), lengths, **form), [(4, 2, 3), (2,)]
    yield "sequence_last_1", S.SequenceLast(x(), lengths, axis=1, **form), [(2, 4, 3), (2,)]
    yield "sequence_last_all", S.SequenceLast(x(), axis=1), (4, 2, 3)


def moves(S, x):
    yield "where_rows", S.where(S.floor(x()), x("first"), x("other")), [(3,), (3, 3), (3, 3)]
    yield "slice_like_all", S.slice_like(x(), x("other")), [(2, 4, 5), (1, 3, 2)]
    yield "tile_few", S.tile(x(), reps=(2,)), (2, 3, 5)
    yield "tile_many", S.tile(x(), reps=(2, 1, 3)), (4, 5)
    yield "repeat_flat", S.repeat(x(), repeats=2), (2, 3)
    like = S.broadcast_like(x(), x("other"), lhs_axes=(1,), rhs_axes=(2,))
    yield "broadcast_like_axes", like, [(2, 1, 5), (2, 4, 3)]
    yield "reshape_like", S.reshape_like(x(), x("other")), [(2, 3, 4), (4, 6)]
    spans = {"lhs_begin": 1, "lhs_end": None, "rhs_begin": -2, "rhs_end": None}
    yield "reshape_like_part", S.reshape_like(x(), x("other"), **spans), [(5, 6), (7, 2, 3)]
    yield "reverse", S.reverse(x(), axis=(0, 2)), (2, 3, 5)
    yield "split_v2", S.Group(list(S.split_v2(x(), (1, 3), axis=1))), (2, 5, 3)
    parts = S.split_v2(x(), 2, axis=1, squeeze_axis=True)
    yield "split_v2_equal", S.Group(list(parts)), (3, 2, 5)
    count = S.arange(1, 4, step=0.5, repeat=2)
    yield "arange", S.broadcast_mul(x(), count), (2, 12)
    yield "arange_like", x() * S.contrib.arange_like(x(), start=2, step=3), (3, 4)
    along = S.contrib.arange_like(x(), start=2, step=0.5, axis=1)
    yield "arange_like_axis", S.broadcast_mul(x(), along), (3, 4)
    yield "made_like", x() + 2 * S.ones_like(x()) + S.zeros_like(x()), (2, 3)
    made = S.broadcast_add(S.zeros((2, 1)), S.ones((1, 3))) + S.full((2, 3), 4)
    yield "made", x() * made, (2, 3)
    yield "shapes", S.Group([S.shape_array(x()), S.size_array(x())]), (2, 3, 5)


def elements(S, x):
    half = S.cast(x("other"), dtype="float16")
    floats = S.amp_multicast(x(), S.amp_cast(half, dtype="float16"), num_outputs=2)
    yield "amp", floats[0] + 2 * floats[1], [(2, 3)] * 2
    halves = S.amp_multicast(x(), half, num_outputs=2, cast_narrow=True)
    yield "amp_narrow", S.Group(list(halves)), [(2, 3)] * 2
    means = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    pixels = S.image.to_tensor(S.floor(S.abs(x()) * 255))
    yield "image_normalized", S.image.normalize(pixels, **means), (2, 5, 4, 3)
    yield "image_one", S.image.normalize(S.image.to_tensor(x()), mean=0.5, std=0.25), (5, 4, 3)
    part = S.image.crop(x(), x=1, y=2, width=3, height=4)
    yield "image_part", part, (2, 7, 5, 3)
    yield "make_loss", S.MakeLoss(x(), grad_scale=2.0), (2, 3)
    yield "svm", S.SVMOutput(x(), x("label"), margin=0.5), (3, 5)
    yield "mod", S.broadcast_mod(x(), x("other")), [(2, 3, 5), (1, 3, 1)]
    yield "mod_scalars", x() % 0.3 + 0.7 % x("other"), [(2, 3, 5)] * 2
    yield "rint", S.rint(4 * x()), (2, 3, 5)
    yield "round", S.round(S.floor(8 * x()) * 0.5), (2, 3, 5)
    yield "fix", S.fix(4 * x()), (2, 3, 5)
    yield "logic", S.broadcast_logical_and(S.relu(x()), x("other")), [(2, 3, 5), (1, 3, 1)]
    yield "logic_not", S.logical_not(S.relu(x())), (2, 3, 5)
    yield "smooth_l1", S.smooth_l1(3 * x(), scalar=1.5), (2, 3, 5)
    yield "softmin", S.softmin(x(), axis=1), (2, 3, 5)
    yield "hypot", S.broadcast_hypot(x(), x("other")), [(2, 3, 5), (1, 3, 1)]
    yield "div_sqrt_dim", S.contrib.div_sqrt_dim(x()), (2, 3, 5)
    yield "cumsum", S.cumsum(x(), axis=1), (2, 3, 5)
    yield (
        "gemm2",
        S.linalg_gemm2(x(), x("other"), transpose_b=True, alpha=0.5),
        [
            (2, 3, 4),
            (2, 5, 4),
        ],
    )
    yield "dot_3d", S.dot(x(), x("other")), [(2, 3, 4), (4, 5, 6)]
    yield "dot_turned", S.dot(x(), x("other"), transpose_a=True), [(4, 3), (4, 5)]


def recurrent(S, x):
    for mode, layers, both in (
        ("rnn_relu", 1, False),
        ("rnn_tanh", 2, False),
        ("gru", 1, True),
        ("lstm", 2, True),
        ("lstm", 1, False),
    ):
        form = {"num_layers": layers, "bidirectional": both, "mode": mode, "state_size": 3}
        states = [x("state"), x("memory")][: 2 if mode == "lstm" else 1]
        named = dict(zip(("state", "state_cell"), states))
        found = S.RNN(x(), x("rnn_parameters"), **named, state_outputs=True, p=0.3, **form)
        count = layers * (1 + both)
        yield f"rnn_{mode}_{count}", found, [(4, 2, 5), *[(count, 2, 3)] * len(states)]
    form = {"num_layers": 2, "bidirectional": True, "mode": "lstm", "state_size": 7}
    named = {"state": x("state"), "state_cell": x("memory"), "projection_size": 3}
    found = S.RNN(x(), x("rnn_parameters"), **named, state_outputs=True, **form)
    yield "rnn_projected_4", found, [(4, 2, 5), (4, 2, 3), (4, 2, 7)]
