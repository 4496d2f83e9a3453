"""Tests of `verax.generation`."""
