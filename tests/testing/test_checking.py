"""check_scaler: what it runs, what it reports, and that nothing a scaler does ends it."""

import json
import pickle
import pydoc
import re

import pytest

from fp16sim import scaling
from fp16sim.scaling import Decision
from fp16sim.testing import (
    Fault,
    NotApplicable,
    Report,
    ScalerCheckError,
    ScalerMachine,
    Verdict,
    check_scaler,
    checking,
    parametrize_scalers,
    scaler_checks,
)
from fp16sim.testing.case import TRAITS, Case
from fp16sim.testing.checking import claimed_checks, examined, verdicts
from fp16sim.testing.checks import CHECKS
from fp16sim.testing.checks.check import Check
from fp16sim.testing.histories import expanded
from fp16sim.testing.report import EXPECTED, FAILED, NOT_APPLICABLE, PASSED, UNEXPECTED

PICKED = ("scale_stays_finite", "scale_stays_above_zero", "overflow_never_raises_the_scale")
ZERO = '"oo": the scale went from 2^-149 to 0; give it a floor'
LONG = '"o{166}": the scale went from 2^-149 to 0'


@pytest.fixture
def few(monkeypatch):
    """Leave three checks and one with a trait, so that runs are short."""
    kept = tuple(check for check in CHECKS if check.name in PICKED)

    def claimed(case):
        """Only with a claim."""

    monkeypatch.setattr(checking, "CHECKS", (*kept, Check("power", 8, claimed, "power_of_two")))


def torch():
    return scaling.make("torch", init_scale=2.0**-148, growth_interval=3)


def statuses(report):
    return {verdict.check: verdict.status for verdict in report.verdicts}


def test_the_checks_have_names_of_their_own_and_those_without_a_trait_are_the_default():
    names = [name for name, _ in scaler_checks()]
    assert len(set(names)) == len(names)
    assert all(check.name == name and check.says for name, check in scaler_checks())
    default = {check.name for check in claimed_checks()}
    assert default == {check.name for check in CHECKS if check.trait is None}
    assert {check.number for check in claimed_checks()} - {None} == {1, 2, 3, 4, 5, 6, 7, 10, 11, 14, 15}
    assert {check.trait for check in CHECKS} - {None} <= set(TRAITS)


@pytest.mark.usefixtures("few")
def test_a_trait_adds_its_checks():
    make = lambda: scaling.make("robust", growth_interval=3)  # noqa: E731
    assert list(statuses(check_scaler(make))) == list(PICKED)
    assert statuses(check_scaler(make, traits=["power_of_two"])) == dict.fromkeys((*PICKED, "power"), PASSED)


@pytest.mark.usefixtures("few")
def test_only_what_is_asked_for_runs_in_the_usual_order():
    known = {"scale_stays_above_zero": "no floor"}
    report = check_scaler(torch, only=PICKED[:1], expected_failures=known)
    assert statuses(report) == {PICKED[0]: PASSED}
    assert report.summary() == "no failure in 1 check: 1 passed"
    report = check_scaler(torch, only=[PICKED[2], PICKED[1], PICKED[2]], expected_failures=known)
    assert statuses(report) == {PICKED[1]: EXPECTED, PICKED[2]: PASSED}
    assert list(statuses(check_scaler(torch, only=PICKED[2]))) == [PICKED[2]]


@pytest.mark.usefixtures("few")
def test_all_failures_come_in_one_error():
    with pytest.raises(ScalerCheckError) as error:
        check_scaler(torch)
    assert str(error.value).splitlines() == [
        "1 of 3 checks failed: 2 passed",
        f"scale_stays_above_zero: {ZERO}",
    ]
    assert isinstance(error.value, AssertionError)
    (failure,) = error.value.report.failures
    assert (failure.history, failure.number) == ("oo", 5)
    again = pickle.loads(pickle.dumps(error.value))
    assert (str(again), again.report) == (str(error.value), error.value.report)


def test_a_fault_comes_back_from_another_process():
    fault = Fault("o.", "the scale is 0")
    again = pickle.loads(pickle.dumps(fault))
    assert (type(again), again.history, again.what, str(again)) == (Fault, "o.", "the scale is 0", str(fault))


