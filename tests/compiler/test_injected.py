"""A pass from a user's file: where it runs, and what is said of a file or a pass that is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.test_every_pass import network, turned
from verax.base.errors import UsageError
from verax.base.option_groups.settings import LEVELS, Settings
from verax.compiler.compile import compile
from verax.compiler.pipeline.levels import PIPELINE, passes_for
from verax.compiler.pipeline.user_passes import passes_of

HEAD = """
from __future__ import annotations
from dataclasses import dataclass
from verax.compiler.passes.base import Pass, PassClass
from verax.ir.rewrite import Rewriter
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Max, Neg

@dataclass
class Notes:
    count: int = 0

def own(graph, limit=None):
    '''Turn Relu into a maximum.'''
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        rewriter.keep(node)
    BODY
"""
GOOD = HEAD.replace("BODY", "return rewriter.finish()")


def file(folder: Path, text: str, line: str = "PASS = Pass(own, PassClass.exact)") -> str:
    path = folder / "own_pass.py"
    path.write_text(f"{text}\n{line}\n")
    return str(path)


UNASKED = [p.name for p in PIPELINE if not p.allowance]


def order(path: str, level: int = LEVELS[-1]) -> list[str]:
    return [p.name for p in passes_for(Settings(level, inject=(path,)))]


def test_it_runs_behind_the_passes_that_it_names(tmp_path: Path) -> None:
    after = "PASS = Pass(own, PassClass.exact, after=('share_constants', 'fold_constants'))"
    found = order(file(tmp_path, GOOD, after))
    assert found[found.index("own") - 1] == "share_constants"
    assert [n for n in found if n != "own"] == UNASKED


def test_without_such_a_name_it_is_the_first(tmp_path: Path) -> None:
    assert order(file(tmp_path, GOOD))[0] == "own"


def test_it_takes_the_place_of_a_pass_of_its_name(tmp_path: Path) -> None:
    path = file(tmp_path, GOOD.replace("own", "fold_pads"), "P = Pass(fold_pads, PassClass.exact)")
    assert order(path) == UNASKED
    (mine,) = passes_of(path)
    assert mine in passes_for(Settings(1, inject=(path,)))


def test_it_is_disabled_and_chosen_by_name_as_any_other(tmp_path: Path) -> None:
    path = file(tmp_path, GOOD)
    assert "own" not in [p.name for p in passes_for(Settings(1, inject=(path,), disable=("own",)))]
    only = passes_for(Settings(1, inject=(path,), passes=("own", "fuse_elementwise")))
    assert [p.name for p in only] == ["own"]


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = file(tmp_path, GOOD)
    first = passes_of(path)
    assert passes_of(path) is first
    assert passes_of(file(tmp_path, GOOD.replace("maximum", "Max"))) is not first


def test_only_chosen_passes_and_decisions_run() -> None:
    graph = network(turned)
    inputs = {"x": np.random.default_rng(3).standard_normal((2, 3, 9, 7)).astype(np.float32)}
    some = Settings(1, threads=1, passes=("cancel_transposes", "fuse_elementwise"))
    exe = compile(graph, some)
    assert {n.partition(":")[0] for n in exe.trace.notes} == {*(some.passes or ())}
    assert exe.run(inputs)
    assert compile(graph, Settings(1, threads=1, passes=())).trace.notes == ()


@pytest.mark.parametrize(
    ("text", "line", "words", "place"),
    [
        (GOOD, "", "defines no Pass", ""),
        ("def own(:", "", "SyntaxError", ":1"),
        ("import no_such_package", "", "ModuleNotFoundError", ":1"),
        ("raise SystemExit(0)", "", "SystemExit", ":1"),
        ("x = 1 / 0", "", "ZeroDivisionError", ":1"),
        ("\0", "", "null bytes", ""),
        (GOOD.replace("'''Turn Relu into a maximum.'''", ""), None, "has no docstring", ""),
        (GOOD, "P = Pass(own, PassClass.exact, after=('fold_pad',))", "no such pass", ""),
        (GOOD, "P = Pass(own, PassClass.reassociates)", "does not run at O1", ""),
        (
            "from verax.compiler.pipeline.levels import PIPELINE as P\nq = P[0]",
            "",
            "defines no Pass",
            "",
        ),
    ],
)
def test_a_file_that_is_no_pass_is_refused_in_words(
    tmp_path: Path, text: str, line: str | None, words: str, place: str
) -> None:
    path = file(tmp_path, text) if line is None else file(tmp_path, text, line)
    with pytest.raises(UsageError, match=words) as caught:
        passes_for(Settings(1, inject=(path,)))
    if "does not run" not in words:
        assert f"{path}{place}" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return None", "returns a NoneType"),
        ("return graph", "returns a Graph"),
        ("return graph, 3", "returns a tuple"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("return rewriter.values['nothing']", "KeyError: 'nothing'"),
        ("g, t = rewriter.finish(); import dataclasses as d; "
         "return d.replace(g, nodes=g.nodes[1:]), t", "makes a graph that is none"),
    ],
)  # fmt: skip
def test_a_pass_that_fails_is_told_in_words(tmp_path: Path, body: str, words: str) -> None:
    path = file(tmp_path, HEAD.replace("BODY", body))
    with pytest.raises(UsageError, match=words) as caught:
        compile(network(turned), Settings(1, threads=1, inject=(path,)))
    assert path in str(caught.value)


def test_a_pass_that_does_not_stop_is_told(tmp_path: Path) -> None:
    body = "[rewriter.record(n, 'own') for n in graph.nodes[:2]]; return rewriter.finish()"
    path = file(tmp_path, HEAD.replace("BODY", body))
    compile(network(turned), Settings(1, threads=1, inject=(path,)))
    with pytest.raises(UsageError, match="2 rewrites where 1 are allowed"):
        compile(network(turned), Settings(1, threads=1, inject=(path,), stop_after=1))


def test_what_it_notes_is_under_its_name(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        HEAD.replace("BODY", "rewriter.record(graph.nodes[0], 'a'); return rewriter.finish()"),
    )
    exe = compile(network(turned), Settings(1, threads=1, inject=(path,)))
    first = exe.trace.records[0]
    assert first.pass_name == "own" and str(first).startswith("own: a: node ")
    assert first.id.startswith("own@")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.py", tmp_path):
        with pytest.raises(UsageError, match=r"cannot read the file|not a regular file"):
            passes_for(Settings(1, inject=(str(path),)))
