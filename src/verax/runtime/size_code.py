"""Code of the expressions of open sizes, kept beside a program in the cache.

Python takes longer to compile the expressions of a program for many sizes than all else that a kept
one needs before it runs. Code of another version of Python is not taken: it is made again. The code
is believed, as the machine code beside it is, so only an entry of a cache holds any.
"""

from __future__ import annotations

import binascii
import marshal
import sys
from collections.abc import Mapping

from verax.runtime.counted_sizes import CountedStage
from verax.runtime.open_sizes import OpenSizes

PYTHON = f"{sys.implementation.name} {sys.hexversion:x}"
"""Whose code it is."""


def record_of(open_sizes: OpenSizes) -> dict[str, str]:
    """All code of these sizes, for JSON."""
    open_sizes.make_functions()
    for stage in range(1, len(open_sizes.counted) + 1):
        CountedStage(open_sizes, stage).make_functions()
    code = binascii.b2a_base64(marshal.dumps(open_sizes.derived), newline=False)
    return {"python": PYTHON, "code": code.decode()}


def use_record(open_sizes: OpenSizes, record: Mapping[str, str]) -> None:
    """Give sizes the code that `record_of` gave for equal ones, if it is this Python's."""
    if record["python"] == PYTHON:
        open_sizes.derived.update(marshal.loads(binascii.a2b_base64(record["code"])))
