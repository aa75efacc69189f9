"""The step and the loop: exactness of scaling, skips, digests, observers, and shares that rounding confirms."""

import math
from itertools import islice

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.autograd.policy import Policy
from fp16sim.nn import CrossEntropyLoss
from fp16sim.optim import SGD
from fp16sim.training.data import Batches, digits
from fp16sim.training.fit import digest, fit, fit_steps
from fp16sim.training.models import mlp
from fp16sim.training.results import Step
from fp16sim.training.step import train_step

DATA = Batches(digits()[0], 32)


def small(seed=0):
    return mlp(hidden=16, layers=2, seed=seed)


def train(policy="mixed_float16", scaler="none", steps=6, lr=0.05, **options):
    model = small()
    optimizer = SGD(model.parameters(), lr=lr, momentum=0.9)
    return fit(model, DATA, policy=policy, scaler=scaler, optimizer=optimizer, steps=steps, **options)


def weights(run):
    return [parameter.data.tobytes() for parameter in run.model.parameters()]


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "float16"])
def test_training_learns_and_repeats_itself(policy):
    first, second = train(policy, steps=40), train(policy, steps=40)
    assert first.digest == second.digest
    assert np.mean([s.loss for s in first.history[-5:]]) < 0.7 * first.history[0].loss
    dtype = "float16" if policy == "float16" else "float32"
    assert {parameter.dtype.name for parameter in first.model.parameters()} == {dtype}
    assert train(policy, steps=39).digest != first.digest


class Gradients:
    """An observer that keeps the scaled activation gradients of every step."""

    def __init__(self):
        self.bits = []

    def __call__(self, observed):
        self.bits.append([array.tobytes() for array in observed.gradients.values()])


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize("k", [0, 8, 17])
def test_scaling_is_exact(policy, k):
    """(loss 2^-k, scale S) and (loss 2^-(k+1), scale 2 S): the same bits, and with twice the rate the same run."""
    seen, runs = [], []
    for shift in (0, 1):
        observer = Gradients()
        runs.append(
            train(
                policy,
                scaling.StaticScaler(8.0 * 2**shift),
                lr=0.05 * 2.0 ** (k + shift),
                loss_factor=2.0 ** -(k + shift),
                observers=[observer],
            )
        )
        seen.append(observer.bits)
    assert seen[0] == seen[1]
    assert weights(runs[0]) == weights(runs[1])


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_scaling_is_exact_over_a_window_of_micro_batches(policy):
    """Divided by four micro-batches, which is exact, and added up: the same bits again."""
    runs = [
        train(
            policy, f"static,scale={8 * 2**s}", lr=0.05 * 2.0**s, loss_factor=2.0**-s, accumulate=4, steps=3
        )
        for s in (0, 1, 9)
    ]
    assert weights(runs[0]) == weights(runs[1]) == weights(runs[2])


def test_scaling_matters_otherwise():
    """The property above can fail: the same scale with half the loss gives other bits."""
    seen = []
    for shift in (0, 1):
        observer = Gradients()
        train(scaler="static,scale=8", loss_factor=2.0 ** -(17 + shift), observers=[observer], steps=1)
        seen.append(observer.bits)
    assert seen[0] != seen[1]


def test_a_float32_run_does_not_see_a_loss_factor():
    plain = train("float32", lr=0.05)
    small_loss = train("float32", lr=0.05 * 2.0**17, loss_factor=2.0**-17)
    assert weights(plain) == weights(small_loss)


def test_overflow_is_skipped_and_leaves_model_and_momentum_alone():
    model = small()
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    before = [parameter.data.copy() for parameter in model.parameters()]
    scaler = scaling.make("torch", init_scale=2.0**60)
    loop = fit_steps(model, DATA, policy="mixed_float16", scaler=scaler, optimizer=optimizer, steps=3)
    for number, step in enumerate(loop):
        assert (step.applied, step.overflow, step.scale) == (False, True, 2.0 ** (60 - number))
    assert loop.scaler.scale == 2.0**57
    assert optimizer.velocity == [None] * 6
    for parameter, data in zip(model.parameters(), before, strict=True):
        assert parameter.data.tobytes() == data.tobytes()


def test_without_a_scaler_infinities_are_applied():
    run = train(scaler="none", loss_factor=2.0**40, steps=2)
    assert run.history[0].overflow
    assert run.history[0].applied
    assert math.isnan(run.history[1].loss)


def test_float16_loss_seed_overflows_at_the_default_scale():
    run = train("float16", "torch", steps=2)
    assert [(step.applied, step.scale) for step in run.history] == [(False, 65536.0), (True, 32768.0)]


