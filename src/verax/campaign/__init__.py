"""Many cases for the judge: random networks, planted mistakes, and processes that run them.

The judge's own figures (false alarms, mistakes detected, located, explained) come from here;
`benchmarks/judge` prints them. Nothing here decides anything: it makes cases and counts.
"""
