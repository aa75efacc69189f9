"""What optimizers share: state that resumes with the same bits, refusals, conversion, schedules of the rate."""

import io
import math

import numpy as np
import pytest
from fp16sim_steps import same_bits

import fp16sim as fs
from fp16sim.autograd.tensor import Tensor
from fp16sim.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from fp16sim.optim.optimizer import RepeatedProduct

MAKERS = {
    "SGD": lambda p: SGD(p, lr=0.1),
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "RMSprop": lambda p: RMSprop(p, lr=0.1, momentum=0.9, centered=True),
    "Adam": lambda p: Adam(p, lr=0.1, weight_decay=0.01),
    "AdamW": lambda p: AdamW(p, lr=0.1, betas=(0.8, 0.95)),
}
DTYPES = ["float32", "float16", "bfloat16", "float64"]


def parameters(dtype="float32"):
    rng = np.random.default_rng(1)
    return [
        Tensor(rng.normal(size=shape).astype(np.float32), requires_grad=True, dtype=dtype)
        for shape in ((3, 2), (), (4,))
    ]


def gradients(step):
    rng = np.random.default_rng(100 + step)
    drawn = [rng.normal(size=shape).astype(np.float32) for shape in ((3, 2), (), (4,))]
    if step % 3 == 1:
        drawn[1] = None
    return drawn


def states_agree(a, b):
    assert list(a) == list(b)
    for name in a:
        same_bits(np.asarray(a[name]), np.asarray(b[name]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("stop", [0, 1, 5])
def test_a_run_that_is_taken_up_again_has_the_same_bits(name, dtype, stop):
    make = MAKERS[name]
    through, once = parameters(dtype), parameters(dtype)
    whole, first = make(through), make(once)
    for step in range(8):
        whole.step(gradients(step))
    for step in range(stop):
        first.step(gradients(step))
    first.lr = whole.lr = first.lr / 2
    again = [Tensor(parameter.numpy(), requires_grad=True) for parameter in once]
    second = make(again)
    second.load_state_dict(first.state_dict())
    states_agree(second.state_dict(), first.state_dict())
    assert second.lr == first.lr == 0.05
    second.lr = 0.1
    for step in range(stop, 8):
        second.step(gradients(step))
    for a, b in zip(through, again, strict=True):
        same_bits(a.data, b.data)


@pytest.mark.parametrize("name", MAKERS)
def test_state_goes_through_a_file(name):
    optimizer = MAKERS[name](parameters())
    for step in range(3):
        optimizer.step(gradients(step))
    buffer = io.BytesIO()
    np.savez(buffer, **optimizer.state_dict())
    buffer.seek(0)
    other = MAKERS[name](parameters())
    with np.load(buffer) as saved:
        other.load_state_dict(saved)
    states_agree(other.state_dict(), optimizer.state_dict())
    assert all(type(getattr(other, h)) is type(getattr(optimizer, h)) for h in other.hyperparameters)


def test_state_is_a_copy_of_numbers_and_arrays():
    optimizer = SGD(parameters(), lr=0.1, momentum=0.9)
    optimizer.step(gradients(0))
    state = optimizer.state_dict()
    assert all(isinstance(value, (int, float, np.ndarray)) for value in state.values())
    assert {name.split(".")[0] for name in state} == {"SGD"}
    state["SGD.velocity.0"][:] = 0
    assert optimizer.velocity[0].all()


def test_a_gradient_that_changes_later_does_not_change_the_velocity():
    gradient = np.ones(2, np.float32)
    optimizer = SGD([Tensor(np.ones(2, np.float32), requires_grad=True)], lr=0.1, momentum=0.9)
    optimizer.step([gradient])
    gradient[:] = 7
    assert optimizer.velocity[0].tolist() == [1, 1]


@pytest.mark.parametrize("name", MAKERS)
def test_state_follows_a_parameter_that_is_converted(name):
    own = parameters()
    optimizer = MAKERS[name](own)
    optimizer.step(gradients(0))
    for parameter in own:
        parameter.data = fs.autograd.arithmetic.round_array(parameter.data, "float16")
    optimizer.step(gradients(2))
    assert {parameter.dtype for parameter in own} == {np.dtype(np.float16)}
    found = {array.dtype for b in optimizer.buffers for array in getattr(optimizer, b) if array is not None}
    assert found <= {np.dtype(np.float16)}


def changed(**changes):
    state = Adam(parameters()).state_dict() | {f"Adam.{k}": v for k, v in changes.items()}
    return {name: value for name, value in state.items() if value is not None}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (SGD(parameters(), lr=0.1).state_dict(), "another optimizer: it has 'SGD.lr' and this is Adam"),
        (AdamW(parameters()).state_dict(), "this is Adam"),
        (Adam(parameters()[:2]).state_dict(), "2 parameters and this optimizer 3"),
        (Adam(parameters()[::-1]).state_dict(), r"parameter 0 has shape \(4,\) there and \(3, 2\) here"),
        (changed(beta3=0.5), "no state 'Adam.beta3'; .*beta"),
        (changed(eps=None), "lacks 'Adam.eps'"),
        (changed(**{"steps.1": None}), "lacks 'Adam.steps.1'"),
        (changed(**{"first.2": np.zeros(3)}), r"first 2 has shape \(3,\) and its parameter \(4,\)"),
        (changed(lr=-1.0), "lr=-1.0"),
        (changed(beta1=1.5), "beta1=1.5"),
    ],
)
def test_a_state_that_does_not_belong_changes_nothing(state, message):
    optimizer = Adam(parameters())
    optimizer.step(gradients(0))
    before = optimizer.state_dict()
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state)
    states_agree(optimizer.state_dict(), before)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ([], ValueError, "no parameters"),
        ([np.ones(2)], TypeError, "parameter 0 is a ndarray"),
        ([Tensor([1.0])], ValueError, "requires_grad=True"),
        ([*parameters()[:1] * 2], ValueError, "occurs twice"),
    ],
)
def test_parameters_that_cannot_be(given, kind, message):
    with pytest.raises(kind, match=message):
        Adam(given)


