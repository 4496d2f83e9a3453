"""Operators of images and detectors: resizing, sampling, boxes."""
