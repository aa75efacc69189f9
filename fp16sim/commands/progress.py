"""Progress on stderr: a bar where there is a terminal and tqdm, otherwise plain lines."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fp16sim.training.results import Step

__all__ = ["Progress"]

SECONDS = 10.0
"""Between two lines of one run."""


class Progress:
    """Shows how far a comparison is.

    Parameters
    ----------
    runs : int
        How many there will be.
    quiet : bool
        Show nothing.
    """

    def __init__(self, runs: int, quiet: bool = False) -> None:
        self._runs, self._quiet = runs, quiet
        self._done = 0
        self._said = monotonic()
        self._bar: Any = None
        self._compiling = False
        self._with_bar = not quiet and sys.stderr.isatty() and _tqdm() is not None

    def compiling(self, kernel: str) -> None:
        """Say which kernel is being compiled, all on one line: the first run of all takes seconds longer."""
        if self._quiet or self._bar is not None:
            return
        begin = "" if self._compiling else "compiling kernels, once:"
        self._compiling = True
        print(f"{begin} {kernel}", end="", file=sys.stderr, flush=True)

    def _end_line(self) -> None:
        if self._compiling:
            self._compiling = False
            print(file=sys.stderr, flush=True)

    def say(self, remark: str) -> None:
        """Print a line of its own."""
        if not self._quiet:
            print(remark, file=sys.stderr, flush=True)

    def step(self, name: str, step: Step, steps: int) -> None:
        """Take note of one training step of a run that has `steps`."""
        self._end_line()
        if not self._with_bar:
            now = monotonic()
            if step.step < steps and now - self._said >= SECONDS:
                self._said = now
                self.say(f"{name}: step {step.step} of {steps}")
            return
        from fp16sim.report.tables import power_of_two

        self._need_bar(name, steps)
        self._bar.set_description_str(name, refresh=False)
        self._bar.set_postfix_str(f"loss {step.loss:.3f}, scale {power_of_two(step.scale)}", refresh=False)
        self._bar.update()

    def skip(self, name: str, taken: int, steps: int) -> None:
        """Take note of a run that goes on after `taken` of its `steps`."""
        if self._with_bar and taken:
            self._need_bar(name, steps)
            self._bar.update(taken)
        elif taken and not self._quiet:
            print(f"{name}: going on from step {taken} of {steps}", file=sys.stderr, flush=True)

    def _need_bar(self, name: str, steps: int) -> None:
        if self._bar is None:
            total = steps * self._runs
            self._bar = _tqdm()(desc=name, total=total, unit="step", leave=False, file=sys.stderr)

    def finished(self, name: str, says: str) -> None:
        """Take note of a finished run, and of what came of it."""
        self._done += 1
        if not self._quiet and not self._with_bar:
            print(f"{self._done} of {self._runs}  {name}: {says}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar."""
        self._end_line()
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _tqdm() -> Any:
    """The progress bar of tqdm, or None where it is not installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm
