"""SGD: every rounding in its documented order, with and without master weights."""

import numpy as np
import pytest

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
    ],
)
def test_refusals(arguments, message):
    parameters = arguments.pop("parameters", [Tensor([1.0], requires_grad=True)])
    with pytest.raises(ValueError, match=message):
        SGD(parameters, **arguments)


def test_one_gradient_for_each_parameter():
    with pytest.raises(ValueError, match="2 gradients for 1 parameters"):
        SGD([Tensor([1.0], requires_grad=True)], lr=0.1).step([None, None])
