"""How `vowels.npz` and `topics.txt.gz` were made from their sources; see ATTRIBUTION.md.

Not needed to use the package. ``python fp16sim/training/datasets/pack.py FOLDER AEON_WHEEL`` writes both files
into a folder: the text from the Python that runs it, the recordings from a wheel of aeon.
"""

from __future__ import annotations

import gzip
import sys
import zipfile
from decimal import Decimal
from pathlib import Path
from pydoc_data.topics import topics as python_topics
from typing import Any

import numpy as np

ASCII = str.maketrans(
    {
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{EN DASH}": "-",
        "\N{EM DASH}": "-",
        "\N{HORIZONTAL ELLIPSIS}": "...",
    }
)


def excerpt(topics: dict[str, str], length: int = 250_000) -> str:
    """Join whole topics, by name, until there are `length` characters.

    Typographic quotes, dashes and dots become ASCII. A topic with any other character outside ASCII is left
    out, as is one of which over a twentieth stands, paragraph by paragraph, in topics already taken: the
    documentation says much twice, and what is in the training text should not be in the test text.
    """
    paragraphs: set[str] = set()
    taken: list[str] = []
    for name in sorted(topics):
        text = topics[name].translate(ASCII)
        repeated = sum(len(part) for part in text.split("\n\n") if part in paragraphs)
        if not text.isascii() or repeated * 20 > len(text):
            continue
        paragraphs.update(text.split("\n\n"))
        taken.append(text)
        if sum(map(len, taken)) >= length:
            break
    return "".join(taken)


def recordings(wheel: Path) -> dict[str, Any]:
    """Read the training and then the test recordings from aeon's text files, and pack them.

    A value in millionths is an integer. The differences of one frame from the frame before it, through all
    recordings, are smaller than the values: each is stored as 2 d or -2 d - 1 in three planes of bytes.
    """
    frames, lengths, labels = [], [], []
    with zipfile.ZipFile(wheel) as archive:
        for part in ("TRAIN", "TEST"):
            file = f"aeon/datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts"
            for line in archive.read(file).decode("ascii").split("@data")[1].split():
                *channels, label = line.split(":")
                values = [[Decimal(text) * 1_000_000 for text in row.split(",")] for row in channels]
                frames += [[int(value) for value in frame] for frame in zip(*values, strict=True)]
                if any(value != int(value) for row in values for value in row):
                    raise ValueError(f"{file}: a value has more than 6 decimals; they would be lost")
                lengths.append(len(values[0]))
                labels.append(int(label) - 1)
    difference = np.diff(np.array(frames, np.int64), axis=0, prepend=0)
    folded = np.where(difference < 0, -2 * difference - 1, 2 * difference)
    if folded.max() >= 2**24:
        raise ValueError(f"a difference of {folded.max()} does not fit three bytes")
    planes = np.stack([(folded >> shift & 255).astype(np.uint8) for shift in (0, 8, 16)])
    return {"planes": planes, "lengths": np.array(lengths, np.uint8), "labels": np.array(labels, np.uint8)}


if __name__ == "__main__":
    folder, wheel = map(Path, sys.argv[1:])
    content = excerpt(python_topics).encode("ascii")
    folder.joinpath("topics.txt.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    np.savez_compressed(folder / "vowels.npz", **recordings(wheel))
