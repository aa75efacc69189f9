"""Hypothesis strategies for numerical tests of float16 code and of loss scalers.

Numbers: :func:`half`, :func:`encodings` of any format, :func:`near_ties`. Arrays: :func:`half_arrays`,
:func:`gradients`. Training: :func:`overflow_histories`, :func:`closed_loops`, :func:`recordings`. They need
Hypothesis: ``pip install 'fp16sim[testing]'``.

>>> from hypothesis import given, settings
>>> import numpy as np
>>> import fp16sim as fs
>>> @given(near_ties())
... @settings(derandomize=True, database=None, deadline=None, max_examples=50)
... def numpy_rounds_as_the_definition_does(x):
...     with np.errstate(over="ignore"):
...         assert np.float16(x) == fs.round_to(x, "binary16")
>>> numpy_rounds_as_the_definition_does()
"""

from typing import TYPE_CHECKING, Any

from fp16sim.emulator.formats import no_such_name
from fp16sim.extras import not_installed

try:
    import hypothesis as _hypothesis  # noqa: F401  for the message
except ModuleNotFoundError as error:
    if error.name != "hypothesis":
        raise
    raise ImportError(not_installed("fp16sim.testing.strategies needs Hypothesis", "testing")) from error

from fp16sim.testing.strategies.arrays import half_arrays
from fp16sim.testing.strategies.gradients import gradients
from fp16sim.testing.strategies.halves import encodings, half
from fp16sim.testing.strategies.histories import overflow_histories
from fp16sim.testing.strategies.loops import closed_loops
from fp16sim.testing.strategies.recordings import recordings
from fp16sim.testing.strategies.ties import near_ties

__all__ = [
    "closed_loops",
    "encodings",
    "gradients",
    "half",
    "half_arrays",
    "near_ties",
    "overflow_histories",
    "recordings",
]

if not TYPE_CHECKING:  # for a type checker a name that is not there is an error

    def __getattr__(name: str) -> Any:
        raise AttributeError(no_such_name(__name__, name, __all__))
