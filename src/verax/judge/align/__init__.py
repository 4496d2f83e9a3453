"""Compares two networks: whether they are the same function, and where they differ."""
