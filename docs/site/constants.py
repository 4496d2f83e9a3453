"""Constants of the code in the pages, where people read them on a forge as well as on the site.

A page holds a value between two comments, of which the first says where it comes from:

    T <= <!--= {{ statistics.ROUNDING_T }} -->1.25<!--/-->

`python -m docs.site.constants` writes today's values into all pages; a test holds that no page
tells an old one. `{{ table statistics.A B C }}` makes a table of several constants with the words
that the code has for them, `{{ table statistics }}` of all of the module.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path

PAGES = Path(__file__).parents[1]
MODULES = {
    "statistics": "verax.numerics.statistics",
    "error_model": "verax.numerics.error_model",
    "widen": "verax.judge.locate.enlarge",
    "check": "verax.judge.check",
    "networks": "verax.judge.align.networks",
    "explain": "verax.judge.explain.node",
    "vx": "verax.runtime.vx",
    "image": "verax.runtime.program_binary",
    "header_values": "verax.runtime.header_values",
    "signature": "verax.runtime.signature",
    "target": "verax.compiler.kernels.target",
}
"""What pages call a module, and which one it is."""
TOKEN = re.compile(r"\{\{ *(table +)?([a-z_]+)((?:\.[A-Z0-9_]+)?(?: +[A-Z0-9_]+)*) *\}\}")
HELD = re.compile(r"<!--= (?P<text>.*?) -->.*?<!--/-->", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
FENCE = re.compile(r"^([ ]*```.*?^[ ]*```)$", re.DOTALL | re.MULTILINE)


def updated(markdown: str) -> str:
    """The page with today's value between every pair of comments, outside of code blocks.

    Raises `ValueError`, `AttributeError` or `KeyError` for a comment that names nothing.
    """
    return _outside_of_code(markdown, lambda text: HELD.sub(_held, text))


def without_comments(markdown: str) -> str:
    """The page with today's values and without comments, outside of code blocks."""
    shown = lambda text: COMMENT.sub("", HELD.sub(lambda m: _filled(m["text"]), text))  # noqa: E731
    return _outside_of_code(markdown, shown)


def _outside_of_code(markdown: str, change: Callable[[str], str]) -> str:
    parts = FENCE.split(markdown)
    return "".join(p if i % 2 else change(p) for i, p in enumerate(parts))


def _held(match: re.Match[str]) -> str:
    value = _filled(match["text"])
    if value.startswith("|"):  # a table has lines of its own
        value = f"\n\n{value}\n\n"
    return f"<!--= {match['text']} -->{value}<!--/-->"


def _filled(text: str) -> str:
    """The text with every `{{ ... }}` replaced."""
    found = TOKEN.sub(_replacement, text)
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


def main() -> None:
    """Write today's values into every page."""
    for page in sorted(PAGES.rglob("*.md")):
        before = page.read_text()
        if (after := updated(before)) != before:
            page.write_text(after)
            print(page.relative_to(PAGES))


if __name__ == "__main__":
    main()
