"""SGD: every rounding in its documented order, with and without master weights."""

import numpy as np
import pytest
from fp16sim_steps import NARROW_AND_SINGLE, Steps, same_bits

import fp16sim as fs
from fp16sim.autograd.tensor import Tensor
from fp16sim.optim import SGD


def scalar_sgd(weight, gradients, lr, momentum, dtype):
    """One weight, one NumPy scalar operation at a time: each is correctly rounded."""
    velocity, path = None, []
    for gradient in gradients:
        g = dtype(gradient)
        if momentum == 0 or velocity is None:
            velocity = g
        else:
            velocity = dtype(dtype(dtype(momentum) * velocity) + g)
        weight = dtype(weight - dtype(dtype(lr) * velocity))
        path.append(weight)
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("lr", "momentum"), [(0.05, 0.9), (0.1, 0.0), (6553.6, 0.9)])
def test_against_scalar_steps(dtype, lr, momentum):
    rng = np.random.default_rng(0)
    start = rng.normal(size=20).astype(dtype)
    gradients = (rng.normal(size=(15, 20)) * 2.0**-3).astype(np.float32)
    parameter = Tensor(start.copy(), requires_grad=True)
    optimizer = SGD([parameter], lr=lr, momentum=momentum)
    with np.errstate(all="ignore"):
        expected = [scalar_sgd(start[i], gradients[:, i], lr, momentum, dtype) for i in range(20)]
    for position, gradient in enumerate(gradients):
        optimizer.step([gradient])
        found = parameter.data
        assert found.dtype == dtype
        assert found.tobytes() == np.array([path[position] for path in expected], dtype).tobytes()


def test_master_weights_take_what_float16_weights_lose():
    """w = 1 and a thousand steps of -2e-4: half an ulp of 1 is 2.4e-4."""
    found = {}
    for dtype in (np.float16, np.float32):
        parameter = Tensor(np.ones(1, dtype), requires_grad=True)
        optimizer = SGD([parameter], lr=1.0)
        for _ in range(1000):
            optimizer.step([np.float32([2e-4])])
        found[dtype] = float(parameter.data[0])
    assert found[np.float16] == 1.0
    assert found[np.float32] == pytest.approx(0.8, abs=1000 * 2.0**-25)  # half an ulp a step


def test_it_uses_grad_and_leaves_none_alone():
    first, second = (Tensor(np.ones(2, np.float32), requires_grad=True) for _ in range(2))
    first.grad = np.ones(2, np.float32)
    SGD([first, second], lr=0.5).step()
    assert first.data.tolist() == [0.5, 0.5]
    assert second.data.tolist() == [1, 1]


def test_zero_grad_and_what_it_prints_as():
    parameter = Tensor(np.ones(2, np.float32), requires_grad=True)
    parameter.grad = np.ones(2, np.float32)
    optimizer = SGD([parameter], lr=0.5, momentum=0.9)
    optimizer.zero_grad()
    assert parameter.grad is None
    assert repr(optimizer) == "SGD(1 parameter, lr=0.5, momentum=0.9)"


def test_a_step_makes_new_arrays():
    parameter = Tensor(np.ones(2, np.float32), requires_grad=True)
    before = parameter.data
    SGD([parameter], lr=0.5).step([np.ones(2, np.float32)])
    assert before.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1.0}, "lr=-1.0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"lr": 0.1, "momentum": 1.0}, "momentum=1.0"),
        ({"lr": 0.1, "parameters": []}, "model.parameters"),
        ({"lr": 0.1, "parameters": [Tensor([1.0])]}, "no parameter takes a gradient: .*requires_grad=True"),
    ],
)
def test_refusals(arguments, message):
    parameters = arguments.pop("parameters", [Tensor([1.0], requires_grad=True)])
    with pytest.raises(ValueError, match=message):
        SGD(parameters, **arguments)


def test_a_frozen_parameter_does_not_move():
    frozen, free = Tensor([1.0]), Tensor([1.0], requires_grad=True)
    (frozen * free).sum().backward()
    SGD([frozen, free], lr=0.5, weight_decay=0.5).step()
    assert (frozen.item(), free.item()) == (1.0, 0.25)


