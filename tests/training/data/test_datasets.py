"""What ships beside the data: attributions and licences, and small files."""

from importlib import resources
from pathlib import Path

import pytest

from fp16sim.training.data.source import stored

FOLDER = resources.files("fp16sim.training").joinpath("datasets")


@pytest.mark.parametrize(
    "file, source, licence",
    [
        ("digits.npz", "https://doi.org/10.24432/C50P49", "CC BY 4.0"),
        ("vowels.npz", "https://doi.org/10.24432/C5NS47", "CC BY 4.0"),
        ("topics.txt.gz", "https://www.python.org/downloads/release/python-3117/", "PSF License Version 2"),
    ],
)
def test_each_file_has_its_attribution(file, source, licence):
    sections = FOLDER.joinpath("ATTRIBUTION.md").read_text(encoding="utf-8").split("\n## ")
    (section,) = [text for text in sections if text.startswith(f"{file}\n")]
    assert source in section
    assert licence in section


def test_every_data_file_is_attributed():
    files = {path.name for path in FOLDER.iterdir()} - {
        "ATTRIBUTION.md",
        "LICENSE-PSF.txt",
        "pack.py",
        "__pycache__",
    }
    assert files == {"digits.npz", "vowels.npz", "topics.txt.gz"}


def test_the_licence_that_has_to_travel_with_the_text():
    licence = FOLDER.joinpath("LICENSE-PSF.txt").read_text(encoding="utf-8")
    assert licence.startswith("PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2")
    attribution = FOLDER.joinpath("ATTRIBUTION.md").read_text(encoding="utf-8")
    for text in (licence, attribution):  # "are retained ... in any derivative version"
        assert "Python Software Foundation; All Rights Reserved" in text.replace("\n", " ").replace("> ", "")


def test_the_data_is_small():
    sizes = {}
    for name, limit in (("digits.npz", 50_000), ("vowels.npz", 290_000), ("topics.txt.gz", 100_000)):
        with stored(name) as file:
            sizes[name] = len(file.read())
        assert sizes[name] < limit
    print(sizes)


def test_git_ignores_none_of_it():
    # hatchling leaves out of a wheel what .gitignore names.
    ignored = Path(__file__).parents[3].joinpath(".gitignore").read_text().split()
    assert not {"*.npz", "*.gz", "*.txt", "*.md", "data/", "datasets/"} & set(ignored)