def test_a_scaler_that_was_changed_in_the_meantime_is_looked_at_anew():
    class Growing:
        window = 3

        def __init__(self, scale=8.0, steps=0):
            self.scale, self.steps = scale, steps

        def update(self, observation):
            steps = 0 if observation.overflowed else self.steps + 1
            scale = max(self.scale / 2, 1.0) if observation.overflowed else self.scale
            if steps == self.window:
                scale, steps = min(2 * scale, 64.0), 0
            return Growing(scale, steps), Decision(not observation.overflowed, self.scale)

    only = "scale_stays_finite"
    check_scaler(Growing, only=only)
    assert Case(Growing).profile.window == 3
    Growing.window = 2
    check_scaler(Growing, only=only)
    assert Case(Growing).profile.window == 2


@pytest.mark.usefixtures("few")
def test_an_expected_failure_is_fine_and_one_that_passes_is_an_error():
    report = check_scaler(torch, expected_failures={"scale_stays_above_zero": "no floor"})
    assert statuses(report)["scale_stays_above_zero"] == EXPECTED
    assert report.failures == ()
    assert f"{ZERO} (expected: no floor)" in report.table(200)
    with pytest.raises(ScalerCheckError) as error:
        check_scaler(
            torch, expected_failures={"scale_stays_above_zero": "no floor", "scale_stays_finite": "why"}
        )
    (failure,) = error.value.report.failures
    assert (failure.check, failure.status) == ("scale_stays_finite", UNEXPECTED)
    assert "expected to fail (why): take it out of expected_failures" in str(error.value)
    assert "1 of 3 checks failed: 1 of them by passing unexpectedly, 1 passed, 1 failed as expected" in str(
        error.value
    )


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ({"expected_failures": {"scale_stay_finite": "x"}}, ValueError, "did you mean 'scale_stays_finite'?"),
        ({"expected_failures": {"power": "x"}}, ValueError, "claim the trait 'power_of_two', or take it out"),
        ({"expected_failures": {"scale_stays_finite": ""}}, ValueError, "for the reason '': say why in words"),
        ({"expected_failures": ["scale_stays_finite"]}, TypeError, "expected_failures is a list: pass a mapping"),
        ({"only": ["scale_stay_finite"]}, ValueError, "did you mean 'scale_stays_finite'?"),
        ({"only": "power"}, ValueError, "power does not run: claim the trait 'power_of_two'"),
        ({"only": []}, ValueError, "no check is asked for"),
        ({"only": ""}, ValueError, "no check is asked for"),
        ({"only": 5}, TypeError, "only=5: pass the names of checks, such as ['scale_stays_finite']"),
        ({"only": b"power"}, TypeError, "only=b'power': pass the names of checks"),
        ({"traits": [{"interval": 3}, "interval=4"]}, ValueError, "claimed as 3 and as 4: keep one"),
        ({"traits": ["power_of_tow"]}, ValueError, "unknown trait 'power_of_tow': did you mean 'power_of_two'?"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_before_anything_runs(arguments, kind, says):
    def make():
        raise AssertionError("nothing should run")

    with pytest.raises(kind, match=re.escape(says)):
        check_scaler(make, **arguments)


def needs(size):
    return torch()


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (torch(), TypeError, "is no factory: pass a function that makes a new scaler each time"),
        (needs, TypeError, "needs is called without arguments for each new scaler: .* 'size'; pass .* needs"),
        ("trch", ValueError, "did you mean 'torch'"),
    ],
)
def test_what_is_no_factory_is_refused_alike_everywhere(make, kind, says):
    for enter in (
        check_scaler,
        dict(scaler_checks())["scale_stays_finite"],
        ScalerMachine.of,
        lambda make: parametrize_scalers([make]),
    ):
        with pytest.raises(kind, match=says):
            enter(make)


@pytest.mark.parametrize(
    "given", [scaling.TorchScaler, None, 3, (scaling.make("torch"), Decision(True, 1.0))]
)
def test_a_factory_that_gives_no_scaler_is_refused(given):
    def gives():
        return given

    with pytest.raises(
        TypeError, match=r"^gives(: \w+ is a class: pass a factory| gave None: |: an? \w+ is no scaler)"
    ):
        check_scaler(gives)


@pytest.mark.usefixtures("few")
def test_some_checks_may_be_named_in_a_text():
    report = check_scaler("robust", only=f"{PICKED[1]}, {PICKED[0]}")
    assert statuses(report) == dict.fromkeys(PICKED[:2], PASSED)


