"""Words that errors about scalers share."""

from __future__ import annotations

__all__ = ["a_kind"]


def a_kind(value: object) -> str:
    """Write the kind of an object with its article.

    >>> a_kind(3), a_kind("3"), a_kind(type("UnitScaler", (), {})())
    ('an int', 'a str', 'a UnitScaler')
    """
    name = type(value).__name__
    spoken_you = name.lower().startswith(("uni", "use", "uti"))
    return f"an {name}" if name[:1].lower() in tuple("aeiou") and not spoken_you else f"a {name}"
