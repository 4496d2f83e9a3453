"""The parts of TFLite's schema (version 3) that the reader needs: operator names by code, and the
fields of each operator's options by slot.

tests/frontends/tflite/test_schema.py holds these tables against the PyPI package `tflite`.
"""

from __future__ import annotations

from dataclasses import dataclass

from verax.ir.types import DType

IDENTIFIER = b"TFL3"

OPERATORS = (
    "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE",
    "DEQUANTIZE", "EMBEDDING_LOOKUP", "FLOOR", "FULLY_CONNECTED", "HASHTABLE_LOOKUP",
    "L2_NORMALIZATION", "L2_POOL_2D", "LOCAL_RESPONSE_NORMALIZATION", "LOGISTIC",
    "LSH_PROJECTION", "LSTM", "MAX_POOL_2D", "MUL", "RELU", "RELU_N1_TO_1", "RELU6", "RESHAPE",
    "RESIZE_BILINEAR", "RNN", "SOFTMAX", "SPACE_TO_DEPTH", "SVDF", "TANH", "CONCAT_EMBEDDINGS",
    "SKIP_GRAM", "CALL", "CUSTOM", "EMBEDDING_LOOKUP_SPARSE", "PAD",
    "UNIDIRECTIONAL_SEQUENCE_RNN", "GATHER", "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND",
    "TRANSPOSE", "MEAN", "SUB", "DIV", "SQUEEZE", "UNIDIRECTIONAL_SEQUENCE_LSTM", "STRIDED_SLICE",
    "BIDIRECTIONAL_SEQUENCE_RNN", "EXP", "TOPK_V2", "SPLIT", "LOG_SOFTMAX", "DELEGATE",
    "BIDIRECTIONAL_SEQUENCE_LSTM", "CAST", "PRELU", "MAXIMUM", "ARG_MAX", "MINIMUM", "LESS",
    "NEG", "PADV2", "GREATER", "GREATER_EQUAL", "LESS_EQUAL", "SELECT", "SLICE", "SIN",
    "TRANSPOSE_CONV", "SPARSE_TO_DENSE", "TILE", "EXPAND_DIMS", "EQUAL", "NOT_EQUAL", "LOG",
    "SUM", "SQRT", "RSQRT", "SHAPE", "POW", "ARG_MIN", "FAKE_QUANT", "REDUCE_PROD", "REDUCE_MAX",
    "PACK", "LOGICAL_OR", "ONE_HOT", "LOGICAL_AND", "LOGICAL_NOT", "UNPACK", "REDUCE_MIN",
    "FLOOR_DIV", "REDUCE_ANY", "SQUARE", "ZEROS_LIKE", "FILL", "FLOOR_MOD", "RANGE",
    "RESIZE_NEAREST_NEIGHBOR", "LEAKY_RELU", "SQUARED_DIFFERENCE", "MIRROR_PAD", "ABS", "SPLIT_V",
    "UNIQUE", "CEIL", "REVERSE_V2", "ADD_N", "GATHER_ND", "COS", "WHERE", "RANK", "ELU",
    "REVERSE_SEQUENCE", "MATRIX_DIAG", "QUANTIZE", "MATRIX_SET_DIAG", "ROUND", "HARD_SWISH", "IF",
    "WHILE", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "SCATTER_ND", "SELECT_V2",
    "DENSIFY", "SEGMENT_SUM", "BATCH_MATMUL", "PLACEHOLDER_FOR_GREATER_OP_CODES", "CUMSUM",
    "CALL_ONCE", "BROADCAST_TO", "RFFT2D", "CONV_3D", "IMAG", "REAL", "COMPLEX_ABS", "HASHTABLE",
    "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "REDUCE_ALL", "CONV_3D_TRANSPOSE",
    "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "BROADCAST_ARGS", "RANDOM_STANDARD_NORMAL",
    "BUCKETIZE", "RANDOM_UNIFORM", "MULTINOMIAL", "GELU", "DYNAMIC_UPDATE_SLICE", "RELU_0_TO_1",
    "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_SUM", "ATAN2",
    "UNSORTED_SEGMENT_MIN", "SIGN", "BITCAST", "BITWISE_XOR", "RIGHT_SHIFT",
    *map("STABLEHLO_{}".format, (
        "LOGISTIC", "ADD", "DIVIDE", "MULTIPLY", "MAXIMUM", "RESHAPE", "CLAMP", "CONCATENATE",
        "BROADCAST_IN_DIM", "CONVOLUTION", "SLICE", "CUSTOM_CALL", "REDUCE", "ABS", "AND",
        "COSINE", "EXPONENTIAL", "FLOOR", "LOG", "MINIMUM", "NEGATE", "OR", "POWER", "REMAINDER",
        "RSQRT", "SELECT", "SUBTRACT", "TANH", "SCATTER", "COMPARE", "CONVERT", "DYNAMIC_SLICE",
        "DYNAMIC_UPDATE_SLICE", "PAD", "IOTA", "DOT_GENERAL", "REDUCE_WINDOW", "SORT", "WHILE",
        "GATHER", "TRANSPOSE",
    )),
    "DILATE", "STABLEHLO_RNG_BIT_GENERATOR", "REDUCE_WINDOW", "STABLEHLO_COMPOSITE",
    "STABLEHLO_SHIFT_LEFT", "STABLEHLO_CBRT",
)  # fmt: skip
"""Names by code; a newer operator is shown by its number."""
CUSTOM = OPERATORS.index("CUSTOM")

