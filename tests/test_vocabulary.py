"""The code speaks in the field's words: names, class names, spelling, and what docstrings point at.

`vocabulary.toml` lists banned names with what to say instead. Rooms that are not done yet have a
count there, which must be true: who renames lowers it, and nobody raises it.
`python -m tests.test_vocabulary` prints the counts as they are.
"""

from __future__ import annotations

import ast
import gc
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "verax"
VOCABULARY = tomllib.loads((ROOT / "tests" / "vocabulary.toml").read_text(encoding="utf-8"))
OTHERS = ("keras", "onnx", "onnxruntime", "torch")
"""Packages of others that a room of ours is called after."""
SPLIT_ROOMS = ("compiler", "frontends", "judge")
"""Rooms that are counted by their folders."""

Scope = tuple[str, ...]


def test_no_banned_name_is_bound() -> None:
    assert _banned_counts() == VOCABULARY["not_yet_done"], _advice("not_yet_done")


def test_no_class_name_stands_in_two_files() -> None:
    assert _repeated_classes() == VOCABULARY["classes_in_several_files"], _advice(
        "classes_in_several_files"
    )


def test_spelling_is_american() -> None:
    assert _british_counts() == VOCABULARY["british"], _advice("british")


def test_dotted_names_in_docstrings_exist() -> None:
    assert list(_stale_references()) == []


def test_bindings_of_every_kind_are_seen() -> None:
    code = """
import os as found
def kept(given, /, made=1, *known, asked, **told):
    where: int = 1
    for chosen, (shown, *wanted) in []: pass
    with open() as held: self.joined = 1
    lambda turned: turned
    [part for part in parts]
    if (whole := 1): pass
    try: pass
    except E as rest: pass
    match 1:
        case [why, *most]: pass
        case {**least}: pass
class settled:
    few = 1
"""
    names = {name for _, name in _bindings(ast.parse(code))}
    assert names >= set(
        [
            *("found", "kept", "given", "made", "known", "asked", "told", "where", "chosen"),
            *("shown", "wanted", "held", "joined", "turned", "part", "whole", "rest", "why"),
            *("most", "least", "settled", "few"),
        ]
    )
    assert "parts" not in names and _is_banned("_found", ()) and not _is_banned("finder", ())
    assert _is_banned("other", ("f",)) and not _is_banned("other", ("A", "__eq__"))


def _advice(table: str) -> str:
    return (
        f"[{table}] of tests/vocabulary.toml is not what the tree says. More than stated: choose "
        "names by [names]. Fewer: thank you; `python -m tests.test_vocabulary` prints the table."
    )


@cache
def _files() -> dict[Path, ast.Module]:
    gc.disable()  # millions of nodes, and all of them stay
    try:
        return {
            path: ast.parse(path.read_text(encoding="utf-8"))
            for path in sorted(SOURCE.rglob("*.py"))
        }
    finally:
        gc.freeze()
        gc.enable()


def _room(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts[:-1]
    return "/".join(parts[: 2 if parts and parts[0] in SPLIT_ROOMS else 1]) or "."


@cache
def _bindings(tree: ast.Module) -> frozenset[tuple[Scope, str]]:
    """(scope, name) of every name that a file binds, attributes too."""
    bound: set[tuple[Scope, str]] = set()

    def visit(node: ast.AST, scope: Scope) -> None:
        inner = scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add((scope, node.name))
            inner = (*scope, node.name)
        elif isinstance(node, ast.Lambda):
            inner = (*scope, "<lambda>")
        elif isinstance(node, ast.arg):
            bound.add((scope, node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add((scope, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            bound.add((scope, node.attr))
        elif isinstance(node, ast.alias) and node.asname:
            bound.add((scope, node.asname))
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add((scope, node.name))
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add((scope, node.rest))
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.Constant | ast.expr_context | ast.operator):
                visit(child, inner)

    visit(tree, ())
    return frozenset(bound)


def _is_banned(name: str, scope: Scope) -> bool:
    """`other` is what Python calls the right operand of an operator's method."""
    operator = bool(scope) and scope[-1].startswith("__") and scope[-1] != "__init__"
    bare = name.strip("_")
    return bare in VOCABULARY["names"] and not (operator and bare == "other")


def _banned_counts() -> dict[str, int]:
    """Banned names by room: each once for every scope that binds it."""
    counts: Counter[str] = Counter()
    for path, tree in _files().items():
        allowed = VOCABULARY["allowed"].get(path.relative_to(SOURCE).as_posix(), [])
        names = {(s, n) for s, n in _bindings(tree) if n not in allowed and _is_banned(n, s)}
        counts[_room(path)] += len(names)
    return {room: n for room, n in sorted(counts.items()) if n}


def _repeated_classes() -> dict[str, int]:
    """Names of classes that stand at the top level of several files, and of how many."""
    counts = Counter(
        name
        for tree in _files().values()
        for name in {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    )
    return {name: n for name, n in sorted(counts.items()) if n > 1}


@cache
def _docstrings(tree: ast.Module) -> tuple[str, ...]:
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return tuple(
        node.value.value
        for node in statements
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def _british_counts() -> dict[str, int]:
    """Words of British spelling in bound names and docstrings, by room."""
    pattern = re.compile("|".join(VOCABULARY["spelling"]), re.IGNORECASE)
    counts: Counter[str] = Counter()
    for path, tree in _files().items():
        texts = [*(n for _, n in _bindings(tree)), *_docstrings(tree)]
        counts[_room(path)] += sum(len(pattern.findall(text)) for text in texts)
    return {room: n for room, n in sorted(counts.items()) if n}


def _stale_references() -> Iterator[str]:
    """Dotted names in docstrings whose first part is a module of ours, but that lead nowhere."""
    modules: dict[str, list[set[str]]] = defaultdict(list)
    packages: dict[str, set[str]] = {}
    for path, tree in _files().items():
        dotted = ".".join(("verax", *path.relative_to(SOURCE).with_suffix("").parts))
        dotted = dotted.removesuffix(".__init__")
        members = {name for _, name in _bindings(tree)} | _imported(tree)
        for start in range(dotted.count(".") + 1):
            modules[dotted.split(".", start)[-1]].append(members)
        package, _, last = dotted.rpartition(".")
        packages.setdefault(package, set()).add(last)
    for package, children in packages.items():
        for start in range(package.count(".") + 1):
            modules[package.split(".", start)[-1]].append(children)
    for path, tree in _files().items():
        for text in _docstrings(tree):
            for name in re.findall(r"`((?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*)(?:\(\))?`", text):
                if not _resolves(name, modules):
                    yield f"{path.relative_to(SOURCE)}: `{name}`"


def _resolves(name: str, modules: dict[str, list[set[str]]]) -> bool:
    """True for names of others, whose first part is no module of ours."""
    parts = name.split(".")
    if parts[0] not in modules or parts[0] in OTHERS or name in modules:
        return True
    for end in range(len(parts) - 1, 0, -1):
        if ".".join(parts[:end]) in modules:
            members = modules[".".join(parts[:end])]
            return any(parts[end] in names for names in members)
    return False


def _imported(tree: ast.Module) -> set[str]:
    imports = (n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom))
    return {(a.asname or a.name).split(".")[0] for n in imports for a in n.names}


def _print_table(title: str, table: dict[str, int]) -> None:
    print(f"\n[{title}]")
    for key, count in table.items():
        print(f'"{key}" = {count}')


if __name__ == "__main__":
    _print_table("not_yet_done", _banned_counts())
    _print_table("british", _british_counts())
    _print_table("classes_in_several_files", _repeated_classes())
