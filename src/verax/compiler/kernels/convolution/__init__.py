"""Convolutions and what else walks windows of blocked activations: schedules, packing, emitters."""
