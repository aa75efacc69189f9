"""Many histories at once: equal to the objects on every step, whatever the scaler, units, blocks or threads."""

import dataclasses
import math
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fp16sim as fs
from fp16sim import scaling
from fp16sim.scaling import Decision, Observation, PeakModel, simulate
from fp16sim.scaling.automaton import Automaton
from fp16sim.scaling.outcomes import ClosedLoop, log2
from fp16sim.scaling.reduction import _RULES, reduced

SLOW = ("guided_diffusion",)  # a power of 2 in every state: a millisecond an update
# These have a scale for each layer or tensor, or depend on the size of every gradient.
OTHERS = {"adaptive", "delayed", "fairscale_layerwise", "openseq2seq_logmax", "unit"}
NAMES = [name for name in scaling.names() if name not in OTHERS]
VARIANTS = [
    "deepspeed,hysteresis=1", "deepspeed,hysteresis=0", "deepspeed,consecutive_hysteresis=1",
    "deepspeed,raise_error_at_min_scale=0,min_loss_scale=3", "fairseq,tolerance=0.25", "fairseq,threshold=4",
    "metaseq,tolerance=0.25", "torch,growth_factor=3,backoff_factor=0.3", "torch,init_scale=2**-140",
    "torch,growth_interval=0", "torch_fsdp,init_scale=2**120", "keras3,dynamic_growth_steps=0", "megatron,hysteresis=3",
    "colossalai,hysteresis=4", "paddle,decr_every_n_nan_or_inf=2", "paddle,decr_every_n_nan_or_inf=0",
    "flax,growth_interval=-1", "apex_fp16utils,scale_window=-2", "robust,min_scale=1,floor_patience=3",
    "mindspore_cell,scale_window=1", "chainer,interval=2", "mxnet,loss_scale=4",
]  # fmt: skip


def with_window(text: str, window: int):
    scaler = scaling.parse(text)
    option = type(scaler).window
    given_too = option is None or f"{option}=" in text
    return scaler if given_too else scaling.parse(f"{text},{option}={window}")


def differences(found, expected) -> list[str]:
    """Name the fields that differ in any bit; final states have to have the same future."""
    wrong = []
    for field in dataclasses.fields(expected):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        if field.name == "trace" and b is not None:
            wrong += [f"trace.{each}" for each in differences(a, b)]
        elif field.name == "scalers":
            wrong += ["scalers"] * (list(map(repr, map(reduced, a))) != list(map(repr, map(reduced, b))))
        elif isinstance(b, np.ndarray):
            same = a.dtype == b.dtype and np.array_equal(a, b, equal_nan=b.dtype.kind == "f")
            wrong += [field.name] * (not same)
        else:
            wrong += [field.name] * (a != b)
    return wrong


def compared(scaler, histories, **options) -> list[str]:
    return differences(
        simulate(scaler, histories, trace=True, **options),
        simulate(scaler, histories, trace=True, method="objects", **options),
    )


@pytest.mark.parametrize("text", NAMES + VARIANTS)
@settings(max_examples=10, derandomize=True, deadline=None, database=None)
@given(
    texts=st.lists(st.text("...on", min_size=30, max_size=30), min_size=1, max_size=4),
    window=st.integers(1, 6),
)
def test_kinds_of_steps_give_what_the_objects_give(text, texts, window):
    texts = [text[:5] for text in texts[:2]] if text in SLOW else texts
    assert compared(with_window(text, window), texts) == []


@pytest.mark.parametrize("text", NAMES + VARIANTS)
def test_peaks_give_what_the_objects_give(text):
    rng = np.random.default_rng(1)
    peaks = rng.normal(0, 4, (2, 30) if text in SLOW else (4, 300)).astype(np.float32)
    peaks[rng.random(peaks.shape) < 0.02] = np.nan
    peaks[rng.random(peaks.shape) < 0.02] = np.inf
    peaks[rng.random(peaks.shape) < 0.02] = -np.inf
    scaler = with_window(text, 4)
    assert compared(scaler, peaks) == []
    with np.errstate(over="ignore"):
        linear = np.exp2(peaks.astype(np.float64))
    assert compared(scaler, linear, units="linear") == []
    assert compared(scaler, peaks + 100, format="bfloat16") == []


