"""Errors a user can meet. Each says its cause, the place, and the next step to take.

The command line prints them without a traceback and leaves with `exit_code`. Anything that is not a
`VeraxError` and reaches the command line is a bug of ours.
"""

from __future__ import annotations


class VeraxError(Exception):
    """Base of all errors meant for the user.

    `cause` is one sentence; `place` names the node, file, argument or value;
    `next_step` is what the user can do about it.
    """

    exit_code = 2

    def __init__(self, cause: str, *, place: str = "", next_step: str = "") -> None:
        self.cause, self.place, self.next_step = cause, place, next_step
        super().__init__(cause, place, next_step)

    def __str__(self) -> str:
        text = self.cause
        if self.place:
            text += f"\n  at: {self.place}"
        if self.next_step:
            text += f"\n  next: {self.next_step}"
        return text


class ModelError(VeraxError):
    """A model file is damaged or contradicts itself."""


class UnsupportedError(VeraxError):
    """A model uses something that Verax does not implement; the text lists what."""


class GraphError(VeraxError):
    """A graph violates a numbered constraint of `ir.checker` or a type rule of an operator."""


class InputError(VeraxError):
    """Arrays or images given by the user do not fit what the model declares."""


class UsageError(VeraxError):
    """A command or a call was given arguments that make no sense together."""


class UnknownNameError(UsageError):
    """Sizes were given for inputs or dimensions, `names`, that a model does not have."""

    def __init__(self, cause: str, names: tuple[str, ...] = (), **context: str) -> None:
        super().__init__(cause, **context)
        self.names = names


class TrustError(VeraxError):
    """A compiled program is not signed by the key that it has to be signed by."""


class CompileError(VeraxError):
    """Code generation or loading failed."""


class DeviceError(VeraxError):
    """A GPU or its driver is missing, too old, or failed. `code`: the driver's, 0 for none."""

    def __init__(self, cause: str, *, code: int = 0, **context: str) -> None:
        super().__init__(cause, **context)
        self.code = code


class OpenChoiceError(VeraxError):
    """What a network chooses inside is decided by rounding: nothing can be said of the results."""


class MissingPackageError(VeraxError):
    """An optional package is needed and is not installed."""
