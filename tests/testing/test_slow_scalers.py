"""A scaler whose steps take long, and whose maker says so: few steps are taken, and a fault is found all the same.

Steps are counted; no clock is asked. `check_scaler` is to end within 20 s, and takes two itself: in the others
there is time for 18,000 steps of 1 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fp16sim import scaling
from fp16sim.scaling import RobustScaler
from fp16sim.testing import check_scaler
from fp16sim.testing.report import NOT_APPLICABLE

SECONDS, PLAIN = 18, 5e-6


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the updates of robust scalers."""
    count, update = [0], RobustScaler.update

    def counted(scaler: Any, observation: Any) -> Any:
        count[0] += 1
        return update(scaler, observation)

    monkeypatch.setattr(RobustScaler, "update", counted)
    return count


def robust(window: int) -> Callable[[], Any]:
    return lambda: scaling.make("robust", growth_interval=window)


@pytest.mark.parametrize(("window", "cost"), [(2000, 50), (100, 80), (4, 200)])
def test_one_without_a_fault_is_done_in_time(updates: list[int], window: int, cost: int) -> None:
    report = check_scaler(robust(window), traits=[{"cost": cost}])
    print(f"window {window}, cost {cost}: {updates[0]} updates")
    assert updates[0] * cost * PLAIN < SECONDS
    unknown = {verdict.check for verdict in report.verdicts if verdict.status == NOT_APPLICABLE}
    assert unknown <= {"scale_stays_finite"}
