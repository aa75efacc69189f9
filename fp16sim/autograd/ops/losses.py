"""Losses, in the policy's wide format. G is the gradient of the result.

All take ``reduction``: ``"none"`` gives a loss for each example (or element), ``"sum"`` their sum and ``"mean"`` their
mean, by the policy's reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import Arithmetic, Array, keep
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor, need_tensor
from fp16sim.emulator.formats import nearest_name

__all__ = ["bce_with_logits", "cross_entropy", "mse_loss", "nll_loss"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]
Labels = npt.NDArray[np.int64]


# ---------------------------------------------------------------------------------------------------- of classes


def _cross_entropy(
    arithmetic: Arithmetic,
    logits: Array,
    labels: Labels,
    kept: Array | None,
    smoothing: float,
    reduction: str,
) -> tuple[Array, Saved]:
    rows = _class_rows(logits)
    places = np.arange(len(labels))
    shifted = arithmetic.subtract(rows, arithmetic.maximum_of(rows, 1))
    exponentials = arithmetic.function("exp", shifted)
    sums = arithmetic.sum(exponentials, 1)
    logarithms = arithmetic.function("log", sums)
    losses = arithmetic.subtract(logarithms, shifted[places, labels])
    if smoothing:
        others = arithmetic.sum(arithmetic.subtract(logarithms[:, None], shifted), 1)
        hot, cold = (arithmetic.constant(share, rows) for share in _shares(smoothing, rows.shape[1]))
        losses = arithmetic.add(arithmetic.multiply(losses, hot), arithmetic.multiply(others, cold))
    loss, count = _of_classes(arithmetic, losses, kept, reduction, _places_of(logits.shape))
    return loss, (exponentials, sums, labels, kept, smoothing, count, logits.shape)


def _cross_entropy_gradient(context: Context, gradient: Array) -> Parts:
    exponentials, sums, labels, kept, smoothing, count, shape = context.saved
    arithmetic = context.arithmetic
    probabilities = arithmetic.divide(exponentials, sums[:, None])
    targets = np.zeros_like(probabilities)
    hot = arithmetic.constant(1.0, probabilities)
    if smoothing:
        first, cold = (arithmetic.constant(share, targets) for share in _shares(smoothing, targets.shape[1]))
        targets[:], hot = cold, arithmetic.add(first, cold)
    targets[np.arange(len(labels)), labels] = hot
    difference = arithmetic.subtract(probabilities, targets)
    weights = _weights(arithmetic, gradient, count)
    result = arithmetic.multiply(difference, weights if count is not None else weights.reshape(-1, 1))
    return (_back(result if kept is None else keep(result, kept[:, None]), shape),)


def _shares(smoothing: float, classes: int) -> tuple[float, float]:
    return 1.0 - smoothing, smoothing / classes


_CROSS_ENTROPY = Op("cross_entropy", _cross_entropy, _cross_entropy_gradient)


def cross_entropy(
    logits: Tensor,
    labels: npt.ArrayLike,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Give -log softmax(logits)[label], by default its mean over the examples.

    Parameters
    ----------
    logits : Tensor, shape (batch, classes, ...)
    labels : integers, shape (batch, ...)
        Classes from 0.
    label_smoothing : float
        Share of the target that is spread over all classes evenly.
    ignore_index : int
        A label whose examples have the loss 0 and the gradient 0, and are not counted in the mean.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    ValueError
        If shapes do not fit, or a label is no class.

    Notes
    -----
    Each step is rounded to the dtype: z = logits - max; e = exp(z); s = sum(e); l = log(s); row = l - z[label]. With
    smoothing a: row (1-a) + (a/classes) sum(l - z), a product, a difference and a sum each, where 1-a and a/classes are
    rounded first. Then the sum over the rows, in C order, and its quotient by the number of rows that are not ignored,
    which is rounded first: NaN if there is none, as in torch.

    Gradient: p = e / s; d = p - t; q = G / count (G itself for other reductions); d q. Here t is 1 at the label and 0
    elsewhere; with smoothing (1-a) + a/classes, rounded, and a/classes.

    Source: torch 2.13, ``torch.nn.functional.cross_entropy``; Szegedy et al., arXiv 1512.00567, section 7.

    >>> cross_entropy(Tensor([[0.0, 0.0], [0.0, 0.0]]), [1, -100]).data
    array(0.6931472, dtype=float32)
    """
    classes, kept = _checked("cross_entropy", logits, labels, ignore_index, reduction)
    if not isinstance(label_smoothing, (int, float, np.number)) or not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing={label_smoothing!r}: a share between 0 and 1; pass such as 0.1")
    smoothing = float(label_smoothing)
    return run(_CROSS_ENTROPY, logits, labels=classes, kept=kept, smoothing=smoothing, reduction=reduction)


