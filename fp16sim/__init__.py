"""fp16sim: a bit-exact simulator of float16 training.

Usually imported as ``import fp16sim as fs``. Each name has its own help; to

- round numbers, in seven modes (stochastic is one): ``fs.round_to(x, "binary16", rounding="stochastic", seed=0)``;
- calculate with one rounding for each operation: ``fs.add``, ``fs.fma``, ``fs.sqrt``, ``fs.exp`` and others;
- see what a format keeps of one number: ``fs.describe(0.1)``; on the command line, ``fp16sim explain 0.1``;
- multiply matrices as a tensor core or a plain loop does: ``fs.matmul(a, b, "a100")``, whose help lists the datapaths,
  and ``fs.Datapath`` for one of your own;
- see every step of one dot product: ``fs.explain("a100", a, b)``;
- sum in a chosen order: ``fs.sum``, ``fs.mean``, ``fs.norm``, ``fs.cumsum``, ``fs.softmax``;
- convolve: ``fs.conv2d``, and its gradients ``fs.conv2d_input`` and ``fs.conv2d_weight``; also 1-d and 3-d;
- count overflows, underflows and swamped additions: ``with fs.count_events() as events: ...``;
- have a format of your own: ``fs.Format``, then ``fs.round_to(x, it)`` and ``format=it`` in operations;
- train with a ready loop: ``fs.fit`` and ``fs.scaling``; on the command line, ``fp16sim train``, with six small models;
- say which operation computes in which format: ``fs.Policy``, ``fs.autocast``;
- write a loop of your own: ``fs.Tensor``, ``fs.nn``, ``fs.optim``, ``fs.no_grad``, ``fs.checkpoint``, ``fs.gradcheck``;
- compute with tensors, recording gradients: their methods, and the functions in ``fs.autograd.ops``.

Public names are handed on lazily, so that ``import fp16sim`` loads neither numba nor the libraries of the extras.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh atan sigmoid softplus erf gelu silu sqrt "
    "rsqrt reciprocal cbrt square"
)
_HOMES = {
    "fp16sim.emulator.formats": "Format as_format binary16 bfloat16 tf32 binary32 e4m3 e5m2",
    "fp16sim.emulator.rounding": "Rounding",
    "fp16sim.emulator.arithmetic": "round_to add subtract multiply divide fma ieee_remainder minimum maximum "
    "nextafter ldexp rint logb",
    "fp16sim.emulator.comparisons": "equal not_equal less less_equal greater greater_equal to_integer",
    "fp16sim.emulator.functions": _FUNCTIONS,
    "fp16sim.emulator.matmul": "dot matmul",
    "fp16sim.emulator.reductions": "sum mean norm cumsum softmax index_sum",
    "fp16sim.emulator.convolution": "conv1d conv2d conv3d conv1d_input conv2d_input conv3d_input conv1d_weight "
    "conv2d_weight conv3d_weight",
    "fp16sim.emulator.datapath": "Datapath",
    "fp16sim.emulator.events": "Events count_events scope",
    "fp16sim.emulator.backends": "use_backend",
    "fp16sim.emulator.backends.threads": "set_threads",
    "fp16sim.emulator.describe": "describe Description",
    "fp16sim.emulator.dot_explanation": "explain",
    "fp16sim.autograd.tensor": "Tensor no_grad",
    "fp16sim.autograd.policy": "Policy autocast",
    "fp16sim.autograd.checkpoint": "checkpoint",
    "fp16sim.autograd.gradcheck": "gradcheck",
    "fp16sim.nn.random": "manual_seed",
    "fp16sim.training.fit": "fit fit_steps",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
_SUBPACKAGES = (
    "autograd",
    "emulator",
    "nn",
    "optim",
    "recording",
    "report",
    "scaling",
    "testing",
    "training",
)

__all__ = ["__version__", *_SUBPACKAGES, *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    if name in _SUBPACKAGES:
        return import_module(f"fp16sim.{name}")
    if name.startswith("__"):  # the import system and inspection ask for these
        raise AttributeError(f"fp16sim has no {name!r}")
    from difflib import get_close_matches

    from fp16sim.emulator.formats import hint, nearest_name

    near = nearest_name(name, __all__) if get_close_matches(name, __all__, n=1) else ""
    raise AttributeError(f"fp16sim has no {name!r}: {hint(name) or near or 'dir(fp16sim) lists the names'}")


def __dir__() -> list[str]:
    return sorted(__all__)
