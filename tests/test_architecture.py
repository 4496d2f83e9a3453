"""The house holds: which room may import which, file sizes, cheap import, nothing of this machine.

`ALLOWED` is DESIGN's import table. A room that is not in it fails, and so does an import that its
row lacks, at any depth of a file: an import hidden in a function counts, and so does one by a text,
as in `import_module("verax.report.plain_text")` or a table of dotted names.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "verax"

BY_MEANING = {"reference", "ops", "ir", "numerics", "records", "base"}
"""What the judge may know of a network: nothing of our compiler."""
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "records": {"base"},
    "numerics": {"base"},
    "ir": {
        *("base", "records", "numerics.error_model"),
        *("numerics.arith_meaning", "numerics.arith_numpy"),  # of which an evaluation names one
    },
    "ops": {"ir", "numerics", "base"},
    "reference": {"ops", "ir", "numerics", "base"},
    "onnx_format": {"ir", "base"},
    "frontends": {
        "onnx_format",
        "ops",
        "ir",
        "numerics.fixed_point",
        "numerics.fixed_point_words",
        "base",
    },
    "export": {
        "onnx_format",
        "ops",
        "ir",
        "numerics.fixed_point",
        "numerics.inverse_error",
        "base",
    },
    "compiler.passes": {"reference", "ops", "ir", "records", "numerics", "base"},
    "compiler.kernels": {"numerics", "ir.dim", "ir.assumptions", "base"},
    "compiler.plan": {
        *("compiler.kernels", "compiler.passes.base"),
        *("ops", "ir", "records", "numerics", "base"),
    },
    "compiler.place": {
        *("compiler.plan", "records"),
        *(
            "compiler.kernels",
            "runtime.program_binary",
            "runtime.open_sizes",
            "runtime.block_files",
            "runtime.weight_blocks",
            "runtime.elf",
            "runtime.gpu.code",
            "runtime.gpu.launches",
            "ops",
            "ir",
            "numerics",
            "base",
        ),
    },
    "compiler.tune": {
        *("compiler.kernels", "compiler.place", "runtime", "records", "numerics", "base"),
    },
    "compiler": {
        *(
            "compiler.passes",
            "compiler.plan",
            "compiler.kernels",
            "compiler.place",
            "compiler.tune",
            "runtime",
        ),
        *("reference", "ops", "ir", "records", "numerics", "base"),
    },
    "runtime": {"records", "ir.dim_forms", "ir.assumptions", "base"},
    "judge.protocol": {"records", "ir", "base.option_groups.deprecation"},
    "judge.inputs": BY_MEANING,
    "judge.decide": BY_MEANING,
    "judge.regions": BY_MEANING | {"judge.decide"},
    "judge.locate": BY_MEANING | {"judge.decide", "judge.regions", "judge.protocol"},
    "judge.explain": BY_MEANING
    | {"judge.decide", "judge.regions", "judge.locate", "judge.protocol"},
    "judge.align": BY_MEANING | {"judge.inputs", "judge.regions"},
    "judge.harness": BY_MEANING
    | {"judge.decide", "judge.regions", "judge.explain", "judge.align", "judge.protocol"},
    "judge": BY_MEANING,
    "runners.engines": {"base", ""},  # processes that are timed hold nothing else; verax is one
    "runners": {
        *("compiler", "runtime", "judge.protocol", "reference", "frontends", "export", "ir"),
        *("formats", "onnx_format", "records", "base"),
    },
    # The rest of a network with a planted mistake is honest float32 (reference), the mistake must
    # be visible (numerics), and it is written into files for other runtimes (export).
    "campaign": {
        *("runners", "judge", "ops", "ir", "records", "base"),
        *("reference", "numerics", "frontends", "export"),
    },
    "repro": {
        *("export", "onnx_format", "judge", "runners", "reference", "records", "ops", "ir", "base"),
    },
    "hunt": {
        "distributed",
        *("api", "loading", "campaign", "repro", "report", "judge", "runners", "reference"),
        *("export", "onnx_format", "frontends.model", "records", "ops", "ir", "base", ""),
    },
    "report": {"records", "base"},
    "bench": {"runners.registry", "runners.engines", "records", "base"},
    "images": {"ir", "base"},
    "formats": {"frontends", "compiler.artifacts.saved_program", "base"},  # readers, by texts
    "distributed": {"base"},
    "replay": {"ir", "records", "base"},
    "evaluation": {
        "distributed",
        *("images", "replay", "judge", "reference", "ir", "numerics", "records", "base"),
    },
    "verified_conversion": {
        *("frontends", "export", "onnx_format", "judge", "runners", "records", "ir", "base"),
    },
    "certified": {"compiler", "judge", "runners", "records", "ir", "base"},
    "compiling": {
        *("loading", "certified", "compiler", "frontends.model", "runners.pytorch.torch_calls"),
        "frontends.deferred_model",
        *("records", "ir", "base"),
    },
    "by_value": {"judge", "runners.passes", "records.bisection", "ir", "base"},
    "evaluating": {
        *("api", "compiling", "distributed", "evaluation", "images", "judge"),
        *(
            "frontends.model",
            "frontends.common.ledger",
            "loading",
            "runners",
            "records",
            "replay",
            "ir",
            "base",
        ),
    },
    "gating": {"api", "compiling", "frontends.model", "judge", "records", "ir", "base"},
    "recording": {"api", "compiling", "loading", "runners", "ir", "base"},
    "generation": {
        *("compiling", "compiler.executable", "loading", "frontends.model", "ops", "ir", "base"),
    },
    "device_tuning": {
        *("api", "compiling", "compiler", "distributed", "loading", "judge.inputs"),
        *("records", "base"),
    },
    "tuning": {"api", "compiling", "compiler", "judge.inputs", "records", "ir", "base"},
    "exchanged": {"compiler", "judge", "runners", "reference", "records", "ir", "base"},
    "torch": {
        *("api", "compiling", "compiler", "frontends", "judge", "runners", "reference"),
        *("records", "ops", "ir", "numerics", "base"),
    },
    "testing.judgement": set(),  # all that a run of pytest which judges nothing imports
    "testing": {
        *("api", "compiling", "formats", "frontends.model", "judge", "report", "runners"),
        *("torch.gradients", "torch.backward", "reference", "records", "ops", "ir", "numerics"),
        "base",
    },
    "pytest_plugin": {"testing", "report", "records", "base"},
    "onnx_backend": {"compiler", "frontends", "onnx_format", "reference", "ir", "base"},
    "loading": {
        "formats",
        *("frontends.model", "frontends.origin", "frontends.deferred_model"),
        *("compiler.artifacts.saved_program", "compiler.artifacts.cache"),
        "base",
    },  # some in name only
    "api": {
        *(
            "loading",
            "compiling",
            "formats",
            "compiler",
            "frontends",
            "judge",
            "runners",
            "reference",
            "records",
        ),
        *(
            "repro",
            "verified_conversion",
            "certified",
            "exchanged",
            "by_value",
            "evaluation",
            "images",
            "ir",
            "base",
        ),
    },
    "cli": {
        *(
            "api",
            "compiling",
            "loading",
            "formats",
            "images",
            "bench",
            "report",
            "compiler",
            "frontends",
            "judge",
        ),
        *("verified_conversion", "evaluation", "evaluating", "tuning", "device_tuning", "hunt"),
        *("gating", "generation", "distributed"),
        *("runners", "reference", "records", "ops", "ir", "base", "campaign", "replay", ""),
    },
    "": {
        *("api", "compiling", "evaluating", "loading", "recording", "tuning", "gating"),
        *("testing", "torch"),
        *("ops", "report", "base"),
    },
}
"""Room -> what it may import; the longest row that fits a module is its row. "" is verax itself."""

MAX_LINES = 500
OPTIONAL = (
    *("onnxruntime", "openvino", "torch", "transformers", "sklearn", "tvm", "litert"),
    *("ray", "pyarrow"),
)
HEAVY = ("numpy", "onnx", "llvmlite", "rich", "typer", "PIL")
IMPORT_SECONDS = 0.5


def modules() -> Iterator[tuple[str, Path]]:
    """Every module below verax as (dotted name without "verax.", file)."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def imports(path: Path) -> tuple[tuple[str, int, bool], ...]:
    """What a file imports: (dotted name, line, whether inside a function)."""
    return tuple(_imports(ast.parse(path.read_text()), path))


