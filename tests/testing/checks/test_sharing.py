"""States that share something with the scaler that they were saved of, or with one that loaded them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from fp16sim_lookalikes import DeepSpeedLike, FlaxLike, JmpLike, KerasLike, TorchLike
from fp16sim_scaler_faults import fault, passes, says_nothing

from fp16sim.scaling import Decision
from fp16sim.testing.checks import sharing
from fp16sim.testing.checks.sharing import difference, same

SAVING = "checkpoint_round_trip"
LATE = "loaded after the scaler went on"
TWICE = "loaded a second time, after the first went on"


class InPlace:
    """Its update changes it. Saved and loaded with copies of everything."""

    window = 2

    def __init__(self) -> None:
        self.scale, self.counts, self.seen = 8.0, [0], 0

    def update(self, seen: Any) -> Any:
        decision = Decision(apply=not seen.overflowed, divide_by=self.scale)
        self.seen += 1
        if seen.overflowed:
            self.scale, self.counts[0] = max(self.scale / 2, 1.0), 0
        else:
            self.counts[0] += 1
            if self.counts[0] == self.window:
                self.scale, self.counts[0] = min(self.scale * 2, 64.0), 0
        return self, decision

    def state_dict(self) -> Any:
        return copy.deepcopy(vars(self))

    def load_state_dict(self, state: Any) -> None:
        vars(self).update(copy.deepcopy(state))


class SharesAll(InPlace):
    def state_dict(self) -> Any:
        return vars(self)


class SharesAList(InPlace):
    def state_dict(self) -> Any:
        return {"scale": self.scale, "counts": self.counts}


class SharesAListInAList(InPlace):
    def state_dict(self) -> Any:
        return {"scale": self.scale, "all": [{"of": (self.counts,)}]}

    def load_state_dict(self, state: Any) -> None:
        self.scale, self.counts = state["scale"], list(state["all"][0]["of"][0])


class KeepsAll(InPlace):
    def load_state_dict(self, state: Any) -> None:
        self.__dict__ = state


class KeepsAList(InPlace):
    def load_state_dict(self, state: Any) -> None:
        vars(self).update(state)


class TakesOut(InPlace):
    """What is loaded is taken out of the state."""

    def load_state_dict(self, state: Any) -> None:
        self.scale = state.pop("scale")
        self.counts = list(state.pop("counts"))


class TakesOutTheCounts(InPlace):
    def load_state_dict(self, state: Any) -> None:
        self.scale, self.counts = state["scale"], list(state.pop("counts", [0]))


class OneDictForAll(InPlace):
    """Each saving writes into the dict of the one before."""

    def state_dict(self) -> Any:
        kept: dict[str, Any] = getattr(self, "_kept", {})
        kept.update(scale=self.scale, counts=list(self.counts))
        self._kept = kept
        return kept

    def load_state_dict(self, state: Any) -> None:
        self.scale, self.counts = state["scale"], list(state["counts"])


class LongWindow(SharesAList):
    window = 300


class LongWindowKept(KeepsAList):
    window = 300


class StopsAtTheFloor(InPlace):
    """The tenth overflow at 1 stops; only that counter is shared."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = np.zeros(1, np.int64)

    def update(self, seen: Any) -> Any:
        at_floor = self.scale == 1.0 and seen.overflowed
        following, decision = super().update(seen)
        self.lost[:] = self.lost + 1 if at_floor else 0
        stop = "ten overflows at 1" if self.lost[0] >= 10 else None
        return following, Decision(decision.apply, decision.divide_by, stop=stop)

    def state_dict(self) -> Any:
        return super().state_dict() | {"lost": self.lost}


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (SharesAll, f"\"|\": a state of state_dict, {LATE} ('o') and was saved again: "
                    "the scale is 4; without that it is 8; save a copy"),
        (SharesAList, f"\"|.\": a state of state_dict, {LATE} ('.') and was saved again: "
                      "the scale is 16; without that it is 8; save a copy"),
        (SharesAListInAList, f"\"|.\": a state of state_dict, {LATE} ('.') and was saved again: "
                             "the scale is 16; without that it is 8; save a copy"),
        (OneDictForAll, f"\"|\": a state of state_dict, {LATE} ('o') and was saved again: "
                        "the scale is 4; without that it is 8; save a copy"),
        (KeepsAll, f"\"|\": a state of state_dict, {TWICE} ('o'): "
                   "the scale is 4; without that it is 8; load a copy"),
        (KeepsAList, f"\"|.\": a state of state_dict, {TWICE} ('.'): "
                     "the scale is 16; without that it is 8; load a copy"),
        (TakesOutTheCounts, f"\".|.\": a state of state_dict, {TWICE}: "
                            "the scale is 8; without that it is 16; load a copy"),
        (LongWindow, f"\"|.\": a state of state_dict, {LATE} ('.{{299}}') and was saved again: "
                     "the scale is 16; without that it is 8; save a copy"),
        (LongWindowKept, f"\"|.\": a state of state_dict, {TWICE} ('.{{299}}'): "
                         "the scale is 16; without that it is 8; load a copy"),
        (StopsAtTheFloor, f"\"oooo|oooooooo\": a state of state_dict, {LATE} ('o') and was saved again: "
                          "training stops (ten overflows at 1); without that it goes on; save a copy"),
    ],
)  # fmt: skip
def test_a_state_that_changes_is_found_with_a_short_history(kind: Any, what: str) -> None:
    assert str(fault(SAVING, kind)) == what


