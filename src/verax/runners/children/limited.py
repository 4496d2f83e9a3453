"""A time limit for subjects that run in this process: they cannot be stopped, only given up."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from verax.base.process.processes import SubjectLateError
from verax.judge.protocol import Optimizing, Poisonable, Remembering, Runner, Selective
from verax.runners.arrays import AnswerRunner, ArraysRunner
from verax.runners.children.child_runner import ChildRunner
from verax.runners.command import CommandRunner

Result = TypeVar("Result")


def within(seconds: float, name: str, act: Callable[[], Result]) -> Result:
    """Result of `act()`, called in another thread.

    Raises what it raises, and `SubjectLateError` when it takes longer than `seconds`: its thread
    then goes on until the process ends, which does not wait for it.
    """
    results: list[Result] = []
    errors: list[BaseException] = []
    begin = time.monotonic()

    def work() -> None:
        try:
            result = act()
            if time.monotonic() - begin <= seconds:  # else nobody may have looked in time
                results.append(result)
        except BaseException as error:
            errors.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), daemon=True)
    thread.start()
    thread.join(min(seconds, threading.TIMEOUT_MAX))
    for error in errors:
        raise error
    for result in results:
        return result
    raise SubjectLateError(
        f"the subject gave no answer in {seconds:g} s and was given up",
        place=name,
        next_step="give a longer time limit (--timeout) or a smaller input",
    )


def limited(runner: Runner, seconds: float) -> Runner:
    """`runner`, whose runs may take `seconds` each. Those of subjects in processes of their own are
    limited already; recorded answers are not run."""
    if isinstance(runner, CommandRunner | ArraysRunner | AnswerRunner):
        return runner
    if (isinstance(runner, ChildRunner) and runner.isolated) or "run" in vars(runner):
        return runner
    for method, act in _calls(runner):
        setattr(runner, method, _limited_call(act, seconds, runner.name, method))
    return runner


def _calls(runner: Runner) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The methods by which the subject is run or compiled, by name."""
    yield "run", runner.run
    if isinstance(runner, Remembering):
        yield "run_steps", runner.run_steps
    if isinstance(runner, Poisonable):
        yield "run_poisoned", runner.run_poisoned
    if isinstance(runner, Optimizing):
        yield "optimizations", runner.optimizations
    if isinstance(runner, Selective):
        yield "with_steps", runner.with_steps


def _limited_call(
    act: Callable[..., Any], seconds: float, name: str, method: str
) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        result = within(seconds, name, lambda: act(*arguments, **options))
        if method == "optimizations":  # names, and runners that are limited as well
            return [(step, limited(runner, seconds)) for step, runner in result]
        return limited(result, seconds) if method == "with_steps" else result

    return call
