"""Histories as text: what is written can be read again, and long ones stay short."""

import pytest
from hypothesis import given, settings, strategies as st

from fp16sim.testing.histories import every, expanded, shown

PARTS = st.text(".on|", max_size=5).flatmap(lambda part: st.integers(1, 30).map(part.__mul__))


@pytest.mark.parametrize(
    ("text", "history"),
    [
        ("", ""),
        ("o.o.o.o.", "o.o.o.o."),
        ("oo.oo.oo.", "oo.oo.oo."),
        ("o{10}.", "o" * 10 + "."),
        ("(.o){618}", ".o" * 618),
        ("n(o..){4}o...", "n" + "o.." * 4 + "o..."),
        ("o{27}(.{20}o){5}", "o" * 27 + ("." * 20 + "o") * 5),
        ("(|.){6}", "|." * 6),
        ("o{27}.o{27}.", ("o" * 27 + ".") * 2),
    ],
)
def test_a_history_is_written_with_its_long_runs_and_groups_once(text, history):
    assert shown(history) == text
    assert expanded(text) == history


def test_all_short_ones_are_written_as_they_are():
    for history in every(".on|", 4):
        assert shown(history) == expanded(history) == history


@settings(derandomize=True, database=None, deadline=None, max_examples=300)
@given(st.lists(PARTS, max_size=6).map("".join))
def test_what_is_written_is_read_again_and_no_longer(history):
    text = shown(history)
    assert expanded(text) == history
    assert len(text) <= len(history)


def test_groups_may_stand_within_groups_and_stand_once():
    assert expanded("((.o){2}n){2}(o)|") == ".o.on.o.ono|"


@pytest.mark.parametrize(
    "text", ["(", ")", "(.o", ".o)", "(.o)}", "(.){3", "{3}", "(.o){x}", "o{}", "(.o){-1}"]
)
def test_what_is_no_history_is_refused(text):
    with pytest.raises(ValueError, match=r"braces hold the length of the run .* or how often"):
        expanded(text)


@pytest.mark.parametrize("text", ["o{1000001}", "(.o){500001}", "((.){1000}){1001}", "(.o){9999999999999}"])
def test_so_many_steps_are_refused_before_they_are_written(text):
    with pytest.raises(ValueError, match="at most 1000000"):
        expanded(text)
    assert len(expanded("(.o){500000}")) == 1_000_000
