"""Hypothesis strategies for numerical tests of float16 code and of loss scalers."""

from fp16sim.testing.strategies.histories import overflow_histories

__all__ = ["overflow_histories"]
