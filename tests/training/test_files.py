import errno
import os
from pathlib import Path

import pytest

from fp16sim.training.files import prepare_folder, write_atomically


def test_a_folder_is_made_inside_an_existing_one(tmp_path: Path) -> None:
    assert prepare_folder(tmp_path / "run").is_dir()
    assert prepare_folder(tmp_path / "run").is_dir()
    assert list((tmp_path / "run").iterdir()) == []


def test_a_missing_parent_a_file_and_a_path_below_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileNotFoundError, match="mkdir -p"):
        prepare_folder(tmp_path / "missing" / "run")
    with pytest.raises(NotADirectoryError, match="is a file"):
        prepare_folder(tmp_path / "file")
    with pytest.raises(OSError, match="not a folder"):
        prepare_folder(tmp_path / "file" / "run")
    assert not (tmp_path / "missing").exists()
    assert (tmp_path / "file").read_text() == "mine"


def test_what_cannot_be_written_to_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(OSError, match="cannot be written") as caught:
        prepare_folder(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_atomically(tmp_path / "a.txt", "first é\n")
    assert path.read_bytes() == "first é\n".encode()
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"third")
    assert path.read_bytes() == b"second"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_one_line_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_atomically(tmp_path / "state", "before")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match=r"state cannot be written \(No space left on device\): free some space"
    ):
        write_atomically(path, "after")
    assert [each.name for each in tmp_path.iterdir()] == ["state"]
    assert path.read_text() == "before"