@pytest.mark.usefixtures("few")
def test_a_factory_and_its_traits_may_be_text():
    report = check_scaler("robust,growth_interval=3", traits="power_of_two")
    assert statuses(report) == dict.fromkeys((*PICKED, "power"), PASSED)


@pytest.mark.usefixtures("few")
def test_an_expectation_of_a_check_that_says_nothing_is_told():
    def says_nothing(case):
        raise NotApplicable("it has none")

    found = examined(Check("nothing", 1, says_nothing), Case(torch), "why", "--expect")
    assert found.what == "it has none; it was expected to fail (why): take it out of --expect"
    assert (found.status, found.reason) == (NOT_APPLICABLE, "why")


def test_a_scale_to_divide_by_that_is_no_number_is_named():
    class DividesByNothing(Halving):
        def update(self, observation):
            following, decision = super().update(observation)
            return following, Decision(apply=decision.apply, divide_by=None)

    found = examined(dict(scaler_checks())["applies_only_finite_updates"], Case(DividesByNothing))
    assert found.what == (
        '".": the scaler raised TypeError: DividesByNothing.update decided divide_by=None: a scale is a number above '
        "0; give one, such as 1024.0"
    )


def test_a_check_without_its_trait_does_not_pass():
    check = next(check for check in CHECKS if check.trait is not None)
    with pytest.raises(NotApplicable, match="is not claimed"):
        check(torch)


REPORT = Report(
    (
        Verdict("scale_stays_finite", 4, PASSED),
        Verdict("scale_stays_above_zero", 5, FAILED, LONG, "o" * 166),
        Verdict("checkpoint_round_trip", 10, NOT_APPLICABLE, "it has no way of saving"),
        Verdict("any_order_of_calls", None, EXPECTED, "nan", None, "known"),
    )
)


def test_the_check_with_the_shortest_history_leads_those_that_an_exception_or_a_hang_ended():
    histories = {"first": "ooo", "second": "oo", "third": "o", "fourth": "o", "without": None}
    error, hang = "KeyError (mine.py, line 3)", "Mine.update does not return"
    for raised, how in ((error, f"by the same {error}"), (hang, f"where {hang}")):
        same = [
            Verdict(name, 1, FAILED, f'"{steps}": {raised}', steps, "", raised, "A rule.")
            for name, steps in histories.items()
        ]
        report = Report((same[0], Verdict("other", 2, PASSED), *same[1:]))
        assert [" ".join(line.split()) for line in report.table(300).splitlines()] == [
            f'FAILED 1 first "ooo": {raised}',
            "passed 2 other",
            f'FAILED 1 third "o": {raised}',
            f"FAILED 3 more as third, {how}: second, fourth, without",
        ]
        assert report.reasons() == [f'first, second, third, fourth, without: "o": {raised}']


def test_no_history_is_longer_than_a_line():
    history = ("." * 3 + "o" * 4 + "." * 2 + "o") * 9 + "n" + "o...oo.o.." * 5 + "nn"
    lines = Verdict("any", 1, FAILED, f'"{history}": the end of it', history).lines(3, 60).splitlines()
    assert max(map(len, lines)) == 60
    assert "".join(line.strip() for line in lines[1:]).startswith(f'"{history}":')


def test_the_table_fits_the_width():
    assert REPORT.table(100).splitlines() == [
        "passed                4  scale_stays_finite",
        'FAILED                5  scale_stays_above_zero  "o{166}": the scale went from 2^-149 to 0',
        "not applicable       10  checkpoint_round_trip   it has no way of saving",
        "failed as expected       any_order_of_calls      nan (expected: known)",
    ]
    narrow = REPORT.table(60).splitlines()
    assert max(map(len, narrow)) <= 60
    assert narrow[1:4] == [
        "FAILED                5  scale_stays_above_zero",
        '                         "o{166}": the scale went from',
        "                         2^-149 to 0",
    ]
    assert Report(()).table() == ""


def test_json_is_strict_and_histories_read_back():
    def refuse(constant):
        raise ValueError(constant)

    data = json.loads(REPORT.to_json(), parse_constant=refuse)
    assert data == REPORT.to_dict()
    assert data["ok"] is False
    assert expanded(data["checks"][1]["history"]) == "o" * 166
    assert data["checks"][3] == {
        "check": "any_order_of_calls",
        "number": None,
        "status": EXPECTED,
        "what": "nan",
        "history": None,
        "reason": "known",
        "raised": "",
        "says": "",
    }


