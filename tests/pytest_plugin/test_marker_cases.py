"""Cases of the marker `verax`: every seed with every set of shapes, under ids that tell them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.pytest_plugin.marker import MarkedCase, MarkerError, cases_of

WIDE, TALL = {"a": (3, 50), "b": (50, 7)}, {"a": (41, 2), "b": (2, 5)}


def cases(**keywords: Any) -> dict[str, MarkedCase]:
    return cases_of([keywords], [()])


@given(
    st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=4, unique=True),
    st.dictionaries(
        st.sampled_from(["wide", "tall", "x-y"]), st.sampled_from([WIDE, TALL]), min_size=1
    ),
)
def test_every_seed_meets_every_set_of_shapes(seeds: list[int], shapes: dict[str, Any]) -> None:
    result = cases(seeds=seeds, shapes=shapes)
    assert set(result) == {f"{name}-seed{seed}" for name in shapes for seed in seeds}
    pairs = [(case.seed, case.shapes) for case in result.values()]
    assert all((seed, shape) in pairs for seed in seeds for shape in shapes.values())


@pytest.mark.parametrize(
    ("shapes", "ids"),
    [
        (WIDE, ["a=3x50,b=50x7"]),
        ({"n": 12}, ["n=12"]),
        ([WIDE, TALL], ["a=3x50,b=50x7", "a=41x2,b=2x5"]),
        ([((3, 5), (5, 7)), ((2, 4), (4, 9))], ["3x5,5x7", "2x4,4x9"]),
        ({"odd": ((3, 5), (5, 7)), "scalar": {"x": ()}}, ["odd", "scalar"]),
    ],
)
def test_ids_are_names_or_the_shapes_themselves(shapes: Any, ids: list[str]) -> None:
    assert list(cases(shapes=shapes)) == ids


def test_the_closest_marker_decides_each_keyword_for_itself() -> None:
    method, module = {"seeds": [4]}, {"seeds": [1, 2], "shapes": WIDE}
    assert list(cases_of([method, module], [(), ()])) == ["a=3x50,b=50x7-seed4"]


@pytest.mark.parametrize(
    "keywords",
    [
        {"seeds": []},
        {"seeds": [True]},
        {"seeds": [1 << 64]},
        {"seeds": ["1"]},
        {"shapes": {}},
        {"shapes": []},
        {"shapes": "3x5"},
        {"shapes": {"a": (3, -5)}},
        {"shapes": {"a": (3, 5.0)}},
        {"shapes": {"wide": WIDE, "tall": "x"}},
        {"shapes": [WIDE, dict(WIDE)]},
        {"shapes": [WIDE, None]},
        {"seeds": [1], "dtypes": ["float32"]},
    ],
    ids=str,
)
def test_what_is_no_case_is_refused_with_the_next_step(keywords: dict[str, Any]) -> None:
    with pytest.raises(MarkerError, match=r"write seeds="):
        cases(**keywords)
