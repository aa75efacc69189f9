"""Memory for packed operands and tiles, one piece for each thread; fresh memory at each call would cost far more."""

from __future__ import annotations

import threading

import numpy as np

__all__ = ["aligned", "workspace"]

_ALIGNMENT = 64  # a line of the cache, and the widest vector


def aligned(size: int) -> int:
    """Round a size or an address up to a line of the cache."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class _Workspace(threading.local):
    """The memory of a thread; only what a kernel touches becomes resident."""

    size = address = 0

    def reserve(self, size: int) -> int:
        """Give the aligned address of at least `size` bytes; what was there before is lost."""
        if self.size < size:
            self.memory = np.empty(size + _ALIGNMENT, np.uint8)
            self.address = aligned(self.memory.ctypes.data)
            self.size = size
        return self.address


workspace = _Workspace()