def test_the_comparison_sees_a_fault(monkeypatch):
    # An overflow at the third state is told to lead to the first.
    right = Automaton._step

    def wrong(self, edge):
        state = right(self, edge)
        if edge == 3 * 2 + 1:
            self._following[edge] = 0
        return state

    assert compared("torch,growth_interval=4", ["..o..."]) == []
    monkeypatch.setattr(Automaton, "_step", wrong)
    assert "trace.scale" in compared("torch,growth_interval=4", ["..o..."])


# ------------------------------------------------------------------------------------------- when a step overflows


def by_hand(scaler, peaks, overflows):
    """Follow one history with an overflow rule of the test's own."""
    rows = []
    for peak in peaks:
        scale, over = scaler.scale, overflows(peak, scaler.scale)
        scaler, decision = scaler.update(Observation(overflow=over))
        rows.append((scale, decision.divide_by, decision.apply, over))
    return rows


@pytest.mark.parametrize(
    "text", ["torch,growth_interval=2", "chainer,interval=2", "deepspeed,loss_scale_window=2"]
)
def test_a_step_overflows_from_65520_on(text):
    rng = np.random.default_rng(2)
    peaks = np.float32(2.0 ** rng.integers(-12, 14, 200) * rng.choice([1, 65519 / 65536, 65520 / 65536], 200))
    scaler = scaling.parse(text)
    expected = by_hand(scaler, peaks.tolist(), lambda peak, scale: peak * scale >= 65520)
    trace = simulate(scaler, peaks, units="linear", trace=True).trace
    found = zip(
        *(getattr(trace, name)[0].tolist() for name in ("scale", "divide_by", "applied", "overflow")),
        strict=True,
    )
    assert list(found) == expected
    with np.errstate(over="ignore"):
        half = np.isinf(np.float16(peaks.astype(np.float64) * trace.scale[0]))  # one rounding of the product
    assert half.tolist() == trace.overflow[0].tolist()


def test_peaks_in_log2_overflow_from_the_difference_on():
    bound = log2(65520.0)
    peaks = [math.nextafter(bound - 10, -math.inf), bound - 10, math.nan, math.inf, -math.inf]
    found = simulate("static,scale=1024", np.array(peaks), trace=True).trace
    assert found.overflow[0].tolist() == [False, True, True, True, False]
    assert found.nan[0].tolist() == [False, False, True, False, False]
    for exponent in range(-1074, 1024):
        assert log2(2.0**exponent) == exponent
    rng = np.random.default_rng(0)
    for x in rng.uniform(0, 70000, 1000).tolist():
        assert abs(log2(x) - math.log2(x)) <= 2.0**-48  # the library's own is within an ulp of 16


def test_scales_of_zero_infinity_and_nan():
    @dataclass(frozen=True)
    class Odd:
        scale: float = 1.0

        def update(self, observation):
            following = {1.0: 0.0, 0.0: math.inf, math.inf: -0.0}.get(self.scale, math.nan)
            return Odd(math.nan if math.copysign(1, self.scale) < 0 else following), Decision(
                True, self.scale
            )

    for peaks in ([0.0] * 6, [-math.inf] * 6, [math.inf] * 6):
        assert compared(Odd(), np.array(peaks)) == []
    for peaks in ([1.0] * 6, [0.0] * 6, [math.inf] * 6):
        assert compared(Odd(), np.array(peaks), units="linear") == []
    trace = simulate(Odd(), np.zeros(6), units="linear", trace=True).trace
    assert trace.overflow[0].tolist() == [False, False, True, False, True, True]  # infinity * 0 is NaN
    found = simulate(Odd(), ["......"])
    assert (found.lowest[0], found.highest[0]) == (0.0, math.inf)
    assert math.isnan(found.mean_log2_scale[0])


# ------------------------------------------------------------------------------------------- blocks, threads, memory


