"""Claim: `robust` costs no more than torch's rule, which most frameworks share, and keeps what the rules give up.

Published: no comparison that covers them all; of single runs, the scales that BLOOM, fairseq, apex and insightface
printed (`PUBLIC`). Here: every dynamic scaler with one scale for all gradients, on peaks of gradients in a closed loop,
as shipped and alike: the same initial scale (2^16) and window (200 steps; 20 in the short recorded runs) wherever there
are such options.

- Drawn peaks: a random walk, a drift of 2^-16, bursts, heavy tails, single NaNs; 2 histories of 20,000 steps of each.
- Recorded peaks: two recipes trained here in float16, under a scale at which nothing overflows.
- Three incidents after three windows of peaks of 2: a burst of 12 steps of 2^11, 20 steps of NaN, 200 steps of NaN.

Counted are steps that are skipped; steps whose update is zero because the peak times the scale is no more than 2^-25;
updates applied that are not finite; updates applied that are divided by another scale than the loss was multiplied by;
and steps from the end of an incident until the scale is within a factor of two of the largest one that does not
overflow. What becomes zero in a step is modelled: log2 of magnitudes is normal with a deviation of `SPREAD` octaves and
the peak is `ABOVE` deviations above the median, as the largest of some million is. Gradients below 2^-25 / scale are
lost; of their number that is a normal distribution, and of their sum too, whose median is SPREAD^2 ln 2 octaves higher.

Bands: robust applies nothing that is not finite, divides by the scale that multiplied, is back after an incident in at
most as many windows as it halved in it, or stops and says why; no kind of history costs it more than `MARGIN` steps
in 1,000 or `MASS` of the gradients above torch; it loses no more steps than the median of the other scalers; and the
rules replay what was printed.

What it costs where the bands do not look: rules with a floor of 1 are back sooner after many NaNs than rules that may
go further down (and are stuck where a network needs a scale below 1), and rules with a low ceiling skip fewer steps
(and lose more of small gradients). Both bounds are options of robust.

Properties that no count shows (a state that is saved whole, exact windows and products) are tested in
tests/scaling/test_robust.py.
"""

import json
import math
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fp16sim.emulator.float64_functions import erf
from fp16sim.report.style import BLUE, GRID, MUTED, VERMILION, new_axes, new_figure, png, title
from fp16sim.report.tables import text_table
from fp16sim.scaling import Decision, PeakModel, make, names, parse, simulate
from fp16sim.scaling.outcomes import ClosedLoop, log2
from fp16sim.training.files import write_atomically
from fp16sim.training.fit import fit
from fp16sim.training.recipes import RECIPES

RESULTS = Path(__file__).parent / "results" / "04_scalers"
OTHERS = {"none", "static", "unit", "adaptive", "delayed", "fairscale_layerwise"}
"""Not dynamic, or with a scale for each layer."""

SCALERS = [name for name in names() if name not in OTHERS]
SLOW = "openseq2seq_logmax"
"""It takes a millisecond a step, so it sees the first `FEW` steps of each kind, and its counts compare with no others'.
It has neither option."""

SETTINGS = ("alike", "shipped")
INITIAL, WINDOW, SHORT_WINDOW = 16, 200, 20
STEPS, HISTORIES, FEW = 20_000, 2, 1_000
KINDS = {
    "walk": PeakModel(start=-10.0, seed=1),
    "drift": PeakModel(start=-4.0, drift=-16.0 / STEPS, seed=2),
    "bursts": PeakModel(start=-10.0, burst_rate=5e-4, burst_length=12, burst_height=12.0, seed=3),
    "tails": PeakModel(start=-14.0, tail_index=1.5, seed=4),
    "NaNs": PeakModel(start=-10.0, nan_rate=5e-4, seed=5),
}
INCIDENTS = {"burst": (12, 11.0), "20 NaN": (20, math.nan), "200 NaN": (200, math.nan)}
"""Steps, and log2 of the peak."""

CALM = 1.0
"""log2 of the peak around an incident: the largest power of two that does not overflow is 2^14."""

BEFORE, AFTER = 3, 24
"""Windows around an incident."""

SPREAD, ABOVE = 4.0, 5.0
MARGIN, MASS = 1.0, 0.001
RECIPES_RECORDED = ("mlp", "gru")
LN_2, ROOT_2 = 0.6931471805599453, 1.4142135623730951

