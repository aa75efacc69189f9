"""Claim: the checks of `fp16sim.testing` find what the frameworks' loss scalers do wrong, in histories of a few steps.

Published: issues of the frameworks, one at a time, and none of them beside another. Here: every check on the model of
every scaler that has one scale for a loss (or one a layer, fairscale's), in several settings: as shipped, with a window
of 2, with initial scales of 1/4, 2^127, 2^-128 and 2^-149, and those of `SPECIAL`. A cell has the first setting in
which a check fails, with the shortest history that it finds.

Bands: each violation of `LISTED` is found with a history no longer than the one listed; `robust` passes every check in
every setting.

Prints the table, and writes it to results/05_scaler_checks.json, .png and docs/scaler_checks.md.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fp16sim.report.style import BLUE, INK, MUTED, VERMILION, new_axes, new_figure, png, title
from fp16sim.report.tables import text_table
from fp16sim.scaling import make, names, parse
from fp16sim.testing.adapters import Chain
from fp16sim.testing.case import Case
from fp16sim.testing.checking import examined
from fp16sim.testing.checks import CHECKS
from fp16sim.testing.histories import shown
from fp16sim.training.files import write_atomically

RESULTS = Path(__file__).parent / "results" / "05_scaler_checks"
PAGE = Path(__file__).parents[1] / "docs" / "scaler_checks.md"
BY_TENSOR = {"adaptive", "delayed", "unit"}
"""Scales are chosen for each tensor on the way: the checks have nothing to say."""

SCALERS = [name for name in names() if name not in BY_TENSOR]
INITIAL = (0.25, 2.0**127, 2.0**-128, 2.0**-149)
"""The last two only for scalers that come there by themselves, from where they start."""
SPECIAL = {
    "apex": ("apex,init_scale=2**-1074", "apex,init_scale=1,min_loss_scale=4"),
    "colossalai": (
        "colossalai,growth_interval=1",
        "colossalai,initial_scale=2**-149,hysteresis=1,min_scale=0",
    ),
    "deepspeed": (
        "deepspeed,initial_scale_power=2,loss_scale_window=1",
        "deepspeed,hysteresis=0",
        "deepspeed,consecutive_hysteresis=true",
        "deepspeed,initial_scale_power=-1,hysteresis=1",
        "deepspeed,initial_scale_power=2,min_loss_scale=3,hysteresis=1",
    ),
    "deepspeed_unfused": ("deepspeed_unfused,initial_scale_power=2,loss_scale_window=1",),
    "fairseq": (
        "fairseq,init_scale=2,threshold=1",
        "fairseq,init_scale=2,min_loss_scale=1",
        "fairseq,init_scale=2**127,scale_window=1",
    ),
    "flax": ("flax,scale=2**127,growth_interval=0",),
    "jmp": ("jmp,loss_scale=512,min_loss_scale=512",),
    "megatron": ("chain of megatron",),
    "metaseq": ("metaseq,init_scale=2**-5,scale_window=8",),
    "mxnet": ("mxnet,loss_scale=2**-1074", "mxnet,scale_seq_len=1"),
    "oneflow": ("oneflow,init_scale=2**127,growth_interval=1",),
    "paddle": ("paddle,decr_every_n_nan_or_inf=2",),
    "tf_v1": ("tf_v1,multiplier=3",),
    "torch": ("torch,init_scale=3",),
}
"""Settings in which something shows that the others do not."""

UNSCALED_BY_THE_USER = ("torch", "torch_fsdp", "robust")
"""Scalers that hand over unscaled gradients, to be clipped, and then step: these claim to look again."""

CHAIN = "chain of "
"""Before a scaler: Megatron's chain of optimizers, each with such a scaler of its own."""


@dataclass(frozen=True)
class Listed:
    """A violation that is known, and the number of steps of the history that shows it."""

    number: int
    setting: str
    check: str
    steps: int


