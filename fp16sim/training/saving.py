"""The state of a run as one file: all that it takes to go on with the same bits.

A NumPy archive, ``state.npz``, in the folder of the run. Its entry ``header`` is JSON; the arrays of the model, of the
optimizer and of the history are the other entries. It is written under a temporary name and moved into place.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import DTYPES, Array
from fp16sim.autograd.tensor import Tensor
from fp16sim.training.files import write_atomically
from fp16sim.training.results import Step

__all__ = ["STATE_FILE", "SavedRun", "check_settings", "fingerprint", "read_run", "write_run"]

STATE_FILE = "state.npz"
VERSION = 1
_STEP_DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_}


@dataclass(frozen=True)
class SavedRun:
    """A run after one of its steps.

    Attributes
    ----------
    settings : mapping of str to a number, text or None
        What may not differ when the run goes on: policy, kind and options of scaler and optimizer, and so on.
    steps : int
        How many the run was asked for; `history` says how many it has taken.
    applied : int
        Steps by which schedules have moved.
    batches : int
        Batches that were read.
    last_batch : str
        The :func:`fingerprint` of the last of them.
    scaler : str
        What the scaler's ``to_json`` gave.
    digest : str
        As in :class:`~fp16sim.training.results.Run`.
    model : mapping of name to array
        What `Module.state_dict` gave.
    optimizer : mapping of name to array or number
        What the optimizer's ``state_dict`` gave.
    history : tuple of Step
    """

    settings: Mapping[str, Any]
    steps: int
    applied: int
    batches: int
    last_batch: str
    scaler: str
    digest: str
    model: Mapping[str, Array]
    optimizer: Mapping[str, Any]
    history: tuple[Step, ...]

    @property
    def finished(self) -> bool:
        """Whether the run has taken all the steps that it was asked for."""
        return len(self.history) >= self.steps


_PLAIN = ("settings", "steps", "applied", "batches", "last_batch", "scaler", "digest")


def write_run(folder: str | Path, run: SavedRun) -> Path:
    """Save a run in a folder, replacing what was saved there, and give the path of the file."""
    arrays = {f"model/{name}": np.asarray(value) for name, value in run.model.items()}
    numbers = {}
    for name, value in run.optimizer.items():
        if isinstance(value, np.ndarray):
            arrays[f"optimizer/{name}"] = value
        else:
            numbers[name] = value.item() if isinstance(value, np.generic) else value
    dtypes = {name: array.dtype.name for name, array in arrays.items()}
    for field in fields(Step):
        column = [getattr(step, field.name) for step in run.history]
        arrays[f"history/{field.name}"] = np.array(column, _STEP_DTYPES[str(field.type)])
    header = {name: getattr(run, name) for name in _PLAIN}
    text = json.dumps({"fp16sim state": VERSION, "optimizer": numbers, "dtypes": dtypes, **header})
    arrays["header"] = np.frombuffer(text.encode(), np.uint8)
    content = io.BytesIO()
    np.savez(
        content, allow_pickle=False, **{name: _without_own_dtype(array) for name, array in arrays.items()}
    )
    return write_atomically(Path(folder) / STATE_FILE, content.getvalue())


def read_run(folder: str | Path) -> SavedRun:
    """Read what :func:`write_run` wrote.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If nothing is saved there.
    ValueError
        If the file is damaged, is no saved run, or has another version.
    """
    path = Path(folder) / STATE_FILE
    if path.is_dir():
        raise IsADirectoryError(
            f"{path} is a folder: the state of a run is a file of that name; remove it, or name another folder"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no saved run ({STATE_FILE}): name the folder of one")
    content = path.read_bytes()
    try:
        return _parsed(content)
    except _OtherVersion as error:
        raise ValueError(
            f"{path} has version {error} of the format and this fp16sim reads version {VERSION}: go on with the "
            "fp16sim that wrote it, or start the run again in another folder"
        ) from None
    except Exception as error:  # a damaged archive fails in many ways
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{path} is no whole saved run ({reason[:80]}): remove it and start the run again"
        ) from error


class _OtherVersion(Exception):
    """Holds the version of a file."""


def _parsed(content: bytes) -> SavedRun:
    if not content.startswith(b"PK"):  # NumPy would take it for a pickle, and advise to trust it
        raise ValueError("it is no archive")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        header = json.loads(archive["header"].tobytes())
        if (version := header.pop("fp16sim state")) != VERSION:
            raise _OtherVersion(version)
        entries = {name: archive[name] for name in archive.files}
    dtypes, numbers = header.pop("dtypes"), header.pop("optimizer")
    arrays = {name: entries[name].view(DTYPES.get(dtype, dtype)) for name, dtype in dtypes.items()}
    columns = [entries[f"history/{field.name}"].tolist() for field in fields(Step)]
    return SavedRun(
        **header,
        model=_below("model/", arrays),
        optimizer=numbers | _below("optimizer/", arrays),
        history=tuple(Step(*row) for row in zip(*columns, strict=True)),
    )


def check_settings(saved: Mapping[str, Any], now: Mapping[str, Any], folder: str | Path) -> None:
    """Refuse to go on with a run whose settings were others, naming the first that differs."""
    for name in {**saved, **now}:
        before, after = saved.get(name), now.get(name)
        if before != after:
            raise ValueError(
                f"{folder} was saved with {name} {_shown(before)}, and now it is {_shown(after)}: go on with the "
                "settings of the saved run, or start another in another folder"
            )


def fingerprint(batch: Any) -> str:
    """Give the SHA-256 of a batch: dtypes, shapes and bits of its arrays, in hexadecimal.

    >>> fingerprint((np.zeros(2), np.array([1])))[:8] == fingerprint((np.zeros(2), np.array([1])))[:8]
    True
    """
    state = hashlib.sha256()
    _hash_into(state, tuple(batch))
    return state.hexdigest()


def _hash_into(state: Any, part: Any) -> None:
    if isinstance(part, tuple):
        state.update(f"{len(part)} parts\n".encode())
        for each in part:
            _hash_into(state, each)
        return
    array = part.data if isinstance(part, Tensor) else np.asarray(part)
    state.update(f"{array.dtype.name} {array.shape}\n".encode())
    if array.dtype.kind != "O":
        state.update(np.ascontiguousarray(array).tobytes())


def _without_own_dtype(array: Array) -> Array:
    """View bfloat16, which NumPy's format does not know, as the integers that encode it."""
    return array.view(np.uint16) if array.dtype == DTYPES["bfloat16"] else array


def _below(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
