"""The kit finds the violations that are known of the frameworks' scalers, and their docstrings list what it finds."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fp16sim.scaling import make

FOLDER = Path(__file__).parents[2] / "experiments"


@cache
def experiment() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scaler_checks_experiment", FOLDER / "05_scaler_checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass asks for it
    spec.loader.exec_module(module)
    return module


@cache
def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "results" / "05_scaler_checks.json").read_text())
    return found


@pytest.mark.parametrize("listed", experiment().LISTED, ids=lambda each: f"{each.number}-{each.setting}")
def test_a_violation_is_found_with_a_history_no_longer_than_the_one_listed(listed: Any) -> None:
    found = experiment().found_in(listed)
    assert experiment().outside([found]) == [], found
    assert found["what"].startswith(f'"{found["history"]}": ' if found["steps"] else "the scale")


def test_what_is_not_found_or_is_longer_is_outside_the_band() -> None:
    module = experiment()
    missed = module.found_in(
        module.Listed(7, "torch,growth_interval=2", "overflow_never_raises_the_scale", 1)
    )
    longer = module.found_in(module.Listed(5, "torch,init_scale=2**-148", "scale_stays_above_zero", 1))
    assert [line.partition(":")[2] for line in module.outside([missed, longer])] == [
        " None steps, listed 1",
        " 2 steps, listed 1",
    ]


def test_the_results_are_of_every_scaler_and_robust_passes() -> None:
    assert list(results()["scalers"]) == experiment().SCALERS
    assert results()["scalers"]["robust"] == {}
    assert len(results()["listed"]) == len(experiment().LISTED)
    assert experiment().outside(results()["listed"]) == []


def test_the_page_is_made_of_the_results() -> None:
    assert experiment().PAGE.read_text("utf-8") == experiment().page(results()["scalers"])


@pytest.mark.parametrize("name", experiment().SCALERS)
def test_a_docstring_lists_what_is_found(name: str) -> None:
    text = re.search(r"Violates:(.*?)(\n\s*\n|$)", type(make(name)).__doc__ or "", re.DOTALL)
    assert text is not None
    listed = {
        int(number) for number in re.findall(r"\b(\d{1,2})\b(?![.^*\d])", re.sub(r"\([^()]*\)", "", text[1]))
    }
    numbers = {check.name: check.number for check in experiment().NAMED}
    found = {numbers[check] for check in results()["scalers"][name] if check in numbers}
    assert found - listed == set()
