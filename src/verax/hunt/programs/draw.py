"""`draw_program`: case `index` of a seed as a program, run eagerly while it is drawn.

Every statement is tried as it is added, so that shapes are known and what PyTorch refuses is left
out. Nine of ten statements that are drawn for a group come from it, so that a case has a subject.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.hunt.case import NoCase, pick
from verax.hunt.programs.program import LAYOUTS, MODES, STATIC, HuntedProgram
from verax.hunt.programs.templates import GROUPS

torch: Any = optional("torch", "to hunt over torch.compile")

MAX_ELEMENTS = 1500
MAX_NUMBER = 1e4
MIN_LINES, MAX_LINES = 4, 9
ATTEMPTS = 60
FROM_THE_GROUP = 0.7
CONSTANTS = ("0.5", "2.0", "-1.5", "3", "0.1", "-2", "1.0")
CAST_TO = ("float16", "float64", "int32", "int64", "bfloat16")
SIZES = ((3, 4), (5, 3), (2, 3, 4), (2, 5, 3), (1, 6), (7,), (2, 4, 5, 6), (1, 4, 3, 5), (17, 3))
FIELD = re.compile(r"\{(\w+)(?::([^}]*))?\}")


@dataclass
class _Drawing:
    """A program under construction: its values as PyTorch has them."""

    random: np.random.Generator
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def input(self, shape: tuple[int, ...], kind: str = "float", hint: str = "x") -> str:
        name = f"{hint}{len(self.inputs)}"
        draw = self.random.standard_normal(shape).astype(np.float32)
        if kind == "int":
            array: np.ndarray = (draw * 3).astype(np.int64)
        else:
            array = (draw > 0) if kind == "bool" else draw
        layout = "contiguous"
        if kind == "float" and hint == "x" and self.random.random() < 0.4:
            layout = pick(self.random, [k for k in LAYOUTS if k != "expanded"])
            if layout == "transposed" and len(shape) < 2:
                layout = "contiguous"
        if layout != "contiguous":
            self.layouts[name] = layout
        self.inputs[name] = np.ascontiguousarray(array)
        program = HuntedProgram({name: self.inputs[name]}, self.layouts, (), ())
        (self.values[name],) = program.tensors(self.inputs)
        return name

    def of(self, test: Any) -> str:
        names = [n for n, v in self.values.items() if test(v)]
        if not names:
            raise NoCase
        late = names[-4:] if self.random.random() < 0.7 else names
        return pick(self.random, late)

    def line(self, template: str) -> str:
        """`template` with everything filled in. Raises `NoCase` when something is lacking."""
        first: list[Any] = []
        choices: dict[str, str] = {}

        def filled(match: re.Match[str]) -> str:
            name, shape = match[1], match[2]
            if name == "w":
                return self._weight(shape, first)
            if name not in choices:
                choices[name] = self._choice(name, first)
            return choices[name]

        # the first tensor tells axes, so tensors are choices before whatever refers to it
        for name in re.findall(r"\{(x|m|i|b|in)\}", template)[:1]:
            choices[name] = self._choice(name, first)
            first.append(self.values[choices[name]])
        return FIELD.sub(filled, template)

    def _choice(self, name: str, first: list[Any]) -> str:
        random, rank = self.random, first[0].dim() if first else 1
        if name == "x":
            return self.of(lambda v: v.is_floating_point() and v.dim())
        if name == "m":
            return self.of(lambda v: v.dtype == torch.float32 and v.dim() > 1)
        if name == "i":
            return self.of(lambda v: v.dtype in (torch.int32, torch.int64) and v.dim())
        if name == "b":
            return self.of(lambda v: v.dtype == torch.bool and v.dim())
        if name == "in":
            return self.of(lambda v: any(v is self.values[n] and v.dim() > 1 for n in self.inputs))
        if name == "y":
            shape = first[0].shape if first else ()
            same = [
                n for n, v in self.values.items() if v.shape == shape and v.dtype == first[0].dtype
            ]
            return pick(random, same)
        if name == "d":
            return str(int(random.integers(rank)))
        if name == "e":
            return str(int(random.integers(rank)) - (rank if random.random() < 0.5 else 0))
        if name == "n":
            return str(int(random.integers(1, 4)))
        if name == "o":
            return str(int(random.integers(-1, 2)))
        if name == "c":
            return pick(random, CONSTANTS)
        if name == "t":
            return "torch." + pick(random, CAST_TO)
        assert name == "flag", name
        return pick(random, ("True", "False"))

    def _weight(self, shape: str, first: list[Any]) -> str:
        dims = first[0].shape if first else (3, 3)
        sizes = {"C": dims[1] if len(dims) > 1 else 1, "L": dims[-1] if len(dims) else 1, "K": 5}
        return self.input(tuple(sizes.get(s) or int(s) for s in shape.split(",")), hint="w")

    def add(self, template: str) -> None:
        """Append a statement that PyTorch accepts. Raises `NoCase` where it does not."""
        earlier = set(self.inputs)
        try:
            text = self.line(template)
            lines = [
                s.strip()
                for s in (text if "; " in text or " = " in text else "v = " + text).split("; ")
            ]
            names = {"torch": torch, "F": torch.nn.functional}
            scope = {**names, **self.values}
            fresh = f"v{len(self.lines)}"
            lines = [re.sub(r"\bv\b", fresh, re.sub(r"\bw\b", fresh + "w", s)) for s in lines]
            with torch.no_grad(), warnings.catch_warnings(action="ignore"):
                exec("\n".join(lines), scope)
            value = scope[fresh]
            for written in (value, *(self.values[n] for n in self.inputs)):
                self._require_usable(written)
        except Exception as error:
            for name in set(self.inputs) - earlier:
                del self.inputs[name], self.values[name]
                self.layouts.pop(name, None)
            raise NoCase from error
        self.lines.extend(lines)
        self.values[fresh] = value

    def _require_usable(self, value: Any) -> None:
        if not isinstance(value, torch.Tensor) or not 0 < value.numel() <= MAX_ELEMENTS:
            raise NoCase
        if value.is_complex() or value.dim() > 6:
            raise NoCase
        if value.is_floating_point():
            numbers = value.double()
            if not bool(torch.isfinite(numbers).all()) or float(numbers.abs().max()) > MAX_NUMBER:
                raise NoCase


def draw_program(
    random: np.random.Generator, groups: tuple[str, ...] = ()
) -> tuple[str, HuntedProgram]:
    """The group that most statements come from, and the program. Raises `NoCase`."""
    group = pick(random, groups or tuple(GROUPS))
    drawing = _Drawing(random)
    shape = pick(random, SIZES)
    drawing.input(shape)
    drawing.input(pick(random, (shape, shape[-1:])))
    drawing.input(shape, pick(random, ("int", "bool")), "k")
    count = int(random.integers(MIN_LINES, MAX_LINES + 1))
    done = 0
    for _ in range(ATTEMPTS):
        name = group if random.random() < FROM_THE_GROUP else pick(random, tuple(GROUPS))
        try:
            drawing.add(pick(random, GROUPS[name]))
        except NoCase:
            continue
        done += 1
        if done >= count:
            break
    if done < MIN_LINES:
        raise NoCase
    return group, _finished(drawing, pick(random, (STATIC, *MODES)))


def _finished(drawing: _Drawing, mode: str) -> HuntedProgram:
    """The program that returns what nothing reads, and a few values inside."""
    lines = tuple(drawing.lines)
    results = [n for n in drawing.values if n not in drawing.inputs]
    text = {n: sum(len(re.findall(rf"\b{n}\b", s)) for s in lines) for n in results}
    unread = [n for n in results if text[n] <= 1]
    inside = [n for n in results if n not in unread and drawing.random.random() < 0.3]
    outputs = tuple(n for n in results if n in unread or n in inside) or (results[-1],)
    program = HuntedProgram(drawing.inputs, drawing.layouts, lines, outputs, (), mode)
    arguments = program.tensors(program.inputs)
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        program.function()(*arguments)
    before = program.tensors(program.inputs)
    written = tuple(
        n for n, a, b in zip(program.inputs, arguments, before) if not torch.equal(a, b)
    )
    return dataclasses.replace(program.with_lines(lines, outputs), written=written)
