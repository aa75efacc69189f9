"""What may be claimed of a scaler beyond the properties that every one should have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fp16sim.emulator.formats import nearest_name

__all__ = ["TRAITS", "WITH_A_NUMBER", "as_traits"]

TRAITS: dict[str, str] = {
    "power_of_two": "scales are powers of two, and scaling changes no bit",
    "interval": "the number of finite steps in a row after which the scale grows",
    "hysteresis": "the number of overflows in a row after which the scale is lowered",
    "groups": "several optimizers, ranks or layers skip together",
    "rechecks": "what became infinite or NaN after unscaling is not applied",
    "checked": "an update without a check is refused",
    "any_order": "calls in any order are right, or refused",
    "cost": "the number of steps of a plain scaler, of 5 us each, that take as long as one of this",
}
WITH_A_NUMBER = ("interval", "hysteresis", "cost")
"""Those that are claimed with a number."""


def as_traits(traits: Any) -> dict[str, Any]:
    """Read traits: names, and mappings of a name to its number; or text as it is typed on a command line.

    Raises
    ------
    ValueError
        On an unknown trait, one that is claimed with two numbers, or a number that is missing, below 1, or not wanted.
    TypeError
        On what is neither text nor a mapping.

    Examples
    --------
    >>> as_traits(("power_of_two", {"interval": 2000}))
    {'power_of_two': True, 'interval': 2000}
    >>> as_traits("power_of_two,interval=2000")
    {'power_of_two': True, 'interval': 2000}
    """
    found: dict[str, Any] = {}
    several = (traits,) if isinstance(traits, (str, Mapping)) else traits
    if not isinstance(several, Iterable):
        raise TypeError(
            f"traits={traits!r}: pass names and mappings, such as ['groups', {{'interval': 2000}}]"
        )
    for given in several:
        if not isinstance(given, (str, Mapping)):
            raise TypeError(f"trait {given!r}: pass a name, or a mapping such as {{'interval': 2000}}")
        for name, value in _typed(given) if isinstance(given, str) else _mapped(given):
            if found.setdefault(name, value) != value:
                raise ValueError(f"trait {name!r} is claimed as {found[name]} and as {value}: keep one")
    return found


def _mapped(given: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        _need_known(name)
        number = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if name in WITH_A_NUMBER and not number:
            raise ValueError(f"trait {name!r}={value!r}: {TRAITS[name]}; pass {{{name!r}: 2}}, for example")
        if name not in WITH_A_NUMBER and value is not True:
            raise ValueError(f"trait {name!r}={value!r}: it is claimed or not; pass {name!r}")
        yield name, value


def _typed(text: str) -> Iterator[tuple[str, Any]]:
    for part in (part.strip() for part in text.split(",") if text.strip()):
        if not part:
            raise ValueError(
                f"traits {text!r}: nothing stands beside a comma; write power_of_two,groups, for example"
            )
        words = part.split()
        if len(words) > 1 and all(word.partition("=")[0] in TRAITS for word in words):
            raise ValueError(f"trait {part!r}: write a comma between two, {','.join(words)}")
        name, equals, value = (each.strip() for each in part.partition("="))
        _need_known(name)
        if name not in WITH_A_NUMBER:
            if equals:
                raise ValueError(f"trait {part!r}: it is claimed or not; write {name}")
            yield name, True
            continue
        if not equals:
            raise ValueError(f"trait {name!r} needs a number, {TRAITS[name]}: write {name}=2, for example")
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"trait {part!r}: write a whole number, such as {name}=2") from None
        if number < 1:
            raise ValueError(f"trait {part!r}: it is {TRAITS[name]}, 1 or more; write {name}=2, for example")
        yield name, number


def _need_known(name: object) -> None:
    if name not in TRAITS:
        raise ValueError(f"unknown trait {name!r}: {nearest_name(str(name), list(TRAITS))}")
