"""Our own scaler has every property that the frameworks give up somewhere; each test must fail for one of them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fp16sim import scaling
from fp16sim.autograd.policy import Policy
from fp16sim.nn import CrossEntropyLoss
from fp16sim.optim import Adam
from fp16sim.scaling import Decision, Observation, RobustScaler, observe, unscale
from fp16sim.training.data import Batches, digits
from fp16sim.training.fit import fit
from fp16sim.training.models import mlp
from fp16sim.training.step import train_step

LETTERS = {
    ".": Observation(),
    "o": Observation(overflow=True),
    "n": Observation(overflow=True, nan=True),
    "N": Observation(nan=True),  # told of a NaN alone
    "i": Observation(amax=math.inf),  # or of an infinite peak alone
}
BAD = "onNi"
LARGEST = 65520.0  # from here on float16 is infinite
checked = settings(derandomize=True, deadline=None, max_examples=150)


@st.composite
def scalers(draw):
    low = draw(st.integers(-20, 4))
    high = draw(st.integers(low, low + 12))
    return RobustScaler(
        init_scale=2.0 ** draw(st.integers(low, high)),
        min_scale=2.0**low,
        max_scale=2.0**high,
        growth_interval=draw(st.integers(1, 5)),
        floor_patience=draw(st.integers(1, 4)),
    )


histories = st.text(alphabet="." * 6 + BAD, max_size=60)


def walk(scaler, history):
    """Give (letter, scaler, decision, next scaler) of every step."""
    rows = []
    for letter in history:
        following, decision = scaler.update(LETTERS[letter])
        rows.append((letter, scaler, decision, following))
        scaler = following
    return rows


def end(scaler, history):
    for letter in history:
        scaler, _ = scaler.update(LETTERS[letter])
    return scaler


def closed_loop(scaler, peaks, limit=400):
    """Give (scale, applied, stop) of every step, gradients of these peaks overflowing as float16 does."""
    rows = []
    for _, peak in zip(range(limit), peaks, strict=False):
        overflow = not peak * scaler.scale < LARGEST
        scale = scaler.scale
        scaler, decision = scaler.update(Observation(overflow=overflow, amax=math.inf if overflow else peak))
        rows.append((scale, decision.apply, decision.stop))
    return rows


# --- 1. no update that is not finite is ever applied


def applied_gradients(scaler, gradient):
    """Give what the optimizer gets of a scaled float32 gradient, None for a skip."""
    _, decision = scaler.update(observe(scaler, [gradient]))
    return unscale(gradient, decision) if decision.apply else None


@checked
@given(scalers(), st.lists(st.floats(width=32), min_size=1, max_size=5))
def test_1_what_is_applied_is_finite(scaler, values):
    found = applied_gradients(scaler, np.array(values, np.float32))
    assert found is None or np.isfinite(found).all()


def test_1_catches_what_unscaling_makes_infinite():
    huge = np.float32([3e38])
    assert applied_gradients(RobustScaler(init_scale=2.0**-4), huge) is None
    assert np.isinf(applied_gradients(scaling.make("torch", init_scale=2.0**-4), huge)).all()
    torch = end(scaling.make("torch", init_scale=2.0**-149), "o")
    assert np.isnan(applied_gradients(torch, np.float32([0.0]))).all()


@checked
@given(scalers(), histories)
def test_1_bad_steps_are_skipped_and_clean_ones_applied(scaler, history):
    for letter, _, decision, _ in walk(scaler, history):
        assert decision.apply is (letter == ".")


def test_1_what_is_about_to_be_applied_is_looked_at_again(monkeypatch):
    monkeypatch.setattr(
        "fp16sim.training.step.clip_grad_value", lambda steps, limit: [s * np.nan for s in steps]
    )
    after = {}
    for name in ("robust", "torch"):
        model = mlp(hidden=8, layers=1)
        batch = Batches(digits()[0], 8).at(0)
        taken = train_step(
            1, model, CrossEntropyLoss(), batch, policy=Policy("mixed_float16"), clip_value=1.0,
            scaler=scaling.make(name, init_scale=1024.0), optimizer=Adam(model.parameters(), lr=0.1),
        )  # fmt: skip
        finite = all(np.isfinite(parameter.data).all() for parameter in model.parameters())
        after[name] = (taken.step.applied, taken.step.overflow, taken.scaler.scale, finite)
    assert after["robust"] == (False, True, 512.0, True)
    assert after["torch"] == (True, False, 1024.0, False)


# --- 2. unscale by the scale that scaled


def divided_by_what_scaled(scaler, history):
    return all(row[2].divide_by == row[1].scale for row in walk(scaler, history))


@checked
@given(scalers(), histories)
def test_2_gradients_are_divided_by_the_scale_that_multiplied_the_loss(scaler, history):
    assert divided_by_what_scaled(scaler, history)


def test_2_catches_deepspeed():
    assert not divided_by_what_scaled(
        scaling.make("deepspeed", initial_scale_power=2, loss_scale_window=1), "...."
    )


# --- 3. a usable scale, or a stop, within bounded steps


@checked
@given(scalers(), histories, st.integers(-40, 40))
def test_3_an_applied_step_or_a_stop_comes_in_bounded_steps(scaler, history, exponent):
    scaler = end(scaler, history)
    steps = int(math.log2(scaler.max_scale / scaler.min_scale)) + scaler.floor_patience
    rows = closed_loop(scaler, [2.0**exponent] * steps)
    assert any(applied or stop for _, applied, stop in rows)
    usable = 2.0**exponent * scaler.min_scale < LARGEST
    assert any(applied for _, applied, _ in rows) is usable
    if usable:  # and from then on at most one step in growth_interval + 1 is lost
        rows = closed_loop(scaler, [2.0**exponent] * (steps + 60))[steps:]
        lost = sum(not applied for _, applied, _ in rows)
        assert lost <= len(rows) / (scaler.growth_interval + 1) + 1
        assert not any(stop for _, _, stop in rows)


def test_3_a_scale_that_is_too_small_grows_back():
    scaler = end(RobustScaler(growth_interval=3, floor_patience=99), "o" * 40)
    assert scaler.scale == 2.0**-16
    assert end(scaler, "..." * 32).scale == 2.0**16


def test_3_the_stop_says_why():
    row = walk(RobustScaler(init_scale=1.0, min_scale=0.25, floor_patience=3), "ooooo")[-1]
    assert row[2].stop.startswith("gradients overflow at the smallest loss scale, 0.25, 3 steps in a row")
    assert "lower the learning rate" in row[2].stop
    assert (
        "a gradient is NaN"
        in walk(RobustScaler(init_scale=1.0, min_scale=1.0, floor_patience=1), "n")[0][2].stop
    )


def test_3_catches_scalers_that_never_move():
    for options in ({"hysteresis": 0}, {"hysteresis": 2, "consecutive_hysteresis": True}):
        history = "o" * 50 if options["hysteresis"] == 0 else "o." * 25
        assert end(scaling.make("deepspeed", **options), history).scale == 65536
    stuck = scaling.make("deepspeed_unfused", initial_scale_power=0)
    assert not any(applied or stop for _, applied, stop in closed_loop(stuck, [2.0**20] * 300))


# --- 4, 5, 7, 8. the scale stays a power of two between its bounds, and an overflow never raises it


@checked
@given(scalers(), histories)
def test_4_5_7_8_bounds_powers_of_two_and_no_raise(scaler, history):
    for letter, before, _, after in walk(scaler, history):
        assert before.min_scale <= after.scale <= before.max_scale
        assert math.frexp(after.scale)[0] == 0.5
        assert letter == "." or after.scale <= before.scale
        assert letter != "." or after.scale >= before.scale


def test_4_5_7_8_catch_the_others():
    assert end(scaling.make("keras3", initial_scale=2.0**127, dynamic_growth_steps=1), ".").scale == math.inf
    assert end(scaling.make("torch"), "o" * 166).scale == 0.0
    assert end(scaling.make("keras2", initial_scale=0.25), "o").scale == 1.0
    assert math.frexp(end(scaling.make("chainer"), "o.").scale)[0] != 0.5


def test_8_scaling_changes_no_bit_of_a_float32_run():
    weights = []
    for scaler in ("none", "robust,init_scale=2**10,growth_interval=2", "torch,init_scale=3"):
        model = mlp(hidden=8, layers=2)
        optimizer = Adam(model.parameters(), lr=0.01)
        fit(model, Batches(digits()[0], 16), scaler=scaler, optimizer=optimizer, steps=6, measure=False)
        weights.append([parameter.data.tobytes() for parameter in model.parameters()])
    assert weights[1] == weights[0]
    assert weights[2] != weights[0]


# --- 6. one event, one halving


def test_6_one_overflow_costs_one_halving():
    peaks = [1.0] * 3 + [1.5] * 20  # one halving cures it
    assert [scale for scale, *_ in closed_loop(RobustScaler(init_scale=2.0**15), peaks)][-1] == 2.0**15
    peaks = [1.0] * 3 + [2.5] * 20
    rows = closed_loop(RobustScaler(init_scale=2.0**15), peaks)
    assert rows[-1][0] == 2.0**14
    assert sum(not applied for _, applied, _ in rows) == 1
    rows = closed_loop(scaling.make("mxnet", loss_scale=2.0**15), peaks)
    assert rows[-1][0] == 2.0**13  # one event, two halvings


# --- 9. the exact window


def growth_step(scaler):
    start = scaler.scale
    for step in range(1, 50):
        scaler, _ = scaler.update(Observation())
        if scaler.scale > start:
            return step
    return None


@checked
@given(st.integers(1, 20), histories)
def test_9_the_scale_grows_on_exactly_the_step_that_fills_the_window(window, history):
    scaler = RobustScaler(growth_interval=window)
    assert growth_step(scaler) == window
    after = end(scaler, history + "o")
    assert growth_step(after) == window
    assert growth_step(end(after, "." * window)) == window


def test_9_catches_flax_and_deepspeed():
    assert growth_step(scaling.make("flax", growth_interval=5)) == 6
    assert growth_step(scaling.make("deepspeed", loss_scale_window=5)) == 6


# --- 10. a checkpoint in the middle of a history


@checked
@given(scalers(), histories, histories)
def test_10_a_saved_state_goes_on_as_if_never_saved(scaler, before, after):
    middle = end(scaler, before)
    for restored in (
        scaling.from_json(middle.to_json()),
        RobustScaler().load_framework_state(json.loads(json.dumps(middle.framework_state()))),
    ):
        assert restored == middle
        assert [row[2:] for row in walk(restored, after)] == [row[2:] for row in walk(middle, after)]


def test_10_catches_fairseq():
    scaler = end(scaling.make("fairseq", scale_window=2), ".")
    restored = scaling.make("fairseq", scale_window=2).load_framework_state(scaler.framework_state())
    assert end(scaler, ".").scale != end(restored, ".").scale


# --- 11. whoever goes on after an error finds a state like any other


def test_11_a_stop_and_an_error_leave_a_working_scaler():
    scaler = end(RobustScaler(init_scale=2.0, min_scale=1.0, growth_interval=2, floor_patience=1), "oooo")
    for bad in (True, None, Observation(checked=False)):
        with pytest.raises((TypeError, ValueError)):
            scaler.update(bad)
    assert walk(scaler, "o")[0][2].stop is not None
    assert [row[3].scale for row in walk(scaler, "..o")] == [1.0, 2.0, 1.0]
    assert walk(scaler, ".")[0][2] == Decision(True, 1.0)


# --- 12. what is counted in a row is counted in a row


def test_12_overflows_at_the_floor_count_in_a_row():
    scaler = RobustScaler(init_scale=1.0, min_scale=1.0, floor_patience=2, growth_interval=100)
    assert all(row[2].stop is None for row in walk(scaler, "o." * 30))
    assert walk(scaler, "o.oo")[-1][2].stop is not None
    assert [row[3].scale for row in walk(scaling.make("megatron"), "o.o")][-1] == 2.0**31  # not in a row


@checked
@given(histories)
def test_12_clean_steps_count_in_a_row(history):
    scaler = end(RobustScaler(growth_interval=10**6), history)
    assert scaler.clean_steps == len(history) - len(history.rstrip("."))


# --- 13. ranks and child optimizers agree


def test_13_an_overflow_anywhere_skips_for_all():
    scaler = RobustScaler()
    whole = scaler.update(Observation(overflow=True))
    for overflow in ({"a": True, "b": False}, {"a": False, "b": True}):
        assert scaler.update(Observation(overflow=overflow)) == whole
    assert scaler.update(Observation(overflow={"a": False}, amax={"a": math.inf})) == whole
    assert scaler.update(Observation(overflow={"a": False, "b": False}))[1].apply is True


# --- 14. a clamp leaves other state alone


def test_14_a_bound_changes_nothing_but_the_scale():
    scaler = RobustScaler(init_scale=4.0, min_scale=4.0, growth_interval=2, floor_patience=50)
    assert end(scaler, "o" * 10 + "....").scale == 16.0  # two windows, two doublings
    top = RobustScaler(init_scale=4.0, max_scale=4.0, growth_interval=2)
    assert end(top, "..") == top
    free = RobustScaler(init_scale=4.0, growth_interval=2)
    for history in ("o.", "..o", "."):
        assert end(top, history).clean_steps == end(free, history).clean_steps
    metaseq = end(scaling.make("metaseq"), "o" * 20)
    assert end(metaseq, "....").scale / metaseq.scale > 4.0


# --- 15. a skip leaves the optimizer as it was


def skipped(scaler):
    """Take one good step and one that overflows; give the state around the second, and whether the schedule moved."""
    model = mlp(hidden=8, layers=1)
    optimizer = Adam(model.parameters(), lr=0.1)
    batch, states, factor = Batches(digits()[0], 8).at(0), [], 1.0
    for number in (1, 2):
        states.append(
            repr(optimizer.state_dict()) + repr({k: v.tobytes() for k, v in model.state_dict().items()})
        )
        taken = train_step(number, model, CrossEntropyLoss(), batch, policy=Policy("mixed_float16"),
                           scaler=scaler, optimizer=optimizer, loss_factor=factor)  # fmt: skip
        scaler, factor = taken.scaler, 2.0**40
    after = repr(optimizer.state_dict()) + repr({k: v.tobytes() for k, v in model.state_dict().items()})
    assert not taken.step.applied
    return states, after, taken.advance


def test_15_a_skip_is_idempotent():
    states, after, advanced = skipped(RobustScaler(init_scale=1024.0))
    assert states[0] != states[1] == after
    assert advanced is False
    assert skipped(scaling.make("keras2", initial_scale=1024.0))[2] is True


# --- and what is not a gradient at all


def test_gradients_that_are_zero_empty_or_missing_are_clean():
    scaler = RobustScaler(growth_interval=1)
    for arrays in ([], [None], [np.zeros((0, 3), np.float32)], [np.zeros(4, np.float16)]):
        following, decision = scaler.update(observe(scaler, arrays))
        assert (following.scale, decision.apply) == (2.0**17, True)


def test_unchecked_gradients_are_an_error():
    with pytest.raises(ValueError, match="observe the gradients first"):
        RobustScaler().update(Observation(checked=False))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init_scale": 3}, "init_scale=3: it is a power of two, so that scaling is exact; pass 4"),
        ({"init_scale": 1000.0}, "pass 1024"),
        ({"init_scale": 0}, "above 0"),
        ({"init_scale": math.inf}, "a finite number above 0"),
        ({"init_scale": math.nan}, "init_scale=nan"),
        ({"min_scale": 2.0**-127}, r"between 2\^-126 and 2\^126"),
        ({"max_scale": 4.0}, "init_scale=65536: it lies between min_scale=1.52588e-05 and max_scale=4"),
        ({"min_scale": 2.0**60, "init_scale": 2.0**50}, "it lies between"),
        ({"min_scale": 4, "max_scale": 2}, "min_scale=4, max_scale=2: the minimum is not above the maximum"),
        ({"growth_interval": 0}, "growth_interval=0: it must be an integer above 0"),
        ({"growth_interval": 2.5}, "an integer"),
        ({"floor_patience": 0}, "above 0"),
        ({"growth_factor": 2}, "unknown option 'growth_factor'"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        scaling.make("robust", **options)


def test_a_state_that_cannot_be_is_refused():
    state = RobustScaler().framework_state()
    for change in ({"scale": 2.0**65}, {"clean_steps": 2000}, {"overflows_at_floor": -1}):
        with pytest.raises(ValueError, match=next(iter(change))):
            RobustScaler().load_framework_state({**state, **change})
    with pytest.raises(ValueError, match="without 'scale'"):
        RobustScaler().load_framework_state({key: state[key] for key in state if key != "scale"})
    with pytest.raises(ValueError, match="did you mean 'clean_steps'"):
        RobustScaler().load_framework_state({**state, "clean_step": 1})


def test_the_trace_of_the_table():
    scales = [row[3].scale for row in walk(RobustScaler(growth_interval=2), "oo...o.")]
    assert scales == [32768, 16384, 16384, 32768, 32768, 16384, 16384]
    assert replace(RobustScaler(), scale=8.0).scale == 8.0
