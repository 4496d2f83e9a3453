"""Evaluates a graph by its operators' meanings, in any arithmetic, keeping every value if asked."""

from verax.reference.evaluate import evaluate, evaluate_node, promised

__all__ = ["evaluate", "evaluate_node", "promised"]