@pytest.mark.parametrize(
    "text", ["torch,growth_interval=7", "fairseq,scale_window=5,min_loss_scale=2**10", "mxnet"]
)
def test_blocks_and_threads_change_nothing(text):
    peaks = PeakModel(jitter=3.0, start=2.0, nan_rate=0.01, seed=4).peaks(7, 500)
    whole = simulate(text, peaks, trace=True)
    for cuts in ([0, 500], [0, 1, 2, 499, 500], [0, 250, 250, 500]):
        blocks = (peaks[:, a:b] for a, b in zip(cuts, cuts[1:], strict=False))
        assert differences(simulate(text, blocks, trace=True), whole) == []
    assert differences(simulate(text, peaks), dataclasses.replace(whole, trace=None)) == []
    before = fs.set_threads(1)
    try:
        for n in (1, 2, 5):
            fs.set_threads(n)
            assert differences(simulate(text, peaks, trace=True), whole) == []
    finally:
        fs.set_threads(before)


def test_on_the_plain_backend_the_objects_run():
    peaks = PeakModel(jitter=3.0, start=2.0).peaks(2, 60)
    fast = simulate("torch,growth_interval=3", peaks, trace=True)
    with fs.use_backend("reference"):
        assert differences(simulate("torch,growth_interval=3", peaks, trace=True), fast) == []


def test_arrays_of_any_layout():
    peaks = PeakModel(jitter=3.0, start=2.0).peaks(4, 100)
    expected = simulate("torch", peaks, trace=True)
    for same in (
        np.asfortranarray(peaks),
        np.repeat(peaks, 2, 1)[:, ::2],
        peaks.astype(">f8"),
        peaks.tolist(),
    ):
        assert differences(simulate("torch", same, trace=True), expected) == []
    assert differences(simulate("torch", peaks[0]), simulate("torch", peaks[:1])) == []
    half = peaks.astype(np.float16)
    assert differences(simulate("torch", half), simulate("torch", half.astype(np.float32))) == []
    flags = peaks > 2
    texts = ["".join(".o"[flag] for flag in row) for row in flags.tolist()]
    assert differences(simulate("torch", flags), simulate("torch", texts)) == []
    assert differences(simulate("torch", peaks, trace=True), expected) == []


def test_memory_does_not_grow_with_the_steps():
    block = PeakModel(jitter=3.0, start=2.0).peaks(50, 2000)

    def peak_of(blocks: int) -> int:
        tracemalloc.start()
        try:
            found = simulate("torch,growth_interval=20", (block for _ in range(blocks)))
            assert found.steps[0] == 2000 * blocks
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_of(1)  # compiles
    few, many = peak_of(5), peak_of(200)
    assert many < 1.25 * few + 100_000


def test_a_table_that_would_grow_for_ever_is_begun_anew():
    peaks = PeakModel(jitter=2.0, start=0.0, seed=1).peaks(3, 800)
    for text in (
        "guided_diffusion",
        "chainer,interval=7",
        "robust,growth_interval=5,min_scale=2**12,floor_patience=2",
    ):
        scaler = scaling.parse(text)
        expected = simulate(scaler, peaks, method="objects")
        automaton = Automaton(scaler, ClosedLoop(), most_states=40)
        walkers = automaton.walkers(3)
        for place in range(0, 800, 100):
            automaton.advance(peaks[:, place : place + 100], walkers)
            assert len(automaton.states) < 40 + 3 * 4200
        assert [repr(automaton.states[state]) for state in walkers.state] == list(map(repr, expected.scalers))
        assert (walkers.total / expected.steps).tolist() == expected.mean_log2_scale.tolist()
        assert walkers.counts[:, 0].tolist() == expected.applied.tolist()
        assert [automaton.stop_reasons.get(history) for history in range(3)] == expected.stop_reasons


