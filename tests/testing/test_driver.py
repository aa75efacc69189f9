"""Names of groups that are none are refused before anything is made, wherever groups are taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fp16sim_lookalikes import DeepSpeedLike, FlaxLike, JmpLike, KerasLike, TorchLike

from fp16sim.scaling import make
from fp16sim.testing import ScalerMachine, adapt
from fp16sim.testing.adapters import Chain
from fp16sim.testing.bookkeeping import Books
from fp16sim.testing.case import Case
from fp16sim.testing.driver import as_groups

BAD: list[tuple[Any, type[Exception], str]] = [
    ((), ValueError, "groups=(): there is one group at least; pass ('all',), or leave it out"),
    ("ab", TypeError, "groups='ab': names of groups come in a tuple; pass ('ab',) for one group, or ('a', 'b')"),
    ("critic", TypeError, "groups='critic': names of groups come in a tuple; pass ('critic',) for one group"),
    ("", TypeError, "groups='': names of groups come in a tuple; pass ('all',) for one group"),
    (("a", "b", "a"), ValueError, "groups=('a', 'b', 'a'): 'a' comes twice, and names are told apart; pass ('a', 'b')"),
    ((0, 1), TypeError, "groups=(0, 1): the name of a group is text; pass '0' for 0"),
    (("a", ""), ValueError, "groups=('a', ''): the name of a group has a letter; pass 'all', for example"),
    (2, TypeError, "groups=2: names of groups come in a tuple; pass ('generator', 'critic'), for example"),
    (None, TypeError, "groups=None: names of groups come in a tuple; pass ('generator', 'critic'), for example"),
]  # fmt: skip


@pytest.mark.parametrize(("groups", "kind", "message"), BAD, ids=[repr(each[0]) for each in BAD])
@pytest.mark.parametrize(
    "taken",
    [
        as_groups,
        lambda groups: adapt(make("robust"), groups),
        lambda groups: adapt(3.0, groups),  # what is no scaler is looked at after that
        lambda groups: ScalerMachine.of(lambda: make("robust"), groups=groups),
        lambda groups: Case(lambda: make("robust")).walk(groups),
        lambda groups: Books(Case(lambda: make("robust")), groups),
    ],
    ids=["as_groups", "adapt", "adapt no scaler", "ScalerMachine.of", "Case.walk", "Books"],
)
def test_what_names_no_groups_is_refused(
    taken: Callable[[Any], Any], groups: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=re.escape(message) + "$"):
        taken(groups)


@pytest.mark.parametrize("groups", [("a", "b"), ["a", "b"], dict.fromkeys("ab")])
def test_names_come_in_what_can_be_walked_through(groups: Any) -> None:
    assert as_groups(groups) == ("a", "b")
    assert adapt(make("robust"), groups).groups == ("a", "b")
    assert ScalerMachine.of(lambda: make("robust"), groups=groups).optimizers == ("a", "b")


MAKERS = [
    lambda: make("robust"), TorchLike, KerasLike, DeepSpeedLike, JmpLike, FlaxLike, lambda: Chain(DeepSpeedLike)
]  # fmt: skip


@pytest.mark.parametrize("make_one", MAKERS)
def test_what_is_no_step_and_no_group_is_said(make_one: Callable[[], Any]) -> None:
    for letter in ("x", "", "oo", ".o", 3):
        with pytest.raises(
            ValueError, match=re.escape(f"a step {letter!r}: one letter each, '.' for a finite one")
        ):
            adapt(make_one()).tell(letter)
    driver = adapt(make_one(), ("generator", "critic"))
    for call in (
        lambda: driver.backward({"critik": np.array([1.0])}),
        lambda: driver.step("critik"),
    ):
        with pytest.raises(ValueError, match=r"there is no group 'critik': did you mean 'critic'\?"):
            call()
    assert driver.tell(".").applied