LISTED = (
    Listed(1, "torch,init_scale=2**-149", "applies_only_finite_updates", 2),
    Listed(1, "torch,init_scale=2**-128", "applies_only_finite_updates", 1),
    Listed(1, "keras3,initial_scale=2**-149", "applies_only_finite_updates", 2),
    Listed(1, "torch", "rechecks_after_unscaling", 1),
    Listed(2, "deepspeed,initial_scale_power=2,loss_scale_window=1", "unscales_by_the_scale_that_scaled", 2),
    Listed(2, "colossalai,growth_interval=1", "unscales_by_the_scale_that_scaled", 1),
    Listed(3, "deepspeed,hysteresis=0", "repeated_overflows_lower_the_scale", 8),
    Listed(3, "deepspeed,consecutive_hysteresis=true", "repeated_overflows_lower_the_scale", 6),
    Listed(3, "paddle,decr_every_n_nan_or_inf=2", "repeated_overflows_lower_the_scale", 6),
    Listed(3, "fairseq,init_scale=2,threshold=1", "endless_overflows_are_reported", 2),
    Listed(4, "megatron,initial_scale=2**127,growth_interval=1", "scale_stays_finite", 1),
    Listed(4, "keras3,initial_scale=2**127,dynamic_growth_steps=1", "scale_stays_finite", 1),
    Listed(4, "paddle,init_loss_scaling=2**127,incr_every_n_steps=1", "scale_stays_finite", 1),
    Listed(4, "torch_fsdp,init_scale=2**127,growth_interval=1", "scale_stays_finite", 1),
    Listed(4, "deepspeed,initial_scale_power=63,loss_scale_window=1", "scale_stays_finite", 66),
    Listed(4, "mindspore_cell,loss_scale_value=2**127,scale_window=1", "scale_stays_finite", 1),
    Listed(4, "fairseq,init_scale=2**127,scale_window=1", "scale_stays_finite", 1),
    Listed(4, "flax,scale=inf", "scale_stays_finite", 0),
    Listed(5, "torch,init_scale=2**-149", "scale_stays_above_zero", 1),
    Listed(5, "keras3,initial_scale=2**-149", "scale_stays_above_zero", 1),
    Listed(5, "paddle,init_loss_scaling=2**-149", "scale_stays_above_zero", 1),
    Listed(5, "apex,init_scale=2**-1074", "scale_stays_above_zero", 1),
    Listed(5, "mxnet,loss_scale=2**-1074", "scale_stays_above_zero", 2),
    Listed(6, "mxnet", "one_overflow_one_backoff", 3),
    Listed(6, "openseq2seq_logmax", "one_overflow_one_backoff", 2),
    Listed(7, "keras2,initial_scale=.25", "overflow_never_raises_the_scale", 1),
    Listed(7, "jmp,loss_scale=.25", "overflow_never_raises_the_scale", 1),
    Listed(7, "deepspeed,initial_scale_power=-1,hysteresis=1", "overflow_never_raises_the_scale", 1),
    Listed(8, "chainer", "power_of_two_transparency", 2),
    Listed(8, "guided_diffusion", "power_of_two_transparency", 1),
    Listed(8, "flax,scale=2**127,growth_interval=0", "power_of_two_transparency", 1),
    Listed(8, "oneflow,init_scale=2**127,growth_interval=1", "power_of_two_transparency", 1),
    Listed(
        8, "deepspeed,initial_scale_power=2,min_loss_scale=3,hysteresis=1", "power_of_two_transparency", 1
    ),
    Listed(8, "tf_v1,multiplier=3", "power_of_two_transparency", 1),
    Listed(8, "torch,init_scale=3", "power_of_two_transparency", 1),
    Listed(9, "flax,growth_interval=2", "exact_window", 3),
    Listed(9, "deepspeed,loss_scale_window=2", "exact_window", 3),
    Listed(10, "colossalai", "checkpoint_round_trip", 3),
    Listed(10, "fairseq,scale_window=2", "checkpoint_round_trip", 3),
    Listed(10, "metaseq,scale_window=2", "checkpoint_round_trip", 3),
    Listed(10, "jmp,loss_scale=512,min_loss_scale=512", "checkpoint_round_trip", 2),
    Listed(11, "fairseq,init_scale=2,min_loss_scale=1", "goes_on_after_a_stop", 2),
    Listed(12, "megatron", "hysteresis_counts_consecutive_overflows", 3),
    Listed(13, "torch", "groups_agree", 1),
    Listed(13, "chain of megatron", "groups_agree", 3),
    Listed(14, "metaseq,init_scale=2**-5,scale_window=8", "clamp_leaves_other_state_alone", 14),
    Listed(15, "keras2", "skip_changes_nothing", 1),
    Listed(15, "chainer", "skip_changes_nothing", 1),
)

Row = dict[str, Any]


