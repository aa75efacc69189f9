"""The check of calls in any order: scalers that are right in any, and the shortest calls of those that are not."""

import pytest
from fp16sim_careful_loop import TWO, Careful

import fp16sim as fs
from fp16sim.testing import Fault, NotApplicable, scaler_checks
from fp16sim.testing.case import case_of
from fp16sim.testing.checking import examined
from fp16sim.testing.checks.any_order import any_order_of_calls
from fp16sim.testing.checks.check import Check

CHECK = dict(scaler_checks())["any_order_of_calls"]


def found(make, *traits):
    with pytest.raises(Fault) as caught:
        CHECK(make, ["any_order", *traits])
    return caught.value


def test_it_is_one_of_the_checks_for_those_who_claim_it():
    assert isinstance(CHECK, Check)
    assert CHECK.examine is any_order_of_calls
    with pytest.raises(NotApplicable, match="'any_order' is not claimed"):
        CHECK(lambda: fs.scaling.make("robust"))


@pytest.mark.parametrize("window", [2, 2000])
def test_robust_passes_with_all_that_it_claims(window):
    traits = ["any_order", "groups", "rechecks", "power_of_two", "checked", {"interval": window}]
    CHECK(lambda: fs.scaling.make("robust", growth_interval=window), traits)


@pytest.mark.parametrize("name", ["torch", "megatron", "flax", "static"])
def test_healthy_models_pass(name):
    CHECK(lambda: fs.scaling.make(name), ["any_order"])


def test_a_driver_has_its_own_groups():
    CHECK(lambda: Careful(TWO), ["any_order", "groups"])


@pytest.mark.parametrize(
    ("text", "history", "what"),
    [
        (
            "keras2",
            "o",
            "backward(inf), step, update: counters moved by 1 in a step that was skipped",
        ),
        ("none", "o", "backward(inf), step: applied inf where the gradient was inf; skip such a step"),
        (
            "deepspeed,initial_scale_power=2,loss_scale_window=1",
            "",
            "step, update, backward(1), step: applied 0.5 where the gradient was 1: multiplied by 4, divided by 8",
        ),
        ("openseq2seq_logmax", "", "step, update: the scale is nan; keep it positive and finite in float32"),
    ],
)
def test_what_it_finds_has_letters_where_it_can(text, history, what):
    fault = found(lambda: fs.scaling.parse(text))
    assert (fault.history, fault.what) == (history, what)


def test_one_optimizer_that_moves_alone_is_found_where_groups_are_claimed():
    fault = found(lambda: fs.scaling.make("torch"), "groups")
    assert fault.what.endswith("was skipped; skip all or none")
    assert fault.what.count("), ") == 2


def test_the_kit_reports_it():
    verdict = examined(CHECK, case_of(lambda: fs.scaling.make("keras2"), ["any_order"]))
    assert (verdict.status, verdict.history) == ("failed", "o")
    assert verdict.what.startswith('"o": backward(inf), step, update: ')