TENSOR_TYPES: dict[int, DType | str] = {
    0: DType.float32, 1: DType.float16, 2: DType.int32, 3: DType.uint8, 4: DType.int64,
    5: "a string", 6: DType.bool_, 7: DType.int16, 8: "complex64", 9: DType.int8,
    10: DType.float64, 11: "complex128", 12: DType.uint64, 13: "a resource", 14: "a variant",
    15: DType.uint32, 16: DType.uint16, 17: "int4", 18: DType.bfloat16,
    19: "int2", 20: "uint4",
}  # fmt: skip
"""Element types by code; text for those that Verax has not."""

ENUMS: dict[str, dict[int, str]] = {
    "padding": {0: "SAME", 1: "VALID"},
    "activation": dict(enumerate(("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"))),
    "mirror": {0: "REFLECT", 1: "SYMMETRIC"},
    "kernel": {0: "FULL", 1: "BASIC"},
    "weights": {0: "DEFAULT", 1: "SHUFFLED4x16INT8"},
    "type": {code: str(name) for code, name in TENSOR_TYPES.items()},
}
"""Enumerated options, all stored as int8."""


@dataclass(frozen=True)
class Field:
    """One field of an options table. kind: a scalar type, an enumeration, "ints" (a vector) or
    "text"."""

    name: str
    kind: str
    default: int


@dataclass(frozen=True)
class Options:
    """An options table: its number in the union, its fields by slot; None for a retired slot."""

    type_code: int
    fields: tuple[Field | None, ...]


def _options(type_code: int, text: str) -> Options:
    """From "name:kind=default ...": kind is int32 and default 0 unless said; "_" is retired."""
    fields: list[Field | None] = []
    for word in text.split():
        declaration, _, default = word.partition("=")
        name, _, kind = declaration.partition(":")
        fields.append(None if name == "_" else Field(name, kind or "int32", int(default or 0)))
    return Options(type_code, tuple(fields))


_ACTIVATION = "fused_activation_function:activation"
_POOL = _options(5, f"padding:padding stride_w stride_h filter_width filter_height {_ACTIVATION}")
_REDUCER = _options(27, "keep_dims:bool")
_MAXIMUM_MINIMUM = _options(39, "")
_SQUEEZE = _options(30, "squeeze_dims:ints")
_TYPE = "quantized_bias_type:type"
_ASYMMETRIC = "asymmetric_quantize_inputs:bool"
_LSTM = f"{_ACTIVATION} cell_clip:float32 proj_clip:float32"
_CONV_3D = _options(
    106,
    f"padding:padding stride_d stride_w stride_h {_ACTIVATION} dilation_d_factor=1 "
    "dilation_w_factor=1 dilation_h_factor=1",
)