def _imports(tree: ast.Module, path: Path) -> Iterator[tuple[str, int, bool]]:
    for node, inside in _statements(tree.body, False):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, inside
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                file = ROOT / "src" / name.replace(".", "/")
                found = file.with_suffix(".py").exists() or file.is_dir()
                yield name if found else str(node.module), node.lineno, inside


def _statements(body: Iterable[ast.AST], inside: bool) -> Iterator[tuple[ast.AST, bool]]:
    """All statements, and whether each is inside a function. An import is never below what is no
    statement, so expressions, most of a tree, are not walked."""
    for node in body:
        yield node, inside
        within_it = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _statements(getattr(node, part, None) or (), within_it)


@cache
def named(path: Path) -> tuple[tuple[str, int], ...]:
    """Modules of ours that a file names in texts, which it may import: (dotted name, line). Of a
    text that is put together, such as f"verax.runners.{name}", the package."""
    source = path.read_text()
    if not re.search(r"[\"']verax\b", source):
        return ()
    return tuple(_named(ast.parse(source)))


def _named(tree: ast.Module) -> Iterator[tuple[str, int]]:
    parts = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        text = node.value.rpartition(".")[0] if id(node) in parts else node.value
        if re.fullmatch(r"verax(\.\w+)+(:\w+)?", text):
            name = _module_of(text.partition(":")[0])
            if name is not None:
                yield name, node.lineno
        elif text == "verax" and _is_loaded(tree, node):
            yield text, node.lineno