def test_one_gradient_for_each_parameter():
    with pytest.raises(ValueError, match="2 gradients for 1 parameters"):
        SGD([Tensor([1.0], requires_grad=True)], lr=0.1).step([None, None])


# ---------------------------------------------------------------------------------------- weight decay and Nesterov


def scalar_steps(m, w, gradients, lr, momentum, decay, nesterov):
    """By the docstring's lines, on the definition."""
    v = None
    for g in gradients:
        g = m.rounded(g)
        if decay:
            g = m.add(g, m.multiply(m.number(decay), w))
        v = g if v is None or not momentum else m.add(m.multiply(m.number(momentum), v), g)
        d = m.add(g, m.multiply(m.number(momentum), v)) if nesterov else v
        w = m.subtract(w, m.multiply(m.number(lr), d))
        yield w


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
@pytest.mark.parametrize(
    ("momentum", "decay", "nesterov"),
    [(0.0, 0.1, False), (0.9, 0.01, False), (0.9, 0.0, True), (0.5, 0.1, True)],
)
def test_decay_and_nesterov_against_scalars(dtype, momentum, decay, nesterov):
    rng = np.random.default_rng(3)
    start = rng.normal(size=8).astype(np.float32).astype(dtype)
    gradients = rng.normal(size=(5, 8)).astype(np.float32)
    parameter = Tensor(start.copy(), requires_grad=True)
    optimizer = SGD([parameter], lr=0.05, momentum=momentum, weight_decay=decay, nesterov=nesterov)
    m = Steps(dtype)
    paths = [
        list(scalar_steps(m, start[i], gradients[:, i], 0.05, momentum, decay, nesterov)) for i in range(8)
    ]
    for t, gradient in enumerate(gradients):
        optimizer.step([gradient])
        same_bits(parameter.data, np.array([path[t] for path in paths], dtype))


def test_nesterov_needs_momentum():
    with pytest.raises(ValueError, match="nesterov=True without momentum"):
        SGD([Tensor([1.0], requires_grad=True)], lr=0.1, nesterov=True)


def test_options_that_are_used_are_shown():
    parameter = Tensor([1.0], requires_grad=True)
    optimizer = SGD([parameter], lr=0.5, momentum=0.9, weight_decay=1e-4, nesterov=True)
    assert repr(optimizer) == "SGD(1 parameter, lr=0.5, momentum=0.9, weight_decay=0.0001, nesterov=True)"


# ------------------------------------------------------------------- what float16 without master weights does to it


@pytest.mark.parametrize(("step", "narrow", "right"), [(2e-4, 1.0, 0.8), (3e-4, 0.51171875, 0.7)])
def test_small_steps_do_nothing_or_too_much(step, narrow, right):
    """From 1 down float16 goes by 2^-11 = 4.9e-4: steps under half of it are lost, others become whole ones."""
    found = {}
    for dtype in (np.float16, np.float32):
        parameter = Tensor(np.ones(1, dtype), requires_grad=True)
        optimizer = SGD([parameter], lr=1.0)
        for _ in range(1000):
            optimizer.step([np.float32([step])])
        found[dtype] = parameter.item()
    assert found[np.float16] == narrow
    assert found[np.float32] == pytest.approx(right, abs=1000 * 2.0**-25)  # half an ulp a step


def test_weight_decay_underflows():
    """1e-4 times 1e-2 times .02 is 0 in float16, and 2e-8 is right."""
    found = {}
    for dtype in (np.float16, np.float32):
        weight = dtype(0.02)
        parameter = Tensor(np.array([weight]), requires_grad=True)
        SGD([parameter], lr=1e-4, weight_decay=1e-2).step([np.zeros(1, np.float32)])
        decay = fs.multiply(fs.multiply(dtype(1e-2), weight), dtype(1e-4))
        found[dtype] = float(decay)
        assert float(weight) - parameter.item() == pytest.approx(
            found[dtype], abs=2.0**-30
        )  # half an ulp of .02
    assert found[np.float16] == 0.0
    assert found[np.float32] == pytest.approx(2e-8, rel=1e-6)
