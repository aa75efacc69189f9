"""One step: what the model is called with, micro-batches, what is measured, and data that cannot be."""

import math

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.autograd import ops
from fp16sim.autograd.arithmetic import Arithmetic, round_array
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import GRU, CrossEntropyLoss, Embedding, Linear, Module
from fp16sim.optim import SGD, Adam
from fp16sim.training.data import Batches, SequenceBatches, TextBatches, characters, digits, vowels
from fp16sim.training.fit import fit, fit_steps
from fp16sim.training.models import mlp
from fp16sim.training.step import train_step

DATA = Batches(digits()[0], 32)
MIXED = Policy("mixed_float16")


class Keep:
    """An optimizer that keeps the gradients of its last step and moves nothing."""

    def __init__(self, model):
        self.parameters = model.parameters()
        self.found = None

    def step(self, gradients=None):
        self.found = gradients


def small(seed=0):
    return mlp(hidden=16, layers=2, seed=seed)


def bits(arrays):
    return [array.tobytes() for array in arrays]


def taken(model, *batches, policy=MIXED, scaler=None, **options):
    optimizer = Keep(model)
    scaler = scaling.StaticScaler(8.0) if scaler is None else scaler
    outcome = train_step(
        1, model, CrossEntropyLoss(), *batches, policy=policy, scaler=scaler, optimizer=optimizer, **options
    )
    return outcome, optimizer.found


# --- what a model is called with


class Recording(Module):
    """Keeps what it is called with and gives scores for two classes."""

    def __init__(self):
        self.linear = Linear(3, 2)
        self.seen = []

    def forward(self, *inputs):
        self.seen.append((inputs, self.training))
        (x,) = (each for each in inputs if isinstance(each, Tensor))
        return self.linear(x)


def test_integers_go_as_they_are_floats_as_tensors_and_tuples_as_arguments():
    model = Recording()
    lengths, mask = np.array([3, 1]), np.array([True, False])
    taken(model, ((np.ones((2, 3), np.float32), lengths, mask, None), np.array([0, 1])))
    (((x, *others), training),) = model.seen
    assert isinstance(x, Tensor)
    assert x.dtype == np.float32
    assert all(a is b for a, b in zip(others, (lengths, mask, None), strict=True))
    assert training


def test_lists_of_numbers_and_tensors_still_work():
    model = Recording()
    for inputs in ([[1, 2, 3]], [[1.0, 2.0, 3.0]], Tensor([[1.0, 2.0, 3.0]])):
        taken(model, (inputs, [1]))
    assert {seen[0].data.tobytes() for seen, _ in model.seen} == {np.float32([1, 2, 3]).tobytes()}


def test_a_model_left_in_evaluation_mode_trains_in_training_mode():
    model = Recording()
    batch = (np.ones((2, 3), np.float32), np.array([0, 1]))
    loop = fit_steps(model, [batch], optimizer=SGD(model.parameters(), lr=0.1), steps=2)
    model.eval()
    next(loop)
    model.eval()
    next(loop)
    assert [training for _, training in model.seen] == [True, True]


def test_a_part_that_is_meant_to_stay_in_evaluation_mode_does():
    model = small()
    model.modules[0].eval()
    fit(model, DATA, optimizer=SGD(model.parameters(), lr=0.1), steps=1)
    assert [part.training for part in model.modules] == [False, True, True, True, True]


class Tokens(Module):
    """Predicts the next character from this one."""

    def __init__(self, vocabulary):
        self.embedding, self.head = Embedding(vocabulary, 8), Linear(8, vocabulary)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


class Speech(Module):
    """Who speaks, from the last state of a recurrent layer."""

    def __init__(self):
        self.recurrent, self.head = GRU(12, 8, batch_first=True), Linear(8, 9)

    def forward(self, x, lengths):
        _, last = self.recurrent(x, lengths=lengths)
        return self.head(last[0])


def flat(output, targets):
    return CrossEntropyLoss()(output.reshape(-1, output.shape[-1]), targets.reshape(-1))


