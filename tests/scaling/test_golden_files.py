"""The recorded traces of real loss scalers are whole: fields, versions, 200 cases, one row for each step."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "scalers"
FILES = sorted(FOLDER.glob("*.json"))
NAMES = {
    "chainer", "deepspeed", "deepspeed_fused", "deepspeed_unfused", "fairseq", "flax", "jmp", "keras2", "keras3",
    "megatron", "mindspore_amp", "mindspore_cell", "mindspore_manager", "mxnet", "paddle", "paddle_amp", "tf_v1",
    "torch", "torch_fsdp",
}  # fmt: skip
FIELDS = {
    "package", "version", "api", "recorded_with", "script", "notes", "cases", "odd_cases", "refused",
}  # fmt: skip
DIVIDES_BY_ANOTHER = {
    "deepspeed",
    "deepspeed_fused",
    "deepspeed_unfused",
}  # they update the scale, then unscale
TEXTS = ("inf", "-inf", "nan")


def load(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def is_number(entry: Any) -> bool:
    plain = isinstance(entry, (int, float)) and not isinstance(entry, bool) and math.isfinite(entry)
    return plain or entry in TEXTS


def row_is_whole(row: list[Any]) -> bool:
    if row[0] == "raise":
        return len(row) == 2 and isinstance(row[1], str)
    used, divided, applied = row
    return is_number(used) and applied in (0, 1) and (is_number(divided) if applied else divided is None)


def problems(document: dict[str, Any]) -> list[str]:
    """List what is wrong with a file of traces."""
    found = [f"no {field}" for field in FIELDS - set(document)]
    if found:
        return found
    if not (
        re.match(r"\d+\.\d+", document["version"]) and {"python", "machine"} < set(document["recorded_with"])
    ):
        found.append("versions")
    if not (FOLDER.parents[2] / document["script"]).is_file():
        found.append("script")
    if len(document["cases"]) != 200:
        found.append(f"{len(document['cases'])} cases")
    for number, case in enumerate(document["cases"] + document["odd_cases"]):
        if not {"options", "history", "steps", "state"} <= set(case) or not case["state"]:
            found.append(f"fields of case {number}")
        elif not (set(case["history"]) <= set(".on") and len(case["history"]) == len(case["steps"]) > 0):
            found.append(f"history of case {number}")
        elif not all(map(row_is_whole, case["steps"])):
            found.append(f"steps of case {number}")
        elif any(
            kind != "." and row[-1] == 1 for kind, row in zip(case["history"], case["steps"], strict=True)
        ):
            found.append(f"case {number} applies an overflow")
    return found


def test_every_scaler_that_was_recorded_is_here() -> None:
    assert {file.stem for file in FILES} == NAMES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_is_whole_and_small(file: Path) -> None:
    assert problems(load(file)) == []
    assert len(file.read_bytes()) < 300_000
    assert not re.search(
        r'"/(?:tmp|work|root|home|usr|opt)\b|[A-Za-z]:\\\\', file.read_text()
    )  # absolute paths


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_cases_reach_overflow_nan_growth_and_backoff(file: Path) -> None:
    cases = load(file)["cases"]
    histories = "".join(case["history"] for case in cases)
    assert all(histories.count(kind) > 100 for kind in ".on")
    grown = backed_off = 0
    for case in cases:
        scales = [float(row[0]) for row in case["steps"] if row[0] != "raise"]
        grown += any(after > before for before, after in zip(scales, scales[1:], strict=False))
        backed_off += any(after < before for before, after in zip(scales, scales[1:], strict=False))
    assert grown > 50
    assert backed_off > 50


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_only_deepspeed_divides_by_a_scale_that_did_not_multiply(file: Path) -> None:
    rows = [row for case in load(file)["cases"] for row in case["steps"] if row[-1] == 1]
    differ = [row for row in rows if row[0] != row[1]]
    assert bool(differ) == (file.stem in DIVIDES_BY_ANOTHER)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda document: document.pop("version"), "no version"),
        (lambda document: document["cases"].pop(), "199 cases"),
        (lambda document: document["cases"][0]["steps"].pop(), "history of case 0"),
        (lambda document: document["cases"][0].update(state={}), "fields of case 0"),
        (lambda document: document["cases"][0]["steps"].__setitem__(0, [1.0, None, 1]), "steps of case 0"),
        (
            lambda document: document["cases"][0]["steps"].__setitem__(0, [1.0, 1.0, 1]),
            "case 0 applies an overflow",
        ),
        (lambda document: document.update(script="tests/golden/scalers/none.py"), "script"),
        (lambda document: document.update(recorded_with={}), "versions"),
    ],
)
def test_a_spoiled_file_is_noticed(spoil: Any, problem: str) -> None:
    document = copy.deepcopy(load(FOLDER / "torch.json"))
    assert document["cases"][0]["history"][0] == "o"
    spoil(document)
    assert problems(document) == [problem]
