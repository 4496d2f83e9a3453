"""The command line: one thin file per sub-command, no knowledge of its own.

Results go to standard output, progress and errors to standard error. Exit codes: 0 identical,
rounding or an allowed precision; 1 mistake; 2 bad usage, unreadable input, or a bug of ours;
3 undecided; 130 interrupted.
"""
