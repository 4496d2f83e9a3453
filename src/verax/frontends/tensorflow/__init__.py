"""TensorFlow: frozen graphs (`.pb`) and SavedModel folders, read without TensorFlow."""

from __future__ import annotations

from verax.base.optional import require

require("google.protobuf", "tensorflow")  # said in words before this room imports it

from verax.frontends.tensorflow.importer import load_tensorflow  # noqa: E402

__all__ = ["load_tensorflow"]