PUBLIC: dict[str, tuple[str, str, dict[int, Any]]] = {
    # source: scaler, history, what was printed: the scale after a step, counted from 1, or that the run stops with it
    "BLOOM tr8b-104B, 17060-17068": (
        "deepspeed,initial_scale_power=12,loss_scale_window=500,hysteresis=2",
        "." * 4001 + "..oooo.oo",
        {4002: 2.0**20, 4003: 2.0**20, 4004: 2.0**20, 4005: 2.0**19, 4006: 2.0**18, 4007: 2.0**17, 4009: 2.0**16,
         4010: 2.0**15},
    ),
    "fairseq#512": ("fairseq,init_scale=0.5", "o" * 13, {1: 0.25, 12: 2.0**-13, 13: "stops"}),
    "apex#834": ("apex", "o" * 1091, {1091: 0.0}),
    "insightface": (
        "torch,init_scale=128,growth_interval=100",
        "." * 700,
        {99: 128.0, 100: 256.0, 200: 512.0, 700: 16384.0},
    ),
}  # fmt: skip
Row = dict[str, Any]
Measured = dict[str, dict[str, Row]]  # setting, scaler


def main() -> int:
    recorded = {name: recorded_peaks(name) for name in RECIPES_RECORDED}
    drawn = {kind: model.peaks(HISTORIES, STEPS) for kind, model in KINDS.items()}
    measured: Measured = {setting: {} for setting in SETTINGS}
    for setting in SETTINGS:
        for name in SCALERS:
            slow = name == SLOW
            if slow and setting != SETTINGS[0]:
                measured[setting][name] = measured[SETTINGS[0]][name]
                continue
            peaks = {kind: p[:1, :FEW] for kind, p in drawn.items()} if slow else drawn
            measured[setting][name] = measure(name, setting == "alike", peaks, recorded)
            print(f"{name}, {setting}", file=sys.stderr, flush=True)
    public = replays()
    RESULTS.parent.mkdir(exist_ok=True)
    data = {"scalers": measured, "public traces": public}
    write_atomically(RESULTS.with_suffix(".json"), json.dumps(data, indent=1) + "\n")
    write_atomically(RESULTS.with_suffix(".png"), png(picture(measured)))
    for setting, scalers in measured.items():
        print(f"{HEADINGS[setting]}\n\n{text_table(HEADER, rows(scalers))}")
        broken = outside(scalers)
        print(f"\n{setting}: every band holds" + (f" but {', '.join(broken)}" if broken else "") + "\n")
    print(NOTES + "\n")
    print(text_table(("public trace", "rule", "replayed", "robust on the same steps"), public_rows(public)))
    print(f"\nWritten: {RESULTS.with_suffix('.json')} and .png")
    return 0


# ---------------------------------------------------------------------------------------------------- histories


@dataclass(frozen=True)
class Witness:
    """A small scale that stays, and the peaks that it saw."""

    scale: float = 64.0
    peaks: list[float] = field(default_factory=list)

    def update(self, observation: Any) -> tuple["Witness", Decision]:
        self.peaks.append(log2(observation.amax))
        return self, Decision(apply=True, divide_by=self.scale)


def recorded_peaks(name: str) -> np.ndarray:
    """Train a recipe in float16 and give log2 of the peak of each step."""
    recipe, witness = RECIPES[name], Witness()
    model = recipe.build(0)
    run = fit(
        model,
        recipe.data(0),
        policy="mixed_float16",
        scaler=witness,
        optimizer=recipe.optimizer(model),
        steps=recipe.steps,
        loss_function=recipe.loss_function,
        schedule=recipe.schedule,
        clip_norm=recipe.clip_norm,
        measure=False,
    )
    assert not any(step.overflow for step in run.history)
    return np.array([witness.peaks])


def scaler_of(name: str, alike: bool, window: int = WINDOW) -> Any:
    """Make a scaler: as shipped, or with the initial scale and the window that all have."""
    kind = type(make(name))
    options: dict[str, Any] = {}
    if alike and kind.initial:
        options[kind.initial] = INITIAL if getattr(kind, "initial_is_exponent", False) else 2.0**INITIAL
    if alike and kind.window:
        options[kind.window] = window
    if alike and name == "guided_diffusion":  # its window is a rate
        options["fp16_scale_growth"] = 1.0 / window
    return make(name, **options)


def window_of(scaler: Any) -> int:
    """Give the clean steps to a doubling, so far as the rule has such a number."""
    window = type(scaler).window
    if hasattr(scaler, "fp16_scale_growth"):
        return round(1 / scaler.fp16_scale_growth)
    return int(getattr(scaler, window)) if window else WINDOW


