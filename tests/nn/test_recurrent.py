"""LSTM and GRU as layers: names, initial weights, states, lengths, policies, and refusals."""

import math

import numpy as np
import pytest

import fp16sim as fs
from fp16sim import nn
from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import streams, uniforms


def draw(seed, shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(params=["LSTM", "GRU"])
def kind(request):
    return getattr(nn, request.param)


def first(state):
    return state[0] if isinstance(state, tuple) else state


def test_names_and_shapes_in_the_order_of_torch(kind):
    layer = kind(3, 4, num_layers=2, bidirectional=True)
    rows = 4 * layer.gates
    expected = {}
    for number, width in ((0, 3), (1, 8)):
        for suffix in ("", "_reverse"):
            expected |= {
                f"weight_ih_l{number}{suffix}": (rows, width),
                f"weight_hh_l{number}{suffix}": (rows, 4),
                f"bias_ih_l{number}{suffix}": (rows,),
                f"bias_hh_l{number}{suffix}": (rows,),
            }
    assert {name: array.shape for name, array in layer.state_dict().items()} == expected
    assert list(layer.state_dict()) == list(expected)
    assert list(kind(3, 4, bias=False).state_dict()) == ["weight_ih_l0", "weight_hh_l0"]


def test_initial_weights(kind):
    with streams(5):
        layer = kind(3, 16)
    for stream, parameter in enumerate(layer.parameters()):
        drawn = (uniforms(5, parameter.size, stream) * 2 - 1) * (1 / math.sqrt(16))
        assert parameter.data.tobytes() == drawn.reshape(parameter.shape).astype(np.float32).tobytes()


def test_the_layer_is_linear_and_the_loop_over_time():
    with streams(1):
        layer = nn.GRU(3, 4)
    x, h0 = draw(0, (5, 2, 3)), draw(1, (1, 2, 4))
    output, last = layer(Tensor(x), Tensor(h0))
    gates = ops.linear(Tensor(x), layer.weight_ih_l0, layer.bias_ih_l0)
    expected = ops.gru(gates, layer.weight_hh_l0, layer.bias_hh_l0, Tensor(h0[0])).data
    assert output.data.tobytes() == expected[:5].tobytes()
    assert last.data.tobytes() == expected[5:].tobytes()


def test_layers_and_directions_are_stacked(kind):
    with streams(1):
        both = kind(3, 4, num_layers=2, bidirectional=True)
    single = {}
    for number, width in ((0, 3), (1, 8)):
        for suffix in ("", "_reverse"):
            part = kind(width, 4)
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(part, f"{name}_l0").data = getattr(both, f"{name}_l{number}{suffix}").data
            single[number, suffix] = part
    x = draw(2, (5, 2, 3))
    output, last = both(Tensor(x))
    ends = []
    for number in (0, 1):
        ahead, end = single[number, ""](Tensor(x))
        behind, other_end = single[number, "_reverse"](Tensor(x[::-1].copy()))
        x = np.concatenate([ahead.data, behind.data[::-1]], axis=-1)
        ends += [first(end).data[0], first(other_end).data[0]]
    assert output.data.tobytes() == x.tobytes()
    assert first(last).data.tobytes() == np.stack(ends).tobytes()


def test_batch_first_moves_axes_only(kind):
    with streams(1):
        layer = kind(3, 4, bidirectional=True)
    with streams(1):
        other = kind(3, 4, batch_first=True, bidirectional=True)
    x = draw(2, (5, 2, 3))
    output, last = layer(Tensor(x), lengths=[5, 2])
    turned, other_last = other(Tensor(x.swapaxes(0, 1).copy()), lengths=[5, 2])
    assert np.array_equal(turned.data.swapaxes(0, 1), output.data)
    assert np.array_equal(first(last).data, first(other_last).data)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_padded_sequence_gives_what_it_gives_alone(kind, bidirectional):
    with streams(1):
        layer = kind(3, 4, num_layers=2, bidirectional=bidirectional)
    x = draw(2, (5, 3, 3))
    lengths = [2, 5, 1]
    output, last = layer(Tensor(x), lengths=np.array(lengths))
    for position, length in enumerate(lengths):
        alone, end = layer(Tensor(x[:length, position : position + 1].copy()))
        assert output.data[:length, position].tobytes() == alone.data[:, 0].tobytes()
        assert not output.data[length:, position].view(np.uint32).any()  # +0
        assert np.array_equal(first(last).data[:, position], first(end).data[:, 0])


def test_a_state_carries_a_sequence_on(kind):
    with streams(1):
        layer = kind(3, 4, num_layers=2)
    x = draw(2, (6, 2, 3))
    whole, last = layer(Tensor(x))
    begin, state = layer(Tensor(x[:2].copy()))
    rest, end = layer(Tensor(x[2:].copy()), state)
    assert np.concatenate([begin.data, rest.data]).tobytes() == whole.data.tobytes()
    assert first(end).data.tobytes() == first(last).data.tobytes()


def test_under_a_mixed_policy_state_and_output_are_float16_and_weights_are_rounded_once(kind):
    with streams(1):
        layer = kind(3, 4)
    with fs.autocast("mixed_float16"):
        output, last = layer(Tensor(draw(2, (5, 2, 3))))
    assert output.dtype == first(last).dtype == np.float16
    output.sum().backward()
    assert {parameter.grad.dtype for parameter in layer.parameters()} == {np.dtype(np.float32)}
    with streams(1):
        narrow = kind(3, 4).to("float16")
    with fs.autocast("mixed_float16"):
        again, _ = narrow(Tensor(draw(2, (5, 2, 3))))
    assert again.data.tobytes() == output.data.tobytes()


def test_a_cell_that_counts_up_stalls_in_float16():
    """f = i = g = 1 in float16: the cell grows by 1 a step until 2048, where 1 is half an ulp; right is 2100."""
    found = {}
    for policy in ("mixed_float16", "float32"):
        layer = nn.LSTM(1, 1)
        for parameter in layer.parameters():
            parameter.data = np.zeros_like(parameter.data)
        layer.bias_ih_l0.data = np.float32([40.0] * 4)
        with fs.autocast(policy):
            _, (_, cell) = layer(Tensor(np.zeros((2100, 1, 1), np.float32)))
        found[policy] = cell.item()
    assert found == {"mixed_float16": 2048.0, "float32": 2100.0}


def test_dropout_between_layers():
    with streams(1):
        layer = nn.GRU(3, 4, num_layers=2, dropout=0.5)
    x = Tensor(draw(2, (5, 2, 3)))
    dropped, again = layer(x)[0].data, layer(x)[0].data
    assert layer.state_dict()["dropouts.0.calls"] == 2
    assert not np.array_equal(dropped, again)
    layer.eval()
    with streams(1):
        plain = nn.GRU(3, 4, num_layers=2)
    assert layer(x)[0].data.tobytes() == plain(x)[0].data.tobytes()
    assert nn.GRU(3, 4, dropout=0.5).dropouts == []


def test_it_learns_which_of_two_sequences_came():
    with streams(3):
        layer, readout = nn.GRU(1, 8), nn.Linear(8, 2)
    parameters = [*layer.parameters(), *readout.parameters()]
    optimizer = fs.optim.Adam(parameters, lr=0.05)
    x = np.float32([[[1], [-1]], [[0], [0]], [[0], [0]], [[0], [0]]])
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        _, last = layer(Tensor(x))
        loss = ops.cross_entropy(readout(last[0]), np.array([0, 1]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


def test_what_it_prints_as():
    assert repr(nn.LSTM(3, 4)) == "LSTM(3, 4)"
    assert repr(nn.GRU(3, 4, 2, batch_first=True)) == "GRU(3, 4, num_layers=2, batch_first=True)"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.LSTM(0, 4), ValueError, "input_size=0"),
        (lambda: nn.GRU(3, 4, num_layers=0), ValueError, "num_layers=0"),
        (lambda: nn.GRU(3, 4, dropout=1.5), ValueError, "p=1.5"),
        (lambda: nn.GRU(3, 4)(Tensor(draw(0, (2, 3)))), ValueError, r"pass \(time, batch, 3\)"),
        (
            lambda: nn.GRU(3, 4, batch_first=True)(Tensor(draw(0, (2, 5, 2)))),
            ValueError,
            r"\(batch, time, 3\)",
        ),
        (lambda: nn.GRU(3, 4)(Tensor(draw(0, (0, 2, 3)))), ValueError, "with a step at least"),
        (lambda: nn.GRU(3, 4)(draw(0, (5, 2, 3))), TypeError, "fs.Tensor"),
        (
            lambda: nn.GRU(3, 4)(Tensor(draw(0, (5, 2, 3))), Tensor(draw(0, (1, 1, 4)))),
            ValueError,
            r"pass \(1, 2, 4\)",
        ),
        (lambda: nn.LSTM(3, 4)(Tensor(draw(0, (5, 2, 3))), Tensor(draw(0, (1, 2, 4)))), TypeError, "a pair"),
        (
            lambda: nn.GRU(3, 4)(Tensor(draw(0, (5, 2, 3))), lengths=[5, 6]),
            ValueError,
            "lengths go from 1 to 5",
        ),
        (lambda: nn.GRU(3, 4)(Tensor(draw(0, (5, 2, 3))), lengths=[0, 5]), ValueError, "length 0"),
        (lambda: nn.GRU(3, 4)(Tensor(draw(0, (5, 2, 3))), lengths=[5]), ValueError, "each of 2 sequences"),
        (
            lambda: nn.GRU(3, 4)(Tensor(draw(0, (5, 2, 3))), lengths=[5.0, 2.0]),
            ValueError,
            "lengths of float64",
        ),
        (lambda: nn.GRU(3, 4)(Tensor(draw(0, (5, 2, 3))), lengths=Tensor([5.0])), TypeError, "pass integers"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()
