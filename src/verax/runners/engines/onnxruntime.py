"""ONNX Runtime's CPU provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.runners.engines import Inputs, Prepared

LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""Graph optimization levels of ONNX Runtime, and what it calls them itself."""

OPTIMIZERS: Mapping[str, tuple[str, ...]] = {
    "basic": (
        *("EliminateIdentity", "EliminateSlice", "UnsqueezeElimination", "EliminateDropout"),
        *("ExpandElimination", "CastElimination", "CastChainElimination"),
        *("PreShapeNodeElimination", "NoopElimination", "DivMulFusion", "FuseReluClip"),
        *("GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion"),
        *("ConvMulFusion", "ConvBNFusion", "Pad_Fusion", "MatMul_BatchNormalization_Fusion"),
        *("LabelEncoderFusion", "DoubleQDQPairsRemover", "ConstantSharing"),
        *("CommonSubexpressionElimination", "ConstantFolding", "ConstantFoldingDQ"),
        *("MatMulAddFusion", "ReshapeFusion", "FreeDimensionOverrideTransformer"),
        *("SliceConcatToSpaceToDepthFusion", "GeluFusionL1", "LayerNormFusionL1"),
        *("QDQPropagationTransformer", "WeightBiasQuantization", "EnsureUniqueDQForNodeUnit"),
        "TransposeOptimizer",
    ),
    "extended": (
        *("ClipQuantRewrite", "ReluQuantRewrite", "TransposeOptimizer_CPUExecutionProvider"),
        *("QDQS8ToU8Transformer", "QDQSelectorActionTransformer", "GemmActivationFusion"),
        *("MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion", "ConvActivationFusion"),
        *("GeluFusionL2", "GeluFusion", "LayerNormFusionL2", "LayerNormFusion"),
        *("SimplifiedLayerNormFusion", "AttentionFusion", "EmbedLayerNormFusion"),
        *("GatherSliceToSplitFusion", "GatherToSliceFusion", "MatmulTransposeFusion"),
        *("BiasGeluFusion", "GroupQueryAttentionFusion", "GroupQueryAttentionPreNormFusion"),
        *("SkipLayerNormFusion", "BiasSkipLayerNormFusion", "FastGeluFusion", "QuickGeluFusion"),
        *("BiasSoftmaxFusion", "BiasDropoutFusion", "MatMulScaleFusion", "MatMulActivationFusion"),
        *("MatMulNBitsFusion", "DQMatMulNBitsFusion", "MatMulNBitsMlpFusion"),
        *("MatMulNBitsQkvFusion", "QDQFinalCleanupTransformer"),
    ),
    "all": (
        *("NchwcTransformer", "NhwcTransformer", "ConvAddActivationFusion"),
        *("Avx2WeightS8ToU8Transformer", "FuseInitializersTransformer"),
    ),
}
"""Optimizers that can be switched off one by one (`disabled_optimizers` of an InferenceSession), by
the level at which they first run and about in their order. The names are those that the library
gives its rewrite rules and transformers (1.31; a few have another name in older versions, and are
listed with both). A name that a version does not know it ignores."""


def runtime() -> Any:
    """The package; raises `MissingPackageError` where it is not installed."""
    return optional("onnxruntime", "to run the subject 'onnxruntime'")


def session(
    model: str | bytes,
    threads: int,
    level: str = "all",
    options: Mapping[str, Any] | None = None,
    disable: Sequence[str] = (),
) -> Any:
    """A session on a file or its bytes. level: one of LEVELS. options: attributes of its
    SessionOptions, or configuration entries when they hold a dot; raises `UsageError` for others.
    disable: names of optimizers.
    """
    package = runtime()
    session_options = package.SessionOptions()
    session_options.intra_op_num_threads = threads
    session_options.log_severity_level = 3
    session_options.graph_optimization_level = getattr(
        package.GraphOptimizationLevel, LEVELS[level]
    )
    for name, value in (options or {}).items():
        if "." in name:
            session_options.add_session_config_entry(name, str(value))
        elif hasattr(session_options, name):
            setattr(session_options, name, value)
        else:
            raise UsageError(
                f"ONNX Runtime has no session option {name!r}",
                next_step="attributes of SessionOptions, or entries with a dot, can be set",
            )
    return package.InferenceSession(
        model,
        session_options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=list(disable),
    )


def prepared(model: str, threads: int, settings: Mapping[str, Any]) -> Prepared:
    """As `Engine` says. settings: as of `session`."""
    loaded = session(model, threads, **settings)

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        arrays = dict(inputs)
        return lambda: loaded.run(None, arrays)

    return Prepared(runtime().__version__, bind)