# ---------------------------------------------------------------------------------------------------- measures


def measure(name: str, alike: bool, drawn: dict[str, np.ndarray], recorded: dict[str, np.ndarray]) -> Row:
    """Take one scaler through all histories."""
    scaler = scaler_of(name, alike)
    stacked = np.concatenate(list(drawn.values()))
    trace = simulate(scaler, stacked, trace=True).trace
    each = len(stacked) // len(drawn)
    kinds = {
        kind: losses(stacked, trace, slice(place * each, (place + 1) * each))
        for place, kind in enumerate(drawn)
    }
    runs = {}
    for recipe, peaks in recorded.items():
        short = scaler_of(name, alike, SHORT_WINDOW)
        runs[recipe] = losses(peaks, simulate(short, peaks, trace=True).trace, slice(None))
    incidents, after = incidents_of(scaler, 20 if name == SLOW else window_of(scaler))
    return {"drawn": kinds, "recorded": runs, "incidents": incidents, "all incidents": after}


def losses(peaks: np.ndarray, trace: Any, rows: slice) -> dict[str, float]:
    """Count what is lost in some histories."""
    used, applied = trace.scale[rows], trace.applied[rows]
    taken = ~np.isnan(trace.divide_by[rows])
    finite = applied & ~trace.overflow[rows]
    scales, place = np.unique(used, return_inverse=True)
    logs = np.array([log2(scale) for scale in scales.tolist()])[place].reshape(used.shape)
    with np.errstate(invalid="ignore"):
        room = peaks[rows] + logs + 25.0  # octaves between the peak and what becomes zero
    with np.errstate(over="ignore", divide="ignore"):
        inverse = np.float32(1.0 / trace.divide_by[rows])  # infinite for a scale of 2^-128 or less
    bad = applied & (trace.overflow[rows] | ~np.isfinite(inverse))
    steps = int(taken.sum())
    lost = lost_shares(room[finite])
    return {
        "steps": steps,
        "skipped": int((taken & ~applied).sum()),
        "zero updates": int((finite & ~bad & (room <= 0)).sum()),
        "not finite": int(bad.sum()),
        "other divisor": int((applied & (trace.divide_by[rows] != used)).sum()),
        "ended": int(len(taken) - taken[:, -1].sum()),
        "values lost": lost[0],
        "mass lost": lost[1],
    }


def lost_shares(room: np.ndarray) -> tuple[float, float]:
    """Give which shares of gradients, by number and by sum of magnitudes, are below what becomes zero.

    Looked up in steps of 1/16 octave: to as much the model is not known.
    """
    if not room.size:
        return 1.0, 1.0
    index = np.floor(16.0 * np.clip(room, 0.0, 64.0)).astype(np.int64)
    counts = np.bincount(index, minlength=16 * 64 + 1)
    depth = np.arange(16 * 64 + 1) / 16.0
    shares = []
    for centre in (ABOVE * SPREAD, ABOVE * SPREAD - SPREAD * SPREAD * LN_2):
        below = 0.5 * (1.0 + erf((centre - depth) / SPREAD / ROOT_2))  # the normal distribution
        below[0] = 1.0  # the peak itself is zero
        shares.append(math.fsum((counts * below).tolist()) / room.size)
    return shares[0], shares[1]


