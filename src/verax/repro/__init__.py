"""Minimal cases: one operator, its input, what it should give and what the subject gave, as files.

`case` makes a case from a guilty node and proves that it shows the mistake by itself, `shrink`
makes it smaller, `write` puts it into a folder with a script that runs the subject's own runtime.
"""
