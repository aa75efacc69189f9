"""The experiments' own arithmetic, on made-up results; `make experiments` runs them."""

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
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


@pytest.fixture
def scalers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    module = load("04_scalers.py")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results" / "scalers")
    return module


def test_the_scaler_experiment_takes_each_scaler_through_every_history(
    scalers: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = scalers.scaler_of
    short = {kind: replace(model, nan_rate=0.0) for kind, model in scalers.KINDS.items()}
    for name, value in {
        "KINDS": short, "STEPS": 300, "HISTORIES": 1, "WINDOW": 10, "SCALERS": ["robust", "torch", "deepspeed"],
        "recorded_peaks": lambda name: np.array([[-3.0, -2.0, 1.5]]),
        "scaler_of": lambda name, alike, window=10: made(name, True, window),  # windows of 2000 take seconds
    }.items():  # fmt: skip
        monkeypatch.setattr(scalers, name, value)
    assert scalers.main() == 0
    printed = capsys.readouterr().out
    assert printed.count("every band holds\n") == 2
    data = json.loads(scalers.RESULTS.with_suffix(".json").read_text())
    alike = data["scalers"]["alike"]
    assert list(alike) == ["robust", "torch", "deepspeed"]
    # At 2^16 a peak of 2^1.5 overflows; at one of 2^-3 what becomes zero lies 4.5 deviations below the median.
    assert alike["torch"]["recorded"]["mlp"] == {
        "steps": 3, "skipped": 1, "zero updates": 0, "not finite": 0, "other divisor": 0, "ended": 0,
        "values lost": pytest.approx(3e-6, abs=2e-6), "mass lost": pytest.approx(0.0, abs=1e-9),
    }  # fmt: skip
    # 200 halvings of a float32 scale are too many, and DeepSpeed's divisor at growth is another scale.
    assert alike["torch"]["all incidents"]["not finite"] > 0
    assert alike["deepspeed"]["all incidents"]["other divisor"] > 0
    assert alike["robust"]["incidents"]["200 NaN"]["stops"].startswith(
        "a gradient is NaN at the smallest loss scale"
    )
    assert all(row["replayed"] for row in data["public traces"].values())
    assert scalers.RESULTS.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_time_to_recover_is_halvings_times_the_window(scalers: ModuleType) -> None:
    incidents, losses = scalers.incidents_of(scalers.scaler_of("robust", True, 10), 10)
    # Peaks of 2 leave room for 2^14, peaks of 2^11 for 2^4: ten halvings, of which the last comes before the end.
    assert incidents["burst"] == {
        "stops": None, "was there": True, "steps": incidents["burst"]["steps"], "within": 428, "bound": 100,
    }  # fmt: skip
    assert 90 < incidents["burst"]["steps"] <= 100
    assert incidents["20 NaN"]["steps"] == 200 == incidents["20 NaN"]["bound"]
    assert losses["not finite"] == losses["other divisor"] == 0


def test_scalers_are_alike_where_they_have_the_options(scalers: ModuleType) -> None:
    for name in set(scalers.SCALERS) - {"chainer", scalers.SLOW}:  # these begin at 1
        scaler = scalers.scaler_of(name, True)
        assert (scaler.scale, scalers.window_of(scaler)) == (2.0**16, 200), name
    assert scalers.scaler_of("deepspeed", False).loss_scale_window == 1000
    assert scalers.window_of(scalers.scaler_of("guided_diffusion", False)) == 1000


def test_lost_shares_are_those_of_the_stated_model(scalers: ModuleType) -> None:
    # At the median half of all gradients are lost; 4^2 ln 2 octaves above the median lies half of their sum.
    number, _ = scalers.lost_shares(np.array([scalers.ABOVE * scalers.SPREAD]))
    assert number == 0.5
    _, mass = scalers.lost_shares(np.array([20.0 - 16 * scalers.LN_2]))
    assert mass == pytest.approx(0.5, abs=0.01)  # a sixteenth of an octave is 0.6%
    assert scalers.lost_shares(np.array([0.0, -5.0])) == (1.0, 1.0)
    assert scalers.lost_shares(np.array([])) == (1.0, 1.0)
    few, little = scalers.lost_shares(np.array([41.0]))
    assert 0 < few < 1e-6
    assert 0 < little < few


def scaler_row(module: ModuleType, **changed: float) -> dict:
    losses = {
        "steps": 1000, "skipped": 3, "zero updates": 0, "not finite": 0, "other divisor": 0, "ended": 0,
        "values lost": 0.01, "mass lost": 0.001,
    }  # fmt: skip
    back = {"stops": None, "was there": True, "steps": 90, "within": 400, "bound": 100}
    return {
        "drawn": dict.fromkeys(module.KINDS, losses | changed),
        "recorded": {recipe: dict(losses) for recipe in module.RECIPES_RECORDED},
        "incidents": {"burst": back, "20 NaN": back, "200 NaN": back | {"stops": "no", "steps": None}},
        "all incidents": dict(losses),
    }


@pytest.mark.parametrize(
    ("fault", "band"),
    [
        ({"not finite": 1}, "robust applies finite updates only"),
        ({"other divisor": 1}, "robust divides by the scale that multiplied"),
        ({"ended": 1}, "robust stops only where nothing helps"),
        ({"mass lost": 0.003}, "robust loses no more gradients than torch"),
        ({"skipped": 4}, "robust loses no more steps than the median"),
    ],
)
def test_a_band_of_the_scaler_experiment_sees_its_fault(scalers: ModuleType, fault: dict, band: str) -> None:
    good = {"torch": scaler_row(scalers), "jmp": scaler_row(scalers)}
    assert scalers.outside(good | {"robust": scaler_row(scalers)}) == []
    assert scalers.outside(good | {"robust": scaler_row(scalers, **fault)}) == [band]


def test_slow_recovery_and_more_lost_steps_than_torch_are_seen(scalers: ModuleType) -> None:
    others = {
        "torch": scaler_row(scalers),
        "jmp": scaler_row(scalers, skipped=9),
        "tf_v1": scaler_row(scalers, skipped=9),
    }
    row = scaler_row(scalers, skipped=5)
    assert scalers.outside(others | {"robust": row}) == ["robust loses no more steps than torch"]
    for steps in (101, None):
        row = scaler_row(scalers)
        row["incidents"]["burst"] = row["incidents"]["burst"] | {"steps": steps}
        assert scalers.outside(others | {"robust": row}) == ["robust is back in time"]
