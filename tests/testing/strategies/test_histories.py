"""overflow_histories(): coverage, shrinking, options."""

from __future__ import annotations

from itertools import groupby

import pytest
from fp16sim_draws import draws, rare, shares, smallest

import fp16sim as fs
from fp16sim.testing.strategies import overflow_histories


def runs(history: str) -> list[int]:
    return [len(list(run)) for _, run in groupby(history)]


CLASSES = {
    "one run": lambda h: len(runs(h)) == 1,
    "several runs": lambda h: len(runs(h)) > 2,
    "finite steps": lambda h: "." in h,
    "overflows": lambda h: "o" in h,
    "NaNs": lambda h: "n" in h,
    "no overflow": lambda h: h and not set(h) & set("on"),
    "nothing but overflows": lambda h: h and set(h) <= set("on"),
    "overflow, finite, overflow": lambda h: any(f"o{'.' * k}o" in h for k in range(1, 13)),
    "overflows in a row": lambda h: "oo" in h,
    "a run longer than 3": lambda h: max(runs(h), default=0) > 3,
}


def test_each_class_is_drawn_in_one_of_twenty() -> None:
    drawn = draws(overflow_histories(), 1000)
    assert rare(shares(drawn, CLASSES)) == {}
    assert max(map(len, drawn)) <= 8 * 12
    assert {letter for h in drawn for letter in h} == set(".on")


def test_given_lengths_are_drawn_in_one_of_twenty_each() -> None:
    lengths = {".": (19, 20, 21), "o": (16, 17)}
    drawn = draws(overflow_histories(lengths=lengths), 1000)
    classes = {
        f"a run of {n} {letter}": lambda h, letter=letter, n=n: any(
            k == letter and len(list(run)) == n for k, run in groupby(h)
        )
        for letter, own in lengths.items()
        for n in own
    }
    assert rare(shares(drawn, classes)) == {}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda h: True, ""),
        (lambda h: h, "."),
        (lambda h: "o" in h, "o"),
        (lambda h: set(h) & set("on"), "o"),
        (lambda h: "o.o" in h, "o.o"),
        (lambda h: h.count("o") >= 5, "ooooo"),
        (lambda h: "n" in h and "." in h.split("n")[-1], "n."),
        (lambda h: fs.scaling.simulate("torch", h).final_scale[0] <= 2.0**12, "oooo"),
        (lambda h: fs.scaling.simulate("torch,growth_interval=3", h).final_scale[0] > 2.0**16, "..."),
    ],
)
def test_a_failing_history_is_the_shortest(condition, expected) -> None:
    found = smallest(overflow_histories(), condition)
    assert len(found) <= len(expected)
    assert not expected or condition(expected)
    if condition(""):
        assert found == ""
    assert sorted(found) == sorted(expected)


def test_options() -> None:
    assert all(set(h) <= set(".|") for h in draws(overflow_histories(letters=".|"), 200))
    assert all(len(h) <= 7 for h in draws(overflow_histories(most_steps=7), 200))
    assert all(len(h) <= 6 for h in draws(overflow_histories(most_runs=2, longest_run=3), 200))
    assert max(len(h) for h in draws(overflow_histories(lengths={".": (2000,)}), 200)) >= 2000


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"letters": ""}, ValueError, "letters='': one or more of"),
        ({"letters": ".x"}, ValueError, "letters='.x': one or more of"),
        ({"letters": None}, TypeError, "letters=None"),
        ({"most_runs": 0}, ValueError, "most_runs=0: pass 1 or more"),
        ({"longest_run": 1.5}, TypeError, "longest_run=1.5: it is counted"),
        ({"most_steps": -1}, ValueError, "most_steps=-1"),
        ({"lengths": {"x": (3,)}}, ValueError, "lengths has 'x', which is no letter"),
        ({"lengths": {".": (0,)}}, ValueError, r"lengths\['\.'\]=0"),
        (
            {"lengths": [5]},
            TypeError,
            r"lengths=\[5\]: pass a mapping of letter to lengths, such as \{'\.': \(",
        ),
        ({"lengths": {".": 5}}, TypeError, r"lengths\['\.'\]=5: pass a list of lengths, such as \[5\]"),
        ({"lengths": {".": "5"}}, TypeError, r"lengths\['\.'\]='5': pass a list of lengths"),
    ],
)
def test_impossible_options_are_refused_before_a_draw(options, error, message) -> None:
    with pytest.raises(error, match=message):
        overflow_histories(**options)
