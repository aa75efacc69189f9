"""The experiments' own arithmetic, on made-up results; `make experiments` runs them."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from fp16sim_samples import run

from fp16sim.training.results import RunResult

FOLDER = Path(__file__).parents[1] / "experiments"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name.split(".")[0], FOLDER / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ssd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    module = load("01_ssd_histogram.py")

    def compare(runs: tuple, **_: object) -> list[RunResult]:
        # Learns from scale 1 of the loss times 2^-16 on; the sample has 60% zero and 36.5% flushed at scale 1.
        return [
            replace(
                run(spec.name, spec.policy), accuracy=0.1 if spec.name in ("scale 0.5", "scale 1") else 0.95
            )
            for spec in runs
        ]

    monkeypatch.setattr(module, "compare", compare)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results" / "ssd")
    return module


def test_the_ssd_experiment_says_which_bands_hold(
    ssd: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ssd.main() == 0
    printed = capsys.readouterr().out
    assert "loss x 2^-16: every band holds\n" in printed
    assert "loss x 2^-15: every band holds but survive, accuracy at scale 1 / float32's\n" in printed
    measured = json.loads(ssd.RESULTS.with_suffix(".json").read_text())
    assert measured["2^-16"]["0"]["survive"] == pytest.approx(0.035)
    # Twice the loss is scale 2: what lies in [2^-26, 2^-25) survives too, and scale 1 learns.
    assert measured["2^-15"]["0"]["survive"] == pytest.approx(0.14)
    assert measured["2^-15"]["0"]["accuracy at scale 1 / float32's"] == 1.0
    assert ssd.RESULTS.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_a_measure_outside_its_band_is_starred(ssd: ModuleType) -> None:
    inside = {name: (low + high) / 2 for name, (_, low, high) in ssd.BANDS.items()}
    outside = inside | {"survive": 0.2}
    assert ssd.outside({0: inside, 1: inside}) == []
    assert ssd.outside({0: inside, 1: outside}) == ["survive"]
    stars = [row[-1].endswith("*") for row in ssd.rows({"2^-16": {0: inside, 1: outside}})]
    assert stars == [False, False, True, False, False]


def test_every_experiment_has_its_results_beside_it() -> None:
    scripts = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
    assert scripts
    for script in scripts:
        assert (FOLDER / "results" / f"{script.stem}.json").exists()
        assert (FOLDER / "results" / f"{script.stem}.png").exists()