def _nll_loss(
    arithmetic: Arithmetic, logarithms: Array, labels: Labels, kept: Array | None, reduction: str
) -> tuple[Array, Saved]:
    chosen = _class_rows(logarithms)[np.arange(len(labels)), labels]
    shape = logarithms.shape
    loss, count = _of_classes(arithmetic, arithmetic.negative(chosen), kept, reduction, _places_of(shape))
    return loss, (labels, kept, count, shape)


def _nll_loss_gradient(context: Context, gradient: Array) -> Parts:
    labels, kept, count, shape = context.saved
    arithmetic = context.arithmetic
    weights = arithmetic.negative(_weights(arithmetic, gradient, count)).reshape(-1)
    weights = np.broadcast_to(weights, labels.shape)
    result = np.zeros((len(labels), shape[1]), gradient.dtype)
    result[np.arange(len(labels)), labels] = weights if kept is None else keep(weights, kept)
    return (_back(result, shape),)


_NLL_LOSS = Op("nll_loss", _nll_loss, _nll_loss_gradient)


def nll_loss(
    logarithms: Tensor, labels: npt.ArrayLike, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """Give minus the logarithm at the label, by default its mean: for what :func:`log_softmax` makes.

    Parameters
    ----------
    logarithms : Tensor, shape (batch, classes, ...)
        Of probabilities.
    labels, ignore_index, reduction
        As for :func:`cross_entropy`.

    Notes
    -----
    Rounded: the sum over the rows, in C order, and its quotient by the number of rows that are not ignored, which is
    rounded first. Gradient: -(G / count) at the label, +0 elsewhere.

    >>> nll_loss(Tensor([[-1.0, -3.0]]), [1]).item()
    3.0
    """
    classes, kept = _checked("nll_loss", logarithms, labels, ignore_index, reduction)
    return run(_NLL_LOSS, logarithms, labels=classes, kept=kept, reduction=reduction)


def _class_rows(values: Array) -> Array:
    """Put the classes last, and all else in one axis, in C order."""
    return values if values.ndim == 2 else np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])


def _places_of(shape: Sequence[int]) -> tuple[int, ...]:
    return (shape[0], *shape[2:])


def _back(rows: Array, shape: tuple[int, ...]) -> Array:
    """Undo `_class_rows`."""
    return rows if len(shape) == 2 else np.moveaxis(rows.reshape(*_places_of(shape), shape[1]), -1, 1)


def _of_classes(
    arithmetic: Arithmetic, losses: Array, kept: Array | None, reduction: str, shape: tuple[int, ...]
) -> tuple[Array, int | None]:
    """Reduce losses; give the number that a mean divides by, 1 for a sum and None where nothing is reduced."""
    if kept is not None:
        losses = keep(losses, kept)
    if reduction == "none":
        return losses.reshape(shape), None
    total = arithmetic.sum(losses)
    if reduction == "sum":
        return total, 1
    count = len(losses) if kept is None else int(np.count_nonzero(kept))
    return arithmetic.divide(total, arithmetic.constant(count, losses)), count