def incidents_of(scaler: Any, window: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Give for each incident the steps until the scale is back and the windows that it may take; and all losses."""
    longest = max(length for length, _ in INCIDENTS.values())
    start = BEFORE * window
    peaks = np.full((len(INCIDENTS), start + longest + AFTER * window), CALM)
    for row, (length, height) in zip(peaks, INCIDENTS.values(), strict=True):
        row[start : start + length] = height
    found = simulate(scaler, peaks, trace=True)
    safe = ClosedLoop().limit / 2.0**CALM
    outcomes = {}
    for row, (kind, (length, _)) in enumerate(INCIDENTS.items()):
        scale = found.trace.scale[row]
        good = (scale >= safe / 2) & (scale <= safe * 2)
        end = start + length
        back = np.flatnonzero(good[end:])
        before, low = scale[start], scale[start : end + 1].min()
        outcomes[kind] = {
            "stops": found.stop_reasons[row],
            "was there": bool(good[start - window : start].any()),
            "steps": int(back[0]) if back.size else None,
            "within": len(scale) - end,
            "bound": round(log2(before) - log2(low)) * window if low > 0 else None,
        }
    return outcomes, losses(peaks, found.trace, slice(None))


# ---------------------------------------------------------------------------------------------------- bands

HEADINGS = {
    "alike": f"Alike: initial scale 2^{INITIAL}, window {WINDOW}, where there are such options",
    "shipped": "As shipped: the defaults of each framework",
}
HEADER = ("scaler", "skipped", "number lost", "sum lost", "zero", "not finite", "divisor", "back: burst", "20 NaN",
          "200 NaN", *RECIPES_RECORDED)  # fmt: skip
NOTES = f"""skipped: of 1,000 drawn steps; lost: gradients that become zero in a drawn step, of their number and of
their sum. In all histories together: zero: updates that are zero; not finite: such updates that are applied; divisor:
updates divided by another scale than multiplied the loss. Then, steps from the end of an incident (a burst, 20 or 200
NaNs) until the scale is back; "-": it was not there before; "never": not in {AFTER} windows; "stops": with an error.
{" and ".join(RECIPES_RECORDED)}: steps skipped in the recorded runs. {SLOW} sees {FEW:,} steps of each kind only."""


def thousandths(row: Row, measure: str) -> float:
    """Give how many of 1,000 drawn steps."""
    kinds = row["drawn"].values()
    return 1000 * sum(kind[measure] for kind in kinds) / sum(kind["steps"] for kind in kinds)


def average(row: Row, measure: str) -> float:
    return statistics.fmean(kind[measure] for kind in row["drawn"].values())


def total(row: Row, measure: str) -> int:
    parts = (*row["drawn"].values(), *row["recorded"].values(), row["all incidents"])
    return int(sum(part[measure] for part in parts))


def lost_steps(losses: Row) -> float:
    """Give how many of 1,000 steps are skipped or change nothing."""
    return 1000 * (losses["skipped"] + losses["zero updates"]) / losses["steps"]


def outside(scalers: dict[str, Row]) -> list[str]:
    """Name the bands that robust leaves."""
    robust, torch = scalers["robust"], scalers["torch"]
    incidents = robust["incidents"]
    others = [row for name, row in scalers.items() if name not in ("robust", SLOW)]
    bands = {
        "robust applies finite updates only": total(robust, "not finite") == 0,
        "robust divides by the scale that multiplied": total(robust, "other divisor") == 0,
        "robust is back in time": all(
            each["stops"] or (each["steps"] is not None and each["steps"] <= each["bound"])
            for each in incidents.values()
        ),
        "robust stops only where nothing helps": [k for k, each in incidents.items() if each["stops"]] == ["200 NaN"]
        and not any(kind["ended"] for kind in robust["drawn"].values()),
        "robust loses no more steps than torch": all(
            lost_steps(robust[group][kind]) <= lost_steps(torch[group][kind]) + MARGIN
            for group in ("drawn", "recorded")
            for kind in robust[group]
        ),
        "robust loses no more gradients than torch": all(
            robust["drawn"][kind]["mass lost"] <= torch["drawn"][kind]["mass lost"] + MASS for kind in torch["drawn"]
        ),
        "robust loses no more steps than the median": mean_lost(robust) <= statistics.median(map(mean_lost, others)),
    }  # fmt: skip
    return [name for name, holds in bands.items() if not holds]


def mean_lost(row: Row) -> float:
    return thousandths(row, "skipped") + thousandths(row, "zero updates")


def replays() -> dict[str, Row]:
    """Replay the public traces, open loop, by the rule that printed them and by robust."""
    found = {}
    for source, (text, history, printed) in PUBLIC.items():
        result = simulate(text, history, trace=True, method="objects")
        after = [*result.trace.scale[0, 1:].tolist(), float(result.final_scale[0])]
        first = float(result.trace.scale[0, 0])
        start = min(max(2.0 ** round(log2(first)), 2.0**-16), 2.0**64)
        ours = simulate(make("robust", init_scale=start, growth_interval=window_of(parse(text))), history)
        found[source] = {
            "rule": text,
            "replayed": all(
                result.first_stop[0] == step - 1 if scale == "stops" else after[step - 1] == scale
                for step, scale in printed.items()
            ),
            "stops": result.stop_reasons[0],
            "robust": {
                "scale": float(ours.final_scale[0]),
                "steps": int(ours.steps[0]),
                "stops": ours.stop_reasons[0],
            },
        }
    return found


# ---------------------------------------------------------------------------------------------------- shown


def rows(scalers: dict[str, Row]) -> list[tuple[str, ...]]:
    return [
        (
            name,
            f"{thousandths(row, 'skipped'):.2f}",
            f"{100 * average(row, 'values lost'):.2f}%",
            f"{100 * average(row, 'mass lost'):.3f}%",
            str(total(row, "zero updates")),
            str(total(row, "not finite")),
            str(total(row, "other divisor")),
            *(back(each) for each in row["incidents"].values()),
            *(str(run["skipped"]) for run in row["recorded"].values()),
        )
        for name, row in in_order(scalers).items()
    ]


def in_order(scalers: dict[str, Row]) -> dict[str, Row]:
    """Put robust first, and the others by the steps that they lose."""
    order = sorted(scalers, key=lambda name: (name != "robust", name == SLOW, mean_lost(scalers[name]), name))
    return {name: scalers[name] for name in order}


def back(incident: Row) -> str:
    if incident["stops"]:
        return "stops"
    if not incident["was there"]:
        return "-"
    return "never" if incident["steps"] is None else f"{incident['steps']:,}"


def public_rows(public: dict[str, Row]) -> list[tuple[str, ...]]:
    table = []
    for source, row in public.items():
        ours = row["robust"]
        end = f"stops at step {ours['steps']:,}" if ours["stops"] else f"2^{log2(ours['scale']):g} at the end"
        table.append((source, row["rule"].partition(",")[0], "yes" if row["replayed"] else "NO", end))
    return table


def after_many_nans(row: Row) -> str:
    """Say in a word or two how 200 steps of NaN end."""
    incident = row["incidents"]["200 NaN"]
    if row["all incidents"]["not finite"]:
        return "applies NaN or inf"
    if incident["stops"]:
        return "stops with an error"
    return "not back" if incident["steps"] is None else "back"


PANELS = {  # title: value of a row of results, ticks, least and most on the axis
    "steps lost, of 1,000": (mean_lost, (0, 2, 4, 6), 0, 6.5),
    "gradients lost, %": (lambda row: 100 * average(row, "values lost"), (0.1, 1, 10, 100), 0.05, 100),
    "steps until back (burst)": (lambda row: row["incidents"]["burst"]["steps"], (1000, 10_000), 200, 50_000),
}


def picture(measured: Measured) -> object:
    order = [name for name in reversed(in_order(measured["alike"])) if name != SLOW]
    figure = new_figure(0.235 * len(order) + 1.45)
    subtitle = (
        f"dots: same initial scale and window; rings: as shipped; no mark, not back: in {AFTER} windows"
    )
    title(figure, 0.2, "robust loses what most loss scalers lose, and applies no NaN", subtitle)
    left, width, gap = 1.8, 1.55, 0.22
    for number, (label, (value, ticks, low, high)) in enumerate(PANELS.items()):
        start = left + number * (width + gap)
        axes = new_axes(figure, start, 0.4, 8.6 - start - width, 0.95)
        axes.grid(axis="both", color=GRID, lw=0.6)
        if low:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set_xlim(low, high)
        for place, name in enumerate(order):
            colour = VERMILION if name == "robust" else BLUE
            for setting, style in (("shipped", {"mfc": "none", "ms": 7.5}), ("alike", {"ms": 4.5, "mew": 0})):
                found = value(measured[setting][name])
                if found is not None:
                    axes.plot([found], [place], "o", color=colour, clip_on=False, zorder=3, **style)
        axes.set_ylim(-0.7, len(order) - 0.3)
        axes.set_yticks(range(len(order)), order if number == 0 else [""] * len(order))
        axes.tick_params(axis="y", pad=8)
        axes.set_title(label, fontsize=9.5, color=MUTED, loc="left", pad=7)
        if number == 0:
            axes.get_yticklabels()[order.index("robust")].set_color(VERMILION)
    words = {"transform": axes.get_yaxis_transform(), "fontsize": 9.5}
    axes.text(1.1, 1 + 7 / 72 / (0.235 * len(order) + 0.1), "after 200 NaNs", color=MUTED, fontsize=9.5,
              transform=axes.transAxes)  # fmt: skip
    for place, name in enumerate(order):
        said = after_many_nans(measured["alike"][name])
        colour = VERMILION if name == "robust" else BLUE
        axes.text(1.1, place, said, va="center", color=colour, **words)
    return figure


if __name__ == "__main__":
    sys.exit(main())
