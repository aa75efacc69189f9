"""The experiments' own arithmetic, on made-up results; `make experiments` runs them."""

import importlib.util
import json
import re
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


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    module = load("03_models.py")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results" / "models")
    return module


def outcomes(*results: float) -> dict[str, dict[str, float]]:
    return {str(seed): {"result": result} for seed, result in enumerate(results)}


def test_the_models_experiment_trains_each_recipe_in_each_column(
    models: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def train(recipe, seed: int, policy: str, scaler: str) -> dict[str, float]:
        calls.append((recipe.name, seed, policy, scaler))
        return {
            "result": 2.0 if recipe.name == "gpt" else 0.98,
            "training loss": 0.1,
            "seconds": 1.0,
            "skipped": 0,
        }

    monkeypatch.setattr(models, "train", train)
    monkeypatch.setattr(models, "torch_if_installed", lambda: None)
    assert models.main(["--models", "vgg,gpt", "--seeds", "2"]) == 0
    assert calls == [
        (name, seed, policy, scaler)
        for seed in (0, 1)
        for name in ("vgg", "gpt")
        for policy, scaler in (("float32", "none"), ("mixed_float16", "torch"))
    ]
    printed = capsys.readouterr().out
    assert printed.startswith("torch is not installed, so its column is missing: pip install torch")
    assert "98.0% (98.0% to 98.0%)" in printed
    assert re.search(r"< 2.439 +hold\n", printed)
    measured = json.loads(models.RESULTS.with_suffix(".json").read_text())
    assert measured["gpt"]["mixed_float16"]["1"]["result"] == 2.0
    assert models.RESULTS.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_bands_of_the_models_experiment(models: ModuleType) -> None:
    good = {"torch float32": outcomes(0.98, 0.99), "float32": outcomes(0.982, 0.985)}
    assert models.outside("vgg", good | {"mixed_float16": outcomes(0.98, 0.983)}) == []
    assert models.outside("vgg", good | {"mixed_float16": outcomes(0.975, 0.976)}) == [
        "mixed_float16 matches float32"
    ]
    assert models.outside("vgg", good | {"mixed_float16": outcomes(0.969, 0.989)}) == [
        "mixed_float16 reaches it"
    ]
    # One example of 397 is the unit of the measure; a loss has none.
    same = {"torch float32": outcomes(0.985, 0.985), "float32": outcomes(0.983, 0.983)}
    assert models.outside("vgg", same) == []
    assert models.outside("gpt", {"torch float32": outcomes(2.0, 2.0), "float32": outcomes(2.01, 2.01)}) == [
        "float32 matches torch float32"
    ]
    # Smaller is better for a loss, and NaN is never good.
    assert models.outside("gpt", {"float32": outcomes(2.5)}) == ["float32 reaches it"]
    assert models.outside("bert", {"float32": outcomes(float("nan"))}) == ["float32 reaches it"]
    assert models.outside("gru", {"float32": outcomes(float("nan"))}) == ["float32 reaches it"]
