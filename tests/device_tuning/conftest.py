"""The network that is tuned."""

from tests.cli.conftest import tiny  # noqa: F401
