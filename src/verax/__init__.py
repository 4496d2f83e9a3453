"""Verax."""
