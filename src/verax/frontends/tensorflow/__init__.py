"""TensorFlow: frozen graphs (`.pb`) and SavedModel folders, read without TensorFlow."""

from __future__ import annotations

from verax.frontends.tensorflow.importer import load_tensorflow

__all__ = ["load_tensorflow"]