@pytest.mark.parametrize("scale", [1.0, 8.0, 2.0**20])
def test_shares_under_float16(scale):
    """Each share recounted from what the observer was shown."""
    shown = []
    train(scaler=f"static,scale={scale!r}", loss_factor=2.0**-17, steps=1, observers=[shown.append])
    (observed,) = shown
    own = np.concatenate([array.ravel() for array in observed.gradients.values()])
    exact = np.concatenate([array.ravel() for array in observed.exact.values()])
    assert own.dtype == np.float16
    assert exact.dtype == np.float32
    step = observed.step
    assert step.zero == ((own == 0) & (exact == 0)).mean()
    assert step.flushed == ((own == 0) & (exact != 0)).mean()
    assert step.survive == (own != 0).mean()
    assert step.zero + step.flushed + step.survive == pytest.approx(1)
    # float16 gradients that did not vanish are those of the float32 walk, up to their roundings.
    normal = np.abs(own.astype(np.float64)) >= 2.0**-10
    if normal.any():
        ratio = own[normal].astype(np.float64) / (exact[normal].astype(np.float64) * scale)
        assert np.abs(ratio - 1).max() < 0.05


def test_scale_rescues_what_would_be_flushed():
    flushed = [
        train(scaler=f"static,scale={scale}", loss_factor=2.0**-17, steps=1).history[0].flushed
        for scale in (1, 8, 1024, 2**20)
    ]
    assert flushed == sorted(flushed, reverse=True)
    assert flushed[0] > 0.1
    assert flushed[-1] < 0.01


def test_shares_under_float32_say_what_float16_would_do():
    shown = []
    train("float32", "static,scale=4", loss_factor=2.0**-17, steps=1, observers=[shown.append])
    exact = np.concatenate([array.ravel() for array in shown[0].exact.values()]).astype(np.float64)
    assert shown[0].step.flushed == ((exact != 0) & (np.abs(exact * 4) <= 2.0**-25)).mean()


def test_fit_steps_gives_steps_as_they_are_taken():
    model = small()
    loop = fit_steps(model, DATA, optimizer=SGD(model.parameters(), lr=0.05), steps=50)
    taken = list(islice(loop, 3))
    assert [step.step for step in taken] == [1, 2, 3]
    assert digest(model, taken) == fitted_digest(3)


def fitted_digest(steps):
    model = small()
    return fit(model, DATA, optimizer=SGD(model.parameters(), lr=0.05), steps=steps).digest


def test_short_data_is_read_again_and_empty_data_refused():
    model = small()
    batch = next(iter(DATA))
    run = fit(model, [batch], optimizer=SGD(model.parameters(), lr=0.05), steps=3)
    assert len(run.history) == 3
    with pytest.raises(ValueError, match="ran out of batches"):
        fit(model, [], optimizer=SGD(model.parameters(), lr=0.05), steps=1)
    with pytest.raises(ValueError, match="ran out of batches"):
        fit(model, iter([batch]), optimizer=SGD(model.parameters(), lr=0.05), steps=2)


class TestDigest:
    step = Step(1, 0.5, 8.0, True, False, 0.1, 0.2, 0.7)

    def test_it_sees_every_weight_and_every_field(self):
        model = small()
        base = digest(model, [self.step])
        assert base == digest(small(), [self.step])
        changed = [
            digest(model, [Step(**{**vars(self.step), name: value})])
            for name, value in {
                "step": 2,
                "loss": 0.25,
                "scale": 4.0,
                "applied": False,
                "overflow": True,
                "zero": 0.2,
                "flushed": 0.3,
                "survive": 0.4,
            }.items()
        ]
        model.parameters()[-1]._array[0] = np.nextafter(np.float32(0), np.float32(1))
        changed.append(digest(model, [self.step]))
        assert len({base, *changed}) == 10

    def test_every_nan_counts_alike(self):
        found = set()
        for pattern in (0x7FC00000, 0xFFC00000, 0x7FC00001):
            model = small()
            model.parameters()[-1]._array[0] = np.uint32(pattern).view(np.float32)
            found.add(digest(model, [Step(**{**vars(self.step), "loss": math.copysign(math.nan, -1)})]))
        assert len(found) == 1


class Stopping:
    scale = 1.0

    def update(self, observation):
        return self, scaling.Decision(False, 1.0, stop="the scale is at its floor")


def test_a_decision_can_stop_training():
    with pytest.raises(RuntimeError, match="step 1: the scale is at its floor"):
        train(scaler=Stopping())


