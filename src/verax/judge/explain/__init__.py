"""Explains what a faulty node computed.

`causes` combines it all: hypotheses (`node`, `region`, over `hypotheses`), distinguished on
`probes` (`distinguish`), wrong weights, and the structure of the error where nothing explains it.
"""
