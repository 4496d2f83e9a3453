"""`python -m verax.hunt.worker DESCRIPTOR`: judges the cases that its socket names, one by one.

It writes what it does to the socket, so that whoever started it knows whose fault its death is.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from verax.base.process.helpers import helper_scope
from verax.hunt.judging import HuntTask, Stage, judge
from verax.hunt.programs.names import is_program_subject
from verax.hunt.store import HuntOutcome, Store

MESSAGE_BYTES = 1 << 16
STORE = "hunt.sqlite"


def main(descriptor: int) -> int:
    """Serve until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us
    warnings.simplefilter("ignore")
    channel = socket.socket(fileno=descriptor)
    plain = _received(channel)
    if plain is None:
        return 0
    settings = plain.pop("settings")
    task = HuntTask(
        plain["subject"],
        plain["against"],
        plain["folder"],
        plain["seed"],
        plain["limit"],
        tuple(plain["operators"]),
        tuple(plain["families"]),
        plain["models"],
    )
    store = Store(Path(task.folder) / STORE, settings)
    with helper_scope():
        while (request := _received(channel)) is not None:
            _serve(channel, task, request, store)
    return 0


def _serve(channel: socket.socket, task: HuntTask, request: dict[str, Any], store: Store) -> None:
    case_number, isolated = int(request["case_number"]), bool(request["isolated"])
    stages: list[str] = [""]

    def stage(name: str) -> None:
        stages[0] = name
        channel.send(json.dumps({"stage": name}).encode())

    try:
        outcome = _outcome(task, case_number, store, stage, isolated)
    except Exception as error:  # ours to mend: said, and no reason to stop the hunt
        last = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{os.path.basename(last.filename)}:{last.lineno}"
        detail = f"{type(error).__name__} while {stages[0]}: {error} ({at})"
        outcome = HuntOutcome("unjudged", detail)
    store.finish(task.seed, case_number, outcome)
    done = {"done": outcome.outcome, "finding": outcome.finding}
    channel.send(json.dumps(done).encode())


def _outcome(
    task: HuntTask, case_number: int, store: Store, stage: Stage, isolated: bool
) -> HuntOutcome:
    if not is_program_subject(task.subject):
        return judge(task, case_number, store, stage, isolated)
    began = time.monotonic()
    # PyTorch, which takes seconds to import
    campaign = importlib.import_module("verax.hunt.programs.campaign")
    outcome: HuntOutcome = campaign.judge_program(task, case_number, store, stage)
    return dataclasses.replace(outcome, seconds=time.monotonic() - began)


def _received(channel: socket.socket) -> dict[str, Any] | None:
    """The next request; None when the other end is closed."""
    try:
        message = channel.recv(MESSAGE_BYTES)
    except ConnectionError:
        return None
    return dict(json.loads(message)) if message else None


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