@pytest.mark.parametrize("text", [name for name in NAMES if name not in ("chainer", "guided_diffusion")])
def test_a_table_closes(text):
    automaton = Automaton(with_window(text, 3), ClosedLoop())
    walkers = automaton.walkers(4)
    peaks = PeakModel(jitter=3.0, start=2.0, seed=2).peaks(4, 6000)
    automaton.advance(peaks[:, :3000], walkers)
    before = len(automaton.states)
    assert before < 1500
    automaton.advance(peaks[:, 3000:], walkers)
    assert len(automaton.states) <= before + 100


# ------------------------------------------------------------------------------------------- states of one future

CLOCKS = {
    "torch": {"growth_tracker": 70}, "torch_fsdp": {"growth_tracker": 70}, "apex": {"unskipped": 70},
    "apex_fp16utils": {"cur_iter": 1007, "last_overflow_iter": 3}, "mxnet": {"unskipped": 70},
    "keras3": {"step_counter": 70}, "flax": {"fin_steps": 70}, "paddle": {"incr_count": 70, "decr_count": 50},
    "deepspeed": {"iteration": 1007, "last_overflow": 2, "hysteresis_left": -5},
    "deepspeed_unfused": {"iteration": 1007, "last_overflow": 2},
    "fairseq": {"iteration": 1007, "last_overflow": 2, "last_rescale": 40, "overflows": 3},
    "metaseq": {"iteration": 1007, "last_overflow": 2, "last_rescale": 40, "overflows": 3},
    "megatron": {"hysteresis_tracker": -7}, "colossalai": {"growth_step": 70, "hysteresis_step": 9},
    "mindspore_manager": {"iteration": 1007, "last_overflow": 2},
    "mindspore_cell": {"iteration": 1007, "last_change": 2},
    "openseq2seq_backoff": {"iteration": 1007, "last_overflow": 2},
}  # fmt: skip


def parts_from(scaler, other, texts) -> bool:
    """Whether two scalers do anything different on a history."""
    return any(
        [name for name in differences(simulate(scaler, text, trace=True, method="objects"),
                                      simulate(other, text, trace=True, method="objects")) if name != "scalers"]
        for text in texts
    )  # fmt: skip


def random_texts(count: int, steps: int) -> list[str]:
    drawn = np.random.default_rng(3).integers(0, 6, (count, steps))
    return ["".join("....on"[each] for each in row) for row in drawn.tolist()]


@pytest.mark.parametrize("name", CLOCKS)
def test_a_reduced_state_has_the_same_future(name):
    texts = [*random_texts(20, 40), "." * 60]
    for window in (3, 5, 6):
        for more in range(2 * window):
            for text in [name, *(each for each in VARIANTS if each.split(",")[0] == name)]:
                clocks = {key: value + more for key, value in CLOCKS[name].items()}
                old = dataclasses.replace(with_window(text, window), **clocks)
                assert not parts_from(old, reduced(old), texts[more % 20 :][:2] + texts[-1:])


def test_every_rule_that_reduces_is_tested():
    assert {kind.name for kind in _RULES} == set(CLOCKS)


def test_a_wrong_reduction_is_seen():
    old = scaling.parse("deepspeed,loss_scale_window=5")
    old = dataclasses.replace(old, iteration=1007)
    wrong = dataclasses.replace(reduced(old), iteration=reduced(old).iteration + 1)
    assert parts_from(old, wrong, ["." * 20])


# ------------------------------------------------------------------------------------------- your own scalers


@dataclass(frozen=True)
class Countdown:
    """Stops after three overflows."""

    left: int = 3
    scale: float = 8.0

    def update(self, observation):
        left = self.left - observation.overflowed
        return Countdown(left, self.scale * 2), Decision(
            True, self.scale, stop="enough" if left == 0 else None
        )


