"""Which runs ``train --model`` was asked for: what is typed after a --policy belongs to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fp16sim.commands import Misuse

if TYPE_CHECKING:
    from fp16sim.autograd.policy import Policy

__all__ = ["DATAPATHS", "AskedRun", "asked_runs", "slow_products"]

DEFAULT_POLICY = "mixed_float16"
DATAPATHS = {"datapath": "matmul", "gradients": "gradients", "reduction": "reduction"}
"""Options that name a datapath, and the field of a policy that each fills."""


@dataclass(frozen=True)
class AskedRun:
    """One run.

    Attributes
    ----------
    name : str
        The label in tables.
    policy : Policy
    scaler : str
        ``NAME[,key=value...]``.
    """

    name: str
    policy: Policy
    scaler: str

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return self.name.replace(" ", "-").replace("**", "^")


@dataclass
class _Group:
    """A policy as it is typed, and what belongs to it."""

    policy: str
    scalers: list[str] = field(default_factory=list)
    datapaths: dict[str, str] = field(default_factory=dict)

    def labels(self) -> list[str]:
        typed = [(option, self.datapaths[option]) for option in DATAPATHS if option in self.datapaths]
        return [text if option == "datapath" else f"{option}={text}" for option, text in typed]

    def add(self, option: str, text: str) -> None:
        if option == "scaler":
            if text in self.scalers:
                raise Misuse(f"--scaler {text} stands twice for {self.policy}: keep one")
            self.scalers.append(text)
        elif option in self.datapaths:
            raise Misuse(
                f"--{option} {self.datapaths[option]} and --{option} {text} for one policy: keep one, or type "
                f"--policy {self.policy} before each"
            )
        else:
            self.datapaths[option] = text


def asked_runs(order: Sequence[tuple[str, str]]) -> list[AskedRun]:
    """Make the runs from policies, scalers and datapaths in the order in which they were typed.

    Each belongs to the policy before it. Before the first policy, scalers belong to the first, and a datapath to every
    policy that takes it and has none of its own.
    """
    early, groups = _Group(DEFAULT_POLICY), list[_Group]()
    for option, value in order:
        text = "".join(value.split())
        if option == "policy":
            groups.append(_Group(text))
        else:
            (groups[-1] if groups else early).add(option, text)
    groups = groups or [_Group(DEFAULT_POLICY)]
    first, groups[0].scalers = groups[0].scalers, early.scalers
    for text in first:
        groups[0].add("scaler", text)
    for option, text in early.datapaths.items():
        _spread(groups, option, text)
    runs: dict[str, AskedRun] = {}
    for group in groups:
        policy = _policy(group.policy, group.datapaths)
        for scaler in group.scalers or ["torch" if policy.compute == "float16" else "none"]:
            run = AskedRun(" ".join([group.policy, *group.labels(), scaler]), policy, scaler)
            if run.name in runs:
                raise Misuse(f"the run {run.name!r} is asked for twice: keep one")
            runs[run.name] = run
    return list(runs.values())


def _spread(groups: Sequence[_Group], option: str, text: str) -> None:
    """Give a datapath to the policies that take it and have none of their own; refuse it if there is none."""
    refusal = Misuse(f"--{option} {text}: every policy has one of its own; leave this one out")
    taken = False
    for group in groups:
        if option in group.datapaths:
            continue
        datapaths = {**group.datapaths, option: text}
        try:
            _policy(group.policy, datapaths)
        except Misuse as error:
            refusal = error
        else:
            group.datapaths, taken = datapaths, True
    if not taken:
        raise refusal


def _policy(name: str, datapaths: Mapping[str, str]) -> Policy:
    from fp16sim.autograd.policy import Policy

    try:
        return Policy(name, **{DATAPATHS[option]: text for option, text in datapaths.items()})
    except (ValueError, TypeError) as error:
        raise Misuse(str(error)) from error


def slow_products(policy: Policy) -> str:
    """Name the operands and the datapath whose products no fast kernel computes; "" if there are none."""
    from fp16sim.autograd.arithmetic import DTYPES, format_of
    from fp16sim.emulator.backends import is_fast

    fmt = format_of(DTYPES[policy.compute])
    for path in (policy.matmul, policy.convolution, policy.gradients or policy.matmul):
        if not is_fast(path, fmt):
            return f"{fmt.name} operands on {path if isinstance(path, str) else path.name}"
    return ""