def _module_of(name: str) -> str | None:
    """The module that a dotted name is, or has; None where there is none: it names something else,
    such as the format of a record."""
    for module in (name, name.rpartition(".")[0]):
        file = ROOT / "src" / module.replace(".", "/")
        if "." in module and (file.with_suffix(".py").exists() or (file / "__init__.py").exists()):
            return module
    return None


def _is_loaded(tree: ast.Module, text: ast.Constant) -> bool:
    """True for `import_module("verax")`; the name alone stands for much else."""
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and text in n.args)
    return any("import_module" in ast.unparse(call.func) for call in calls)


def edges_of(path: Path) -> Iterator[tuple[str, int]]:
    """Everything that a file imports, by a statement or by a text: (dotted name, line)."""
    yield from ((name, line) for name, line, _ in imports(path))
    yield from named(path)


def within(name: str, room: str) -> bool:
    return name == room or (bool(room) and name.startswith(f"{room}."))


def row_of(module: str) -> str:
    """The longest row that the module falls under."""
    fitting = [room for room in ALLOWED if within(module, room)]
    return max(fitting, key=len) if fitting else "?"


MODULES = dict(modules())


def test_modules_import_only_what_their_room_may() -> None:
    broken = []
    for module, path in MODULES.items():
        room = row_of(module)
        if room not in ALLOWED:
            broken.append(f"verax.{module} belongs to no room of the table")
            continue
        for name, line in edges_of(path):
            target = name.removeprefix("verax").removeprefix(".")
            if name.partition(".")[0] != "verax" or target == room or within(target, room):
                continue
            if not any(within(target, allowed) for allowed in ALLOWED[room]):
                where = f"{path.relative_to(ROOT)}:{line}"
                broken.append(f"{where}: {room or 'verax'} may not import {name}")
    assert not broken, "\n".join(broken)