def test_an_error_of_the_second_loading_has_its_place() -> None:
    found = fault(SAVING, TakesOut)
    line = TakesOut.load_state_dict.__code__.co_firstlineno + 1
    assert str(found) == (
        f"\"|\": a state of state_dict, {TWICE}: saving and loading by state_dict raised KeyError: 'scale' "
        f"({__file__}, line {line}); load a copy"
    )
    assert isinstance(found.__cause__, KeyError)


def test_a_fault_that_does_not_come_again_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    examine = sharing._first_fault

    def twice(*given: Any, **options: Any) -> Any:
        seen.append(None if seen else examine(*given, **options))
        return seen[-1]

    monkeypatch.setattr(sharing, "_first_fault", twice)
    assert fault(SAVING, SharesAll).what.startswith("a state of state_dict")
    assert len(seen) == 2


class SharesWhatIsNotRead(InPlace):
    """A log that grows; nothing that follows depends on it."""

    def state_dict(self) -> Any:
        return super().state_dict() | {"log": vars(self)}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict({key: value for key, value in state.items() if key != "log"})


class Opaque(InPlace):
    """The state holds what numpy cannot read, as a tensor on another device."""

    class Elsewhere:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise TypeError("it is on another device")

    def state_dict(self) -> Any:
        return super().state_dict() | {"device": self.Elsewhere()}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict({key: value for key, value in state.items() if key != "device"})


class Text(InPlace):
    def state_dict(self) -> Any:
        return f"{self.scale} {self.counts[0]}"

    def load_state_dict(self, state: Any) -> None:
        scale, count = state.split()
        self.scale, self.counts = float(scale), [int(count)]


@pytest.mark.parametrize("kind", [InPlace, SharesWhatIsNotRead, Opaque, Text])
def test_states_of_their_own_pass(kind: Any) -> None:
    passes(SAVING, kind)


# Objects of other frameworks


class TorchShares(TorchLike):
    def state_dict(self) -> Any:
        return self.__dict__

    def load_state_dict(self, state: Any) -> None:
        self.__dict__.update(state)


class TorchKeeps(TorchLike):
    """The tracker is in a list of the state, which a step writes into."""

    def __init__(self) -> None:
        super().__init__(growth_interval=2)
        self.all = {"tracker": 0}

    @property
    def _tracker(self) -> int:
        return self.all["tracker"]

    @_tracker.setter
    def _tracker(self, value: int) -> None:
        self.__dict__.setdefault("all", {})["tracker"] = value

    def state_dict(self) -> Any:
        return {"scale": float(self._scale), "all": dict(self.all)}

    def load_state_dict(self, state: Any) -> None:
        self._scale, self.all = np.float32(state["scale"]), state["all"]


