"""The entry point of `verax`: hears Ctrl-C before anything slow is imported."""

from __future__ import annotations

import sys
from importlib import import_module

from verax.cli.interrupts import Interrupted, listening

APP = "verax.cli.app"
"""The commands: imported only once an interruption is heard."""


def main() -> None:
    """Run the command line; an interruption is one line and exit code 130 (128 + the signal)."""
    with listening() as heard:
        try:
            import_module(APP).run_command()
        except (Interrupted, KeyboardInterrupt):
            heard.say()
            sys.exit(heard.code)
        except BaseException:
            if not heard.number:
                raise
            heard.say()  # what was raised came of the interruption: an import that was cut short
            sys.exit(heard.code)


if __name__ == "__main__":
    main()
