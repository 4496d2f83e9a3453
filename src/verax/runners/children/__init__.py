"""Subjects that run in a process of their own: how one is begun, asked, timed and ended."""