def _weights(arithmetic: Arithmetic, gradient: Array, count: int | None) -> Array:
    """Give what each loss contributes to the result, times its gradient; dividing by 1 changes nothing."""
    return gradient if count is None else arithmetic.divide(gradient, arithmetic.constant(count, gradient))


def _checked(
    name: str, values: Tensor, labels: npt.ArrayLike, ignore_index: int, reduction: str
) -> tuple[Labels, Array | None]:
    """Give the labels in one axis, those to ignore as 0, and which ones count, None if all do."""
    need_tensor(values)
    _check_reduction(reduction)
    if isinstance(labels, Tensor):
        raise TypeError(
            f"{name} with labels in a {labels.dtype} tensor: labels are integers, which tensors do not hold; pass a "
            "list or an array, such as [2, 0]"
        )
    array = np.asarray(labels)
    if values.ndim < 2 or array.shape != _places_of(values.shape) or not array.size:
        raise ValueError(
            f"{name} of logits {values.shape} and labels {array.shape}: pass (batch, classes, ...) and (batch, ...)"
        )
    if array.dtype.kind not in "iu":
        raise ValueError(
            f"labels of dtype {array.dtype}: labels must be integers; pass labels.astype(np.int64)"
        )
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, (int, np.integer)):
        raise TypeError(
            f"{name} with ignore_index={ignore_index!r}: labels are integers; pass one that is no class, such as -100"
        )
    classes = values.shape[1]
    ignored = array == ignore_index
    wrong = ((array < 0) | (array >= classes)) & ~ignored
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"label {array[place]} at position {place}: labels must be integers from 0 to {classes - 1}, or "
            f"ignore_index={ignore_index}; check the classes of the data"
        )
    flat = array.astype(np.int64, copy=False).reshape(-1)
    if not ignored.any():
        return flat, None
    return np.where(ignored.reshape(-1), 0, flat), ~ignored.reshape(-1)


def _check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction={reduction!r}: {nearest_name(str(reduction), ['mean', 'sum', 'none'])}")


# ---------------------------------------------------------------------------------------------------- of elements


def _mse_loss(
    arithmetic: Arithmetic, a: Array, *second: Array, targets: Array | None, reduction: str
) -> tuple[Array, Saved]:
    difference = arithmetic.subtract(a, _second(arithmetic, a, second, targets))
    return _of_elements(arithmetic, arithmetic.multiply(difference, difference), reduction), (
        difference,
        reduction,
    )


def _mse_loss_gradient(context: Context, gradient: Array) -> Parts:
    difference, reduction = context.saved
    arithmetic = context.arithmetic
    weights = _element_weights(arithmetic, gradient, difference.size, reduction)
    first = arithmetic.multiply(difference, arithmetic.multiply(weights, arithmetic.constant(2.0, weights)))
    return (first, arithmetic.negative(first))[: len(context.needs)]


_MSE_LOSS = Op("mse_loss", _mse_loss, _mse_loss_gradient)


def mse_loss(a: Tensor, targets: Tensor | npt.ArrayLike, reduction: str = "mean") -> Tensor:
    """Square the differences, and give by default their mean.

    Parameters
    ----------
    a : Tensor
    targets : Tensor or array_like of the same shape
        An array is rounded to the dtype in which the loss is computed, once; a tensor has a gradient too.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    ValueError
        If the shapes differ, or a target is NaN or infinite.

    Notes
    -----
    Each step is rounded: d = a - targets; d d; their sum in C order; a mean is divided in the accumulator's format
    (:func:`mean`). A sum of 8192 nines stalls at 32768 in float16.

    Gradient: q = G / n for a mean (n rounded to the dtype first), else G; w = 2 q; d w, and its negative for targets.

    >>> mse_loss(Tensor([1.0, 2.0]), [0.0, 0.0]).item()
    2.5
    """
    parents, array = _pair("mse_loss", a, targets, reduction)
    return run(_MSE_LOSS, *parents, targets=array, reduction=reduction)


