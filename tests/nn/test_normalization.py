"""Layers that normalise: running statistics, what float16 does to them, state, and what they refuse."""

import numpy as np
import pytest
from fp16sim_steps import same_bits

import fp16sim as fs
from fp16sim import nn
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.checkpoint import checkpoint
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor, no_grad


def batch(*shape, seed=0, dtype=np.float32):
    return Tensor(np.random.default_rng(seed).normal(2, 1, size=shape).astype(dtype), requires_grad=True)


# ------------------------------------------------------------------------------------- what float16 does


def under(policy, layer, values):
    with autocast(policy):
        return layer(Tensor(np.array([values], np.float32))).data[0].tolist()


@pytest.mark.filterwarnings("error")
def test_layer_norm_with_an_eps_that_float16_does_not_have():
    # pytorch#41527: 1e-12 is 0 in float16; an example without variance gives 0 * (1 / 0).
    layer = nn.LayerNorm(4, eps=1e-12)
    assert np.isnan(under("float16", layer, [3.0] * 4)).all()
    assert under("float32", layer, [3.0] * 4) == [0.0] * 4
    for flavour in ("torch", "torch_cpu", "keras"):  # float32 inside or as a whole
        assert under(fs.Policy("mixed_float16", flavour=flavour), layer, [3.0] * 4) == [0.0] * 4
    assert under("float16", nn.LayerNorm(4, eps=1e-5), [3.0] * 4) == [0.0] * 4


def test_rms_norm_squares_overflow_from_256():
    layer = nn.RMSNorm(1, eps=0.0)
    assert fs.multiply(np.float16(256), np.float16(256)) == np.inf
    assert fs.multiply(np.float16(255.9), np.float16(255.9)) == 65472
    assert under("float16", layer, [256.0]) == [0.0]  # 256 / sqrt(inf)
    assert under("float16", layer, [255.9]) == [1.0]
    assert under("float32", layer, [256.0]) == [1.0]
    assert under("mixed_float16", layer, [256.0]) == [1.0]


def test_rms_norm_has_the_eps_of_its_format():
    layer = nn.RMSNorm(2)
    assert under("float16", layer, [2.0**-5, 0.0])[0] == pytest.approx(
        2**0.5 / 3**0.5, rel=1e-3
    )  # v + eps = 3/2 v
    assert under("float32", layer, [2.0**-5, 0.0])[0] == pytest.approx(2**0.5, rel=1e-3)


def test_a_running_mean_stalls_in_float16():
    x = Tensor(np.float32([[1000.0], [1002.0]]))  # its mean is 1001
    found = {}
    for dtype in ("float16", "float32"):
        layer = nn.BatchNorm1d(1)
        layer.running_mean = np.full(1, 1000, np.float32)
        layer.to(dtype)
        with autocast(dtype):
            layer(x)
        assert layer.running_mean.dtype == dtype
        found[dtype] = float(layer.running_mean[0])
    assert found["float16"] == 1000  # 0.9 * 1000 + 0.1 * 1001 -> 900 + 100.0625 -> 1000, ever again
    assert found["float32"] == pytest.approx(1000.1, abs=1e-4)


# ------------------------------------------------------------------------------------- running statistics


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("momentum", [0.1, 0.01, None])
def test_running_statistics_step_by_step(dtype, momentum):
    layer = nn.BatchNorm1d(3, momentum=momentum).to(np.dtype(dtype).name)
    mean, variance = np.zeros(3, dtype), np.ones(3, dtype)
    for step in range(1, 4):
        x = batch(5, 3, seed=step, dtype=dtype)
        with autocast(np.dtype(dtype).name):
            layer(x)
        share = 1 / step if momentum is None else momentum
        old, new, factor = (np.array(v).astype(dtype) for v in (1 - share, share, 5 / 4))
        for c in range(3):
            m = dtype(0)
            for value in x.data[:, c]:
                m = fs.add(m, value)
            m = fs.divide(m, dtype(5))
            v = dtype(0)
            for value in x.data[:, c]:
                d = fs.subtract(value, m)
                v = fs.add(v, fs.multiply(d, d))
            v = fs.multiply(fs.divide(v, dtype(5)), factor[()])
            mean[c] = fs.add(fs.multiply(mean[c], old[()]), fs.multiply(m, new[()]))
            variance[c] = fs.add(fs.multiply(variance[c], old[()]), fs.multiply(v, new[()]))
        same_bits(layer.running_mean, mean)
        same_bits(layer.running_var, variance)
        assert layer.num_batches_tracked == step


def test_statistics_move_in_training_only():
    layer, x = nn.BatchNorm2d(2), batch(3, 2, 2, 2)
    layer.eval()
    layer(x)
    with no_grad():
        layer(x)
    assert layer.num_batches_tracked == 0
    assert not layer.running_mean.any()
    layer.train()
    with no_grad():
        layer(x)
    assert layer.num_batches_tracked == 1
    assert layer.running_mean.all()


