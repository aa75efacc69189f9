"""Torch's twins of the models, with the same weights, and their training: the same batches, rule and schedule.

The networks are written with torch's own layers; what is read from ours is which layers there are, their sizes,
and the state. Torch is handed in, since it is imported by those alone who use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fp16sim import nn
from fp16sim.training.models.gru import SequenceClassifier
from fp16sim.training.models.resnet import BasicBlock, ResNet
from fp16sim.training.models.transformer import CharacterTransformer
from fp16sim.training.recipes import Recipe


def twin(torch: Any, model: nn.Module) -> Any:
    """Make torch's float32 network with the same layers and the same state."""
    network = _Twins(torch).of(model)
    state = {name: torch.from_numpy(np.array(value)) for name, value in model.state_dict().items()}
    network.load_state_dict(state)  # strict: every name and shape agrees
    return network


def train(
    torch: Any,
    recipe: Recipe,
    seed: int,
    steps: int | None = None,
    change: Callable[[Any], None] | None = None,
) -> Iterator[tuple[float, Any]]:
    """Train the twin as the recipe says, giving each loss and the network after it.

    `change` is called with the network before the first step: to plant a fault.
    """
    model = recipe.build(seed)
    network = twin(torch, model)
    if change is not None:
        change(network)
    optimizer = optimizer_like(torch, recipe.optimizer(model), network.parameters())
    loss_function = torch.nn.CrossEntropyLoss()
    data = recipe.data(seed)
    network.train()
    for number in range(recipe.steps if steps is None else steps):
        if recipe.schedule is not None:
            optimizer.param_groups[0]["lr"] = recipe.schedule(number)
        inputs, targets = data.at(number)
        optimizer.zero_grad()
        loss = loss_function(*flattened(network(*tensors(torch, inputs)), torch.from_numpy(targets)))
        loss.backward()
        if recipe.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(network.parameters(), recipe.clip_norm)
        optimizer.step()
        yield loss.item(), network


def back(network: Any, model: nn.Module) -> nn.Module:
    """Copy a twin's state back into a model of ours, which can then be evaluated."""
    model.load_state_dict({name: value.numpy() for name, value in network.state_dict().items()})
    return model


def tensors(torch: Any, inputs: Any) -> list[Any]:
    """Give inputs as torch's tensors; a tuple is several."""
    return [torch.from_numpy(part) for part in (inputs if isinstance(inputs, tuple) else (inputs,))]


def flattened(scores: Any, targets: Any) -> tuple[Any, Any]:
    """Bring (batch, length, classes) and (batch, length) together, as torch's loss takes them."""
    return scores.reshape(-1, scores.shape[-1]), targets.reshape(-1)


def optimizer_like(torch: Any, ours: Any, parameters: Any) -> Any:
    """Make torch's optimizer of the same kind, with the same hyperparameters."""
    kind = type(ours).__name__
    options: dict[str, Any] = {"lr": ours.lr, "weight_decay": ours.weight_decay, "foreach": False}
    if kind == "SGD":
        options["momentum"] = ours.momentum
    else:
        options |= {"betas": ours.betas, "eps": ours.eps}
    return getattr(torch.optim, kind)(parameters, **options)


class _Twins:
    """Torch's layer for each kind of ours."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.nn = torch, torch.nn

    def of(self, module: nn.Module) -> Any:
        return getattr(self, type(module).__name__)(module)

    def Sequential(self, module: nn.Sequential) -> Any:
        return self.nn.Sequential(*map(self.of, module.modules))

    def ReLU(self, module: nn.ReLU) -> Any:
        return self.nn.ReLU()

    def Flatten(self, module: nn.Flatten) -> Any:
        return self.nn.Flatten()

    def Linear(self, module: nn.Linear) -> Any:
        outputs, inputs = module.weight.shape
        return self.nn.Linear(inputs, outputs, bias=module.bias is not None)

    def Conv2d(self, module: nn.Conv2d) -> Any:
        return self.nn.Conv2d(
            module.in_channels,
            module.out_channels,
            module.kernel_size,
            module.stride,
            module.padding,
            bias=module.bias is not None,
        )

    def MaxPool2d(self, module: nn.MaxPool2d) -> Any:
        return self.nn.MaxPool2d(module.kernel_size)

    def AdaptiveAvgPool2d(self, module: nn.AdaptiveAvgPool2d) -> Any:
        return self.nn.AdaptiveAvgPool2d(1)

    def BatchNorm2d(self, module: nn.BatchNorm2d) -> Any:
        return self.nn.BatchNorm2d(module.num_features, module.eps, module.momentum)

    def LayerNorm(self, module: nn.LayerNorm) -> Any:
        return self.nn.LayerNorm(module.normalized_shape, module.eps)

    def Embedding(self, module: nn.Embedding) -> Any:
        return self.nn.Embedding(module.num_embeddings, module.embedding_dim)

    def TransformerBlock(self, module: nn.TransformerBlock) -> Any:
        attention = module.self_attn
        layer = self.nn.TransformerEncoderLayer(
            attention.embed_dim,
            attention.num_heads,
            module.linear1.weight.shape[0],
            dropout=0.0,
            activation="gelu",
            layer_norm_eps=module.norm1.eps,
            batch_first=True,
            norm_first=module.norm_first,
        )
        torch, inner, causal = self.torch, layer.forward, module.causal

        def forward(x: Any) -> Any:
            if not causal:
                return inner(x)
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            return inner(x, src_mask=later, is_causal=True)

        layer.forward = forward
        return layer

    def BasicBlock(self, module: BasicBlock) -> Any:
        relu = self.torch.relu
        network = self._holding(module, "conv1 bn1 conv2 bn2")
        network.downsample = None if module.downsample is None else self.of(module.downsample)

        def forward(x: Any) -> Any:
            inner = network.bn2(network.conv2(relu(network.bn1(network.conv1(x)))))
            return relu(inner + (x if network.downsample is None else network.downsample(x)))

        network.forward = forward
        return network

    def ResNet(self, module: ResNet) -> Any:
        relu = self.torch.relu
        network = self._holding(module, "conv1 bn1 blocks pool fc")

        def forward(x: Any) -> Any:
            return network.fc(network.pool(network.blocks(relu(network.bn1(network.conv1(x))))))

        network.forward = forward
        return network

    def SequenceClassifier(self, module: SequenceClassifier) -> Any:
        torch, ours = self.torch, module.gru
        network = torch.nn.Module()
        network.gru = torch.nn.GRU(
            ours.input_size, ours.hidden_size, batch_first=True, bidirectional=ours.bidirectional
        )
        network.fc = self.of(module.fc)

        def forward(x: Any, lengths: Any) -> Any:
            packed = torch.nn.utils.rnn.pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            _, last = network.gru(packed)
            return network.fc(torch.cat([last[0], last[1]], dim=1))

        network.forward = forward
        return network

    def CharacterTransformer(self, module: CharacterTransformer) -> Any:
        torch = self.torch
        network = self._holding(module, "tokens positions blocks norm head")

        def forward(text: Any) -> Any:
            x = network.tokens(text) + network.positions(torch.arange(text.shape[1]))
            return network.head(network.norm(network.blocks(x)))

        network.forward = forward
        return network

    def _holding(self, module: nn.Module, names: str) -> Any:
        network = self.nn.Module()
        for name in names.split():
            setattr(network, name, self.of(getattr(module, name)))
        return network
