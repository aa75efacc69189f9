"""The sizes of a convolution, checked once: where its windows lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

__all__ = ["Geometry"]


@dataclass(frozen=True)
class Geometry:
    """Where the windows of a convolution lie: a tuple has one entry for each spatial axis.

    Parameters
    ----------
    size : tuple of int
        Spatial sizes of the input.
    kernel : tuple of int
        Those of the weight.
    stride, dilation : tuple of int
        Steps from window to window, and from tap to tap.
    padding : tuple of (int, int)
        Zeros before and after the input.
    groups : int
        Into how many groups the channels fall.

    Raises
    ------
    ValueError
        If a step is not positive, a padding is negative, or no window fits.

    Examples
    --------
    >>> Geometry((28, 28), (3, 3), (2, 2), (1, 1), ((1, 1), (1, 1)), 1).output
    (14, 14)
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    groups: int

    def __post_init__(self) -> None:
        for name in ("stride", "dilation", "kernel"):
            if min(getattr(self, name)) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: every entry must be at least 1")
        if min(min(pair) for pair in self.padding) < 0:
            raise ValueError(f"padding={self.padding}: it cannot be negative; slice the input instead")
        if self.groups < 1:
            raise ValueError(f"groups={self.groups}: there is at least one group")
        if min(self.output) < 1:
            raise ValueError(
                f"input {self.size} with padding {self.padding} is smaller than the kernel {self.kernel} with "
                f"dilation {self.dilation}; pad more, or take a smaller kernel"
            )

    @cached_property
    def extent(self) -> tuple[int, ...]:
        """Spatial sizes of a window."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @cached_property
    def output(self) -> tuple[int, ...]:
        """Spatial sizes of the result."""
        return tuple(
            (n + before + after - window) // step + 1
            for n, (before, after), window, step in zip(
                self.size, self.padding, self.extent, self.stride, strict=True
            )
        )
