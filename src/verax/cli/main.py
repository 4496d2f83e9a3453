"""The entry point of `verax`: hears Ctrl-C before anything slow is imported."""

from __future__ import annotations

from importlib import import_module

from verax.cli.interrupts import ending_quietly

APP = "verax.cli.app"
"""The commands: imported only once an interruption is heard."""


def main() -> None:
    """Run the command line; an interruption is one line and exit code 130 (128 + the signal)."""
    with ending_quietly():
        import_module(APP).run_command()


if __name__ == "__main__":
    main()