def test_statistics_move_once_under_checkpointing():
    plain, kept = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    x = batch(4, 3)
    y, z = plain(x), checkpoint(kept, x)
    mine, theirs = (
        gradients(y, [x, *plain.parameters()], x.data),
        gradients(z, [x, *kept.parameters()], x.data),
    )
    for a, b in zip(mine, theirs, strict=True):
        same_bits(a, b)
    assert kept.num_batches_tracked == 1
    same_bits(kept.running_mean, plain.running_mean)
    same_bits(kept.running_var, plain.running_var)


def test_statistics_under_mixed_policies_are_of_float32():
    layer, x = nn.BatchNorm1d(3), batch(4, 3, dtype=np.float16)
    with autocast("mixed_float16"):
        assert layer(x).dtype == np.float16
    other = nn.BatchNorm1d(3)
    other(Tensor(x.data.astype(np.float32)))
    same_bits(layer.running_mean, other.running_mean)


def test_evaluation_uses_running_statistics():
    layer = nn.BatchNorm1d(2, eps=0.0, affine=False).eval()
    layer.running_mean, layer.running_var = np.float32([1, 2]), np.float32([4, 16])
    assert layer(Tensor([[3.0, 2.0]])).data.tolist() == [[1, 0]]  # a single example is welcome


def test_without_running_statistics_every_batch_is_normalised_by_its_own():
    layer = nn.BatchNorm1d(1, eps=0.0, track_running_stats=False)
    assert list(layer.state_dict()) == ["weight", "bias"]
    for mode in (True, False):
        assert layer.train(mode)(Tensor([[1.0], [3.0]])).data.ravel().tolist() == [-1, 1]


def test_state_is_saved_and_taken_up():
    layer, other = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    for seed in range(3):
        layer(batch(2, 3, 4, 4, seed=seed))
    state = layer.state_dict()
    assert list(state) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    other.load_state_dict(state)
    x = batch(2, 3, 4, 4, seed=9)
    same_bits(layer.eval()(x).data, other.eval()(x).data)
    assert other.num_batches_tracked == 3


def test_parameters_may_be_absent():
    assert nn.LayerNorm(3, elementwise_affine=False).parameters() == []
    assert len(nn.LayerNorm(3, bias=False).parameters()) == 1
    assert nn.GroupNorm(1, 3, affine=False).parameters() == []
    assert nn.RMSNorm(3, elementwise_affine=False).parameters() == []
    assert nn.BatchNorm1d(3, affine=False).parameters() == []


@pytest.mark.parametrize(
    "text",
    [
        "BatchNorm1d(3, eps=0.1, momentum=None, affine=False, track_running_stats=False)",
        "BatchNorm3d(3)",
        "LayerNorm((2, 3), eps=0.1, elementwise_affine=False)",
        "LayerNorm(3, bias=False)",
        "RMSNorm(3)",
        "RMSNorm((3, 2), eps=0.1, elementwise_affine=False)",
        "GroupNorm(2, 4, eps=0.1, affine=False)",
    ],
)
def test_reprs_are_calls(text):
    assert repr(eval(f"nn.{text}")) == text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nn.BatchNorm2d(3)(batch(2, 3)),
            r"shape \(2, 3\) for a BatchNorm2d of 3 channels: pass \(batch, 3",
        ),
        (lambda: nn.BatchNorm1d(3)(batch(2, 4)), r"BatchNorm1d of 3 channels.*or \(batch, 3, width\)"),
        (lambda: nn.BatchNorm1d(3)(batch(1, 3)), "a single value of each channel"),
        (lambda: nn.BatchNorm1d(3, momentum=2.0), "momentum=2.0.*from 0 to 1"),
        (lambda: nn.BatchNorm1d(0), "num_features=0"),
        (lambda: nn.LayerNorm(3)(batch(2, 4)), r"layer_norm over \(3,\) of a tensor of shape \(2, 4\)"),
        (lambda: nn.LayerNorm(()), r"normalized_shape=\(\)"),
        (lambda: nn.LayerNorm((2, 0)), "normalized_shape=0"),
        (lambda: nn.GroupNorm(2, 3), "num_groups=2 and num_channels=3.*choose a divisor"),
        (lambda: nn.GroupNorm(1, 3)(batch(2, 4)), "GroupNorm of 3 channels"),
        (lambda: nn.Sequential(nn.RMSNorm(3))(batch(2, 4)), r"layer '0': rms_norm over \(3,\)"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("eps", [-1, "small", np.nan, np.inf, True])
def test_eps_is_a_small_number(eps):
    for make in (nn.BatchNorm1d, nn.LayerNorm, nn.RMSNorm, lambda n, eps: nn.GroupNorm(1, n, eps)):
        with pytest.raises(ValueError, match=r"eps=.*finite and not negative; pass such as 1e-5"):
            make(3, eps=eps)
    with pytest.raises(ValueError, match="momentum='fast'"):
        nn.BatchNorm1d(3, momentum="fast")
