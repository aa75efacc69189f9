"""The digest of a run: one number that every bit of its outcome changes."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from fp16sim.autograd.arithmetic import Array
from fp16sim.nn import Module
from fp16sim.training.results import Step

__all__ = ["digest", "digest_of"]


def digest(model: Module, history: Sequence[Step]) -> str:
    """Give the SHA-256 of a model's parameters and of a history, in hexadecimal.

    Parameters count with name, dtype, shape and bits, little-endian; steps with every field. A NaN counts as
    one value, since its sign differs between processors.
    """
    return digest_of({name: parameter.data for name, parameter in model.named_parameters()}, history)


def digest_of(weights: Mapping[str, Array], history: Sequence[Step]) -> str:
    """Give the :func:`digest` of a model whose parameters have these names and values.

    >>> digest_of({}, [])[:8]
    'e3b0c442'
    """
    state = hashlib.sha256()
    for name, array in weights.items():
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        state.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        state.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    for step in history:
        for value in (step.loss, step.scale, step.zero, step.flushed, step.survive):
            state.update(struct.pack("<d", math.nan if math.isnan(value) else value))
        state.update(struct.pack("<q??", step.step, step.applied, step.overflow))
    return state.hexdigest()