def test_what_a_check_means_is_told_where_it_failed_and_by_help():
    check = dict(scaler_checks())["scale_stays_finite"]
    shown = pydoc.render_doc(check, renderer=pydoc.plaintext)
    assert " ".join(check.__doc__.split()) in " ".join(shown.split())
    assert check.__doc__.startswith("The scale never becomes infinite, in float32, or NaN.\n\n")
    assert check.says == "The scale never becomes infinite, in float32, or NaN."
    assert repr(check) == "scale_stays_finite"
    interval = dict(scaler_checks())["exact_window"]
    assert interval.__doc__.endswith("\n\nOf scalers with the trait 'interval'.")
    passed, failed = (examined(check, Case(make)) for make in (Halving, lambda: Halving(float("nan"))))
    assert passed.lines(0, 300) == "passed                4  scale_stays_finite"
    assert failed.lines(0, 300).splitlines()[1:] == [" " * 25 + f"rule: {check.says}"]
    raised = examined(check, Case(planted("raises in update", KeyError("x"))))
    assert "rule" not in raised.lines()
    assert failed.lines(0, 60).splitlines()[-2:] == [
        " " * 25 + "rule: The scale never becomes",
        " " * 25 + "infinite, in float32, or NaN.",
    ]


def test_a_fault_of_a_check_is_a_verdict_and_a_factory_may_raise():
    def broken(case):
        raise ZeroDivisionError("no\nfault of the scaler")

    found = examined(Check("broken", None, broken), Case(torch))
    assert found.status == FAILED
    assert re.fullmatch(
        r"the check itself raised ZeroDivisionError: no fault of the scaler \(\S+test_checking.py, line \d+\)",
        found.what,
    )
    with pytest.raises(ScalerCheckError) as error:
        check_scaler(planted("raises", RuntimeError("no card")))
    first, line = str(error.value).splitlines()
    assert first == f"{len(claimed_checks())} of {len(claimed_checks())} checks failed"
    assert re.search(
        rf", {claimed_checks()[-1].name}: making a scaler raised RuntimeError: no card \(\S+, line \d+\)$",
        line,
    )


class Halving:
    """A scaler of a few lines, good enough for the checks of bounds."""

    def __init__(self, scale=1024.0):
        self.scale = scale

    def update(self, observation):
        scale = max(self.scale / 2, 1.0) if observation.overflowed else min(self.scale * 2, 2048.0)
        return type(self)(scale), Decision(apply=not observation.overflowed, divide_by=self.scale)


def planted(kind, value=None):
    """Make a class with a fault that shows at an overflow."""

    class Planted(Halving):
        def __init__(self, scale=1024.0):
            if kind == "raises":
                raise value
            super().__init__(scale)

        def update(self, observation):
            if not observation.overflowed:
                return super().update(observation)
            match kind:
                case "scale":
                    return type(self)(value), Decision(apply=False, divide_by=self.scale)
                case "gives":
                    return value
                case "raises in update":
                    raise value
                case "recurses":
                    return self.update(observation)

    return Planted


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("scale", None, "the scale cannot be read: TypeError: scale is None, and not a number"),
        ("scale", "8", "the scale cannot be read: TypeError: scale is '8', and not a number"),
        ("scale", 2j, "the scale cannot be read: TypeError: scale is 2j, and not a number"),
        ("scale", 10**400, "the scale cannot be read: ValueError: scale is an integer of 1329 bits, beyond float64"),
        ("scale", [8.0], "the scale cannot be read: TypeError: scale is [8.0], and not a number"),
        ("scale", float("nan"), "the scale is nan"),
        ("scale", float("inf"), "the scale is inf"),
        ("scale", -4.0, "the scale went from 1024 to -4"),
        ("scale", 0, "the scale went from 1024 to 0"),
        ("gives", None, "the scaler raised TypeError: planted.<locals>.Planted.update gave None: a scaler gives"),
        ("gives", "next", "gave 'next': a scaler gives the next one and a decision"),
        ("gives", (1, 2, 3), "gave a tuple: a scaler gives the next one and a decision"),
        ("recurses", None, "the scaler raised RecursionError: maximum recursion depth exceeded"),
        ("raises in update", SystemExit(3), "the scaler raised SystemExit: 3"),
        ("raises in update", GeneratorExit(), "the scaler raised GeneratorExit"),
        ("raises in update", StopIteration(), "the scaler raised StopIteration"),
        ("raises in update", MemoryError(), "the scaler raised MemoryError"),
        ("raises in update", AssertionError("a\nb"), "the scaler raised AssertionError: a b"),
    ],
)  # fmt: skip
def test_whatever_a_scaler_does_is_a_verdict_with_the_history(few, kind, value, says):
    found = list(verdicts(planted(kind, value)))
    assert [verdict.check for verdict in found] == list(PICKED)
    failures = [verdict for verdict in found if verdict.status == FAILED]
    assert failures
    assert "o" in {verdict.history for verdict in failures}  # and "o.o", if -8 rises to -4
    says = says.replace("planted.<locals>.", "")
    assert any(says in verdict.what and verdict.what.startswith('"o": ') for verdict in failures)
    json.loads(Report(tuple(found)).to_json())


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, pytest.skip.Exception])
def test_what_is_meant_for_the_user_passes(few, interrupt):
    with pytest.raises(interrupt):
        list(verdicts(planted("raises in update", interrupt("stop"))))


