"""Implementations under test, each behind `judge.protocol.Runner`.

`registry.resolve` turns what a user names (a runner, a file, arrays, a function) into one. Foreign
runtimes run in a child process: their crash or hang becomes an error with its cause, not ours.
"""