@pytest.mark.parametrize("kind", ["text", "speech"])
def test_real_tokens_and_sequences_are_trained_on_and_measured(kind):
    shown = []
    if kind == "text":
        text = characters()
        model, data, loss = Tokens(len(text.vocabulary)), TextBatches(text.training, 16, 8), flat
    else:
        model, data, loss = Speech(), SequenceBatches(vowels()[0], 30), None
    optimizer = Adam(model.parameters(), lr=0.01)
    options = {"policy": MIXED, "scaler": "torch", "loss_function": loss, "observers": [shown.append]}
    run = fit(model, data, optimizer=optimizer, steps=12, **options)
    assert np.mean([s.loss for s in run.history[-3:]]) < run.history[0].loss
    assert {name.partition("#")[0] for name in shown[0].gradients} == (
        {"embedding", "head"} if kind == "text" else {"recurrent", "head"}
    )
    assert run.history[0].survive > 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_data_that_is_not_finite_is_refused_where_it_is(value, dtype):
    model = small()
    before = [parameter.data.copy() for parameter in model.parameters()]
    good = DATA.at(0)
    images = good[0].astype(dtype)
    images[3, 5] = value
    with pytest.raises(
        ValueError, match=rf"inputs of batch 1\[3, 5\] is {value}.*has to be finite.*example 3"
    ):
        fit(model, [good, (images, good[1])], optimizer=SGD(model.parameters(), lr=0.0), steps=2)
    assert bits(before) == bits(parameter.data for parameter in model.parameters())


def test_the_element_of_a_tuple_is_named():
    model = Recording()
    inputs = (np.array([1, 2]), np.float32([[1, 2, 3], [1, math.nan, 3]]))
    with pytest.raises(ValueError, match=r"inputs\[1\] of batch 0\[1, 1\] is nan"):
        fit(model, [(inputs, [0, 1])], optimizer=SGD(model.parameters(), lr=0.1), steps=1)


def test_a_loss_that_is_no_number_is_refused():
    model = small()
    optimizer = SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"a tensor of shape \(32, 10\): it gives a tensor with one number"):
        fit(model, DATA, optimizer=optimizer, steps=1, loss_function=lambda output, labels: output)
    with pytest.raises(TypeError, match="gave a float"):
        fit(model, DATA, optimizer=optimizer, steps=1, loss_function=lambda output, labels: 0.5)


# --- micro-batches


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "float16", "mixed_bfloat16", "float64"])
def test_micro_batches_add_as_documented(policy):
    """Each step of the docstring, written out."""
    policy = Policy(policy)
    model = small().to(policy.parameters)
    batches = [DATA.at(i) for i in range(3)]
    outcome, found = taken(model, *batches, policy=policy, loss_factor=0.75)
    parameters = model.parameters()
    totals, losses = [None] * len(parameters), []
    for images, labels in batches:
        with autocast(policy):
            loss = CrossEntropyLoss()(model(Tensor(images)), labels)
            losses.append(loss.item())
            scaled = ops.divide(loss, 3) * 0.75 * 8.0
        for i, gradient in enumerate(gradients(scaled, parameters)):
            totals[i] = gradient if totals[i] is None else Arithmetic().add(totals[i], gradient)
    expected = [scaling.unscale(total, scaling.Decision(True, 8.0)) for total in totals]
    assert bits(found) == bits(expected)
    assert outcome.step.loss == (losses[0] + losses[1] + losses[2]) / 3
    assert {total.dtype.name for total in totals} == {policy.parameters}


def test_the_scaler_sees_the_sum_of_the_window_once():
    seen = []

    class Watching:
        scale = 2.0

        def observe(self, moves):
            seen.append(len(moves))
            return scaling.Observation()

        def update(self, observation):
            return self, scaling.Decision(True, 2.0)

    model = small()
    optimizer = SGD(model.parameters(), lr=0.1)
    run = fit(model, DATA, policy=MIXED, scaler=Watching(), optimizer=optimizer, steps=2, accumulate=3)
    assert seen == [6, 6]
    assert len(run.history) == 2


def test_a_window_reads_as_many_batches():
    model, numbers = Recording(), []

    class Source:
        def at(self, number):
            numbers.append(number)
            return np.ones((1, 3), np.float32), [number % 2]

        def __iter__(self):
            raise AssertionError("batches are asked for by number")

    optimizer = SGD(model.parameters(), lr=0.1)
    fit(model, Source(), optimizer=optimizer, steps=2, accumulate=2)
    assert numbers == [0, 1, 2, 3]


