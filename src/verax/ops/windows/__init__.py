"""Operators that slide a window: convolutions, transposed convolutions, pools."""
