"""Fuzzing of the judge: random networks, injected faults, and processes that run the cases.

The judge's own figures (false alarms, mistakes detected, located, explained) come from here;
`python -m benchmarks.judge` prints them. Nothing here decides anything: it makes cases and counts.
"""