OPTIONS: dict[str, Options] = {
    "CONV_2D": _options(
        1,
        f"padding:padding stride_w stride_h {_ACTIVATION} dilation_w_factor=1 "
        f"dilation_h_factor=1 {_TYPE}",
    ),
    "DEPTHWISE_CONV_2D": _options(
        2,
        f"padding:padding stride_w stride_h depth_multiplier {_ACTIVATION} "
        "dilation_w_factor=1 dilation_h_factor=1",
    ),
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    "L2_POOL_2D": _POOL,
    "FULLY_CONNECTED": _options(
        8,
        f"{_ACTIVATION} weights_format:weights keep_num_dims:bool "
        f"asymmetric_quantize_inputs:bool {_TYPE}",
    ),
    "SOFTMAX": _options(9, "beta:float32"),
    "CONCATENATION": _options(10, f"axis {_ACTIVATION}"),
    "ADD": _options(11, f"{_ACTIVATION} pot_scale_int16:bool=1"),
    "L2_NORMALIZATION": _options(12, _ACTIVATION),
    "LOCAL_RESPONSE_NORMALIZATION": _options(13, "radius bias:float32 alpha:float32 beta:float32"),
    "RESIZE_BILINEAR": _options(15, "_ _ align_corners:bool half_pixel_centers:bool"),
    "RESHAPE": _options(17, "new_shape:ints"),
    "SPACE_TO_DEPTH": _options(19, "block_size"),
    "MUL": _options(21, _ACTIVATION),
    "PAD": _options(22, ""),
    "GATHER": _options(23, "axis batch_dims"),
    "BATCH_TO_SPACE_ND": _options(24, ""),
    "SPACE_TO_BATCH_ND": _options(25, ""),
    "TRANSPOSE": _options(26, ""),
    "MEAN": _REDUCER,
    "SUM": _REDUCER,
    "REDUCE_PROD": _REDUCER,
    "REDUCE_MAX": _REDUCER,
    "REDUCE_MIN": _REDUCER,
    "SUB": _options(28, f"{_ACTIVATION} pot_scale_int16:bool=1"),
    "DIV": _options(29, _ACTIVATION),
    "SQUEEZE": _SQUEEZE,
    "STRIDED_SLICE": _options(
        32, "begin_mask end_mask ellipsis_mask new_axis_mask shrink_axis_mask offset:bool"
    ),
    "EXP": _options(33, ""),
    "TOPK_V2": _options(34, ""),
    "SPLIT": _options(35, "num_splits"),
    "LOG_SOFTMAX": _options(36, ""),
    "CAST": _options(37, "in_data_type:type out_data_type:type"),
    "DEQUANTIZE": _options(38, ""),
    "MAXIMUM": _MAXIMUM_MINIMUM,
    "MINIMUM": _MAXIMUM_MINIMUM,
    "ARG_MAX": _options(40, "output_type:type"),
    "LESS": _options(41, ""),
    "NEG": _options(42, ""),
    "PADV2": _options(43, ""),
    "GREATER": _options(44, ""),
    "GREATER_EQUAL": _options(45, ""),
    "LESS_EQUAL": _options(46, ""),
    "SELECT": _options(47, ""),
    "SLICE": _options(48, ""),
    "TRANSPOSE_CONV": _options(49, f"padding:padding stride_w stride_h {_ACTIVATION} {_TYPE}"),
    "TILE": _options(51, ""),
    "EXPAND_DIMS": _options(52, ""),
    "EQUAL": _options(53, ""),
    "NOT_EQUAL": _options(54, ""),
    "SHAPE": _options(55, "out_type:type"),
    "POW": _options(56, ""),
    "ARG_MIN": _options(57, "output_type:type"),
    "PACK": _options(59, "values_count axis"),
    "LOGICAL_OR": _options(60, ""),
    "LOGICAL_AND": _options(62, ""),
    "LOGICAL_NOT": _options(63, ""),
    "UNPACK": _options(64, "num axis"),
    "SQUARE": _options(66, ""),
    "FILL": _options(68, ""),
    "RESIZE_NEAREST_NEIGHBOR": _options(74, "align_corners:bool half_pixel_centers:bool"),
    "LEAKY_RELU": _options(75, "alpha:float32"),
    "SQUARED_DIFFERENCE": _options(76, ""),
    "MIRROR_PAD": _options(77, "mode:mirror"),
    "ABS": _options(78, ""),
    "SPLIT_V": _options(79, "num_splits"),
    "GATHER_ND": _options(83, ""),
    "COS": _options(84, ""),
    "QUANTIZE": _options(89, ""),
    "HARD_SWISH": _options(91, ""),
    "CALL": _options(16, "subgraph:uint32"),
    "RFFT2D": _options(105, ""),
    "DENSIFY": _options(99, ""),
    "VAR_HANDLE": _options(111, "container:text shared_name:text"),
    "READ_VARIABLE": _options(112, ""),
    "ASSIGN_VARIABLE": _options(113, ""),
    "CALL_ONCE": _options(103, "init_subgraph_index"),
    "IF": _options(92, "then_subgraph_index else_subgraph_index"),
    "WHILE": _options(93, "cond_subgraph_index body_subgraph_index"),
    "DEPTH_TO_SPACE": _options(94, "block_size"),
    "SELECT_V2": _options(98, ""),
    "BATCH_MATMUL": _options(101, "adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool"),
    "BROADCAST_TO": _options(104, ""),
    "CONV_3D": _CONV_3D,
    "GELU": _options(116, "approximate:bool"),
    "CONV_3D_TRANSPOSE": _CONV_3D,
    "FLOOR_DIV": _options(65, ""),
    "ZEROS_LIKE": _options(67, ""),
    "FLOOR_MOD": _options(72, ""),
    "ONE_HOT": _options(61, "axis"),
    "RANGE": _options(73, ""),
    "REDUCE_ANY": _REDUCER,
    "REDUCE_ALL": _REDUCER,
    "REVERSE_V2": _options(81, ""),
    "ADD_N": _options(82, ""),
    "WHERE": _options(85, ""),
    "RANK": _options(86, ""),
    "REVERSE_SEQUENCE": _options(87, "seq_dim batch_dim"),
    "NON_MAX_SUPPRESSION_V4": _options(95, ""),
    "NON_MAX_SUPPRESSION_V5": _options(96, ""),
    "SCATTER_ND": _options(97, ""),
    "CUMSUM": _options(102, "exclusive:bool reverse:bool"),
    "SIGN": _options(123, ""),
    "SVDF": _options(6, f"rank {_ACTIVATION} {_ASYMMETRIC}"),
    "RNN": _options(7, f"{_ACTIVATION} {_ASYMMETRIC}"),
    "LSTM": _options(14, f"{_LSTM} kernel_type:kernel {_ASYMMETRIC}"),
    "UNIDIRECTIONAL_SEQUENCE_RNN": _options(31, f"time_major:bool {_ACTIVATION} {_ASYMMETRIC}"),
    "BIDIRECTIONAL_SEQUENCE_LSTM": _options(
        69, f"{_LSTM} merge_outputs:bool time_major:bool=1 {_ASYMMETRIC}"
    ),
    "BIDIRECTIONAL_SEQUENCE_RNN": _options(
        70, f"time_major:bool {_ACTIVATION} merge_outputs:bool {_ASYMMETRIC}"
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _options(
        71, f"{_LSTM} time_major:bool {_ASYMMETRIC} diagonal_recurrent_tensors:bool"
    ),
}
"""Options by operator; an operator that is not listed has none."""
