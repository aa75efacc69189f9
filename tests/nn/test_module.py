"""What a module counts as its own: parameters, frozen ones too, parts in containers, and names that are taken."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest

from fp16sim import nn
from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor, no_grad
from fp16sim.nn import Linear, Module, ReLU, Sequential
from fp16sim.optim import SGD
from fp16sim.training.digest import digest
from fp16sim.training.fit import fit


class Nested(Module):
    """Parts and parameters in lists, tuples and dicts."""

    def __init__(self) -> None:
        self.first = Linear(2, 2)
        self.heads = {"left": Linear(2, 1), "right": [Linear(2, 1), (Linear(2, 1, bias=False),)]}
        self.scales = [Tensor([1.0], requires_grad=True), {"b": Tensor([2.0], requires_grad=True)}]
        self.last = Linear(2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        left, (right, (plain,)) = self.heads.values()
        return self.scales[0] * left(x) + right(x) + self.scales[1]["b"] * plain(self.first(x)) + self.last(x)


BATCHES = [(np.float32([[1.0, 2.0], [0.5, -1.0]]), np.array([0, 1]))] * 2


def test_a_frozen_weight_stays_state_parameter_and_part_of_the_digest() -> None:
    model = Sequential(Linear(2, 3), ReLU(), Linear(3, 2))
    names, before = list(model.state_dict()), digest(model, [])
    model.modules[0].weight.requires_grad = False
    assert list(model.state_dict()) == names == [name for name, _ in model.named_parameters()]
    assert digest(model, []) == before
    model.modules[0].weight.data = model.modules[0].weight.data + np.float32(1.0)
    assert digest(model, []) != before
    assert model.to("float16").modules[0].weight.dtype == np.float16
    state = model.state_dict()
    model.modules[0].weight.data = np.zeros((3, 2), np.float16)
    model.load_state_dict(state)
    assert model.modules[0].weight.data.tobytes() == state["0.weight"].tobytes()


def test_a_frozen_weight_does_not_move_and_the_others_do() -> None:
    model = Sequential(Linear(2, 3), ReLU(), Linear(3, 2))
    model.modules[0].weight.requires_grad = False
    before = model.state_dict()
    fit(model, BATCHES, optimizer=SGD(model.parameters(), lr=0.5, weight_decay=0.1), steps=2)
    moved = {name for name, array in model.state_dict().items() if array.tobytes() != before[name].tobytes()}
    assert moved == {"0.bias", "2.weight", "2.bias"}


def test_a_run_with_other_frozen_weights_is_not_taken_up(tmp_path) -> None:
    def run(frozen: bool, **options):
        model = Sequential(Linear(2, 2))
        model.modules[0].weight.requires_grad = not frozen
        return fit(model, BATCHES, optimizer=SGD(model.parameters(), lr=0.5), save_to=tmp_path, **options)

    run(True, steps=1)
    with pytest.raises(ValueError, match="layer '0' weight"):
        run(False, steps=2, resume=True)
    assert len(run(True, steps=2, resume=True).history) == 2


def test_parts_and_parameters_in_containers_have_dotted_names() -> None:
    model = Nested()
    assert [name for name, _ in model.named_parameters()] == [
        "scales.0",
        "scales.1.b",
        "first.weight",
        "first.bias",
        "heads.left.weight",
        "heads.left.bias",
        "heads.right.0.weight",
        "heads.right.0.bias",
        "heads.right.1.0.weight",
        "last.weight",
    ]
    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()]
    state = {name: array + np.float32(1) for name, array in model.state_dict().items()}
    model.load_state_dict(state)
    assert all(model.state_dict()[name].tobytes() == array.tobytes() for name, array in state.items())
    model.eval()
    assert not any(module.training for _, module in model.named_modules())
    other = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert digest(other, []) == digest(model, [])


def test_frozen_parameters_in_containers_stay() -> None:
    model = Nested()
    names = list(model.state_dict())
    for parameter in model.parameters():
        parameter.requires_grad = False
    assert list(model.state_dict()) == names
    assert list(pickle.loads(pickle.dumps(copy.deepcopy(model))).state_dict()) == names


def test_training_moves_what_stands_in_containers() -> None:
    model = Nested()
    before = model.state_dict()
    model(Tensor(BATCHES[0][0])).sum().backward()
    SGD(model.parameters(), lr=1.0).step()
    after = model.state_dict()
    assert all(after[name].tobytes() != array.tobytes() for name, array in before.items())


def test_what_a_forward_pass_leaves_behind_is_no_parameter() -> None:
    class Watched(Module):
        def __init__(self) -> None:
            self.inner = Linear(2, 2)
            self.table = Tensor([1.0])
            self.outputs = []

        def forward(self, x: Tensor) -> Tensor:
            self.seen = x
            self.last = self.inner(x)
            self.both = [x, self.last]
            self.outputs.append(self.last)
            return self.last

    model = Watched()
    names = ["table", "inner.weight", "inner.bias"]
    for context in (False, True):
        if context:
            with no_grad():
                model(Tensor([[1.0, 2.0]]))
        else:
            model(Tensor([[1.0, 2.0]]))
        assert [name for name, _ in model.named_parameters()] == names
        assert list(model.state_dict()) == names
        assert len(model.outputs) == 1 + context
    model.seen = Tensor([3.0])  # from outside it is one
    assert list(model.state_dict()) == ["table", "seen", *names[1:]]


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("policy", Linear(2, 2), "the policy of the layer"),
        ("policy", 3, "the policy of the layer"),
        ("state", np.zeros(2), "names of counters"),
        ("state", ["calls"], "names of counters"),
        ("training", Linear(2, 2), "True or False"),
        ("train", Linear(2, 2), "a method of every module"),
        ("parameters", [Tensor([1.0])], "a method of every module"),
        ("to", Tensor([1.0]), "a method of every module"),
        ("forward", ReLU(), "a method of every module"),
    ],
)
def test_names_that_are_taken_are_refused(name: str, value: object, what: str) -> None:
    with pytest.raises(TypeError, match=f"the attribute '{name}' of a module is .*{what}.*take another name"):
        setattr(Sequential(), name, value)


def test_what_belongs_to_those_names_is_taken() -> None:
    model = Sequential(ReLU())
    model.policy, model.state, model.training = Policy("float16"), ("calls",), False
    model.policy = None
    model.forward = lambda x: x
    assert model(Tensor([-1.0])).item() == -1.0


def test_the_repr_shows_options_and_parts() -> None:
    class Net(Module):
        def __init__(self) -> None:
            self.width = 2
            self.head = Linear(2, 2)
            self.blocks = [Sequential(ReLU()), Nested()]

    assert repr(Net()).splitlines() == [
        "Net(width=2",
        "  (head): Linear(2, 2)",
        "  (blocks.0): Sequential(ReLU())",
        "  (blocks.1): Nested(",
        "    (first): Linear(2, 2)",
        "    (heads.left): Linear(2, 1)",
        "    (heads.right.0): Linear(2, 1)",
        "    (heads.right.1.0): Linear(2, 1, bias=False)",
        "    (last): Linear(2, 1, bias=False)",
        "  )",
        ")",
    ]
    assert repr(nn.MSELoss()) == "MSELoss(reduction='mean')"
    assert repr(nn.CrossEntropyLoss(0.5)) == (
        "CrossEntropyLoss(label_smoothing=0.5, ignore_index=-100, reduction='mean')"
    )


def test_a_chain_is_indexed() -> None:
    model = Sequential(Linear(2, 2), ReLU(), Linear(2, 1))
    assert len(model) == 3
    assert model[-1] is model.modules[2] is list(model)[2]
    assert list(model[1:]) == list(model)[1:]
    assert list(model.children()) == list(model)
    with pytest.raises(IndexError):
        model[3]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("register_buffer", "assign an array"),
        ("named_children", "named_parts"),
        ("qqq", "assign it in __init__"),
    ],
)
def test_names_of_torch_are_explained(name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=f"ReLU has no '{name}': .*{re.escape(advice)}"):
        getattr(ReLU(), name)
    assert not hasattr(ReLU(), name)


def test_names_of_torch_nn_are_explained() -> None:
    with pytest.raises(AttributeError, match="has no 'ModuleList': use a list of modules"):
        nn.ModuleList  # noqa: B018
    with pytest.raises(AttributeError, match=r"dir\(fs.nn\)"):
        nn.qqq  # noqa: B018


def test_identity() -> None:
    x = Tensor([1.0])
    assert nn.Identity()(x) is x