def test_an_overflow_in_one_micro_batch_skips_the_step():
    huge = lambda output, labels: CrossEntropyLoss()(output, labels) * (2.0**40 if labels[0] else 1.0)  # noqa: E731
    data = [(np.ones((1, 3), np.float32), [0]), (np.ones((1, 3), np.float32), [1])]
    model = Recording()
    before = bits(parameter.data for parameter in model.parameters())
    optimizer = SGD(model.parameters(), lr=0.1)
    options = {"policy": MIXED, "scaler": "static,scale=8", "optimizer": optimizer, "loss_function": huge}
    run = fit(model, data, steps=1, accumulate=2, **options)
    assert (run.history[0].overflow, run.history[0].applied) == (True, False)
    assert bits(parameter.data for parameter in model.parameters()) == before


# --- measuring


def test_without_measuring_the_same_weights_and_no_shares():
    runs, shown = [], []
    for measure in (True, False):
        model = small()
        runs.append(
            fit(
                model,
                DATA,
                policy=MIXED,
                scaler="static,scale=8",
                optimizer=SGD(model.parameters(), lr=0.05),
                steps=3,
                measure=measure,
                observers=[shown.append],
            )
        )
    weights = [bits(parameter.data for parameter in run.model.parameters()) for run in runs]
    assert weights[0] == weights[1]
    for step in runs[1].history:
        assert all(map(math.isnan, (step.zero, step.flushed, step.survive)))
    assert [len(observed.gradients) for observed in shown] == [3, 3, 3, 0, 0, 0]


def test_without_measuring_no_float32_backward_pass(monkeypatch):
    from fp16sim.training import measuring

    monkeypatch.setattr(measuring, "gradients", lambda *_, **__: pytest.fail("another backward pass"))
    taken(small(), DATA.at(0), measure=False)
    with pytest.raises(pytest.fail.Exception, match="another backward pass"):
        taken(small(), DATA.at(0))


class Twice(Module):
    """A layer of its own kind, called twice, with a parameter beside its parts."""

    def __init__(self):
        self.inner = Linear(3, 3)
        self.gain = Tensor(np.float32([0.5]), requires_grad=True)

    def forward(self, x):
        return self.inner(self.inner(x)) * self.gain


def test_every_module_with_parameters_of_its_own_and_every_call_is_measured():
    shown = []
    taken(Twice(), *[(np.ones((2, 3), np.float32), [0, 1])] * 2, observers=[shown.append])
    (observed,) = shown
    expected = ["inner", "inner#2", "", "inner#3", "inner#4", "#2"]
    assert list(observed.gradients) == list(observed.exact) == expected
    # The gain is float32 and so is what it multiplies; the inner layers give float16.
    assert [array.dtype.name for array in observed.gradients.values()] == (["float16"] * 2 + ["float32"]) * 2
    assert {array.dtype.name for array in observed.exact.values()} == {"float32"}
    sizes = [array.size for array in observed.gradients.values()]
    assert sizes == [6] * 6
    assert observed.step.zero + observed.step.flushed + observed.step.survive == pytest.approx(1)


def test_shares_under_bfloat16_are_those_of_bfloat16():
    shown = []
    taken(
        small(), DATA.at(0), policy=Policy("mixed_bfloat16"), loss_factor=2.0**-128, observers=[shown.append]
    )
    (observed,) = shown
    own = np.concatenate([array.astype(np.float32).ravel() for array in observed.gradients.values()])
    exact = np.concatenate([array.ravel() for array in observed.exact.values()])
    assert observed.step.flushed == ((own == 0) & (exact != 0)).mean()
    assert observed.step.flushed > 0
    assert observed.step.survive > 0


def test_exact_gradients_of_float64_stay_float64():
    shown = []
    model = small().to("float64")
    taken(model, DATA.at(0), policy=Policy("float64"), scaler=scaling.NoScaler(), observers=[shown.append])
    assert {array.dtype.name for array in shown[0].exact.values()} == {"float64"}


def test_unscaling_keeps_float64_and_rounds_the_factor_to_the_format():
    third = np.float64([1 / 3])
    found = scaling.unscale(third, scaling.Decision(True, 3.0))
    assert found.dtype == np.float64
    assert found.tobytes() == (third * (1 / np.float64(3))).tobytes()
    assert (
        scaling.unscale(third, scaling.Decision(True, 3.0, method="divide")).tobytes()
        == (third / 3).tobytes()
    )
    narrow = round_array(np.float32([0.7, 3.0]), "bfloat16")
    found = scaling.unscale(narrow, scaling.Decision(True, 3.0, dtype="tensor"))
    factor = round_array(np.float64([1 / 3]), "bfloat16")
    assert found.tobytes() == Arithmetic().multiply(narrow, factor).tobytes()


