"""The subcommands of ``fp16sim``: each has `add_arguments` and `run`; what is heavy is imported in `run`."""

from __future__ import annotations

__all__ = ["Failure", "Misuse"]


class Misuse(Exception):
    """What was typed cannot be done; the message is one line: the value, the rule, the remedy. Exit 2."""


class Failure(Exception):
    """What was typed is right and did not work out; the message is one line. Exit 1."""