def test_gradients_that_do_not_fit_move_nothing():
    own = parameters()
    optimizer = Adam(own)
    before = [parameter.data.tobytes() for parameter in own]
    wrong = gradients(0)
    wrong[2] = wrong[2][:3]
    with pytest.raises(ValueError, match=r"gradient 2 has shape \(3,\) and its parameter \(4,\)"):
        optimizer.step(wrong)
    with pytest.raises(ValueError, match="1 gradients for 3 parameters"):
        optimizer.step([None])
    with pytest.raises(TypeError, match=r"pass tensor\.data"):
        optimizer.step([Tensor(np.ones((3, 2), np.float32)), None, None])
    assert [parameter.data.tobytes() for parameter in own] == before
    assert optimizer.steps == [0, 0, 0]


@pytest.mark.parametrize("lr", [-1.0, math.nan, math.inf, True, "fast"])
def test_a_rate_that_cannot_be_is_refused_when_it_is_set(lr):
    optimizer = SGD(parameters(), lr=0.1)
    with pytest.raises(ValueError, match="lr="):
        optimizer.lr = lr
    assert optimizer.lr == 0.1


def test_powers_are_repeated_products():
    power, value = RepeatedProduct(), 1.0
    for count in range(1, 50):
        value *= 0.999
        assert power(0.999, count) == value
    assert power(0.999, 2) == 0.999 * 0.999
    assert power(0.5, 3) == 0.125
    assert power(0.5, 0) == 1.0


def test_each_is_an_optimizer():
    assert all(isinstance(make(parameters()), Optimizer) for make in MAKERS.values())
    assert fs.optim.SGD is SGD


def test_numbers_of_numpy_compute_in_binary64():
    moved = []
    for number in (float, np.float64):
        weight = Tensor(np.float32([1.0]), requires_grad=True)
        optimizer = Adam([weight], lr=number(np.float32(0.1)), betas=(number(np.float32(0.9)), 0.999))
        optimizer.step([np.float32([0.3])])
        moved.append(weight.data.tobytes())
    weight = Tensor(np.float32([1.0]), requires_grad=True)
    optimizer = Adam([weight], lr=np.float32(0.1), betas=(np.float32(0.9), 0.999))
    optimizer.step([np.float32([0.3])])
    assert type(optimizer.lr) is type(optimizer.beta1) is float
    assert moved == [weight.data.tobytes()] * 2


@pytest.mark.parametrize("given", [Tensor([1.0], requires_grad=True), None, 3])
def test_parameters_come_in_a_list(given):
    with pytest.raises(TypeError, match=r"pass model.parameters\(\), or a list"):
        SGD(given, lr=0.1)


def test_a_result_is_no_parameter():
    with pytest.raises(ValueError, match="parameter 0 is the result of an operation"):
        SGD([Tensor([1.0], requires_grad=True) * 2.0], lr=0.1)


def test_complex_gradients_move_nothing():
    weight = Tensor([1.0], requires_grad=True)
    with pytest.raises(TypeError, match="only real numbers are rounded"):
        SGD([weight], lr=0.1).step([np.array([1j])])
    assert weight.data.tolist() == [1]


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_state_is_a_mapping(kind):
    with pytest.raises(TypeError, match=r"the state is a NoneType: pass what state_dict\(\) gave"):
        kind([Tensor([1.0], requires_grad=True)], lr=0.1).load_state_dict(None)


@pytest.mark.parametrize("steps", [-1, 1.5, np.nan, True, np.float64(2.0)])
def test_steps_in_a_state_are_counts(steps):
    optimizer = Adam([Tensor([1.0], requires_grad=True)], lr=0.1)
    before = optimizer.state_dict()
    with pytest.raises(ValueError, match=r"Adam\.steps\.0=.* in the state: it counts steps, from 0 on"):
        optimizer.load_state_dict(before | {"Adam.lr": 0.5, "Adam.steps.0": steps})
    assert (optimizer.lr, optimizer.steps) == (0.1, [0])
    optimizer.load_state_dict(before | {"Adam.steps.0": np.int64(3)})
    assert optimizer.steps == [3]


@pytest.mark.parametrize("betas", [0.9, (0.9,), (0.9, 0.99, 0.999), None, "b2"])
@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_betas_are_a_pair(kind, betas):
    with pytest.raises(TypeError, match=r"betas=.*pass a pair such as \(0\.9, 0\.999\)"):
        kind([Tensor([1.0], requires_grad=True)], betas=betas)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(SGD, {"momentum": 0.9, "nesterov": "no"}), (SGD, {"nesterov": 0}), (RMSprop, {"centered": "no"})],
)
def test_flags_are_true_or_false(kind, options):
    with pytest.raises(TypeError, match="it is on or off; pass True or False"):
        kind([Tensor([1.0], requires_grad=True)], lr=0.1, **options)
