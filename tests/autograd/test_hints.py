"""Messages that say what a name of torch, or a function of arrays, is called here."""

import re

import numpy as np
import pytest

import fp16sim as fs
from fp16sim.autograd import ops
from fp16sim.autograd.hints import _TORCH
from fp16sim.autograd.tensor import Tensor


@pytest.mark.parametrize(
    ("name", "operation", "count"),
    [
        ("tanh", "tanh", 1),
        ("gelu", "gelu", 1),
        ("sqrt", "sqrt", 1),
        ("sum", "sum", 1),
        ("softmax", "softmax", 1),
        ("matmul", "matmul", 2),
        ("add", "add", 2),
        ("minimum", "minimum", 2),
        ("conv2d", "convolution", 2),
        ("round_to", "cast", 1),
        ("exp2", None, 1),
        ("fma", None, 3),
    ],
)
def test_functions_of_arrays_name_the_one_with_gradients(name, operation, count):
    with pytest.raises(TypeError) as caught:
        getattr(fs, name)(*[Tensor([[1.0]])] * count)
    named = re.search(r"for gradients use (fs\.autograd\.ops[\w.]*); .*pass tensor\.data$", str(caught.value))
    assert named is not None
    assert named[1] == ("fs.autograd.ops" if operation is None else f"fs.autograd.ops.{operation}")
    assert operation is None or operation in ops.__all__


def test_numpy_is_told_likewise():
    with pytest.raises(TypeError, match=r"for gradients use fs\.autograd\.ops; "):
        np.asarray(Tensor([1.0]))


@pytest.mark.parametrize("name", sorted(_TORCH))
def test_names_of_torch_without_a_method_have_a_hint_that_works(name):
    assert name not in dir(Tensor)
    with pytest.raises(AttributeError, match="a tensor has no") as caught:
        getattr(Tensor([1.0]), name)
    for method in re.findall(r"x\.(\w+)", str(caught.value)):
        assert method in dir(Tensor), method
    for function in re.findall(r"ops\.(\w+)", str(caught.value)):
        assert function in ops.__all__, function


def test_other_attributes():
    with pytest.raises(AttributeError, match=r"fs\.autograd\.ops\.relu\(x\)"):
        Tensor([1.0]).relu  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean 'reshape'"):
        Tensor([1.0]).reshap  # noqa: B018
    with pytest.raises(AttributeError, match="dir"):
        Tensor([1.0]).qqq  # noqa: B018
    assert not hasattr(Tensor([1.0]), "__len_hint__")


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "argmax", "variance", "cumsum"])
def test_dim_is_called_axis(name):
    with pytest.raises(TypeError, match=rf"{name}\(dim=...\).* axis="):
        getattr(Tensor([[1.0]]), name)(dim=0)
    if name not in ("argmax", "cumsum"):
        with pytest.raises(TypeError, match="keepdims="):
            getattr(Tensor([[1.0]]), name)(axis=0, keepdim=True)


def test_names_of_torch_are_operations():
    x = Tensor(np.float16([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), requires_grad=True)
    a = x.data
    pairs = [
        (x.view(3, 2), a.reshape(3, 2)),
        (x.view((-1,)), a.reshape(-1)),
        (x.permute(1, 0), a.T),
        (x.permute((1, 0)), a.T),
        (x.transpose(0, 1), a.T),
        (x.unsqueeze(-1), a[..., None]),
        (x.clamp(2.0, 5.0), a.clip(2.0, 5.0)),
        (x.clamp(max=3.0), a.clip(None, 3.0)),
        (x.clone(), a),
        (x.pow(2.0), a * a),
    ]
    for found, expected in pairs:
        assert found.dtype == np.float16
        assert found.requires_grad
        assert found.data.tobytes() == expected.tobytes()
    assert not np.shares_memory(x.clone().data, x.data)
    x.clone().sum().backward()
    assert x.grad.tolist() == [[1.0] * 3] * 2


def test_numbers_and_text():
    assert float(Tensor([[0.5]])) == 0.5
    with pytest.raises(ValueError, match="takes one element"):
        float(Tensor([1.0, 2.0]))
    assert f"{Tensor(0.5):.3f} {Tensor(0.5)}" == "0.500 0.5"
    assert f"{Tensor([0.5])}" == repr(Tensor([0.5]))
    with pytest.raises(TypeError, match="item"):
        f"{Tensor([0.5, 1.0]):.3f}"
    assert Tensor([[0.5, -0.0]], dtype="bfloat16").tolist() == [[0.5, -0.0]]
    assert type(Tensor(np.float16(0.5)).tolist()) is float
