"""Loss scalers: the protocol, and one file for each family.

A scaler is a frozen dataclass. Its `update` takes what a step observed and gives the next scaler and a
decision.
"""

from fp16sim.scaling.none import NoScaler
from fp16sim.scaling.protocol import Decision, Observation, Scaler, observe, scale_loss, unscale
from fp16sim.scaling.registry import as_scaler, from_json, make, names, parse
from fp16sim.scaling.static import StaticScaler
from fp16sim.scaling.torch import TorchScaler

__all__ = [
    "Decision",
    "NoScaler",
    "Observation",
    "Scaler",
    "StaticScaler",
    "TorchScaler",
    "as_scaler",
    "from_json",
    "make",
    "names",
    "observe",
    "parse",
    "scale_loss",
    "unscale",
]
