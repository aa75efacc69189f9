"""What to install where a library of an extra is missing."""

from __future__ import annotations

__all__ = ["not_installed"]


def not_installed(need: str, extra: str) -> str:
    """Say that a library is missing, and what brings it: from an index, or in a clone of the repository.

    >>> not_installed("pictures need matplotlib", "report")
    "pictures need matplotlib, which is not installed: pip install 'fp16sim[report]', or in a clone pip install -e ..."
    """
    return f"{need}, which is not installed: pip install 'fp16sim[{extra}]', or in a clone pip install -e '.[{extra}]'"
