"""The actor of Ray that is a worker: it serves requests as a process does (see `serving`).

Contents come from Ray's object store, where the pool put them once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from verax.base.errors import VeraxError
from verax.base.optional import late
from verax.distributed.contents import FETCHER, remove_unused
from verax.distributed.messages import pack
from verax.distributed.outcome import error_to_plain
from verax.distributed.serving import begin, serve

ray: Any = late("ray", "ray")
Stored = Mapping[str, Sequence[Any]]
"""SHA-256 -> a list of one reference of Ray's; within a list Ray does not resolve it."""


class Server:
    """A worker on Ray."""

    def begin(self, plain: dict[str, Any], search_path: Sequence[str]) -> bytes:
        """Make this process a worker. search_path: where the pool's process finds modules, of use
        where a host has the same folders."""
        sys.path += [p for p in search_path if p not in sys.path]
        try:
            hello = begin(plain)
        except VeraxError as error:
            return pack({"error": error_to_plain(error), "received": []})
        remove_unused()
        hello["node"] = ray.get_runtime_context().get_node_id()
        return pack({"value": hello, "received": []})

    def serve(self, message: bytes, stored: Stored) -> bytes:
        """The answer to a request. stored: where the contents lie that it refers to."""
        FETCHER.source = lambda digest: bytes(ray.get(stored[digest][0]))
        return serve(message)
