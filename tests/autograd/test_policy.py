"""Policies: what their names stand for, which operation computes where, and what they refuse."""

import contextlib

import ml_dtypes
import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.flavours import FLAVOURS
from fp16sim.autograd.policy import Policy, as_policy, autocast, current_policy
from fp16sim.autograd.tensor import Tensor, no_grad
from fp16sim.emulator.datapath import as_datapath


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("float32", ("float32", "float32", "float32", "float32", "float32")),
        ("float16", ("float16", "float16", "float16", "float16", "float16")),
        ("mixed_float16", ("float16", "float32", "float32", "float32", "float32")),
        ("mixed_bfloat16", ("bfloat16", "float32", "float32", "float32", "float32")),
        ("float64", ("float64", "float64", "float64", "float64", "float64")),
    ],
)
def test_presets(name, fields):
    policy = as_policy(name)
    assert (policy.compute, policy.parameters, policy.wide, policy.matmul, policy.reduction) == fields
    assert as_policy(policy) is policy


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "mixed_flot16"}, ValueError, "did you mean 'mixed_float16'"),
        (
            {"name": "float16", "compute": "float61"},
            ValueError,
            "unknown compute format 'float61': did you mean",
        ),
        ({"name": "float16", "matmul": "fp32"}, ValueError, "use one of|did you mean"),
        ({"name": "float32", "matmul": "float16"}, TypeError, "binary32 operands with datapath 'float16'"),
        ({"name": "mixed_bfloat16", "convolution": "v100"}, TypeError, "bfloat16 operands"),
        ({"name": "mixed_float16", "flavour": "kears"}, ValueError, "did you mean 'keras'"),
    ],
)
def test_refusals(arguments, error, message):
    with pytest.raises(error, match=message) as caught:
        Policy(**arguments)
    assert "\n" not in str(caught.value)


def test_what_is_no_policy():
    with pytest.raises(TypeError, match="pass a name such as 'mixed_float16'"):
        as_policy(16)


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


def test_rules_convert_operands_and_promote_the_rest():
    x, w = Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]])
    with autocast("mixed_float16"):
        product = x @ w
        assert product.dtype == np.float16
        assert (product + x).dtype == np.float32
        assert (product + 1.0).dtype == np.float16
        assert ops.cross_entropy(x.cast("float16"), [0]).dtype == np.float32
    with autocast("mixed_bfloat16"):
        assert (x @ w).dtype == ml_dtypes.bfloat16
    with autocast("float16"):
        assert (x + x).dtype == np.float16
        assert ops.cross_entropy(x, [0]).dtype == np.float16
    with autocast("float64"):
        assert (x @ w).dtype == np.float64
    assert (x @ w).dtype == np.float32


def test_a_mix_that_no_rule_covers():
    half, brain = Tensor([[1.0]], dtype="float16"), Tensor([[1.0]], dtype="bfloat16")
    with pytest.raises(TypeError, match=r"add of float16 and bfloat16: neither .* x\.cast\('float32'\)"):
        half + brain
    with pytest.raises(TypeError, match=r"matmul of float16 and float32: a product has one format"):
        half @ Tensor([[1.0]])
    with autocast("mixed_float16"):
        assert (half @ brain).dtype == np.float16


def test_every_list_names_operations_that_are_there():
    missing = {
        name
        for rules in FLAVOURS.values()
        for name in rules
        if not hasattr(ops, name) and name not in ("attention",)
    }
    assert missing == set()


def test_each_kind_of_product_takes_its_own_datapath():
    # 2048 + 1 + 1: in float16 accumulators the ones are lost one by one.
    a, b = np.float16([[2048, 1, 1]]), np.ones((3, 1), np.float16)
    policy = Policy("mixed_float16", matmul="float16", gradients="float32", reduction="float16")
    x, w = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    with autocast(policy):
        y = x @ w
        assert y.item() == 2048
        assert Tensor(a).sum().dtype == np.float32  # torch's list sums in float32
        wide = Tensor(np.ones((1, 3), np.float16), requires_grad=True) @ Tensor(np.ones((3, 3), np.float16))
    from fp16sim.autograd.backward import gradients

    assert policy.forward.products == "float16"
    assert policy.backward.products == "float32"
    leaf = next(t for t in wide.node.parents if t.requires_grad)
    assert gradients(wide, [leaf], a)[0].tolist() == [[2050.0] * 3]
    with autocast(Policy("mixed_float16", matmul=as_datapath("h100"))):
        assert (Tensor(a) @ Tensor(b)).item() == 2050


def test_a_parameter_is_converted_once_in_a_block():
    w = Tensor([[0.1]], requires_grad=True)
    x = Tensor([[1.0]])
    with autocast("mixed_float16"):
        first, second = x @ w, x @ w
        assert first.node.parents[1] is second.node.parents[1]
        with no_grad():
            assert not (x @ w).requires_grad
        w.data = np.float32([[0.2]])
        assert (x @ w).item() == np.float16(0.2)
        third = x @ w
        third.backward()
        assert (x @ w).requires_grad  # the converted weight whose tape was freed is not used again
        (x @ w).backward()
    assert w.grad.tolist() == [[2.0]]


def test_gradients_of_a_weight_that_is_used_twice_meet_in_the_narrow_format():
    w = Tensor([1.0], requires_grad=True)
    with autocast("mixed_float16"):
        rows = Tensor([[2048.0]]), Tensor([[1.0]])
        total = sum((row @ w.reshape(1, 1) for row in rows), start=Tensor([[0.0]], dtype="float16"))
    total.backward()
    assert w.grad.dtype == np.float32


def test_a_float64_tensor_stays_float64_between_the_products_of_a_mixed_policy():
    weight = Tensor(np.ones(3), requires_grad=True)
    x = Tensor(np.float16([1.0, 2.0, 3.0]))
    with autocast("mixed_float16"):
        assert (weight * x).dtype == np.float64
        assert (weight.reshape(1, 3) @ x.reshape(3, 1)).dtype == np.float16
    assert Tensor(np.ones(3), dtype="float32").dtype == np.float32
