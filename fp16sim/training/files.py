"""Writing results so that nothing is lost: checked first, then written aside and moved into place."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["prepare_folder", "remove_files", "write_atomically"]


def prepare_folder(folder: str | Path) -> Path:
    """Make a folder for results and see that it can be written to, before the work starts.

    Parameters
    ----------
    folder : path
        An existing folder, or a new one inside an existing folder.

    Returns
    -------
    Path

    Raises
    ------
    OSError
        If it cannot be made or written to; the message is one line with the path, the rule and the remedy.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     prepare_folder(f"{parent}/run").is_dir()
    True
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{path} is a file: results go into a folder; name another one")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path.parent} is not a folder: {path.name!r} is made inside an existing folder; "
            f"make it first (mkdir -p {path.parent}) or name another one"
        )
    try:
        path.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise OSError(
            f"{path} cannot be written ({error.strerror or error}): name a writable folder"
        ) from error
    return path


def write_atomically(path: str | Path, content: str | bytes) -> Path:
    """Write a file under a temporary name beside it and move it into place: whole or not at all.

    Parameters
    ----------
    path : path
        What is replaced, if it exists, only once everything is on disk.
    content : str or bytes
        Text is written as UTF-8.

    Returns
    -------
    Path

    Raises
    ------
    OSError
        In one line with the path, if the disk is full, say.
    """
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        _replace(path, data)
    except OSError as error:
        raise OSError(
            f"{path} cannot be written ({error.strerror or error}): free some space or name another folder; what was "
            "there before is unchanged"
        ) from error
    return path


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Remove those of the named files that a folder holds: what an earlier run left would pass for this one's.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "old.png").write_text("old")
    ...     remove_files(Path(folder), ["old.png", "never.png"])
    ...     list(Path(folder).iterdir())
    []
    """
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _umask() -> int:
    """Read the process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
