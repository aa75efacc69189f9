"""Methods are the functions of their names."""

import inspect

import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.methods import Methods
from fp16sim.autograd.tensor import Tensor

ARGUMENTS = {"cumsum": (1,), "flip": (0,), "expand_dims": (1,), "swapaxes": (0, 1), "clip": (0.5, 1.0)}
NAMES = [name for name in vars(Methods) if not name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_a_method_gives_what_the_function_gives(name):
    x = Tensor(np.random.default_rng(0).uniform(0.1, 2.0, (2, 3)).astype(np.float16))
    function = getattr(ops, {"abs": "absolute"}.get(name, name))
    arguments = ARGUMENTS.get(name, ())
    found, expected = getattr(x, name)(*arguments), function(x, *arguments)
    if isinstance(expected, Tensor):
        found, expected = found.data, expected.data
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_defaults_are_those_of_the_function(name):
    function = getattr(ops, {"abs": "absolute"}.get(name, name))
    ours = list(inspect.signature(getattr(Methods, name)).parameters.values())[1:]
    theirs = list(inspect.signature(function).parameters.values())[1:]
    assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs]


def test_tensors_have_no_dictionary():
    assert not hasattr(Tensor([1.0]), "__dict__")
