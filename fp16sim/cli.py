"""The command ``fp16sim``."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fp16sim import __version__
from fp16sim.commands import Failure, Misuse, compare, explain, scalers, train, write_no_more, write_out

__all__ = ["main"]

COMMANDS = {
    "train": (train, "train a network in float32 and in float16 under loss scalers, side by side"),
    "compare": (compare, "say whether two saved runs are the same, bit for bit, and where they first part"),
    "scalers": (scalers, "list the loss scalers, show what each does on a history of overflows, or test one"),
    "explain": (explain, "show what float16 does to one number, before and after a loss scale"),
}

NEGATIVE_NUMBER = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)


class _Once(argparse.Action):
    """Takes an option that has one value, and refuses a second one, of which argparse would keep the last."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        typed: dict[str, Any] = vars(namespace).setdefault("typed_once", {})
        if option is not None and option in typed:
            raise Misuse(f"{option} stands twice, {typed[option]} and {values}: keep one")
        typed[option] = values
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing a usage block, so that every error is one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.register("action", None, _Once)  # what an option without an action does

    def error(self, message: str) -> NoReturn:
        raise Misuse(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Without the program's name. Default: the process's arguments.

    Returns
    -------
    int
        Exit code: 0, 1 after a failure, 2 after misuse. Errors are one line on stderr.
    """
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        write_out("")
        if argv is None:  # all is done and printed: a Ctrl-C while the process ends has nothing to interrupt
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return code
    except BrokenPipeError:
        # The reader of a pipe, such as `head`, has seen enough.
        write_no_more()
        return 1
    except Misuse as error:
        return _complain(error, 2)
    except (Failure, OSError, ImportError, ValueError, TypeError, ArithmeticError, MemoryError) as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return _complain("interrupted", 1)


def _run(argv: list[str]) -> int:
    parser, parsers = _parsers()
    # A leading blank keeps argparse from taking a negative number for an option; numbers are read without it.
    argv = [f" {word}" if NEGATIVE_NUMBER.match(word) else word for word in argv]
    if not argv:
        raise Misuse(f"no command: use {', '.join(COMMANDS)}; see fp16sim --help")
    if not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise Misuse(f"unknown command {argv[0]!r}: {_nearest(argv[0], list(COMMANDS))}")
    args, extra = parser.parse_known_args(argv)
    if extra:
        known = sorted(set(re.findall(r"--[a-z][a-z-]*", parsers[args.command].format_help())))
        what = "option" if extra[0].startswith("-") else "argument"
        hint = (
            _nearest(extra[0].split("=")[0], known)
            if what == "option"
            else f"see fp16sim {args.command} --help"
        )
        raise Misuse(f"unknown {what} {extra[0]!r} of {args.command}: {hint}")
    run: Callable[[argparse.Namespace], int] = COMMANDS[args.command][0].run
    return run(args)


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    parser = _Parser(
        prog="fp16sim", description="A bit-exact simulator of float16 training.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"fp16sim {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    parsers: dict[str, argparse.ArgumentParser] = {}
    for name, (module, summary) in COMMANDS.items():
        parsers[name] = commands.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
        )
        module.add_arguments(parsers[name])
    return parser, parsers


def _nearest(word: str, valid: list[str]) -> str:
    from fp16sim.emulator.formats import nearest_name

    return nearest_name(word, valid)


def _complain(error: object, code: int) -> int:
    message = " ".join(str(error).split()) or type(error).__name__
    print(f"fp16sim: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
