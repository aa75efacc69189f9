"""What a module counts as its own: parameters, frozen ones too, parts in containers, and names that are taken."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

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
