"""What the recording scripts share: drawn histories, the loop over the cases, and the file.

It needs the standard library only, and Python 3.8, because old frameworks need old Pythons.
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import sys

CASES = int(os.environ.get("CASES", 200))
LONGEST = 100
WINDOWS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 10, 11, 13, 16, 20)
FACTORS = (2.0,) * 7 + (1.5, 3.0, 4.0, 10.0)
SCALES = (2.0**16, 2.0**15, 2.0**10, 2.0**24, 1.0, 2.0, 3.0, 4.0, 8.0, 0.25, 2.0**-20, 2.0**32, 1000.0)
EXTREMES = (2.0**-149, 2.0**-126, 2.0**-128, 2.0**-120, 2.0**120, 2.0**126, 2.0**127)
HERE = os.path.dirname(os.path.abspath(__file__))


def draw_history(rng: random.Random, window: int) -> str:
    """Draw a history of `.` (finite), `o` (an infinity in a gradient) and `n` (a NaN)."""
    length = rng.choice((rng.randint(1, 12), rng.randint(10, 60), rng.randint(20, LONGEST)))
    kind = rng.choice(("random", "random", "bursts", "runs", "runs", "clean", "alternate"))
    if kind == "random":
        rate = rng.choice((0.02, 0.05, 0.1, 0.2, 0.5, 0.9))
        steps = ["o" if rng.random() < rate else "." for _ in range(length)]
    elif kind == "alternate":
        steps = list(rng.choice(("o.", "oo.", "o..", ".o", "o...")) * LONGEST)
    else:  # bursts of overflows between clean runs; `runs` end around the window
        steps = []
        while len(steps) < length:
            clean = rng.randint(0, 15) if kind == "bursts" else max(0, window + rng.randint(-1, 2))
            if kind == "clean":
                clean = length
            steps += "." * clean + "o" * (rng.randint(1, 8) if kind == "bursts" else rng.randint(1, 2))
    if rng.random() < 0.4:
        steps = ["n" if step == "o" and rng.random() < 0.5 else step for step in steps]
    return "".join(steps[:length])


def value(number):
    """Give a number as JSON holds it: not-finite ones as text."""
    if isinstance(number, bool) or number is None or isinstance(number, (int, str)):
        return number
    number = float(number)
    return number if math.isfinite(number) else repr(number)


def divisor(candidates, explains):
    """Give the first candidate scale that explains, bit for bit, the gradient that reached the optimizer."""
    for candidate in candidates:
        if explains(candidate):
            return candidate
    raise AssertionError(f"none of the scales {candidates!r} explains the gradient")


def same(left: float, right: float) -> bool:
    """Compare two floats; NaN equals NaN."""
    return left == right or (left != left and right != right)


def delivered(kind: str, scaled: float) -> float:
    """Give the scaled gradient of a step whose true gradient is 1: finite on `.`, whatever the scale."""
    if kind == "o":
        return math.inf
    if kind == "n":
        return math.nan
    return scaled if math.isfinite(scaled) else 1.0


def run(make, options: dict, history: str, raises: tuple) -> dict:
    """Drive one scaler of the framework along a history; the errors in `raises` belong to the trace."""
    driver = make(**options)
    steps = []
    for kind in history:
        try:
            used, divided, applied = driver.step(kind)
            steps.append([value(used), value(divided) if applied else None, int(applied)])
        except AssertionError:  # a check of the recorder
            raise
        except raises as error:
            steps.append(["raise", (f"{type(error).__name__}: {error}").splitlines()[0][:160]])
    state = {key: value(entry) for key, entry in driver.state().items()}
    return {
        "options": {k: value(v) for k, v in options.items()},
        "history": history,
        "steps": steps,
        "state": state,
    }


def record(
    name,
    make,
    draw,
    *,
    seed,
    package,
    version,
    recorded_with,
    script,
    api,
    odd=(),
    refused=(),
    raises=(),
    notes="",
):
    """Record the cases of one class of a package, and write `<name>.json`.

    make(**options) gives a driver with step(kind) -> (scale used, divided by, applied) and state();
    draw(rng) gives (options, window); `odd` and `refused` are options that look impossible.
    """
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    rng = random.Random(seed)
    cases = []
    while len(cases) < CASES:
        options, window = draw(rng)
        cases.append(run(make, options, draw_history(rng, window), raises))
    odd_cases = []
    for entry in odd:  # options, or options with their history
        options, histories = entry if isinstance(entry, tuple) else (entry, ())
        for history in [histories] if histories else ("oo...o.", "........", draw_history(rng, 3)):
            odd_cases.append(run(make, options, history, raises))
    errors = []
    for options in refused:
        try:
            make(**options)
        except Exception as error:
            errors.append(
                {
                    "options": {k: value(v) for k, v in options.items()},
                    "error": f"{type(error).__name__}: {error}",
                }
            )
        else:
            raise ValueError(f"{name} accepts {options!r}")
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    versions.update(recorded_with)
    head = {
        "package": package,
        "version": version,
        "api": api,
        "recorded_with": versions,
        "script": f"tests/golden/scalers/{os.path.basename(script)}",
        "notes": notes,
    }
    write(name, head, cases, odd_cases, errors)


def write(name, head, cases, odd_cases, errors) -> None:
    """Write one file: one case a line."""

    def compact(entry):
        return json.dumps(entry, separators=(",", ":"), allow_nan=False)

    def lines(entries):
        return "[" + ",".join("\n" + compact(entry) for entry in entries) + "]"

    parts = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in head.items()]
    parts += ['"cases": ' + lines(cases), '"odd_cases": ' + lines(odd_cases), '"refused": ' + lines(errors)]
    text = "{" + ",\n".join(parts) + "}\n"
    json.loads(text)
    path = os.path.join(HERE, name + ".json")
    with open(path, "w") as file:
        file.write(text)
    steps = sum(len(case["steps"]) for case in cases)
    print(
        f"{name}: {len(cases)} cases, {steps} steps, {len(odd_cases)} odd, {len(errors)} refused, {len(text)} bytes"
    )