class Plain:
    """No dataclass: its states are never the same."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def update(self, observation):
        return Plain(self.scale / 2 if observation.overflowed else self.scale * 2), Decision(True, self.scale)


def test_scalers_of_ones_own():
    found = simulate(Countdown(), ["o.o.o...", "........", "....n.oo"], trace=True)
    assert found.steps.tolist() == [5, 8, 8]
    assert found.first_stop.tolist() == [4, -1, 7]
    assert found.stop_reasons == ["enough", None, "enough"]
    assert found.final_scale.tolist() == [8.0 * 2**5, 8.0 * 2**8, 8.0 * 2**8]
    assert np.isnan(found.trace.scale[0, 5:]).all()
    assert not found.trace.applied[0, 5:].any()
    assert found.scalers[0] == Countdown(0, 256.0)
    assert compared(Countdown(), ["o.o.o...", "........", "....n.oo"]) == []
    found = simulate(Plain(), np.array([[10.0] * 40]), trace=True)
    expected = simulate(Plain(), np.array([[10.0] * 40]), trace=True, method="objects")
    assert found.trace.scale.tolist() == expected.trace.scale.tolist()


def test_summaries():
    found = simulate("torch,growth_interval=2", ["oo...o.", "......."])
    assert found.steps.tolist() == [7, 7]
    assert found.applied.tolist() == [4, 7]
    assert found.skipped.tolist() == found.overflows.tolist() == [3, 0]
    assert found.lowest.tolist() == [16384, 65536]
    assert found.highest.tolist() == [65536, 2.0**19]
    assert found.mean_log2_scale.tolist() == [
        (16 + 15 + 14 + 14 + 15 + 15 + 14) / 7,
        (16 + 16 + 17 + 17 + 18 + 18 + 19) / 7,
    ]
    assert found.final_scale.tolist() == [16384, 2.0**19]
    assert [each.growth_tracker for each in found.scalers] == [1, 1]
    assert found.trace is None


def test_no_steps_and_no_histories():
    found = simulate("torch", [""], trace=True)
    assert found.steps.tolist() == [0]
    assert np.isnan([found.lowest[0], found.mean_log2_scale[0]]).all()
    assert found.final_scale.tolist() == [65536]
    assert found.trace.scale.shape == (1, 0)
    assert compared("torch", [""]) == []
    assert simulate("torch", np.zeros((0, 5))).steps.tolist() == []


def test_a_rule_that_reads_the_size_of_gradients_runs_as_objects():
    found = simulate("openseq2seq_logmax", np.full((1, 50), -3.0), trace=True)
    scaler = scaling.make("openseq2seq_logmax")
    for step in range(50):
        assert found.trace.scale[0, step] == scaler.scale
        scaler, _ = scaler.update(Observation(amax=0.125))
    assert found.final_scale[0] == scaler.scale > 1
    with pytest.raises(ValueError, match="pass peaks, not kinds of steps"):
        simulate("openseq2seq_logmax", "..")
    with pytest.raises(ValueError, match="use method='objects'"):
        simulate("openseq2seq_logmax", [[1.0]], method="automaton")


class Gives:
    """A scaler whose update gives anything, or raises it."""

    def __init__(self, given, scale=2.0):
        self.given, self.scale = given, scale

    def update(self, observation):
        if isinstance(self.given, BaseException):
            raise self.given
        return (self, self.given) if isinstance(self.given, Decision) else self.given


@pytest.mark.parametrize("method", ["automaton", "objects"])
@pytest.mark.parametrize(
    ("scaler", "message"),
    [
        (Gives(None), r"Gives\.update gave None: a scaler gives the next one and a decision; return self"),
        (Gives(SystemExit(0)), r"Gives\.update raised SystemExit\(0\): the process is not a scaler's to end"),
        (Gives(Decision(None, 2.0)), r"Gives\.update decided apply=None: it is True or False"),
        (Gives(Decision({"a": True}, 2.0)), "a decision for each group"),
        (Gives(Decision(True, "2")), r"Gives\.update decided divide_by='2': a scale is a number"),
        (Gives(Decision(True, True)), r"Gives\.update decided divide_by=True: a scale is a number"),
        (Gives(Decision(True, np.ones(2))), r"decided divide_by=array\(\[1\., 1\.\]\): a scale is a number"),
        (Gives(Decision(True, 10**400)), "decided divide_by=1000*: a scale is a number"),
        (Gives(Decision(True, 2.0, stop=True)), "decided stop=True: it is None, or text that says why"),
        (Gives(Decision(True, 2.0), "big"), "the scale of Gives is 'big': a scale is a number"),
    ],
)
def test_what_is_no_decision_is_said(method, scaler, message):
    with pytest.raises(TypeError, match=message):
        simulate(scaler, "..", method=method)


@pytest.mark.parametrize("method", ["automaton", "objects"])
def test_any_kind_of_number_is_a_scale(method):
    found = simulate(
        Gives(Decision(np.bool_(True), np.array(4)), np.float32(2.0)), "..", trace=True, method=method
    )
    assert found.trace.divide_by.tolist() == [[4.0, 4.0]]
    assert found.final_scale.tolist() == [2.0]


@dataclass
class Blocks:
    """To be given one after the other."""

    blocks: list


@pytest.mark.parametrize("method", ["automaton", "objects"])
@pytest.mark.parametrize(
    ("error", "message", "arguments", "options"),
    [
        (ValueError, "unknown scaler 'trch': did you mean 'torch'", ("trch", ".."), {}),
        (TypeError, "3 is no scaler", (3, ".."), {}),
        (
            ValueError,
            "unknown scaler 'own.py:Mine': .* as an object: .* pass Mine()",
            ("own.py:Mine", ".."),
            {},
        ),
        (ValueError, "'x' in a history: '.' is a finite", ("torch", ".x"), {}),
        (ValueError, "'{' in a history: simulate takes a letter for each step", ("torch", "o{3}"), {}),
        (ValueError, "3 in a history", ("torch", ["..", 3]), {}),
        (ValueError, "histories of 2 and of 3 steps", ("torch", ["..", "..."]), {}),
        (
            ValueError,
            "^histories of 1 and of 2 steps: make them equally",
            ("torch", [[True, False], [True]]),
            {},
        ),
        (ValueError, "^histories of 2 and of 3 steps", ("torch", [np.ones(3), np.ones(2)]), {}),
        (ValueError, "^histories of different shapes: make them", ("torch", [[1.0], 2.0]), {}),
        (
            TypeError,
            "TorchScaler is a class: pass an object of it, such as TorchScaler",
            (scaling.TorchScaler, ".."),
            {},
        ),
        (ValueError, r"histories of shape \(1, 1, 1\)", ("torch", [[[1.0]]]), {}),
        (TypeError, "histories of dtype int64: pass booleans", ("torch", np.array([0, 1])), {}),
        (ValueError, "unknown units 'log': did you mean 'log2'", ("torch", [1.0]), {"units": "log"}),
        (ValueError, "e4m3 has no infinity", ("torch", [1.0]), {"format": "e4m3"}),
        (ValueError, "no block of histories", ("torch", Blocks([])), {}),
        (
            ValueError,
            r"a block of shape \(2, 3\)",
            ("torch", Blocks([np.zeros((1, 3)), np.zeros((2, 3))])),
            {},
        ),
        (
            ValueError,
            "a block of shape .* uint8",
            ("torch", Blocks([np.zeros((1, 3)), np.zeros((1, 3), bool)])),
            {},
        ),
        (TypeError, "has a scale for each group", ("fairscale_layerwise", ".."), {}),
        *(
            (TypeError, "chooses a scale for each layer or tensor", (name, [1.0]), {})
            for name in ("adaptive", "unit", "delayed")
        ),
    ],
)
def test_bad_input(method, error, message, arguments, options):
    scaler, histories = arguments
    arguments = (scaler, iter(histories.blocks) if isinstance(histories, Blocks) else histories)
    with pytest.raises(error, match=message):
        simulate(*arguments, method=method, **options)


def test_an_unknown_method():
    with pytest.raises(ValueError, match="unknown method 'object': did you mean 'objects'"):
        simulate("torch", "..", method="object")


def test_a_linear_peak_is_a_magnitude() -> None:
    with pytest.raises(ValueError, match=r"a peak of -3\.0: linear peaks are magnitudes.*units='log2'"):
        simulate("torch", np.array([1.0, -3.0]), units="linear")