def test_rooms_form_no_circle() -> None:
    edges: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        targets = edges.setdefault(row_of(module), set())
        for name, _ in edges_of(path):
            if name.partition(".")[0] == "verax":
                targets.add(row_of(name.removeprefix("verax").removeprefix(".")))
    state: dict[str, int] = {}

    def visit(room: str, trail: list[str]) -> None:
        assert state.get(room) != 1, f"circle: {' -> '.join([*trail, room])}"
        if room in state:
            return
        state[room] = 1
        for target in sorted(edges.get(room, set()) - {room, ""}):
            visit(target, [*trail, room])
        state[room] = 2

    for room in sorted(edges):
        visit(room, [])


def test_files_form_no_circle() -> None:
    """Imports for the sake of types and by texts count. Whoever loads `verax` itself by a text uses
    it from outside, as any program does."""
    order = TopologicalSorter[str]()
    for module, path in MODULES.items():
        targets = (
            name.removeprefix("verax").removeprefix(".")
            for name, _ in edges_of(path)
            if name != "verax"
        )
        order.add(module, *(t for t in targets if t in MODULES and t != module))
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_imports_by_texts_are_seen() -> None:
    tree = ast.parse(
        'import_module("verax.report.plain_text").text_of(x)\n'
        'TABLE = {"load": "verax.loading", "onnx": "verax.frontends.onnx:load_onnx"}\n'
        'f"verax.runners.{name}"\n'
        'import_module("verax")\n'
        'SCHEMA = "verax.compile/1", "verax.no_module", "verax"\n'
    )
    assert sorted(set(_named(tree))) == [
        ("verax", 4),
        ("verax.frontends.onnx", 2),
        ("verax.loading", 2),
        ("verax.report.plain_text", 1),
        ("verax.runners", 3),
    ]


def test_no_import_hides_in_a_function() -> None:
    hidden = [
        f"{module}:{line}: {name}"
        for module, path in MODULES.items()
        for name, line, inside in imports(path)
        if inside and name.partition(".")[0] not in OPTIONAL
    ]
    assert not hidden, "\n".join(hidden)


def test_files_are_short_and_say_what_they_are_for() -> None:
    texts = {path.relative_to(ROOT): path.read_text() for path in MODULES.values()}
    long = [str(path) for path, text in texts.items() if len(text.splitlines()) > MAX_LINES]
    mute = [str(p) for p, text in texts.items() if not ast.get_docstring(ast.parse(text))]
    assert not long, f"these want to be two files each: {long}"
    assert not mute, f"these do not say what they are for: {mute}"


def in_fresh_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout


def test_importing_verax_loads_nothing_heavy() -> None:
    loaded = json.loads(
        in_fresh_python("import verax, sys, json; print(json.dumps(sorted(sys.modules)))")
    )
    tops = {name.partition(".")[0] for name in loaded}
    assert not tops & {*OPTIONAL, *HEAVY}


def test_using_the_python_interface_loads_no_optional_package() -> None:
    loaded = json.loads(
        in_fresh_python(
            "import verax, sys, json; verax.load; verax.check; print(json.dumps(list(sys.modules)))"
        )
    )
    assert not {name.partition(".")[0] for name in loaded} & set(OPTIONAL)


def test_importing_verax_is_quick() -> None:
    # Processor time: what other processes do to the clock is not the import's doing.
    code = "import time; t = time.process_time(); import verax; print(time.process_time() - t)"
    assert min(float(in_fresh_python(code)) for _ in range(3)) < IMPORT_SECONDS


def test_no_file_names_a_path_of_a_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    if not any(listed):
        pytest.skip("not a git checkout")
    pattern = re.compile(r"(?<![\w.])/(?:home|root|work|Users|mnt|workspace)/[\w.-]+")
    for name in listed:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".json", "") and path.is_file():
            text = path.read_text(errors="ignore")
            found = pattern.search(text)
            assert found is None, f"{name} names the path {found and found.group()}"
