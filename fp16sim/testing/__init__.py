"""Property tests for other people's code: loss scalers, and backends of this package.

:func:`check_scaler` tests a loss scaler against the properties of a good one. ``strategies`` has Hypothesis strategies
for tests of your own. The extra is ``pip install 'fp16sim[testing]'``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "adapters": "adapt",
    "backend": "BackendCheckError backend_checks check_backend",
    "checking": "ScalerCheckError check_scaler scaler_checks",
    "driver": "Driver",
    "machine": "ScalerMachine",
    "parametrize": "parametrize_scalers",
    "report": "Report Verdict",
    "walk": "Fault NotApplicable",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [*_HOME_OF, "strategies"]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(f"fp16sim.testing.{_HOME_OF[name]}"), name)
    if name == "strategies":
        return import_module("fp16sim.testing.strategies")
    if name.startswith("__"):  # the import system and inspection ask for these
        raise AttributeError(f"{__name__} has no {name!r}")
    from fp16sim.emulator.formats import no_such_name

    raise AttributeError(no_such_name(__name__, name, __all__))


def __dir__() -> list[str]:
    return sorted(__all__)