def main() -> int:
    listed = [found_in(each) for each in LISTED]
    scalers = {name: row_of(name) for name in SCALERS}
    missed = [*outside(listed), *(f"robust fails {check}" for check in scalers["robust"])]
    print(text_table(("property", "setting", "check", "history", "listed"), listed_rows(listed)))
    print(text_table(("scaler", *COLUMNS), [(name, *cells(row)) for name, row in scalers.items()]))
    print(f"outside: {'; '.join(missed)}" if missed else "every band holds")
    measured = {"listed": listed, "scalers": scalers}
    write_atomically(RESULTS.with_suffix(".json"), (json.dumps(measured, indent=1) + "\n").encode())
    write_atomically(RESULTS.with_suffix(".png"), png(picture(scalers)))
    write_atomically(PAGE, page(scalers).encode())
    return 1 if missed else 0


# ------------------------------------------------------------------------------------------------ measured


def made(text: str) -> Any:
    """Make the scaler of a setting."""
    return Chain(lambda: parse(text.removeprefix(CHAIN))) if text.startswith(CHAIN) else parse(text)


def claims(text: str) -> dict[str, Any]:
    """What is claimed of a scaler: all that every scaler could, and its own numbers where it has them."""
    if text.startswith(CHAIN):
        return {"groups": True}
    scaler = parse(text)
    found: dict[str, Any] = {"power_of_two": True, "groups": True, "checked": True}
    if type(scaler).name in UNSCALED_BY_THE_USER:
        found["rechecks"] = True
    window = getattr(scaler, type(scaler).window or "", None)
    if isinstance(window, int) and window > 0:
        found["interval"] = window
    hysteresis = getattr(scaler, "hysteresis", getattr(scaler, "decr_every_n_nan_or_inf", None))
    if isinstance(hysteresis, int) and hysteresis > 0:
        found["hysteresis"] = hysteresis
    return found


def verdict(text: str, check: Any) -> Row | None:
    """Give what one check finds on one setting; None if it passes or is not applicable."""
    claimed = claims(text)
    if check.trait is not None and check.trait not in claimed:
        return None
    case = Case(
        lambda: made(text), {name: claimed[name] for name in claimed if name in (check.trait, "rechecks")}
    )
    found = examined(check, case)
    if found.status != "failed":
        return None
    return {
        "setting": text,
        "history": shown(found.history or ""),
        "steps": len(found.history or ""),
        "what": found.what,
    }


def settings_of(name: str) -> Iterator[str]:
    """Settings of a scaler, the shipped one first."""
    kind = type(make(name))
    window = "" if kind.window is None else f",{kind.window}=2"
    yield name
    if window:
        yield name + window
    yield from SPECIAL.get(name, ())
    if kind.initial is not None:
        floor = Case(lambda: parse(name)).profile.floor
        for scale in INITIAL:
            if scale < min(floor, INITIAL[0]):
                continue
            exponent = (scale.hex().rpartition("p")[2]).lstrip("+")
            value = exponent if kind.initial_is_exponent else f"2**{exponent}"
            short = window.replace("=2", "=1") if scale > 1 else window
            yield f"{name},{kind.initial}={value}{short}"


def row_of(name: str) -> dict[str, Row]:
    """Give by check the first setting in which it fails; checks that never do are left out."""
    found: dict[str, Row] = {}
    for text in settings_of(name):
        try:
            made(text)
        except ValueError:
            continue  # not an initial scale of this one
        for check in CHECKS:
            asked = check.trait == "groups" if text.startswith(CHAIN) else check.trait != "any_order"
            if asked and check.name not in found and (fault := verdict(text, check)):
                found[check.name] = fault
    print(f"{name}: {', '.join(found) or 'passes'}", flush=True)
    return found


def found_in(listed: Listed) -> Row:
    check = next(check for check in CHECKS if check.name == listed.check)
    found = verdict(listed.setting, check) or {
        "setting": listed.setting,
        "history": None,
        "steps": None,
        "what": "not found",
    }
    return {"number": listed.number, "check": listed.check, "listed": listed.steps, **found}


def outside(listed: list[Row]) -> list[str]:
    """Name the listed violations that are not found, or with a longer history."""
    return [
        f"{row['check']} of {row['setting']}: {row['steps']} steps, listed {row['listed']}"
        for row in listed
        if row["steps"] is None or row["steps"] > row["listed"]
    ]


