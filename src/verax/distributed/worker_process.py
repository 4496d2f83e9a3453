"""`python -m verax.distributed.worker_process DESCRIPTOR`: a worker of `processes`.

It answers requests from its socket, one at a time, until the other end is closed.
"""

from __future__ import annotations

import signal
import socket
import struct
import sys
from typing import Any

from verax.base.errors import VeraxError
from verax.distributed.messages import pack, unpack
from verax.distributed.outcome import error_to_plain
from verax.distributed.serving import begin, serve

LENGTH = struct.Struct("<Q")


def main(descriptor: int) -> int:
    """Serve until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us
    channel = socket.socket(fileno=descriptor)
    with channel.makefile("rb") as requests:
        first = unpack(_received(requests))
        answer: dict[str, Any]
        try:
            answer = {"value": begin(first["begin"]), "received": []}
        except VeraxError as error:
            answer = {"error": error_to_plain(error), "received": []}
        _send(channel, pack(answer))
        while message := _received(requests):
            _send(channel, serve(message))
    return 0


def _received(requests: Any) -> bytes:
    """The next request; b"" when the other end is closed."""
    head = requests.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return b""
    (length,) = LENGTH.unpack(head)
    message: bytes = requests.read(length)
    return message if len(message) == length else b""


def _send(channel: socket.socket, message: bytes) -> None:
    channel.sendall(LENGTH.pack(len(message)) + message)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
