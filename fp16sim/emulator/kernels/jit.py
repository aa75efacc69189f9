"""The one jit wrapper: strict floating point, no GIL, and an on-disk cache that cannot go stale."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import llvmlite.binding
import numba
from numba.core import event
from numba.core.caching import IndexDataCacheFile

__all__ = ["HAS_HALF_CONVERSION", "KERNEL_SOURCES", "jit", "target_features", "watch_compilation"]


if numba.config.DISABLE_JIT:
    raise ImportError(
        "NUMBA_DISABLE_JIT is set: the kernels run compiled or not at all; unset it, or compute by the definition "
        "inside `with fp16sim.use_backend('reference')`"
    )


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


KERNEL_SOURCES = _digest_of_sources()
"""Digest of all kernel sources: numba's cache looks at one file and misses changes of helpers in others."""


def jit(function):
    """Compile lazily, without fastmath (numba contracts nothing then) and without the GIL.

    Never give one Python function to two jits with different options: numba's cache does not tell them apart.
    """
    try:
        dispatcher = numba.njit(function, nogil=True, cache=True, fastmath=False, error_model="numpy")
    except RuntimeError:  # no folder to keep the cache in
        return numba.njit(function, nogil=True, fastmath=False, error_model="numpy")
    dispatcher._cache._cache_file = _CacheFile(dispatcher._cache._cache_file)
    return dispatcher


class _CacheFile(IndexDataCacheFile):
    """Where the compiled variants of one function lie: in files that are named after what is in them.

    numba numbers them. Two processes that compile at once may choose one number for two variants, and whoever writes
    last decides what both are from then on.
    """

    def __init__(self, usual):
        stem = usual._index_name.removesuffix(".nbi")
        super().__init__(usual._cache_path, stem, (usual._source_stamp, KERNEL_SOURCES))
        self._stem = f"{stem}."
        self._prefix = f"{stem}.{_short_digest(self._source_stamp)}."

    def save(self, key, data):
        """Keep a variant; what was compiled from other sources is removed with the index that names it."""
        variants = self._load_index()
        if not variants:
            self._remove_stale()
        variants[key] = f"{self._prefix}{_short_digest(key)}.nbc"
        self._save_data(variants[key], data)
        self._save_index(variants)

    def _remove_stale(self):
        for path in Path(self._cache_path).iterdir():
            if (
                path.name.startswith(self._stem)
                and path.suffix == ".nbc"
                and not path.name.startswith(self._prefix)
            ):
                with suppress(OSError):  # another process was faster, or is reading it
                    path.unlink()


def _short_digest(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


class _Announcer(event.Listener):
    """Tells the names of our kernels as numba begins to compile them; not those that they call in turn."""

    def __init__(self, announce):
        self._announce = announce
        self._depth = 0

    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        if self._depth == 0 and function.__module__.startswith(__package__):
            self._announce(function.__name__)
        self._depth += 1

    def on_end(self, event):
        self._depth -= 1


def watch_compilation(announce: Callable[[str], None]) -> AbstractContextManager[object]:
    """Call `announce` with the name of each kernel that is compiled inside the block; one in the cache is none."""
    return event.install_listener("numba:compile", _Announcer(announce))


def target_features() -> set[str]:
    """Features of the processor that numba compiles for, ``NUMBA_CPU_FEATURES`` respected."""
    chosen = numba.config.CPU_FEATURES
    if chosen is None:
        return {name for name, has in llvmlite.binding.get_host_cpu_features().items() if has}
    return {name[1:] for name in chosen.split(",") if name.startswith("+")}


HAS_HALF_CONVERSION = "f16c" in target_features() or platform.machine() in ("aarch64", "arm64")
"""Whether the processor converts float32 to binary16 and back; elsewhere LLVM would call what nobody has."""
