"""Policies: what their names stand for, and what they refuse."""

import contextlib

import pytest

from fp16sim.autograd.policy import Policy, as_policy, autocast, current_policy


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("float32", ("float32", "float32", "float32", "float32", "float32")),
        ("float16", ("float16", "float16", "float16", "float16", "float16")),
        ("mixed_float16", ("float16", "float32", "float32", "float32", "float32")),
    ],
)
def test_presets(name, fields):
    policy = as_policy(name)
    assert (policy.compute, policy.parameters, policy.losses, policy.matmul, policy.reduction) == fields
    assert as_policy(policy) is policy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "mixed_flot16"}, "did you mean 'mixed_float16'"),
        ({"name": "float16", "compute": "float61"}, "did you mean 'float16'"),
        ({"name": "float16", "matmul": "fp32"}, "use one of|did you mean"),
        ({"name": "float32", "matmul": "float16"}, "accumulates in float32"),
        ({"name": "mixed_float16", "reduction": "float16"}, "accumulates in float32"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        Policy(**arguments)
    assert "\n" not in str(caught.value)


def test_autocast_nests_and_ends_on_errors():
    with autocast("mixed_float16"):
        with contextlib.suppress(RuntimeError), autocast("float16"):
            assert current_policy().name == "float16"
            raise RuntimeError
        assert current_policy().name == "mixed_float16"
    assert current_policy().name == "float32"


def test_autocast_refuses_an_unknown_policy_at_the_call():
    with pytest.raises(ValueError, match="unknown policy 'mixed_float8'"):
        autocast("mixed_float8")
