"""Traces of a scaler along a history of `.` (finite) and `o` (an infinity), with what each decision must be."""

from fp16sim.scaling import Observation

__all__ = ["FINITE", "OVERFLOW", "walk"]

OVERFLOW, FINITE = Observation(overflow=True), Observation()


def walk(scaler, history, divisor=lambda scale: scale, advance=None):
    """Give the scaler after the history and its scale after each step.

    A step applies what is finite, divided by `divisor` of the scale that the loss had, and never stops; with `advance`
    given, every decision has that.
    """
    scales = []
    for letter in history:
        used = divisor(scaler.scale)
        scaler, decision = scaler.update(OVERFLOW if letter == "o" else FINITE)
        assert (decision.apply, decision.divide_by, decision.stop) == (letter == ".", used, None)
        assert advance is None or decision.advance is advance
        scales.append(scaler.scale)
    return scaler, scales
