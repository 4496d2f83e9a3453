"""What went wrong in a guilty place.

`causes` puts it together: rival meanings (`node`, `region`, over `hypotheses`), told apart on
`probes` (`distinguish`), wrong weights, and the shape of the error where nothing explains it.
"""