# --------------------------------------------------------------------------------------------------- shown

NAMED = [check for check in CHECKS if check.number is not None]
TWICE = {check.number for check in NAMED if sum(other.number == check.number for other in NAMED) > 1}


def label(check: Any) -> str:
    """Give the number of a check's property, with a letter where several are about one."""
    if check.number not in TWICE:
        return str(check.number)
    alike = [other.name for other in NAMED if other.number == check.number]
    return f"{check.number}{'abc'[alike.index(check.name)]}"


COLUMNS = [label(check) for check in NAMED]


def cells(row: dict[str, Row]) -> list[str]:
    return ["x" if check.name in row else "." for check in NAMED]


def listed_rows(listed: list[Row]) -> list[tuple[str, ...]]:
    table = []
    for row in listed:
        history = "NOT FOUND" if row["steps"] is None else f'"{row["history"]}"'
        table.append((str(row["number"]), row["setting"], row["check"], history, str(row["listed"])))
    return table


def page(scalers: dict[str, dict[str, Row]]) -> str:
    """Write the page of the documentation."""
    properties = [
        f"| {label(check)} | `{check.name}` | {check.says} | {f'`{check.trait}`' if check.trait else ''} |"
        for check in NAMED
    ]
    others = [
        f"| | `{check.name}` | {check.says} | {f'`{check.trait}`' if check.trait else ''} |"
        for check in CHECKS
        if check.number is None
    ]
    lines = [
        "# What the checks find in the loss scalers of the frameworks",
        "Generated by `python experiments/05_scaler_checks.py`; do not edit. How to check a scaler of your "
        "own is said in [testing.md](testing.md).",
        "## The checks",
        "\n".join(["| | check | property | trait |", "| --: | --- | --- | --- |", *properties, *others]),
        "A check with a trait runs where the trait is claimed. Histories are text: `.` a finite step, `o` an overflow, "
        "`n` a NaN, `|` a restart, `o{166}` a run of 166, `(.o){20}` twenty times `.o`.",
        "## Algorithm and property",
        "A cross: the check fails, in the setting that is shown below. The models of the scalers are "
        "`fs.scaling.make(name)`.",
        "\n".join(
            [
                "| scaler | " + " | ".join(COLUMNS) + " |",
                "| --- |" + " :-: |" * len(COLUMNS),
                *(
                    f"| {name} | " + " | ".join("x" if c == "x" else "" for c in cells(row)) + " |"
                    for name, row in scalers.items()
                ),
            ]
        ),
        "## Each with its history",
    ]
    for name, row in scalers.items():
        if not row:
            lines.append(f"**{name}** passes.")
            continue
        faults = [(check, row[check.name]) for check in CHECKS if check.name in row]
        lines.append(
            "\n".join(
                [f"**{name}**", "", "| | setting | what happens |", "| --: | --- | --- |"]
                + [
                    f"| {label(check) if check.number else ''} | `{fault['setting']}` | {escaped(fault['what'])} |"
                    for check, fault in faults
                ]
            )
        )
    return "\n\n".join(lines) + "\n"


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def picture(scalers: dict[str, dict[str, Row]]) -> object:
    order = sorted(scalers, key=lambda name: (sum(check.name in scalers[name] for check in NAMED), name))
    height = 0.2 * len(order) + 1.35
    figure = new_figure(height)
    title(
        figure,
        0.2,
        "Which property each loss scaler violates",
        "crosses: a check of fp16sim.testing fails in some setting",
    )
    axes = new_axes(figure, 1.8, 0.15, 0.3, 1.0)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    for place, name in enumerate(reversed(order)):
        for column, check in enumerate(NAMED):
            failed = check.name in scalers[name]
            axes.plot([column], [place], "x" if failed else ".", color=VERMILION if failed else "#d0d0d0",
                      ms=6 if failed else 3, mew=1.6 if failed else 0)  # fmt: skip
    axes.set_xlim(-0.6, len(NAMED) - 0.4)
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.set_yticks(range(len(order)), list(reversed(order)))
    axes.set_xticks(range(len(NAMED)), COLUMNS)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelcolor=INK)
    axes.tick_params(axis="x", labelcolor=MUTED)
    for tick in axes.get_yticklabels():
        tick.set_color(BLUE if tick.get_text() == "robust" else INK)
    return figure


if __name__ == "__main__":
    sys.exit(main())