class WrongDivisor:
    """A scaler that divides by the scale after growth, not by the one that multiplied the loss."""

    def __init__(self, scale=8.0):
        self.scale = scale

    def update(self, observation):
        following = WrongDivisor(self.scale * 2)
        return following, scaling.Decision(True, following.scale)


def test_the_divisor_is_the_decisions():
    assert weights(train(scaler=WrongDivisor(), steps=1)) != weights(train(scaler="static,scale=8", steps=1))


def test_the_step_gives_the_gradients_that_backward_gives():
    """train_step walks the tape with `gradients`; Tensor.backward must agree."""
    from fp16sim.autograd.policy import autocast
    from fp16sim.autograd.tensor import Tensor

    images, labels = next(iter(DATA))
    model, kept = small(), []

    class Keep:
        parameters = model.parameters()

        def step(self, gradients=None):
            kept.extend(gradients)

    train_step(
        1,
        model,
        CrossEntropyLoss(),
        (images, labels),
        policy=Policy("mixed_float16"),
        scaler=scaling.StaticScaler(8.0),
        optimizer=Keep(),
    )
    with autocast("mixed_float16"):
        loss = CrossEntropyLoss()(model(Tensor(images)), labels)
        (loss * 8.0).backward()
    for parameter, gradient in zip(model.parameters(), kept, strict=True):
        assert (parameter.grad / np.float32(8)).tobytes() == gradient.tobytes()


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"policy": "mixed_flot16"}, ValueError, "did you mean 'mixed_float16'"),
        ({"scaler": "torhc"}, ValueError, "did you mean 'torch'"),
        ({"scaler": 8.0}, TypeError, "no scaler"),
        ({"loss_factor": -1.0}, ValueError, "loss_factor=-1.0"),
        ({"steps": 0}, ValueError, "steps=0"),
        ({"steps": 2.5}, ValueError, "steps=2.5"),
        ({"accumulate": 0}, ValueError, "accumulate=0: a step takes 1 batch or more"),
        ({"accumulate": True}, ValueError, "accumulate=True"),
        ({"clip_norm": 0.0}, ValueError, "clip_norm=0.0"),
        ({"clip_value": math.nan}, ValueError, "clip_value=nan"),
        ({"schedule": lambda applied: -1.0}, ValueError, "the schedule gave -1.0 after 0 applied steps"),
        ({"schedule": lambda applied: "fast"}, ValueError, "the schedule gave 'fast'"),
    ],
)
def test_refusals(options, kind, message):
    with pytest.raises(kind, match=message):
        train(**options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"scaler": scaling.TorchScaler},
            r"^TorchScaler is a class: pass an object of it, such as TorchScaler\(\)",
        ),
        ({"optimizer": None}, r"^the optimizer is a NoneType: pass one such as fs.optim.SGD\("),
        ({"optimizer": SGD}, "^the optimizer is a class: pass one such as fs.optim.SGD"),
        ({"observers": 5}, r"^observers is an int: pass a list of functions, such as \[print\]"),
        ({"observers": print}, "^observers is a builtin_function_or_method: pass a list of functions"),
        ({"observers": [5]}, "^an observer is an int: pass functions that take what a step showed"),
        ({"model": 5}, "^the model is an int: pass a Module, such as fs.nn.Linear"),
        ({"model": None, "optimizer": None}, "^the model is a NoneType: pass a Module"),
    ],
)
def test_arguments_of_another_kind(given, message):
    model = small()
    arguments = {"model": model, "optimizer": SGD(model.parameters(), lr=0.1), **given}
    with pytest.raises(TypeError, match=message):
        fit(data=DATA, steps=1, **arguments)


def test_an_optimizer_of_another_model():
    model = small()
    with pytest.raises(ValueError, match=r"another model \(number 0, of shape \(16, 64\)\)"):
        fit(model, DATA, optimizer=SGD(small().parameters(), lr=0.1), steps=1)


# --- schedules, clipping


class Recorder:
    """An optimizer that keeps rates and gradients, and moves nothing."""

    def __init__(self, model):
        self.parameters, self.lr = model.parameters(), 0.5
        self.rates, self.found = [], []

    def step(self, gradients=None):
        self.rates.append(self.lr)
        self.found.append(gradients)


def recorded(steps=1, **options):
    model = small()
    optimizer = Recorder(model)
    run = fit(model, DATA, policy="mixed_float16", optimizer=optimizer, steps=steps, **options)
    return run, optimizer


