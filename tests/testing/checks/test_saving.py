"""Scalers that forget something when they are saved, and scalers that do not."""

from dataclasses import dataclass, replace

import pytest
from fp16sim_scaler_faults import fault, passes, says_nothing

from fp16sim import scaling
from fp16sim.scaling import Decision
from fp16sim.testing.histories import expanded

SAVING = "checkpoint_round_trip"


@dataclass(frozen=True)
class Saved:
    """Halves, doubles every third clean step, stops at the tenth overflow at 1; saved by state_dict."""

    scale: float = 8.0
    clean: int = 0
    at_floor: int = 0

    def update(self, seen):
        if not seen.overflowed:
            grows = self.clean == 2
            scale = min(self.scale * 2.0, 64.0) if grows else self.scale
            following = replace(self, scale=scale, clean=0 if grows else self.clean + 1, at_floor=0)
        else:
            at_floor = self.at_floor + 1 if self.scale == 1.0 else 0
            following = replace(self, scale=max(self.scale / 2.0, 1.0), clean=0, at_floor=at_floor)
        stop = "ten overflows at 1" if following.at_floor >= 10 else None
        return following, Decision(apply=not seen.overflowed, divide_by=self.scale, stop=stop)

    def state_dict(self):
        return {"scale": self.scale, "clean": self.clean, "at_floor": self.at_floor}

    def load_state_dict(self, state):
        return replace(self, **state)


class WithoutClean(Saved):
    def state_dict(self):
        return {"scale": self.scale, "at_floor": self.at_floor}


class WithoutScale(Saved):
    def load_state_dict(self, state):
        return replace(self, clean=state["clean"], at_floor=state["at_floor"])


class WithoutAtFloor(Saved):
    def state_dict(self):
        return super().state_dict() | {"at_floor": 0}


class CannotLoad(Saved):
    def load_state_dict(self, state):
        return replace(self, scale=state["Scale"])


class Applies(Saved):
    """What is loaded applies overflows: the scale shows nothing of that."""

    clean_start = True

    def load_state_dict(self, state):
        loaded = WithAllApplied(**state)
        return loaded


class WithAllApplied(Saved):
    def update(self, seen):
        following, decision = super().update(seen)
        return following, replace(decision, apply=True)


class Mutable:
    """No dataclass: an object that changes, and whose load gives nothing."""

    def __init__(self):
        self.scale, self.clean = 8.0, 0

    def update(self, seen):
        following, self.clean = type(self)(), 0 if seen.overflowed else (self.clean + 1) % 3
        grows = not seen.overflowed and self.clean == 0
        following.clean = self.clean
        following.scale = self.scale * (0.5 if seen.overflowed else 2.0 if grows else 1.0)
        return following, Decision(apply=not seen.overflowed, divide_by=self.scale)

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        vars(self).update(state)


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("colossalai", "o|o"),
        ("fairseq,scale_window=2", ".|."),
        ("fairseq", ".|.{1999}"),
        ("metaseq", "o{9}|."),
        ("metaseq,scale_window=2", ".|."),
        ("jmp,min_loss_scale=512", "|o{7}"),
        ("jmp,loss_scale=512,min_loss_scale=512", "|o"),
        ("chainer", ".|"),
        ("mindspore_manager", "o|"),
        ("mxnet", "o|."),
        ("guided_diffusion", "o|"),
        ("fairscale_layerwise,init_scale=8", "o|"),
    ],
)
def test_models_that_forget(text, shortest):
    found = fault(SAVING, lambda: scaling.parse(text))
    assert "|" in found.history
    assert len(found.history) <= len(expanded(shortest)), found
    assert "framework_state" in found.what  # all of it is in to_json


def test_the_message_says_the_way_and_what_differs():
    assert str(fault(SAVING, lambda: scaling.parse("colossalai"))) == (
        '"o|o": after saving and loading by framework_state the scale is 65536; without that it is 32768'
    )
    assert str(fault(SAVING, lambda: scaling.parse("mindspore_manager"))) == (
        '"o|": after saving and loading by framework_state the scale is 2^24; it was 2^23'
    )


@pytest.mark.parametrize(
    ("kind", "longest", "says"),
    [
        (WithoutClean, 4, "the scale is 8; without that it is 16"),
        (WithoutScale, 2, "the scale is 8; it was 4"),
        (WithoutAtFloor, 14, "training goes on; without that it stops (ten overflows at 1)"),
        (CannotLoad, 1, "KeyError"),
        (Applies, 2, "the step is applied; without that it is skipped"),
    ],
)
def test_planted_losses_are_caught(kind, longest, says):
    found = fault(SAVING, kind)
    assert len(found.history) <= longest, found
    assert "state_dict" in found.what
    assert says in found.what


def test_a_way_that_raises_when_it_saves():
    class CannotSave(Saved):
        def state_dict(self):
            raise RuntimeError("disk full")

    line = CannotSave.state_dict.__code__.co_firstlineno + 1
    says = f"saving raised RuntimeError: disk full ({__file__}, line {line})"
    assert str(fault(SAVING, CannotSave)) == says


@pytest.mark.parametrize(
    "make",
    [
        Saved,
        Mutable,
        *(
            lambda text=text: scaling.parse(text)
            for text in (
                "robust",
                "robust,growth_interval=1",
                "robust,growth_interval=20",
                "torch,growth_interval=3",
                "megatron,growth_interval=2",
                "jmp",
                "deepspeed_unfused,min_loss_scale=1024",
            )
        ),
    ],
)
def test_those_that_save_everything_pass(make):
    passes(SAVING, make)


def test_nothing_is_saved_where_there_is_no_way():
    class Bare:
        scale = 8.0

        def update(self, seen):
            return self, Decision(apply=not seen.overflowed, divide_by=self.scale)

    says_nothing(SAVING, Bare, "no way to save")


@dataclass(frozen=True)
class DividesByALoadedScale:
    """Saves what the last step was divided by, and divides the first one after loading by that."""

    scale: float = 1024.0
    divisor: float = 1024.0
    loaded: bool = False

    def update(self, seen):
        divisor = self.divisor if self.loaded else self.scale
        following = replace(
            self, scale=self.scale / 2 if seen.overflowed else self.scale, divisor=self.scale, loaded=False
        )
        return following, Decision(not seen.overflowed, divisor)

    def state_dict(self):
        return {"scale": self.scale, "divisor": self.divisor}

    def load_state_dict(self, state):
        return DividesByALoadedScale(**state, loaded=True)


def test_the_first_step_after_loading_is_divided_by_the_scale_that_scaled():
    found = fault(SAVING, DividesByALoadedScale)
    assert str(found) == (
        '"o|.": after saving and loading by state_dict a gradient multiplied by 512 is divided by 1024; '
        "without that by 512"
    )
