"""Groups that share a scaler: skipping together, and unscaled by what scaled them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from fp16sim_scaler_faults import fault, passes, says_nothing

from fp16sim import scaling
from fp16sim.scaling import Decision
from fp16sim.testing.adapters import Chain

GROUPS = "groups_agree"


@dataclass(frozen=True)
class Shared:
    """One scale for all groups."""

    scale: float = 1024.0

    def update(self, seen):
        scale = max(self.scale / 2.0, 1.0) if seen.overflowed else self.scale
        return replace(self, scale=scale), Decision(apply=not seen.overflowed, divide_by=self.scale)


class OnlyTheFirst(Shared):
    def update(self, seen):
        overflow = seen.overflow
        first = next(iter(overflow.values())) if isinstance(overflow, Mapping) else overflow
        return super().update(replace(seen, overflow=first))


class EachAlone(Shared):
    def update(self, seen):
        following, decision = super().update(seen)
        apply = {group: not overflowed for group, overflowed in seen.overflow.items()}
        return following, replace(decision, apply=apply)


class TakesAMappingForTrue(Shared):
    def update(self, seen):
        return super().update(replace(seen, overflow=bool(seen.overflow)))


@dataclass(frozen=True)
class Own:
    """A scale for each group."""

    scale: Mapping[str, float]

    def update(self, seen):
        overflow = seen.overflow if isinstance(seen.overflow, Mapping) else dict.fromkeys(self.scale, False)
        scales = {group: self.scale[group] / (2.0 if overflow[group] else 1.0) for group in self.scale}
        decision = Decision(apply=not seen.overflowed, divide_by=self.divisors())
        return type(self)(scales), decision

    def divisors(self):
        return dict(self.scale)


class Swapped(Own):
    def divisors(self):
        return {"a": self.scale["b"], "b": self.scale["a"]}


def chain(text):
    return lambda: Chain(lambda: scaling.parse(text))


@pytest.mark.parametrize("text", ["torch", "torch,growth_interval=2", "torch_fsdp"])
def test_in_torch_one_optimizer_steps_where_another_skips(text):
    found = fault(GROUPS, lambda: scaling.parse(text), ["groups"])
    assert str(found) == "\"o\": 'b' overflowed: the step of 'b' was skipped, that of 'a' was applied"


@pytest.mark.parametrize(
    ("text", "longest"), [("megatron", 3), ("megatron,hysteresis=1", 2), ("robust", 2), ("torch", 2)]
)
def test_in_a_chain_the_scales_drift_apart(text, longest):
    found = fault(GROUPS, chain(text), ["groups"])
    assert len(found.history) <= longest, found
    assert "the loss was multiplied by" in found.what


def test_a_chain_of_scales_that_do_not_move_agrees():
    passes(GROUPS, chain("static"), ["groups"])


@pytest.mark.parametrize(
    ("make", "history", "says"),
    [
        (OnlyTheFirst, "o", "'b' overflowed, and the steps of all groups were applied"),
        (EachAlone, "o", "'b' overflowed: the step of 'b' was skipped, that of 'a' was applied"),
        (
            TakesAMappingForTrue,
            ".",
            "no group overflowed, and the step was skipped, which with one group is applied; "
            "use observation.overflowed",
        ),
        (
            lambda: Swapped({"a": 8.0, "b": 64.0}),
            ".",
            "the loss was multiplied by 8, and the gradient of 'a' divided by 64, the scale of 'b'",
        ),
        (
            lambda: Swapped({"a": 64.0, "b": 64.0}),
            "o.",
            "the loss was multiplied by 64, and the gradient of 'a' divided by 32, the scale of 'b'",
        ),
    ],
)
def test_planted_disagreements_are_caught(make, history, says):
    found = fault(GROUPS, make, ["groups"])
    assert (found.history, found.what) == (history, says)


@pytest.mark.parametrize(
    "make",
    [
        Shared,
        lambda: Own({"a": 8.0, "b": 64.0}),
        lambda: scaling.parse("robust"),
        lambda: scaling.parse("robust,growth_interval=2"),
        lambda: scaling.parse("megatron"),
        lambda: scaling.parse("fairscale_layerwise,init_scale=8"),
    ],
)
def test_groups_that_agree_pass(make):
    passes(GROUPS, make, ["groups"])


def test_what_applies_overflows_is_left_to_another_check():
    says_nothing(GROUPS, lambda: scaling.parse("none"), "applies overflows", ["groups"])


def test_groups_have_to_be_claimed():
    says_nothing(GROUPS, lambda: scaling.parse("torch"), "'groups' is not claimed")


@dataclass(frozen=True)
class WithScales:
    """A scale for each of its own groups."""

    scale: Mapping[str, float]

    def update(self, seen):
        halved = {group: scale / 2 if seen.overflow[group] else scale for group, scale in self.scale.items()}
        return replace(self, scale=halved), Decision(not seen.overflowed, self.scale)


class EachOfItsOwn(WithScales):
    def update(self, seen):
        following, decision = super().update(seen)
        return following, replace(decision, apply={group: not bad for group, bad in seen.overflow.items()})


class ByTheScaleOfTheFirst(WithScales):
    def update(self, seen):
        following, decision = super().update(seen)
        first, second, *_ = self.scale
        return following, replace(decision, divide_by={**self.scale, second: self.scale[first]})


SEVERAL = ({"w": 8.0, "x": 2.0}, {"w": 8.0, "x": 2.0, "y": 4.0}, {f"l{i}": 2.0 ** (i % 8) for i in range(40)})


@pytest.mark.parametrize("scales", SEVERAL, ids=len)
def test_a_scaler_with_scales_for_its_own_groups_is_driven_with_those(scales):
    passes(GROUPS, lambda: WithScales(scales), ["groups"])
    each = fault(GROUPS, lambda: EachOfItsOwn(scales), ["groups"])
    assert (each.history, "was skipped, that of" in each.what) == ("o", True)
    other = fault(GROUPS, lambda: ByTheScaleOfTheFirst(scales), ["groups"])
    first = next(iter(scales))
    assert len(other.history) <= 2
    assert other.what.endswith(f"the scale of {first!r}")


def test_one_group_of_its_own_is_not_several():
    says_nothing(GROUPS, lambda: WithScales({"w": 8.0}), "a scale for one group, 'w'", ["groups"])
