"""Implementations under test, each behind `judge.protocol.Runner`.

`subjects.resolve` says what a user named or handed over (a runner, a file, arrays, a function), and
`subjects.factory` makes a Runner of it. Foreign runtimes run in a child process: their crash or
hang becomes an error with its cause, not ours.
"""