def _bce_with_logits(
    arithmetic: Arithmetic, x: Array, *second: Array, targets: Array | None, reduction: str
) -> tuple[Array, Saved]:
    t = _second(arithmetic, x, second, targets)
    magnitude = np.abs(x)
    straight = arithmetic.subtract(arithmetic.relu(x), arithmetic.multiply(x, t))
    curved = arithmetic.function("log1p", arithmetic.function("exp", arithmetic.negative(magnitude)))
    return _of_elements(arithmetic, arithmetic.add(straight, curved), reduction), (x, t, reduction)


def _bce_with_logits_gradient(context: Context, gradient: Array) -> Parts:
    x, t, reduction = context.saved
    arithmetic = context.arithmetic
    weights = _element_weights(arithmetic, gradient, x.size, reduction)
    first = second = None
    if context.needs[0]:
        first = arithmetic.multiply(arithmetic.subtract(arithmetic.function("sigmoid", x), t), weights)
    if context.needs[1:] == (True,):
        second = arithmetic.negative(arithmetic.multiply(x, weights))
    return (first, second)[: len(context.needs)]


_BCE_WITH_LOGITS = Op("bce_with_logits", _bce_with_logits, _bce_with_logits_gradient)


def bce_with_logits(logits: Tensor, targets: Tensor | npt.ArrayLike, reduction: str = "mean") -> Tensor:
    """Give the cross-entropy of sigmoid(logits) with targets between 0 and 1, by default its mean.

    Parameters
    ----------
    logits : Tensor
    targets, reduction
        As for :func:`mse_loss`.

    Notes
    -----
    Each step is rounded: p = x t; a = max(x, 0) - p; e = exp(-|x|); l = log1p(e); a + l; then sum and mean as in
    :func:`mse_loss`. It stays finite where sigmoid(x) is 1, so that log(1 - sigmoid(x)) would be -inf.

    Gradient: q = G / n for a mean (n rounded to the dtype first), else G; s = sigmoid(x); (s - t) q, each rounded; for
    targets -(x q).

    >>> bce_with_logits(Tensor(np.float16([20.0])), [0.0]).item()
    20.0
    """
    parents, array = _pair("bce_with_logits", logits, targets, reduction)
    return run(_BCE_WITH_LOGITS, *parents, targets=array, reduction=reduction)


def _second(arithmetic: Arithmetic, a: Array, second: tuple[Array, ...], targets: Array | None) -> Array:
    """Give the targets: a parent, or an array to round."""
    return second[0] if targets is None else arithmetic.cast(targets, a.dtype)


def _of_elements(arithmetic: Arithmetic, losses: Array, reduction: str) -> Array:
    if reduction == "none":
        return losses
    return arithmetic.mean(losses) if reduction == "mean" else arithmetic.sum(losses)


def _element_weights(arithmetic: Arithmetic, gradient: Array, size: int, reduction: str) -> Array:
    if reduction != "mean":
        return gradient
    return arithmetic.divide(gradient, arithmetic.constant(size, gradient))


def _pair(
    name: str, a: Tensor, targets: Tensor | npt.ArrayLike, reduction: str
) -> tuple[tuple[Tensor, ...], Array | None]:
    """Check both; give the tensors among them, and the targets if they are none."""
    need_tensor(a)
    _check_reduction(reduction)
    array = targets.data if isinstance(targets, Tensor) else np.asarray(targets)
    if array.shape != a.shape or not a.size:
        raise ValueError(
            f"{name} of shape {a.shape} with targets of shape {array.shape}: pass the same shape, not empty; reshape "
            "one"
        )
    wrong = ~np.isfinite(array)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"target {float(array[place])} at position {place}: targets are finite numbers; check the data"
        )
    return ((a, targets), None) if isinstance(targets, Tensor) else ((a,), array)
