"""Layers: parameters and their names, state, initial weights, and the roundings of a forward pass."""

import math

import numpy as np
import pytest

from fp16sim import nn
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import manual_seed, normals, streams
from fp16sim.training.models import mlp


def test_he_initialisation():
    with streams(7):
        nn.Linear(1, 1), nn.Linear(1, 1)
        layer = nn.Linear(64, 32)
    expected = (normals(7, 2048, 2) * math.sqrt(2 / 64)).reshape(32, 64).astype(np.float32)
    assert layer.weight.data.tobytes() == expected.tobytes()
    assert abs(layer.weight.data.std() - math.sqrt(2 / 64)) < 0.01
    assert not layer.bias.data.any()


def test_names_and_order_of_parameters():
    model = mlp()
    names = [name for name, _ in model.named_parameters()]
    assert names == [f"{i}.{part}" for i in range(0, 13, 2) for part in ("weight", "bias")]
    assert [p.shape for p in model.parameters()][-2:] == [(10, 64), (10,)]
    assert len({p.data.tobytes() for p in model.parameters() if p.data.any()}) == 7  # layers differ


def test_nested_modules_have_dotted_names():
    class Pair(nn.Module):
        def __init__(self):
            self.left, self.right = nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 1))

        def forward(self, x):
            return self.right(self.left(x))

    assert [name for name, _ in Pair().named_parameters()] == [
        "left.weight",
        "left.bias",
        "right.1.weight",
        "right.1.bias",
    ]
    with nn.capture_outputs() as outputs:
        Pair()(Tensor([[1.0, 2.0]]))
    assert [type(module).__name__ for module, _ in outputs] == [
        "Linear",
        "ReLU",
        "Linear",
        "Sequential",
        "Pair",
    ]


def test_linear_rounds_product_and_sum_under_mixed_float16():
    with streams(1):
        layer = nn.Linear(16, 3)
    layer.bias.data = np.float32([0.1, -0.2, 0.3])
    x = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    with autocast("mixed_float16"):
        y = layer(Tensor(x))
    x16, w16, b16 = (a.astype(np.float16) for a in (x, layer.weight.data, layer.bias.data))
    for i in range(5):
        for j in range(3):
            total = np.float32(0)
            for k in range(16):
                total = np.float32(total + np.float32(x16[i, k]) * np.float32(w16[j, k]))
            assert y.data[i, j] == np.float16(np.float16(total) + b16[j])
    assert y.dtype == np.float16
    assert layer.weight.dtype == np.float32


def test_gradients_of_master_weights_are_float16_values():
    layer = nn.Linear(4, 2)
    with autocast("mixed_float16"):
        loss = nn.CrossEntropyLoss()(layer(Tensor(np.ones((3, 4), np.float32))), [0, 1, 1])
    assert loss.dtype == np.float32
    loss.backward()
    assert layer.weight.grad.dtype == np.float32
    assert (layer.weight.grad == layer.weight.grad.astype(np.float16)).all()


def test_to_rounds_once_and_back():
    layer = nn.Linear(8, 8)
    before = layer.weight.data
    layer.to("float16")
    assert layer.weight.data.tobytes() == before.astype(np.float16).tobytes()
    layer.to("float32")
    assert layer.weight.dtype == np.float32


# ---------------------------------------------------------------------------------------------------- streams


def weights(model):
    return [p.data.tobytes() for name, p in model.named_parameters() if name.endswith("weight")]


def test_every_layer_takes_the_next_stream():
    with streams(0):
        model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 8), nn.Linear(8, 8))
    expected = [
        (normals(0, 64, layer) * math.sqrt(2 / 8)).astype(np.float32).tobytes() for layer in (0, 1, 2)
    ]
    assert weights(model) == expected


def test_manual_seed_starts_the_streams_again():
    manual_seed(5)
    first = weights(nn.Linear(4, 4)) + weights(nn.Linear(4, 4))
    manual_seed(5)
    second = weights(nn.Linear(4, 4)) + weights(nn.Linear(4, 4))
    manual_seed(6)
    third = weights(nn.Linear(4, 4))
    assert first == second
    assert len({*first, *third}) == 3