def test_a_schedule_holds_when_a_step_is_skipped():
    asked = []

    def schedule(applied):
        asked.append(applied)
        return 1.0 / (1 + applied)

    run, optimizer = recorded(6, scaler="torch,init_scale=2**30,growth_interval=2", schedule=schedule)
    applied = [step.applied for step in run.history]
    assert applied.count(False) >= 2
    assert asked == [sum(applied[:i]) for i in range(6)]
    assert optimizer.rates == [1.0 / (1 + i) for i in range(applied.count(True))]


@pytest.mark.parametrize("advance", [True, False, None])
def test_a_schedule_follows_what_the_decision_says_of_counters(advance):
    class Skipping:
        scale = 1.0

        def update(self, observation):
            return self, scaling.Decision(False, 1.0, advance=advance)

    asked = []
    recorded(4, scaler=Skipping(), schedule=lambda applied: asked.append(applied) or 0.1)
    assert asked == ([0, 1, 2, 3] if advance else [0, 0, 0, 0])


def test_the_schedules_of_the_package_are_followed():
    from fp16sim.optim import cosine

    schedule = cosine(0.1, total=4, warmup=2)
    _, optimizer = recorded(6, schedule=schedule)
    assert optimizer.rates == [schedule(i) for i in range(6)]


def test_clipping_comes_after_unscaling():
    """The same limits at another scale: the same bits, since the gradients that they meet are the same."""
    limits = {"clip_norm": 0.25, "clip_value": 0.01}
    runs = [recorded(scaler=f"static,scale={scale}", **limits)[1].found[0] for scale in (8, 1024)]
    assert [g.tobytes() for g in runs[0]] == [g.tobytes() for g in runs[1]]
    norm = math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in runs[0]))
    assert norm <= 0.25
    assert max(np.abs(g).max() for g in runs[0]) <= np.float32(0.01)


def test_values_are_clipped_first_and_as_the_optimizers_package_does():
    from fp16sim.optim import clip_grad_norm, clip_grad_value

    plain = recorded(scaler="static,scale=64")[1].found[0]
    both = recorded(scaler="static,scale=64", clip_norm=0.05, clip_value=0.01)[1].found[0]
    expected, _ = clip_grad_norm(clip_grad_value(plain, 0.01), 0.05)
    other = clip_grad_value(clip_grad_norm(plain, 0.05)[0], 0.01)
    assert [g.tobytes() for g in both] == [g.tobytes() for g in expected]
    assert [g.tobytes() for g in both] != [g.tobytes() for g in other]


def test_a_loop_keeps_its_history():
    model = small()
    loop = fit_steps(model, DATA, optimizer=SGD(model.parameters(), lr=0.05), steps=4)
    taken = [next(loop), next(loop)]
    assert loop.history == taken
    assert loop.applied == 2
    assert len([*loop]) == 2
    assert [step.step for step in loop.history] == [1, 2, 3, 4]


def test_data_with_numbers_and_data_without_give_the_same_run():
    runs = []
    for data in (DATA, [DATA.at(i) for i in range(6)]):
        model = small()
        runs.append(fit(model, data, optimizer=SGD(model.parameters(), lr=0.05), steps=6).digest)
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "spoiled",
    [np.ndarray.tolist, lambda x: x.astype(">f4"), lambda x: x.astype(np.float16), lambda x: (x, None)],
)
def test_nan_in_the_inputs_is_found_in_whatever_holds_it(spoiled):
    inputs = np.zeros((4, 64), np.float32)
    inputs[1, 2] = np.nan
    model = mlp()
    before = model.state_dict()
    with pytest.raises(ValueError, match=r"inputs(\[0\])? of batch 0\[1, 2\] is nan"):
        fit(model, [(spoiled(inputs), np.zeros(4, int))], optimizer=SGD(model.parameters(), lr=0.1), steps=1)
    assert all((before[name] == value).all() for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("data", "kind", "says"),
    [
        (None, TypeError, "the data is a NoneType: pass batches"),
        (3, TypeError, "the data is a int: pass batches"),
        ([np.zeros((4, 64))], ValueError, "batch 0 of the data is a ndarray: each is a pair"),
        ([None], ValueError, "batch 0 of the data is a NoneType"),
        ([(1, 2, 3)], ValueError, "batch 0 of the data is 3 parts"),
    ],
)
def test_data_that_is_no_pairs(data, kind, says):
    model = mlp()
    with pytest.raises(kind, match=says):
        fit(model, data, optimizer=SGD(model.parameters(), lr=0.1), steps=1)
