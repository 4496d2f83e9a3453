"""Convolutions and pooling on the blocked layout: weights, borders, epilogues, Winograd."""
