"""Settings of the whole suite: on CI Hypothesis draws the same cases every time.

Elsewhere cases are fresh on every run, and `make campaign` draws many: what they find becomes a
test of its own.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, database=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
