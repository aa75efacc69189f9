"""Walks of a scaler along a history of `.` (finite), `o` (an infinity) and `n` (a NaN)."""

from fp16sim import scaling
from fp16sim.scaling import Observation

SEEN = {".": Observation(), "o": Observation(overflow=True), "n": Observation(overflow=True, nan=True)}
HISTORY = "o..o...o.oo.......ooo......n.."


def walk(scaler, history):
    """Give the scaler after the history and its scale after each step."""
    scales = []
    for letter in history:
        scaler, _ = scaler.update(SEEN[letter])
        scales.append(scaler.scale)
    return scaler, scales


def decisions(scaler, history):
    """Give the decision of each step."""
    found = []
    for letter in history:
        scaler, decision = scaler.update(SEEN[letter])
        found.append(decision)
    return found


def check_states(scaler):
    """A scaler that is saved and loaded at any point goes on as it would have, through JSON and the framework's own."""
    whole = walk(scaler, HISTORY)[1]
    for cut in range(len(HISTORY)):
        after, _ = walk(scaler, HISTORY[:cut])
        restored = scaling.from_json(after.to_json())
        assert restored == after
        assert walk(restored, HISTORY[cut:])[1] == whole[cut:]
        loaded = scaler.load_framework_state(after.framework_state())
        assert walk(loaded, HISTORY[cut:])[1] == whole[cut:]


def check_refusals(scaler, *wrong):
    """Each of the options is refused in one line that names it; and so are unchecked gradients."""
    import pytest

    for options in wrong:
        ((name, value),) = options.items()
        with pytest.raises(ValueError, match=name) as caught:
            scaling.make(scaler.name, **options)
        assert "\n" not in str(caught.value), value
    with pytest.raises(ValueError, match="observe the gradients first"):
        scaler.update(Observation(checked=False))
