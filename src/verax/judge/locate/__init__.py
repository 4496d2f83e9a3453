"""Locates a mistake: by cutting the network, by its optimizations, its runs, larger regions."""
