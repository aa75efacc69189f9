"""The residual network: where shortcuts change shape, and what evaluation takes from training."""

from __future__ import annotations

import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, no_grad
from fp16sim.training.data import digits
from fp16sim.training.models.resnet import BasicBlock, ResNet, resnet
from fp16sim.training.models.vgg import vgg


def images(count: int) -> Tensor:
    return Tensor(digits(channels=True)[0].images[:count])


def test_shortcuts_have_weights_where_the_shape_changes() -> None:
    assert [block.downsample is not None for block in resnet(0).blocks.modules] == [False, True, False]
    assert BasicBlock(4, 4).downsample is None
    assert BasicBlock(4, 4, stride=2).downsample is not None
    assert BasicBlock(4, 6).downsample is not None


def test_a_block_whose_second_normalisation_gives_zero_passes_its_input_on() -> None:
    block = BasicBlock(3, 3)
    block.bn2.weight.data = np.zeros(3, np.float32)
    x = ops.relu(Tensor(np.float32(np.arange(-60, 132).reshape(1, 3, 8, 8) % 7 - 3)))
    assert block(x).data.tobytes() == x.data.tobytes()


def test_evaluation_sees_an_image_alone_and_training_sees_the_batch() -> None:
    model = resnet(0)
    with no_grad():
        for _ in range(3):
            model(images(32))
        alone, together = model.eval()(images(1)).data, model(images(8)).data[:1]
        assert alone.tobytes() == together.tobytes()
        model.train()
        assert model(images(2)).data[:1].tobytes() != model(images(8)).data[:1].tobytes()


def test_running_statistics_move_in_training_only() -> None:
    model = resnet(0)
    with no_grad():
        model.eval()(images(8))
        still = model.state_dict()
        model.train()(images(8))
    moved = model.state_dict()
    names = [name for name in still if not np.array_equal(still[name], moved[name])]
    kinds = {name.rsplit(".", 1)[1] for name in names}
    assert kinds == {"running_mean", "running_var", "num_batches_tracked"}
    assert moved["bn1.num_batches_tracked"] == 1


def test_other_sizes() -> None:
    model = ResNet(widths=(4, 8), channels=3, classes=5)
    assert model(Tensor(np.ones((2, 3, 16, 16), np.float32))).shape == (2, 5)
    with pytest.raises(
        ValueError, match=r"layer '11': an input of shape \(1, 1024\) for a Linear of 256 inputs"
    ):
        vgg(0)(Tensor(np.zeros((1, 1, 16, 16), np.float32)))
