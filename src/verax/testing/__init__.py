"""What tests of other projects use: the assertion, inputs by seed and shape, records that are kept.

Nothing here knows of pytest, which `verax.pytest_plugin` is for.
"""
