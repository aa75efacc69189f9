"""Lists of calls become as short as can be, and their gradients simple."""

import math

from fp16sim_careful_loop import TWO, Careful

from fp16sim.testing.bookkeeping import Books, OrderFault
from fp16sim.testing.calls import Call
from fp16sim.testing.case import Case
from fp16sim.testing.fewer_calls import with_fewer_calls


class SkipsAlone(Careful):
    """The other optimizer moves."""

    def look(self):
        pass

    def step(self, group):
        applied = super().step(group)
        return applied if applied is None or math.isfinite(applied[0]) else None


def shown(make, calls, groups):
    books = Books(Case(make, {"groups": True}), groups)
    try:
        for call in calls:
            books.make(call)
    except OrderFault as fault:
        return fault
    raise AssertionError("no fault to shorten")


def short(make, calls, groups=("all",)):
    fault = with_fewer_calls(shown(make, calls, groups), lambda: Books(Case(make, {"groups": True}), groups))
    return ", ".join(call.words(groups) for call in fault.calls)


def step(**gradients):
    return [
        Call("backward", gradients=gradients),
        *(Call("step", group) for group in reversed(gradients)),
        Call("update"),
        Call("zero_grad"),
    ]


def test_whole_steps_passes_and_groups_go():
    bad = [Call("backward", gradients={"b": -1.0}), Call("backward", gradients={"a": math.nan})]
    steps = [Call("step", "b"), Call("step", "a"), Call("update")]
    calls = [*step(a=3.0, b=0.5), *step(a=1.0, b=2.0), *bad, *steps]
    assert short(lambda: SkipsAlone(TWO), calls, TWO) == "backward(a=inf, b=1), step(a), step(b)"


def test_what_is_put_later_comes_with_the_backward_pass():
    calls = [
        Call("backward", gradients={"a": 1.0, "b": 3.0}),
        Call("clip", "a", number=1.0),
        Call("put", "a", number=math.nan),
        Call("step", "a"),
        Call("step", "b"),
    ]
    assert short(lambda: SkipsAlone(TWO), calls, TWO) == "backward(a=inf, b=1), step(a), step(b)"


def test_a_fault_that_does_not_come_back_stays_as_it_was():
    calls = (Call("backward", gradients={"all": 3.0}), Call("step", "all"))
    fault = OrderFault("", "once")
    fault.calls = calls
    assert with_fewer_calls(fault, lambda: Books(Case(Careful))) is fault
