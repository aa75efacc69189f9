"""Interrupts a call of a scaler that does not return.

A timer looks at the stack forty times a second. While one and the same call out of this package's tests stands there it
counts, so calls themselves cost nothing, time within Hypothesis does not count, and a quarter of a million quick calls
are not one long one. Looks are counted rather than seconds: a machine that is busy elsewhere looks less often, too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from fp16sim.testing.histories import NAN, OVERFLOW, RESTART
from fp16sim.testing.walk import NO_RETURN, Fault, Hang, Walk

__all__ = ["FIRST_LOOKS", "LATER_LOOKS", "Watch", "forget", "shortest_hang", "watched"]

LOOK_EVERY = 0.025
"""Seconds."""
FIRST_LOOKS = 80
"""Two seconds: looks at the same call after which it hangs."""
LATER_LOOKS = 3
"""The same for a scaler that was seen to hang."""
_KIT = str(Path(__file__).parent / "x")[:-1]
_PACKAGE = str(Path(__file__).parent.parent / "x")[:-1]
_HYPOTHESIS = tuple(
    str(Path(place, "x"))[:-1] for place in getattr(find_spec("hypothesis"), "submodule_search_locations", ())
)
# What takes seconds and is not the scaler's: importing a framework, compiling a kernel, a user at a debugger's prompt.
_EXCUSED = (
    "<frozen importlib",
    str(Path("/numba/core/x"))[:-1],
    str(Path(os.__file__).with_name("bdb.py")),
    "pydevd",
)
_Factory = Callable[[], Any]

_hung: weakref.WeakKeyDictionary[_Factory, str] = weakref.WeakKeyDictionary()
"""Factories whose scalers hung, with the shortest history that does; empty while that is not known."""
_waited_for: weakref.WeakKeyDictionary[_Factory, str] = weakref.WeakKeyDictionary()
"""The same with what is said of the call that did first."""
_own = threading.local()


class Watch:
    """Looks at the stack of one thread.

    Attributes
    ----------
    make : callable
        The factory of the scaler that is tested.
    fault : Fault
        Of the call that was interrupted last: the steps of its walk, and which call it was.
    stubborn : bool
        Whether a call went on after it was interrupted.
    """

    def __init__(self, make: _Factory) -> None:
        self.make = make
        self.fault = Fault("", "a call does not return")
        self.stubborn = False
        self.rest()

    def rest(self) -> None:
        """Hold no call, nor what is local to it."""
        self._call: FrameType | None = None
        self._interrupted: FrameType | None = None
        self._looks = 0

    def look(self, frame: FrameType | None) -> bool:
        """Whether the call that a stack shows is to be interrupted."""
        call, caller, excused = _call_in(frame)
        if call is None or call is not self._call:
            self._call, self._looks = call, 0
            return False
        self._looks += not excused
        if self._looks < (LATER_LOOKS if _known(self.make) is not None else FIRST_LOOKS):
            return False
        self._looks = 0
        self.stubborn |= call is self._interrupted
        self._interrupted = call
        assert caller is not None  # there is a call
        what = _described(frame, call, caller)
        if _known(self.make) is None:
            _keep(_waited_for, self.make, what)
        if _kept(_waited_for, self.make) in (None, what):  # this call, now or before
            what += f" within {FIRST_LOOKS * LOOK_EVERY:g} s"
        self.fault = _fault(caller, what)
        _remember(self.make, _known(self.make) or "")
        return True

    def signalled(self, number: int, frame: FrameType | None) -> None:
        """Look, as the handler of a signal."""
        if self.look(frame):
            raise Hang(self.fault.what)


@contextmanager
def watched(make: _Factory) -> Iterator[Watch]:
    """Watch the calls of a scaler inside: one that does not return raises :class:`fp16sim.testing.walk.Hang`.

    Parameters
    ----------
    make : callable
        Its factory, by which a scaler is known that hung before: after 2 seconds the first time, .08 later.

    Notes
    -----
    The main thread is interrupted by ``signal.setitimer``. Elsewhere, without it, and where somebody else uses that
    timer or is woken by every signal, a thread does it. Other threads than the main one, and any on Windows, cannot be
    interrupted where a call waits within C, as in a long ``time.sleep``. A call that catches every ``BaseException``
    and goes on cannot be interrupted at all.
    """
    if getattr(_own, "watch", None) is not None:  # a watch within a watch
        yield _own.watch
        return
    watch = Watch(make)
    try:
        _own.watch = watch
        with _by_signal(watch) if _timer_is_free() else _by_thread(watch):
            yield watch
    finally:
        _own.watch = None
        watch.rest()


def shortest_hang(walk: Callable[[], Walk], watch: Watch) -> Fault:
    """Give the fault of a hang, with the shortest end of its history that hangs, too, from the beginning.

    The steps are told by their kind alone; if that does not hang, the history stays as it is. So it does where the call
    could not be interrupted at once: it ended by itself, or by somebody else's signal, which may not come again.
    """
    fault, history = watch.fault, watch.fault.history
    known = _known(watch.make)
    if type(fault) is not Fault or RESTART in history or watch.stubborn:  # not what such steps can say
        return fault
    if known and history.endswith(known):
        return Fault(known, fault.what)

    def hangs(length: int) -> bool:
        try:
            with watched(watch.make):
                walk().tell_all(history[-length:])
        except Hang:
            return True
        except AssertionError:  # another fault of the same scaler
            return False
        return False

    if NAN in history:  # an overflow is the simpler of the two
        given, history = history, history.replace(NAN, OVERFLOW)
        history = history if hangs(len(history)) else given
    if len(history) < 2:
        _remember(watch.make, history)
        return Fault(history, fault.what)
    found = next((length for length in _lengths(len(history)) if hangs(length)), None)
    if found is None:
        return fault
    shorter = found // 2 if found > _ONE_BY_ONE else found - 1
    while found - shorter > 1:
        middle = (found + shorter) // 2
        shorter, found = (shorter, middle) if hangs(middle) else (middle, found)
    _remember(watch.make, history[-found:])
    return Fault(history[-found:], fault.what)


_ONE_BY_ONE = 16


def _lengths(longest: int) -> Iterator[int]:
    yield from range(1, min(longest, _ONE_BY_ONE + 1))
    length = 2 * _ONE_BY_ONE
    while length < longest:
        yield length
        length *= 2


def forget(make: _Factory) -> None:
    """Take a factory for one whose scalers never hung: they may have changed since the last run."""
    if _known(make) is not None:
        del _hung[make]


def _known(make: _Factory) -> str | None:
    return _kept(_hung, make)


def _remember(make: _Factory, history: str) -> None:
    _keep(_hung, make, history)


def _kept(texts: weakref.WeakKeyDictionary[_Factory, str], make: _Factory) -> str | None:
    try:
        return texts.get(make)
    except TypeError:  # no weak reference, or no hash
        return None


def _keep(texts: weakref.WeakKeyDictionary[_Factory, str], make: _Factory, text: str) -> None:
    try:
        texts[make] = text
    except TypeError:
        return


def _call_in(frame: FrameType | None) -> tuple[FrameType | None, FrameType | None, bool]:
    """Give the call out of this folder that a stack is in, the frame that made it, and whether its time counts not."""
    excused, call = False, None
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_KIT):
            if call is None or call.f_code.co_filename.startswith(_HYPOTHESIS):
                return None, None, False
            return call, frame, excused
        excused = excused or any(part in name for part in _EXCUSED)
        call, frame = frame, frame.f_back
    return None, None, False


def _fault(caller: FrameType | None, what: str) -> Fault:
    """Let the walk, or the accounts, that a stack belongs to say where it is: nowhere while a scaler is only made."""
    found: Any = None
    while caller is not None and caller.f_code.co_filename.startswith(_KIT):
        if caller.f_code.co_name in ("made", "adapt"):
            return Fault("", what)
        for name in ("self", "walk"):  # the innermost walk; accounts, which say more, stand around it
            local = caller.f_locals.get(name)
            if hasattr(local, "fault") and (found is None or not isinstance(local, Walk)):
                found = local
        caller = caller.f_back
    found = Walk.current if found is None else found
    try:
        fault = found.fault(what)
    except Exception:  # the call was in the midst of something
        return Fault("", what)
    return fault if isinstance(fault, Fault) else Fault("", what)


def _described(frame: FrameType | None, call: FrameType, caller: FrameType) -> str:
    """Name the outermost function that is not of this package; else the one called."""
    if caller.f_code.co_name == "made":
        return f"making a scaler {NO_RETURN}"
    found = call
    while frame is not None and frame is not caller:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            found = frame
        frame = frame.f_back
    return f"{found.f_code.co_qualname.rpartition('<locals>.')[2]} {NO_RETURN}"


def _timer_is_free() -> bool:
    return (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN)
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
        and not _signals_wake_a_loop()
    )


def _signals_wake_a_loop() -> bool:
    """Whether each signal writes a byte for an event loop, such as asyncio's, that has handlers of signals.

    It reads none of them until the check is over: by then the pipe is full, and its own signals are lost.
    """
    file = signal.set_wakeup_fd(-1)  # there is no way to ask
    signal.set_wakeup_fd(file)
    return file != -1


@contextmanager
def _by_signal(watch: Watch) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, watch.signalled)
    try:
        signal.setitimer(signal.ITIMER_REAL, LOOK_EVERY, LOOK_EVERY)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _by_thread(watch: Watch) -> Iterator[None]:
    watched_thread, ended = threading.get_ident(), threading.Event()
    interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
    target = ctypes.c_ulong(watched_thread)

    with _waking() as wake:

        def run() -> None:
            while not ended.wait(LOOK_EVERY):
                if watch.look(sys._current_frames().get(watched_thread)):
                    interrupt(target, ctypes.py_object(Hang))
                    wake()

        looking = threading.Thread(target=run, name="fp16sim watchdog", daemon=True)
        looking.start()
        # What is sent arrives before `join` has returned. Nothing is taken back by
        # PyThreadState_SetAsyncExc(target, NULL): Python 3.11 then looks for an exception for ever, and under
        # sys.settrace it does nothing else.
        try:
            try:
                yield
            finally:
                ended.set()
                looking.join()
        except Hang:  # which may have arrived before the thread was told to end
            ended.set()
            looking.join()
            raise


@contextmanager
def _waking() -> Iterator[Callable[[], None]]:
    """Give what ends a wait of the main thread within C: a signal, in whose handler it finds what was sent to it.

    SIGURG, which is ignored unless somebody handles it. Other threads are handed no signals.
    """
    thread = threading.get_ident()
    if (
        threading.current_thread() is not threading.main_thread()
        or not hasattr(signal, "pthread_kill")
        or signal.getsignal(signal.SIGURG) is not signal.SIG_DFL
    ):
        yield lambda: None
        return
    before = signal.signal(signal.SIGURG, lambda *_: None)
    try:
        yield lambda: signal.pthread_kill(thread, signal.SIGURG)
    finally:
        signal.signal(signal.SIGURG, before)
