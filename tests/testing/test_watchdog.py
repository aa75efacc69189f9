"""Calls that do not return: found, named with their history, and no hindrance for what comes after."""

import bdb
import functools
import io
import pdb
import signal
import socket
import subprocess
import sys
import threading
import time
from unittest import SkipTest

import pytest

from fp16sim import scaling
from fp16sim.scaling import Decision
from fp16sim.testing import Fault, ScalerMachine, check_scaler, scaler_checks, watchdog
from fp16sim.testing.checking import ScalerCheckError, verdicts
from fp16sim.testing.checks.check import Check
from fp16sim.testing.search import search
from fp16sim.testing.strategies import overflow_histories
from fp16sim.testing.walk import Hang


class Halving:
    """A scaler of a few lines; `stuck` says where it hangs."""

    def __init__(self, scale=1024.0, steps=()):
        self.scale, self.steps = scale, steps

    def stuck(self, steps):
        return False

    def update(self, observation):
        steps = (*self.steps, "o" if observation.overflowed else ".")[-5:]
        while self.stuck(steps):
            pass
        scale = max(self.scale / 2, 1.0) if observation.overflowed else self.scale
        return type(self)(scale, steps), Decision(apply=not observation.overflowed, divide_by=self.scale)


class Always(Halving):
    def stuck(self, steps):
        return True


class AtAnOverflow(Halving):
    def stuck(self, steps):
        return steps[-1] == "o"


class AfterAnOverflowAndTwo(Halving):
    def stuck(self, steps):
        return steps[-3:] == ("o", ".", ".")


class InItsScale:
    @property
    def scale(self):
        while True:
            pass

    def update(self, observation):
        return self, Decision(apply=True, divide_by=1.0)


class Asleep(Halving):
    def update(self, observation):
        time.sleep(1e6)


