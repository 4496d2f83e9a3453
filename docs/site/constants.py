"""Constants of the code, for the pages: `{{ statistics.ROUNDING_T }}` becomes its value.

A page names a constant, and its value is read from the code whenever the site is built, so that no
page can tell an old one. `{{ table statistics.A B C }}` makes a table of several with the words
that the code has for them, `{{ table statistics }}` of all of the module.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import re

MODULES = {
    "statistics": "verax.numerics.statistics",
    "error_model": "verax.numerics.error_model",
    "widen": "verax.judge.locate.widen",
    "check": "verax.judge.check",
    "networks": "verax.judge.align.networks",
    "explain": "verax.judge.explain.node",
    "vx": "verax.runtime.vx",
    "image": "verax.runtime.image",
    "header": "verax.runtime.header",
    "signature": "verax.runtime.signature",
    "target": "verax.compiler.kernels.target",
}
"""What pages call a module, and which one it is."""
TOKEN = re.compile(r"\{\{ *(table +)?([a-z_]+)((?:\.[A-Z0-9_]+)?(?: +[A-Z0-9_]+)*) *\}\}")
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
FENCE = re.compile(r"^(```.*?^```)$", re.DOTALL | re.MULTILINE)


def filled(markdown: str) -> str:
    """The page without comments and with every `{{ ... }}` replaced, outside of code blocks.

    Raises `ValueError`, `AttributeError` or `KeyError` for one that names nothing.
    """
    parts = FENCE.split(markdown)
    return "".join(p if i % 2 else _filled(p) for i, p in enumerate(parts))


def _filled(text: str) -> str:
    found = TOKEN.sub(_replacement, COMMENT.sub("", text))
    if "{{" in found:
        raise ValueError(f"not understood: {found[found.index('{{') :][:60]}")
    return found


def _replacement(match: re.Match[str]) -> str:
    table, module, rest = match.groups()
    names = rest.replace(".", " ").split()
    if table:
        return as_table(module, names)
    if len(names) != 1:
        raise ValueError(f"not understood: {match.group()}")
    (name,) = names
    return shown(value(module, name))


def value(module: str, name: str) -> object:
    """The constant `name` of a module of `MODULES`."""
    return getattr(importlib.import_module(MODULES[module]), name)


def shown(found: object) -> str:
    """A value as people write it: powers of two as such."""
    if isinstance(found, bytes):
        return found.decode("ascii").replace("\0", r"\0")
    if isinstance(found, int | float) and not isinstance(found, bool) and found > 0:
        exponent = math.log2(found)
        if exponent == int(exponent) and (exponent <= -4 or exponent >= 13):
            return f"2^{int(exponent)}"
        return f"{found:g}" if isinstance(found, float) else str(found)
    if isinstance(found, dict):
        return ", ".join(f"{shown(k)}: {shown(v)}" for k, v in found.items())
    if isinstance(found, tuple):
        return ", ".join(map(shown, found))
    return str(found)


def documented(module: str) -> dict[str, str]:
    """The constants of a module and what it says of each, in its order."""
    tree = ast.parse(inspect.getsource(importlib.import_module(MODULES[module])))
    found: dict[str, str] = {}
    for node, after in zip(tree.body, [*tree.body[1:], ast.Pass()]):
        said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        words = " ".join(str(after.value.value).split()) if said else ""  # type: ignore[attr-defined]
        if isinstance(node, ast.Assign):
            names = [n.id for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name)]
            found |= {n: words for n in names if n.isupper()}
    return found


def as_table(module: str, names: list[str]) -> str:
    """A Markdown table of constants."""
    known = documented(module)
    lines = ["| constant | value | what it is |", "|---|---|---|"]
    for name in names or known:
        words = known[name].replace("|", r"\|").replace("*", r"\*")
        lines.append(f"| `{name}` | {shown(value(module, name))} | {words} |")
    return "\n".join(lines)