def test_streams_leave_those_outside_alone():
    manual_seed(5)
    nn.Linear(4, 4)
    outer = nn.Linear(4, 4).weight.data.tobytes()
    manual_seed(5)
    nn.Linear(4, 4)
    with streams(9):
        inner = nn.Linear(4, 4).weight.data.tobytes()
    assert nn.Linear(4, 4).weight.data.tobytes() == outer != inner


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True])
def test_seeds_that_are_none_are_refused(seed):
    with pytest.raises(ValueError, match="seed="):
        manual_seed(seed)


# ---------------------------------------------------------------------------------------------------- modules


class Counting(nn.Module):
    """A parameter, an array, a counter, and parts in a list."""

    state = ("calls",)

    def __init__(self):
        self.scale = Tensor(np.float32([2.0]), requires_grad=True)
        self.constant = Tensor(np.float32([1.0]))
        self.running = np.zeros(2, np.float32)
        self.seen = np.zeros((), np.int64)
        self.calls = 0
        self.width = 7
        self.blocks = [nn.Linear(2, 2), nn.Dropout(0.5)]

    def forward(self, x):
        self.calls += 1
        for block in self.blocks:
            x = block(x)
        return x * self.scale


NAMES = [
    "scale",
    "constant",
    "running",
    "seen",
    "calls",
    "blocks.0.weight",
    "blocks.0.bias",
    "blocks.1.calls",
]


def test_state_comes_back():
    model, other = Counting(), Counting()
    model.running = np.float32([3.0, 4.0])
    for _ in range(3):
        model(Tensor([[1.0, 2.0]]))
    saved = model.state_dict()
    assert list(saved) == NAMES
    other.load_state_dict(saved)
    assert other.calls == 3
    assert isinstance(other.calls, int)
    assert other.blocks[1].calls == 3
    for name, value in other.state_dict().items():
        assert value.tobytes() == saved[name].tobytes()
        assert value.dtype == saved[name].dtype
    saved["running"][:] = 9  # a copy
    assert other.running.tolist() == [3.0, 4.0]
    assert model.running.tolist() == [3.0, 4.0]


def test_a_state_of_another_dtype_is_rounded():
    layer = nn.Linear(2, 1, bias=False)
    layer.load_state_dict({"weight": np.float64([[0.1, 0.2]])})
    assert layer.weight.data.tobytes() == np.float32([[0.1, 0.2]]).tobytes()
    assert layer.to("float16").weight.dtype == np.float16
    layer.load_state_dict({"weight": np.float32([[0.1, 0.2]])})
    assert layer.weight.data.tobytes() == np.float16([[0.1, 0.2]]).tobytes()


def test_statistics_keep_their_format():
    layer = nn.BatchNorm1d(2)
    layer.load_state_dict(
        {name: np.float64(value) for name, value in layer.state_dict().items() if value.ndim}
        | {"num_batches_tracked": 3}
    )
    assert (layer.running_mean.dtype, layer.running_var.dtype) == (np.float32, np.float32)
    assert layer.num_batches_tracked == 3


@pytest.mark.parametrize("bad", [["a", "b"], [1j, 1j], [None, None]])
def test_a_state_that_holds_no_numbers_changes_nothing(bad):
    layer = nn.BatchNorm1d(2)
    saved = layer.state_dict() | {"weight": np.float32([7, 7]), "running_var": np.array(bad)}
    with pytest.raises(ValueError, match=r"'running_var' is .* there and float32 here"):
        layer.load_state_dict(saved)
    assert layer.weight.data.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("running"), "it lacks 'running'; pass all of state_dict"),
        (lambda s: s.update(blocks=1), "it has 'blocks'; did you mean"),
        (lambda s: s.update(scale=np.ones(2)), r"'scale' has shape \(2,\) there and \(1,\) here"),
    ],
)
def test_states_of_other_models_are_refused_and_nothing_changes(change, message):
    model = Counting()
    before = {name: value.tobytes() for name, value in model.state_dict().items()}
    saved = {name: value + 1 for name, value in model.state_dict().items()}
    change(saved)
    with pytest.raises(ValueError, match=message):
        model.load_state_dict(saved)
    assert {name: value.tobytes() for name, value in model.state_dict().items()} == before


