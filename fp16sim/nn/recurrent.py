"""Recurrent layers: LSTM and GRU."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fp16sim.autograd import ops
from fp16sim.autograd.arithmetic import round_array
from fp16sim.autograd.ops.dropout import dropout_factor
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.nn.dropout import Dropout
from fp16sim.nn.initial import need_widths, uniform
from fp16sim.nn.module import Module

__all__ = ["GRU", "LSTM"]

Mask = npt.NDArray[np.bool_]


class _Recurrent(Module):
    """What LSTM and GRU have in common: weights by layer and direction, and the walk through both."""

    gates: ClassVar[int]
    """How many gates stand side by side in the weights."""

    states: ClassVar[int]
    """How many arrays the state is made of."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        need_widths(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        bound, rows = 1.0 / math.sqrt(hidden_size), self.gates * hidden_size
        for layer in range(num_layers):
            width = hidden_size * self._directions if layer else input_size
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (rows, width),
                "weight_hh": (rows, hidden_size),
            }
            if bias:
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
            for suffix in self._suffixes(layer):
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Tensor(uniform(shape, bound), requires_grad=True))

        dropout_factor(dropout)  # refuses what is no probability
        self.dropout = dropout
        self.dropouts = [Dropout(dropout) for _ in range(num_layers - 1)] if dropout else []

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self._directions]

    def __repr__(self) -> str:
        options = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        shown = [
            f", {name}={value}" for name, usual in options.items() if (value := getattr(self, name)) != usual
        ]
        return f"{type(self).__name__}({self.input_size}, {self.hidden_size}{''.join(shown)})"

    def _run(
        self,
        gates: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        states: list[Tensor],
        active: Mask | None,
        back: bool,
    ) -> tuple[Tensor, list[Tensor]]:
        """Go through time in one direction and give the outputs and the last states."""
        raise NotImplementedError

    def _forward(
        self, x: Tensor, given: tuple[Tensor, ...] | None, lengths: npt.ArrayLike | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        need_tensor(x)
        layout = "(batch, time" if self.batch_first else "(time, batch"
        if x.ndim != 3 or x.shape[-1] != self.input_size or 0 in x.shape:
            raise ValueError(
                f"an input of shape {x.shape} for {self!r}: pass {layout}, {self.input_size}), with a step at least"
            )
        if self.batch_first:
            x = ops.swapaxes(x, 0, 1)
        steps, batch = x.shape[:2]
        active = None if lengths is None else _active(lengths, steps, batch)
        self._check_state(given, batch)
        ends: list[list[Tensor]] = [[] for _ in range(self.states)]
        for layer in range(self.num_layers):
            if layer and self.dropouts:
                x = self.dropouts[layer - 1](x)
            outputs = []
            for back, suffix in enumerate(self._suffixes(layer)):
                weights = {name: getattr(self, name + suffix) for name in ("weight_ih", "weight_hh")}
                biases = [
                    getattr(self, name + suffix) if self.bias else None for name in ("bias_ih", "bias_hh")
                ]
                gates = ops.linear(x, weights["weight_ih"], biases[0])
                states = self._first_states(given, len(ends[0]), batch, weights["weight_hh"])
                output, last = self._run(gates, weights["weight_hh"], biases[1], states, active, back == 1)
                outputs.append(output)
                for end, state in zip(ends, last, strict=True):
                    end.append(state)
            x = outputs[0] if len(outputs) == 1 else ops.concatenate(outputs, axis=-1)
        return ops.swapaxes(x, 0, 1) if self.batch_first else x, tuple(ops.stack(end) for end in ends)

    def _first_states(
        self, given: tuple[Tensor, ...] | None, position: int, batch: int, weight: Tensor
    ) -> list[Tensor]:
        if given is not None:
            return [state[position] for state in given]
        zeros = round_array(np.zeros((batch, self.hidden_size), np.float32), weight.dtype)
        return [Tensor(zeros) for _ in range(self.states)]

    def _check_state(self, given: tuple[Tensor, ...] | None, batch: int) -> None:
        shape = (self.num_layers * self._directions, batch, self.hidden_size)
        if given is None:
            return
        for state in given:
            need_tensor(state)
            if state.shape != shape:
                raise ValueError(
                    f"a state of shape {state.shape} for {self!r}: pass {shape}, or None for zeros"
                )


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, Neural Computation 9, 1997; names and order as in torch).

    Parameters
    ----------
    input_size, hidden_size : int
        Widths of the input and of the state.
    num_layers : int
        Layers on top of each other.
    bias : bool
        Whether the products have biases.
    batch_first : bool
        Whether inputs and outputs are (batch, time, width) rather than (time, batch, width).
    dropout : float
        Share of the values between two layers that are dropped while training: :class:`fp16sim.nn.Dropout`.
    bidirectional : bool
        Whether each layer also runs from the end to the start; its outputs stand beside the others.

    Attributes
    ----------
    weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 : Tensor, float32
        Of layer 0: (4 hidden, input), (4 hidden, hidden), (4 hidden,) twice; the gates i, f, g, o. Then
        ``weight_ih_l0_reverse`` and so on, and ``_l1``. Uniform over +-1/sqrt(hidden), each from the next random stream
        in this order, rounded to float32 once.

    Notes
    -----
    The products of all inputs are made by one :func:`fp16sim.autograd.ops.linear`; the rest, with every rounding, is
    :func:`fp16sim.autograd.ops.lstm`, in the compute format of the policy: state and cell too, as under torch's
    autocast. Weights are rounded to it once each.

    Examples
    --------
    >>> layer = LSTM(3, 4, bidirectional=True)
    >>> output, (h, c) = layer(Tensor(np.zeros((5, 2, 3), np.float32)), lengths=[5, 3])
    >>> output.shape, h.shape, c.shape
    ((5, 2, 8), (2, 2, 4), (2, 2, 4))
    """

    gates, states = 4, 2

    def forward(
        self,
        x: Tensor,
        state: tuple[Tensor, Tensor] | None = None,
        lengths: npt.ArrayLike | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Map (time, batch, input) to the outputs of the last layer and the last states of all.

        Parameters
        ----------
        x : Tensor, shape (time, batch, input)
        state : pair of Tensor, shape (layers * directions, batch, hidden), optional
            Hidden states and cells before the first step. Default: zeros.
        lengths : integers, shape (batch,), optional
            From 1 to time. Beyond its length a sequence keeps its state and gives +0; the other direction starts at its
            end, so what stands beyond does not matter. As torch's packed sequences, in any order.

        Returns
        -------
        output : Tensor, shape (time, batch, directions * hidden)
        state : pair of Tensor
            Hidden states and cells after the last step, shaped as above.
        """
        if state is not None and (not isinstance(state, tuple) or len(state) != 2):
            raise TypeError(
                f"the state of an LSTM is a pair of tensors (h, c), not {type(state).__name__}: pass both"
            )
        output, (h, c) = self._forward(x, state, lengths)
        return output, (h, c)

    def _run(
        self,
        gates: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        states: list[Tensor],
        active: Mask | None,
        back: bool,
    ) -> tuple[Tensor, list[Tensor]]:
        h0, c0 = states
        result = ops.lstm(gates, weight, bias, h0, c0, active, back)
        return result[:-2], [result[-2], result[-1]]


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al., arXiv 1406.1078; names, order and formulas as in torch).

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        As of :class:`LSTM`.

    Attributes
    ----------
    weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 : Tensor, float32
        As of :class:`LSTM`, with the gates r, z, n: (3 hidden, ...).

    Notes
    -----
    As of :class:`LSTM`, with :func:`fp16sim.autograd.ops.gru`.

    Examples
    --------
    >>> layer = GRU(3, 4, batch_first=True)
    >>> output, h = layer(Tensor(np.zeros((2, 5, 3), np.float32)))
    >>> output.shape, h.shape
    ((2, 5, 4), (1, 2, 4))
    """

    gates, states = 3, 1

    def forward(
        self, x: Tensor, state: Tensor | None = None, lengths: npt.ArrayLike | None = None
    ) -> tuple[Tensor, Tensor]:
        """Map (time, batch, input) to the outputs of the last layer and the last states of all.

        Parameters
        ----------
        x : Tensor, shape (time, batch, input)
        state : Tensor, shape (layers * directions, batch, hidden), optional
        lengths : integers, shape (batch,), optional
            As of :meth:`LSTM.forward`.

        Returns
        -------
        output : Tensor, shape (time, batch, directions * hidden)
        state : Tensor, shape (layers * directions, batch, hidden)
        """
        output, (h,) = self._forward(x, None if state is None else (state,), lengths)
        return output, h

    def _run(
        self,
        gates: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        states: list[Tensor],
        active: Mask | None,
        back: bool,
    ) -> tuple[Tensor, list[Tensor]]:
        result = ops.gru(gates, weight, bias, states[0], active, back)
        return result[:-1], [result[-1]]


def _active(lengths: npt.ArrayLike, steps: int, batch: int) -> Mask | None:
    """Give (time, batch): whether each step is within its sequence; None if all are."""
    if isinstance(lengths, Tensor):
        raise TypeError("lengths are a tensor: pass integers, such as [5, 3]")
    given: Any = np.asarray(lengths)
    if given.dtype.kind not in "iu" or given.shape != (batch,):
        raise ValueError(
            f"lengths of {given.dtype}, shape {given.shape}: pass an integer for each of {batch} sequences"
        )
    if given.min() < 1 or given.max() > steps:
        worst = int(given.min() if given.min() < 1 else given.max())
        raise ValueError(
            f"a sequence of length {worst} in an input of {steps} steps: lengths go from 1 to {steps}"
        )
    active: Mask = np.arange(steps)[:, None] < given
    return None if active.all() else active
