"""The subcommands of ``fp16sim``: each has `add_arguments` and `run`; what is heavy is imported in `run`."""

from __future__ import annotations

import os
import sys

__all__ = ["Failure", "Misuse", "write_no_more", "write_out"]


class Misuse(Exception):
    """What was typed cannot be done; the message is one line: the value, the rule, the remedy. Exit 2."""


class Failure(Exception):
    """What was typed is right and did not work out; the message is one line. Exit 1."""


def write_out(text: str) -> None:
    """Print what was asked for; a full disk behind standard output is a failure in one line."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        write_no_more()
        reason = error.strerror or error
        raise Failure(
            f"standard output cannot be written ({reason}): free some space or redirect it"
        ) from error


def write_no_more() -> None:
    """Let nothing more reach standard output, at exit neither."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
