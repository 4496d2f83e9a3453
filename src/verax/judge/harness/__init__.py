"""Faults around the network: it was asked, fed or read wrongly, or answers by chance."""