def never():
    while True:
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let hangs be found after .2 s the first time, too."""
    monkeypatch.setattr(watchdog, "FIRST_LOOKS", 8)


@pytest.fixture
def free_timer():
    """Take the timer from pytest-timeout, if that has it, for as long as a test runs."""
    handler, timer = signal.signal(signal.SIGALRM, signal.SIG_DFL), signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)


def told(letters="o.n"):
    def examine(case):
        def walked(history):
            case.walk().tell_all(history)

        search(overflow_histories(letters=letters), walked)

    return Check("told", None, examine)


def fault(check, make):
    with pytest.raises(Fault) as found:
        check(make)
    return found.value


@pytest.mark.parametrize(
    ("kind", "history", "what"),
    [
        (Always, ".", "Halving.update does not return"),
        (AtAnOverflow, "o", "Halving.update does not return"),
        (AfterAnOverflowAndTwo, "o..", "Halving.update does not return"),
        (InItsScale, "", "InItsScale.scale does not return"),
        (Asleep, ".", "Asleep.update does not return"),
        (never, "", "making a scaler does not return"),
    ],
)
def test_a_call_that_does_not_return_is_a_fault_with_its_history(kind, history, what):
    watchdog.forget(kind)
    found = fault(told(".on"), kind)
    assert (found.history, found.what) == (history, f"{what} within 0.2 s")
    assert (found.hangs, found.raised) == (True, what)
    assert not hasattr(found, "__notes__")
    assert fault(told(".on"), kind).what == found.what  # it is interrupted earlier, and known by then


def test_of_another_call_than_the_first_nobody_knows_how_long_it_takes():
    class InOneOfTwo(Halving):
        @property
        def scale(self):
            while self.steps:
                pass
            return 1024.0

        @scale.setter
        def scale(self, scale):
            pass

    def examine(case):
        walk = case.walk()
        walk.tell(".")
        walk.scale()

    check = Check("both", None, examine)
    assert fault(check, InOneOfTwo).what == "InOneOfTwo.scale does not return within 0.2 s"
    InOneOfTwo.stuck = lambda self, steps: True
    assert fault(check, InOneOfTwo).what == "Halving.update does not return"


def test_the_next_check_finds_it_sooner_and_hypothesis_is_as_before():
    watchdog.forget(AtAnOverflow)
    found = [fault(told("o.n"), AtAnOverflow).history for _ in range(3)]
    assert found == ["o"] * 3
    assert watchdog._known(AtAnOverflow) == "o"
    # A healthy one after it, and a fault that Hypothesis shrinks.
    told()(lambda: scaling.make("robust"))
    with pytest.raises(Fault, match=r'^"o": '):
        dict(scaler_checks())["overflow_never_raises_the_scale"](
            lambda: scaling.make("keras2", initial_scale=0.25)
        )


def test_every_check_names_itself_and_the_others_go_on():
    found = list(verdicts(Always))
    assert {verdict.status for verdict in found} <= {"failed", "not applicable"}
    hung = [verdict for verdict in found if verdict.raised == "Halving.update does not return"]
    assert hung[0].what.endswith(" does not return within 0.2 s")
    assert {"scale_stays_finite", "scale_stays_above_zero"} <= {verdict.check for verdict in hung}
    assert {verdict.history for verdict in hung} <= {".", "o", "n"}
    with pytest.raises(ScalerCheckError, match=r"scale_stays_finite, .*: .*does not return"):
        check_scaler(Always)


def test_a_partial_a_method_and_what_cannot_be_referred_to_weakly_are_watched_too():
    class Maker:
        __slots__ = ()

        def __call__(self):
            return AtAnOverflow()

        def make(self):
            return AtAnOverflow()

    for make in (functools.partial(AtAnOverflow, 8.0), Maker(), Maker().make):
        assert fault(told(), make).history == "o"


def test_many_quick_calls_are_not_one_long_call(monkeypatch):
    monkeypatch.setattr(watchdog, "FIRST_LOOKS", 1)

    def examine(case):
        walk = case.walk()
        for _ in range(20_000):
            walk.tell(".")
        never_in_a_call = time.monotonic() + 4 * watchdog.LOOK_EVERY
        while time.monotonic() < never_in_a_call:
            len(walk.letters)

    with monkeypatch.context() as context:
        # The loop above stands for one within the kit, whose own time is nobody's call.
        context.setattr(watchdog, "_KIT", (watchdog._KIT, __file__))
        Check("many", None, examine)(lambda: scaling.make("torch"))


@pytest.mark.usefixtures("free_timer")
def test_the_timer_and_its_handler_are_given_back():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(Fault):
        told()(Always)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_somebody_elses_timer_is_left_alone():
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 1000)
        assert fault(told(), AtAnOverflow).history == "o"
        assert fault(told(), Asleep).raised == "Asleep.update does not return"
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung == []
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL


def test_an_event_loop_that_signals_wake_is_left_alone():
    woken, wakes = socket.socketpair()
    with woken, wakes:
        woken.setblocking(False)
        wakes.setblocking(False)
        before = signal.set_wakeup_fd(wakes.fileno())
        try:
            with watchdog.watched(Halving):
                time.sleep(4 * watchdog.LOOK_EVERY)
            with pytest.raises(BlockingIOError):  # there is nothing to read
                woken.recv(1)
            assert fault(told(), AtAnOverflow).history == "o"
            assert signal.set_wakeup_fd(before) == wakes.fileno()
        finally:
            signal.set_wakeup_fd(before)


def test_another_thread_is_watched_by_a_thread():
    found = []

    def run():
        try:
            told()(AfterAnOverflowAndTwo)
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (error,) = found
    assert isinstance(error, Fault)
    assert error.history == "o.."
    assert not any(each.name == "fp16sim watchdog" for each in threading.enumerate())


def test_a_call_that_cannot_be_interrupted_is_not_made_again():
    slept = []

    class Waits(Halving):
        def update(self, observation):
            if observation.overflowed:
                slept.append(self.steps)
                time.sleep(1.0)  # no thread interrupts it
            return super().update(observation)

    def examine(case):
        case.walk().tell_all("..o.")

    found = []
    check = Check("waits", None, examine)
    thread = threading.Thread(target=lambda: found.append(fault(check, Waits)))
    thread.start()
    thread.join()
    assert found[0].history == "..o"
    assert slept == [(".", ".")]


TRACED_AFTERWARDS = """
import sys, threading
from fp16sim import scaling
from fp16sim.testing import scaler_checks