def test_train_and_eval_reach_every_part():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.5)), Counting())
    assert model.eval() is model
    assert not any(module.training for _, module in model.named_modules())
    assert model.train() is model
    assert all(module.training for _, module in model.named_modules())
    assert [name for name, _ in model.named_modules()] == [
        "",
        "0",
        "1",
        "1.0",
        "2",
        "2.blocks.0",
        "2.blocks.1",
    ]


def test_a_layer_may_have_a_policy_of_its_own():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model.modules[1].policy = Policy("float32")
    with nn.capture_outputs() as outputs, autocast("mixed_float16"):
        model(Tensor(np.ones((1, 4), np.float32)))
    assert [str(output.dtype) for _, output in outputs] == ["float16", "float32", "float16", "float16"]


def test_errors_name_the_layer():
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(3, 2), nn.Linear(4, 2)), Counting())
    with pytest.raises(
        ValueError, match=r"^layer '1\.1': an input of shape \(1, 2\) for a Linear of 4 inputs"
    ):
        model(Tensor([[1.0, 2.0, 3.0]]))
    with pytest.raises(ValueError, match=r"^layer 'blocks\.0': an input of shape \(1, 3\)"):
        Counting()(Tensor([[1.0, 2.0, 3.0]]))
    with pytest.raises(ValueError, match=r"^an input of shape"):
        nn.Linear(4, 2)(Tensor([[1.0, 2.0, 3.0]]))


def test_an_optimizer_made_before_the_chain_holds_its_parameters():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(nn.ReLU(), layer)
    assert all(a is b for a, b in zip(model.parameters(), layer.parameters(), strict=True))


def test_zero_grad_forgets_gradients():
    model = nn.Sequential(nn.Linear(4, 2))
    nn.CrossEntropyLoss()(model(Tensor(np.ones((3, 4), np.float32))), [0, 1, 1]).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modules_say_what_they_are():
    assert repr(nn.Sequential(nn.Linear(4, 3), nn.ReLU())) == "Sequential(Linear(4, 3), ReLU())"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.Linear(0, 3), ValueError, "in_features=0: .* positive integer"),
        (lambda: nn.Linear(3, 2.5), ValueError, "out_features=2.5"),
        (lambda: nn.Linear(3, 2)(Tensor([[1.0]])), ValueError, "3 inputs"),
        (lambda: nn.Sequential(nn.ReLU(), "ReLU"), TypeError, "part 1 is a str"),
        (lambda: nn.Linear(3, 2)(np.ones((1, 3))), TypeError, r"is a ndarray: .* pass fs.Tensor\(x\)"),
        (lambda: nn.Sequential(nn.ReLU())(np.ones((1, 3))), TypeError, r"pass fs.Tensor\(x\)"),
        (lambda: nn.CrossEntropyLoss()(np.ones((1, 3)), [0]), TypeError, r"pass fs.Tensor\(x\)"),
        (lambda: nn.Module()(1), NotImplementedError, "define forward"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_a_state_is_a_mapping():
    with pytest.raises(TypeError, match=r"the state is a NoneType: pass what state_dict\(\) gave"):
        nn.Linear(2, 2).load_state_dict(None)


def test_a_module_inside_itself_is_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    model.modules[1].owner = model
    for use in (model.parameters, model.state_dict, model.eval):
        with pytest.raises(
            ValueError, match=r"module '1\.owner' is a Sequential that it is inside of.*remove"
        ):
            use()
    alone = nn.ReLU()
    alone.me = alone
    with pytest.raises(ValueError, match="module 'me' is a ReLU"):
        alone.train()


def test_a_module_may_be_in_two_places():
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.Sequential(shared))
    assert [name for name, _ in model.named_modules()] == ["", "0", "1", "1.0"]
    assert len(model.parameters()) == 2