class KerasKeeps(KerasLike):
    """Keeps the array that it loads, and halves it in place."""

    def __init__(self) -> None:
        super().__init__()
        self.dynamic_scale = np.array(self.dynamic_scale)

    def apply(self, gradients: Any, variables: Any = None) -> None:
        held = self.dynamic_scale
        super().apply(gradients, variables)
        held[...], self.dynamic_scale = self.dynamic_scale, held

    def load_own_variables(self, store: Any) -> None:
        self.step_counter, self.dynamic_scale = int(store["0"]), store["1"]


class KerasCopies(KerasKeeps):
    """Stores the live array, as Keras does with some backends: a file has a copy of it."""

    def load_own_variables(self, store: Any) -> None:
        self.step_counter, self.dynamic_scale = int(store["0"]), np.array(store["1"])


class DeepSpeedShares(DeepSpeedLike):
    """What is pickled is a reference to the state."""

    def __deepcopy__(self, memo: Any) -> Any:
        other = DeepSpeedShares()
        other.__dict__ = self.__dict__
        return other


class JmpInPlace:
    """A pytree of one array, which an overflow halves in place."""

    copies = False

    def __init__(self, leaf: Any = None) -> None:
        self.loss_scale = np.full((), 1024, np.float32) if leaf is None else leaf

    def scale(self, loss: Any) -> Any:
        return loss * self.loss_scale

    def unscale(self, tree: Any) -> Any:
        return {name: gradient / self.loss_scale for name, gradient in tree.items()}

    def adjust(self, finite: Any) -> Any:
        if not finite:
            self.loss_scale[...] = max(self.loss_scale / 2, 1)
        return self

    def tree_flatten(self) -> Any:
        return (self.loss_scale.copy() if self.copies else self.loss_scale,), ()

    @classmethod
    def tree_unflatten(cls, rest: Any, leaves: Any) -> Any:
        return cls(leaves[0].copy())


class JmpCopies(JmpInPlace):
    copies = True


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (TorchShares, f'"|": a state of state_dict, {LATE}'),
        (TorchKeeps, f'"|.": a state of state_dict, {TWICE}'),
        (KerasKeeps, f'"|": a state of save_own_variables, {TWICE}'),
        (DeepSpeedShares, f'"|": a state of pickle, {LATE}'),
        (JmpInPlace, f'"|": a state of pytree leaves, {LATE}'),
    ],
)
def test_objects_of_every_kind_are_looked_at(kind: Any, what: str) -> None:
    assert str(fault(SAVING, kind)).startswith(what)


@pytest.mark.parametrize("kind", [TorchLike, KerasLike, KerasCopies, DeepSpeedLike, JmpLike, JmpCopies])
def test_healthy_objects_of_every_kind_pass(kind: Any) -> None:
    passes(SAVING, kind)


def test_a_look_alike_of_flax_s_is_not_saved() -> None:
    says_nothing(SAVING, FlaxLike, "no way to save")


def test_text_is_not_looked_at_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_first_fault", lambda *_: pytest.fail("a text is nobody's to change"))
    passes(SAVING, Text)


@pytest.mark.parametrize(
    ("own", "other", "says"),
    [
        ((4.0, True, None), (4.0, True, None), None),
        ((float("nan"), False, "a"), (float("nan"), False, "b"), None),
        ((4.0, True, None), (8.0, False, "x"), "the scale is 4; without that it is 8"),
        ((4.0, True, None), (4.0, False, None), "the step is applied; without that it is skipped"),
        ((4.0, False, None), (4.0, True, None), "the step is skipped; without that it is applied"),
        ((4.0, False, "low"), (4.0, False, None), "training stops (low); without that it goes on"),
        ((4.0, False, None), (4.0, False, "low"), "training goes on; without that it stops (low)"),
    ],
)
def test_what_differs_is_said(own: Any, other: Any, says: str | None) -> None:
    assert difference(own, other) == says


def test_zeros_of_both_signs_are_the_same_scale() -> None:
    assert same(0.0, -0.0)