def test_a_fault_carries_the_rule_that_it_breaks_and_an_exception_none():
    check = dict(scaler_checks())["scale_stays_above_zero"]
    with pytest.raises(Fault) as broken:
        check(torch)
    assert broken.value.__notes__ == ["rule: The scale never becomes zero or negative."]
    with pytest.raises(Fault) as raised:
        check(planted("raises in update", KeyError("x")))
    assert not hasattr(raised.value, "__notes__")


def test_a_single_check_gives_the_fault_alone_and_its_cause():
    with pytest.raises(Fault, match='"o": the scaler raised KeyError') as error:
        dict(scaler_checks())["scale_stays_finite"](planted("raises in update", KeyError("x")))
    assert isinstance(error.value.__cause__, KeyError)
    assert not isinstance(error.value.__cause__, Fault)


class Careless(Halving):
    """One exception, wherever a history overflows."""

    def update(self, observation):
        if observation.overflowed:
            self.lower()
        return type(self)(self.scale * 2), Decision(apply=True, divide_by=self.scale)

    def lower(self):
        return json.loads("{")


def test_an_exception_that_ends_several_checks_is_told_once_with_its_place(few):
    line = Careless.lower.__code__.co_firstlineno + 1
    report = Report(tuple(verdicts(Careless)))
    place = f"JSONDecodeError ({__file__}, line {line})"
    assert [verdict.raised for verdict in report.verdicts] == [place] * 3
    first, others = report.table(400).splitlines()
    assert first.startswith("FAILED                4  scale_stays_finite ")
    assert first.endswith(f"(char 1) ({__file__}, line {line})")
    assert others == (
        f"FAILED                   2 more as scale_stays_finite, by the same {place}: "
        "scale_stays_above_zero, overflow_never_raises_the_scale"
    )
    (reason,) = report.reasons()
    says = '"o": the scaler raised JSONDecodeError: Expecting property name'
    assert reason.startswith(f"{', '.join(PICKED)}: {says}")
    assert report.to_json().count(place) == 3


def test_two_exceptions_and_one_that_was_expected_are_told_apart():
    one, other = "KeyError (a.py, line 1)", "KeyError (a.py, line 2)"
    given = [
        ("a", FAILED, one),
        ("b", FAILED, other),
        ("c", EXPECTED, one),
        ("d", FAILED, one),
        ("e", FAILED, ""),
    ]
    report = Report(
        tuple(Verdict(name, 1, status, name * 3, None, "known", raised) for name, status, raised in given)
    )
    assert [line.split()[-1] for line in report.table(200).splitlines()] == [
        "aaa",
        "bbb",
        "known)",
        "eee",
        "d",
    ]
    assert report.reasons() == ["a, d: aaa", "b: bbb", "e: eee"]


def test_an_error_of_the_package_about_what_it_was_given_is_told_once_too(few):
    report = Report(tuple(verdicts(planted("gives", None))))
    assert report.table(300).count("gave None") == 1
    assert "by the same TypeError: scale_stays_above_zero, overflow_never" in report.table(300)
