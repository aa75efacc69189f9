"""Tensors and the tape behind them.

Every tensor has a creation number, and an operation keeps its parents in a tuple, so that the walk back along the tape
(`backward.py`) has one order: the same bits on every run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import DTYPES, Arithmetic, Array, as_dtype, round_array
from fp16sim.autograd.hints import axis_not_dim, missing, off_tape
from fp16sim.autograd.methods import call
from fp16sim.autograd.operators import Operators

if TYPE_CHECKING:
    from fp16sim.autograd.operation import Op

__all__ = [
    "Context",
    "Hook",
    "Node",
    "Tensor",
    "Widened",
    "is_recording",
    "need_state",
    "need_tensor",
    "no_grad",
]

Hook = Callable[[Array], Array | None]
_DTYPES = frozenset(DTYPES.values())
_numbers = itertools.count()
_recording: ContextVar[bool] = ContextVar("fp16sim_recording", default=True)


@contextmanager
def no_grad() -> Iterator[None]:
    """Record no operations inside a ``with`` block, or inside a function under ``@no_grad()``, with parentheses.

    >>> weight = Tensor([1.0], requires_grad=True)
    >>> with no_grad():
    ...     (weight + weight).requires_grad
    False
    """
    token = _recording.set(False)
    try:
        yield
    finally:
        _recording.reset(token)


@contextmanager
def recording() -> Iterator[None]:
    """Record operations inside a ``with`` block, also within `no_grad`."""
    token = _recording.set(True)
    try:
        yield
    finally:
        _recording.reset(token)


def is_recording() -> bool:
    """Whether operations on tensors with gradients are put on the tape."""
    return _recording.get()


class Context(NamedTuple):
    """What an operation hands from its forward to its gradient rule.

    Attributes
    ----------
    arithmetic : Arithmetic
        The only arithmetic that a rule uses.
    saved : tuple
        Arrays and other values from the forward.
    needs : tuple of bool
        For each parent, whether its gradient is wanted; a rule gives None for the others.
    """

    arithmetic: Arithmetic
    saved: tuple[Any, ...]
    needs: tuple[bool, ...]


class Widened(NamedTuple):
    """An array that a gradient rule finds converted to a wider dtype, exactly; until then it takes its own memory."""

    array: Array
    dtype: np.dtype[Any]


class Node(NamedTuple):
    """One entry of the tape: an operation, its parents in order, and its context.

    `versions` holds, for each parent, the version of its data if the context kept that data, else -1.
    """

    op: Op
    parents: tuple[Tensor, ...]
    context: Context
    versions: tuple[int, ...]


class Freed(NamedTuple):
    """What is left of a node once a backward pass has used it: the name of its operation."""

    name: str


class Tensor(Operators):
    """An array of float16, bfloat16, float32 or float64 that remembers how it was made.

    Parameters
    ----------
    data : array_like
        Arrays of these dtypes are kept as they are, without a copy: changing such an array between forward and backward
        changes what gradients are computed from, so pass a copy of one that is reused. Anything else that is real
        (integers, lists, Python numbers) is rounded to float32, once. NumPy makes float64 arrays unless it is told
        otherwise: a tensor of ``np.ones(3)`` is float64, and stays so. Pass ``dtype="float32"`` for a parameter. Under
        a mixed policy too, a float64 tensor makes elementwise operations on it float64, as in torch; products convert
        it to the compute format, where torch's autocast leaves it and the product may then fail.
    requires_grad : bool
        Whether :meth:`backward` fills `grad`.
    dtype : str or dtype, optional
        To which the data is rounded instead, once.

    Attributes
    ----------
    data : array
        A read-only view. Assign another array to change a tensor; in place it cannot be changed, since the tape may
        need the old values.
    grad : array of the same dtype, or None
    requires_grad : bool
        Assign False to freeze a parameter, True to go on with it.
    trainable : bool
        Whether it was made with ``requires_grad=True``, so that a frozen parameter in a list is known for one.
    dtype, shape, ndim, size
        Of `data`.

    Raises
    ------
    TypeError
        If the data is complex or is not made of numbers; if two tensors are compared (``==``, ``<``, ``in``): compare
        their `data`.
    ValueError
        If the data is a list of lists of different lengths.

    Examples
    --------
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> y = (x * 3.0 + x).sum()
    >>> y.backward()
    >>> x.grad
    array([4., 4.], dtype=float32)
    """

    __slots__ = (
        "__weakref__",
        "_array",
        "_hooks",
        "grad",
        "node",
        "number",
        "requires_grad",
        "trainable",
        "version",
    )

    def __init__(
        self, data: npt.ArrayLike, requires_grad: bool = False, dtype: npt.DTypeLike | None = None
    ) -> None:
        if not isinstance(requires_grad, (bool, np.bool_)):
            raise TypeError(
                f"requires_grad={requires_grad!r}: a tensor takes a gradient or not; pass True or False"
            )
        self._array = _real_array(data, dtype)
        self.requires_grad = self.trainable = bool(requires_grad)
        self.grad: Array | None = None
        self.node: Node | Freed | None = None
        self.number = next(_numbers)
        self.version = 0
        self._hooks: list[Hook] = []

    @property
    def data(self) -> Array:
        """The values, as a read-only array; assign an array to replace them."""
        view = self._array.view()
        view.flags.writeable = False
        return view

    @data.setter
    def data(self, array: npt.ArrayLike) -> None:
        new, old = _real_array(array, None), self._array
        if self.node is not None and (new.shape != old.shape or new.dtype != old.dtype):
            raise ValueError(
                f"{new.dtype} of shape {new.shape} for the result of an operation, {old.dtype} of shape {old.shape}: "
                "the tape behind it needs the same; build a new tensor"
            )
        self._array = new
        self.version += 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of `data`."""
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `data`."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """The number of elements, torch's ``numel()``; what torch calls ``size()`` is `shape`."""
        return self._array.size

    @property
    def is_leaf(self) -> bool:
        """Whether no operation made it."""
        return self.node is None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without axes: use .item() for its value")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Tensor({self._array!r}{', requires_grad=True' if self.requires_grad else ''})"

    __array_ufunc__ = None  # np.float64(2) * tensor is then tensor.__rmul__, and np.exp(tensor) a TypeError

    def __array__(self, *_: object, **__: object) -> np.ndarray[Any, Any]:
        # NumPy would compute off the tape, with roundings of its own.
        raise TypeError(off_tape())

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and unpickled tensors get numbers of their own: two tensors of one number would be one on the tape.
        if self.node is not None:
            raise TypeError("a copy of the result of an operation would lose its tape: copy x.detach()")
        return _restored, (self._array, self.requires_grad, self.grad, self.trainable)

    def __bool__(self) -> bool:
        raise TypeError("the truth of a tensor: compare tensor.data, or tensor.item() if it has one element")

    if not TYPE_CHECKING:  # type checkers see the names that are there

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(f"a tensor has no {name!r}: {missing(name, dir(type(self)))}")

    def item(self) -> float:
        """Give the one value as a Python float, exactly."""
        if self.size != 1:
            raise ValueError(
                f"item() of a tensor of shape {self.shape}: it takes one element; reduce or index it"
            )
        return float(self._array.item())

    def __float__(self) -> float:
        return self.item()

    def __format__(self, spec: str) -> str:
        if self.shape and spec:
            raise TypeError(
                f"format {spec!r} of a tensor of shape {self.shape}: format its x.item(), or x.data"
            )
        return repr(self) if self.shape else format(self.item(), spec)

    def tolist(self) -> Any:
        """Give the values as Python floats, exactly, in lists of lists; one float for a tensor without axes."""
        return self._array.astype(np.float64).tolist()

    def numpy(self) -> Array:
        """Give a copy of the values."""
        return self._array.copy()

    def detach(self) -> Tensor:
        """Give a tensor of the same values without a tape; they share memory."""
        return Tensor(self._array)

    def register_hook(self, hook: Hook) -> Callable[[], None]:
        """Call ``hook(gradient)`` in :meth:`backward` once the gradient of this tensor is complete.

        What the hook returns, unless None, replaces the gradient; it must keep the shape and the dtype. The array
        that it is shown is read-only. Hooks run in the order of registration.

        Returns
        -------
        callable
            Call it without arguments to remove the hook.
        """
        if not callable(hook):
            raise TypeError(f"a hook that is a {type(hook).__name__}: pass a function of the gradient")
        if not self.requires_grad:
            raise ValueError(
                "a hook on a tensor without gradient never runs: make it with requires_grad=True"
            )
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook) if hook in self._hooks else None

    def backward(self, gradient: npt.ArrayLike | None = None, retain_graph: bool = False) -> None:
        """Add to the `grad` of every tensor that was made with ``requires_grad=True``.

        Parameters
        ----------
        gradient : array_like, optional
            Gradient of the end result with respect to this tensor, rounded to its dtype. Default: 1, for a
            tensor of one element.
        retain_graph : bool
            Keep what the operations saved, for another backward pass through them; otherwise it is freed.

        Notes
        -----
        Each gradient has the dtype of its tensor. Where several meet, they are added in descending creation
        order of the results that they come from, rounded at each addition; a gradient that is already in
        `grad` is the first term.

        Raises
        ------
        RuntimeError
            If an earlier backward pass freed a part of the tape, or a tensor whose values it needs was changed.
        """
        _late("fp16sim.autograd.backward").accumulate(self, gradient, retain_graph)

    @classmethod
    def of_result(cls, array: Array) -> Tensor:
        """Wrap what an operation computed, an array of one of the dtypes; a read-only one, a view, is copied."""
        tensor = cls.__new__(cls)
        array = np.asarray(array)  # NumPy makes scalars of results without axes
        tensor._array = array if array.flags.writeable else array.copy()
        tensor.requires_grad = tensor.trainable = False
        tensor.grad = None
        tensor.node = None
        tensor.number = next(_numbers)
        tensor.version = 0
        tensor._hooks = []
        return tensor

    # Here rather than in operators.py, since np.sum and np.mean call them and their errors name the class.

    @axis_not_dim
    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Sum: :func:`fp16sim.autograd.ops.sum`."""
        return call("sum", self, axis, keepdims)

    @axis_not_dim
    def mean(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Sum over count: :func:`fp16sim.autograd.ops.mean`."""
        return call("mean", self, axis, keepdims)

    # Comparisons have no gradient, and `==` by identity would pass for one by value.

    def _refuse_comparison(self, *_: object) -> NoReturn:
        raise TypeError(
            "a comparison of tensors is off the tape: compare x.data, or x.item() if it has one element; to ask "
            "whether two names are one tensor, write x is y"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _refuse_comparison
    __hash__ = object.__hash__  # a key of a dictionary by identity

    # In-place changes would pull values from under the tape.

    def _refuse_in_place(self, *_: object) -> NoReturn:
        raise TypeError(
            "a tensor does not change in place, since the tape may need its values: write x = x + y, build a new "
            "tensor, or assign x.data outside of a forward pass"
        )

    __setitem__ = __iadd__ = __isub__ = __imul__ = __itruediv__ = __imatmul__ = __ipow__ = _refuse_in_place


def _restored(array: Array, requires_grad: bool, grad: Array | None, trainable: bool) -> Tensor:
    """Make what ``copy`` and ``pickle`` took apart; hooks stay with the original."""
    tensor = Tensor(array, requires_grad)
    tensor.grad, tensor.trainable = grad, trainable
    return tensor


def need_tensor(x: object) -> None:
    """Refuse an operand that is no tensor."""
    if not isinstance(x, Tensor):
        if isinstance(x, np.ndarray) and x.dtype.kind in "iub":  # as `fit` hands on tokens
            raise TypeError(
                f"the input is an array of {x.dtype}: integers are tokens, for an Embedding, and other layers and "
                "operations take tensors; pass x.astype(np.float32) to fit, and fs.Tensor(x) elsewhere"
            )
        raise TypeError(
            f"the input is a {type(x).__name__}: layers and operations take tensors; pass fs.Tensor(x)"
        )


def need_state(saved: object) -> None:
    """Refuse what ``state_dict`` cannot have given."""
    if not isinstance(saved, Mapping):
        raise TypeError(
            f"the state is a {type(saved).__name__}: pass what state_dict() gave, names with their values"
        )


def _real_array(data: npt.ArrayLike, dtype: npt.DTypeLike | None) -> Array:
    if isinstance(data, Tensor):
        raise TypeError("a tensor of a tensor: pass x.detach(), or x.data")
    if isinstance(data, np.ma.MaskedArray):
        raise TypeError(
            "a tensor of a masked array: tensors have no mask; pass data.filled(0.0), or another value"
        )
    try:
        array = np.asarray(data)
    except ValueError:
        raise ValueError(
            f"a tensor of a {type(data).__name__} whose parts have different lengths: a tensor has one length along "
            "each axis; pad the parts to the longest"
        ) from None
    if array.dtype not in _DTYPES or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
        if array.dtype not in _DTYPES and (array.dtype.kind not in "fiub" or array.dtype.itemsize > 8):
            raise TypeError(
                f"a tensor of dtype {array.dtype}: tensors hold real numbers; pass float16 or float32"
            )
    if dtype is not None:
        return round_array(array, as_dtype(dtype))
    given = isinstance(data, (np.ndarray, np.generic))
    if array.dtype not in _DTYPES or (array.dtype == np.float64 and not given):
        array = round_array(array, np.float32)
    # Kernels are compiled for writable arrays; a read-only one, which is rare, is copied.
    return array if array.flags.writeable else array.copy()


def _late(module: str) -> Any:
    from importlib import import_module  # those modules stand on this one

    return import_module(module)