check = dict(scaler_checks())["overflow_never_raises_the_scale"]
thread = threading.Thread(target=check, args=(lambda: scaling.make("robust"),))
thread.start()
thread.join()
sys.settrace(lambda *_: None)
print((lambda: "traced")())
"""


def test_a_debugger_or_coverage_works_after_another_thread_was_watched():
    # In a process of its own: Python 3.11 may hang for ever in the first function that is traced.
    done = subprocess.run(
        [sys.executable, "-c", TRACED_AFTERWARDS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("traced\n", 0), done.stderr


def test_without_a_timer_as_on_windows(monkeypatch):
    monkeypatch.delattr(signal, "setitimer")
    assert fault(told(), AtAnOverflow).history == "o"


def test_a_hang_while_the_scaler_shows_its_range_is_left_to_the_checks():
    def examine(case):
        assert case.profile.window is None
        case.walk().tell(".")

    watchdog.forget(AtAnOverflow)
    Check("a check without overflows", None, examine)(AtAnOverflow)


def test_an_import_or_a_debugger_on_the_way_is_not_the_scalers_time():
    frame = sys._getframe()
    watch = watchdog.Watch(Always)
    for name, excused in ((__file__, False), ("<frozen importlib._bootstrap>", True), (bdb.__file__, True)):
        inner = {}
        exec(compile("import sys\ndef f(): return sys._getframe()\nstack = f()", name, "exec"), inner)

        class Stack:
            """A frame of the kit below one of the scaler's, below one of the file above."""

            f_code = inner["stack"].f_code
            f_back = frame

        kit = type("Kit", (), {"f_code": compile("", f"{watchdog._KIT}/walk.py", "exec"), "f_back": None})
        user = type("User", (), {"f_code": frame.f_code, "f_back": kit})
        Stack.f_back = user
        assert watchdog._call_in(Stack) == (user, kit, excused)
    assert watch.look(None) is False


def test_a_scaler_in_a_folder_called_hypothesis_is_watched(tmp_path):
    file = tmp_path / "hypothesis" / "mine.py"
    inner = {}
    exec(compile("def update(self, observation):\n    while True:\n        pass", file, "exec"), inner)
    kind = type("Mine", (), {"scale": 8.0, "update": inner["update"]})
    assert fault(told(), kind).raised == "update does not return"


def test_the_users_time_at_a_debuggers_prompt_is_not_the_scalers():
    class Looking:
        """Waits at a prompt, at every step, for longer than a call may take."""

        def readline(self):
            until = time.monotonic() + 2 * watchdog.FIRST_LOOKS * watchdog.LOOK_EVERY
            while time.monotonic() < until:
                pass
            return "continue\n"

    class Debugged(Halving):
        def update(self, observation):
            debugger = pdb.Pdb(stdin=Looking(), stdout=io.StringIO(), nosigint=True, readrc=False)
            debugger.set_trace()
            return super().update(observation)

    def examine(case):
        case.walk().tell(".")

    before = sys.gettrace()
    try:
        Check("at a prompt", None, examine)(Debugged)
    finally:
        sys.settrace(before)


@pytest.mark.usefixtures("free_timer")
def test_a_hang_is_no_exception_and_keyboard_interrupts_pass():
    assert not issubclass(Hang, Exception)

    class Interrupted(Halving):
        def update(self, observation):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told()(Interrupted)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_factory_may_skip():
    def absent():
        raise SkipTest("torch is not installed")

    with pytest.raises(SkipTest, match="torch is not installed"):
        check_scaler(absent)


def test_the_machine_names_its_calls():
    check = dict(scaler_checks())["any_order_of_calls"]
    with pytest.raises(Fault, match=r"backward\(.*: Halving.update does not return"):
        check(AtAnOverflow, ["any_order"])
    with pytest.raises(Fault, match=r"backward\(.*: Halving.update does not return"):
        ScalerMachine.of(AtAnOverflow).TestCase().debug()