# --- scalers of one's own


class Own:
    """A scaler with what a scaler needs: a scale, and an update that gives what it was made with."""

    def __init__(self, scale=8.0, gives=None):
        self.scale, self.gives = scale, gives

    def update(self, observation):
        decision = scaling.Decision(apply=not observation.overflowed, divide_by=8.0)
        return (self, decision) if self.gives is None else self.gives(self, decision)


def test_an_object_with_only_a_scale_and_update_is_a_scaler():
    own, gradients_of_own = taken(small(), DATA.at(0), scaler=Own())
    static, gradients_of_static = taken(small(), DATA.at(0), scaler="static,scale=8")
    assert own.step == static.step
    assert bits(gradients_of_own) == bits(gradients_of_static)


@pytest.mark.parametrize("scale", [0.0, math.inf, np.float32(8.0), np.array(8), 8])
def test_scales_that_can_be(scale):
    assert taken(small(), DATA.at(0), scaler=Own(scale))[0].step.scale == float(scale)


@pytest.mark.parametrize("scale", [-8.0, math.nan, "8", True, None, np.float64(-1), np.ones(2), [8.0]])
def test_a_scale_that_cannot_be(scale):
    with pytest.raises(
        ValueError, match=r"^the scale of Own is .*: a scale is a number above 0; give one, such as"
    ):
        taken(small(), DATA.at(0), scaler=Own(scale))


def test_a_scale_of_a_layer_that_cannot_be():
    with pytest.raises(ValueError, match=r"^the scale of Own for 'b' is -1.0: a scale is a number above 0"):
        taken(small(), DATA.at(0), scaler=Own({"a": 2.0, "b": -1.0}))


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        (
            lambda own, decision: (),
            r"Own.update gave a tuple: a scaler gives the next one and a decision; return self, ",
        ),
        (lambda own, decision: own, "Own.update gave an Own: "),
        (lambda own, decision: True, "Own.update gave True: "),
        (lambda own, decision: [own, decision], "Own.update gave a list: "),
        (lambda own, decision: (own, True), "Own.update gave True as its decision: "),
        (lambda own, decision: (own, None), "Own.update gave None as its decision: "),
        (lambda own, decision: (None, decision), "Own.update gave None as the next scaler: "),
        (lambda own, decision: (8.0, decision), "Own.update gave 8.0 as the next scaler: "),
    ],
)
def test_an_update_that_gives_something_else(gives, says):
    with pytest.raises(TypeError, match=says) as caught:
        taken(small(), DATA.at(0), scaler=Own(gives=gives))
    assert str(caught.value).count("\n") == 0


def test_an_update_that_ends_the_process():
    def ends(own, decision):
        raise SystemExit(0)

    with pytest.raises(
        TypeError, match=r"Own.update raised SystemExit\(0\): the process is not a scaler's to end"
    ):
        taken(small(), DATA.at(0), scaler=Own(gives=ends))


def test_an_update_without_a_return():
    class Silent(Own):
        def update(self, observation):
            pass

    with pytest.raises(
        TypeError, match=r"Silent.update gave None: .*fs.scaling.Decision\(apply=not observation"
    ):
        taken(small(), DATA.at(0), scaler=Silent())


@pytest.mark.parametrize(
    ("divide_by", "kind", "says"),
    [
        (
            -8.0,
            ValueError,
            "^divide_by of the decision of Own is -8.0: a scale is a number above 0; give one",
        ),
        (
            math.nan,
            ValueError,
            "^divide_by of the decision of Own is nan: a scale is a number above 0; give one",
        ),
        ("8", TypeError, "^Own.update decided divide_by='8': a scale is a number above 0; give one"),
        (None, TypeError, "^Own.update decided divide_by=None: a scale is a number above 0; give one"),
    ],
)
def test_a_decision_that_cannot_divide(divide_by, kind, says):
    def gives(own, decision):
        return own, scaling.Decision(apply=True, divide_by=divide_by)

    with pytest.raises(kind, match=says):
        taken(small(), DATA.at(0), scaler=Own(gives=gives))


def test_what_is_no_scaler_at_all():
    with pytest.raises(
        TypeError, match=r"8\.0 is no scaler: pass text such as 'static,scale=8.0', or an object"
    ):
        taken(small(), DATA.at(0), scaler=8.0)
