"""Loss scalers by name."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import numpy as np

from fp16sim.emulator.formats import nearest_name
from fp16sim.scaling.adaptive import AdaptiveScaler
from fp16sim.scaling.apex import ApexFp16UtilsScaler, ApexScaler
from fp16sim.scaling.chainer import ChainerScaler
from fp16sim.scaling.colossalai import ColossalAIScaler
from fp16sim.scaling.deepspeed import DeepSpeedScaler, DeepSpeedUnfusedScaler
from fp16sim.scaling.delayed import DelayedScaler
from fp16sim.scaling.fairseq import FairseqScaler, MetaseqScaler
from fp16sim.scaling.guided_diffusion import GuidedDiffusionScaler
from fp16sim.scaling.jax import FlaxScaler, JmpScaler
from fp16sim.scaling.keras3 import Keras3Scaler
from fp16sim.scaling.layerwise import FairscaleLayerwiseScaler
from fp16sim.scaling.megatron import MegatronScaler
from fp16sim.scaling.mindspore import MindSporeAmpScaler, MindSporeCellScaler, MindSporeManagerScaler
from fp16sim.scaling.mxnet import MxnetScaler
from fp16sim.scaling.none import NoScaler
from fp16sim.scaling.oneflow import OneflowScaler
from fp16sim.scaling.openseq2seq import OpenSeq2SeqBackoffScaler, OpenSeq2SeqLogMaxScaler
from fp16sim.scaling.paddle import PaddleScaler
from fp16sim.scaling.protocol import Scaler
from fp16sim.scaling.robust import RobustScaler
from fp16sim.scaling.state import SavedScaler
from fp16sim.scaling.static import StaticScaler
from fp16sim.scaling.tensorflow import Keras2Scaler, TfV1Scaler
from fp16sim.scaling.torch import TorchScaler
from fp16sim.scaling.torch_fsdp import TorchFsdpScaler
from fp16sim.scaling.unit import UnitScaler
from fp16sim.scaling.wording import a_kind

__all__ = ["as_scaler", "from_json", "make", "names", "parse"]

_KINDS: dict[str, type[SavedScaler]] = {
    kind.name: kind
    for kind in (
        NoScaler,
        StaticScaler,
        TorchScaler,
        TorchFsdpScaler,
        ApexScaler,
        ApexFp16UtilsScaler,
        TfV1Scaler,
        Keras2Scaler,
        Keras3Scaler,
        JmpScaler,
        FlaxScaler,
        MxnetScaler,
        PaddleScaler,
        OneflowScaler,
        DeepSpeedScaler,
        DeepSpeedUnfusedScaler,
        MegatronScaler,
        ColossalAIScaler,
        FairseqScaler,
        MetaseqScaler,
        MindSporeManagerScaler,
        MindSporeAmpScaler,
        MindSporeCellScaler,
        OpenSeq2SeqBackoffScaler,
        OpenSeq2SeqLogMaxScaler,
        ChainerScaler,
        GuidedDiffusionScaler,
        AdaptiveScaler,
        DelayedScaler,
        FairscaleLayerwiseScaler,
        RobustScaler,
        UnitScaler,
    )
}


def names() -> list[str]:
    """List the names that :func:`make` takes.

    >>> "torch" in names()
    True
    """
    return sorted(_KINDS)


def make(name: str, **options: Any) -> Any:
    """Make a loss scaler.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    **options
        The scaler's own; an error lists them with their defaults. NumPy's numbers are as Python's.

    Raises
    ------
    ValueError
        On an unknown name or option, or an impossible value.

    Examples
    --------
    >>> make("static", scale=8).scale
    8.0
    """
    kind = _find(name)
    defaults = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    for option in options:
        if option not in kind.options:
            valid = ", ".join(f"{key}={defaults[key]!r}" for key in kind.options)
            near = nearest_name(option, kind.options)
            near = f"{near} Valid" if near.startswith("did you mean") else "use one of these"
            hint = f"{near}: {valid}" if valid else "it takes none"
            raise ValueError(f"unknown option {option!r} of scaler {name!r}: {hint}")
    return kind(
        **{key: value.item() if isinstance(value, np.generic) else value for key, value in options.items()}
    )


def parse(text: str) -> Any:
    """Make a loss scaler from ``NAME[,key=value...]``.

    Parameters
    ----------
    text : str
        Values are integers, decimal numbers, or powers such as ``2**16``; words where the option takes a word, and
        ``true`` or ``false`` where it takes those.

    Examples
    --------
    >>> parse("torch,init_scale=2**10,growth_interval=50").scale
    1024.0
    """
    if not isinstance(text, str):
        number = isinstance(text, (int, float)) and not isinstance(text, bool)
        shown = text if number or text is None else a_kind(text)
        raise TypeError(
            f"parse({shown}): a scaler is written as text, with its options; pass "
            f"'static,scale={text if number else 1024}', for example"
        )
    name, *pairs = (part.strip() for part in text.split(","))
    defaults = {field.name: field.default for field in fields(_KINDS[name])} if name in _KINDS else {}  # type: ignore[arg-type]
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value):
            raise ValueError(
                f"{pair!r} in scaler {text!r}: write options as key=value, such as 'static,scale=8'"
            )
        if key in options:
            raise ValueError(f"{key!r} stands twice in scaler {text!r}: keep one")
        options[key] = _value(key, value, defaults.get(key))
    return make(name, **options)


def as_scaler(scaler: Any) -> Any:
    """Take a scaler as it is, or make one from text.

    >>> as_scaler("static,scale=8").scale
    8.0
    """
    if isinstance(scaler, str):
        return parse(scaler)
    if isinstance(scaler, type):
        raise TypeError(f"{scaler.__name__} is a class: pass an object of it, such as {scaler.__name__}()")
    if not isinstance(scaler, (SavedScaler, Scaler)):  # to ask a protocol takes long, and every step asks
        number = isinstance(scaler, (int, float, np.integer, np.floating)) and not isinstance(scaler, bool)
        raise TypeError(
            f"{scaler if number else a_kind(scaler)} is no scaler: pass text such as "
            f"'static,scale={scaler if number else 1024}', or an object that has `scale` and `update`"
        )
    return scaler


def from_json(text: str) -> Any:
    """Restore a scaler, its counters included, from what its ``to_json`` wrote.

    >>> from_json(make("static", scale=8).to_json()) == make("static", scale=8)
    True
    """
    try:
        state = json.loads(text)
    except (json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"not JSON ({error}): pass what to_json wrote") from None
    if not isinstance(state, dict) or not isinstance(state.get("scaler"), str):
        raise ValueError("no 'scaler' entry in this JSON: pass what to_json wrote")
    kind = _find(state.pop("scaler"))
    return kind.from_state(state)


def _find(name: str) -> type[SavedScaler]:
    if name not in _KINDS:
        if isinstance(name, str) and (":" in name or name.endswith(".py")):
            made = name.rpartition(":")[2]
            made = made if made.isidentifier() else "MyScaler"
            raise ValueError(
                f"unknown scaler {name!r}: in Python one of your own is passed as an object: import it from its file, "
                f"and pass {made}()"
            )
        raise ValueError(f"unknown scaler {name!r}: {nearest_name(name, names())}")
    return _KINDS[name]


def _value(key: str, text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    if isinstance(default, bool) and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return _number(key, text)


def _number(key: str, text: str) -> int | float:
    power = re.fullmatch(r"(\d+)(?:\*\*|\^)(-?\d+)", text)
    try:
        if power:
            base, exponent = int(power[1]), int(power[2])
            value = float(base) ** exponent  # OverflowError beyond float64
            return base**exponent if exponent >= 0 else value
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    except OverflowError:
        raise ValueError(
            f"{key}={text!r}: too large, beyond float64; write a finite number, such as 8, 0.5 or 2**16"
        ) from None
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{key}={text!r}: write a number, such as 8, 0.5 or 2**16") from None
