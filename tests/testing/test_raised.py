"""Where an error comes from, in the user's own words: a file and a line."""

import json
import traceback

import numpy as np
import pytest
from fp16sim_lookalikes import TorchLike

from fp16sim.scaling import Observation, make
from fp16sim.testing.adapters.torch_like import TorchDriver
from fp16sim.testing.case import Case
from fp16sim.testing.raised import described, forget_the_way, kind_and_place, place_of, text_of
from fp16sim.testing.walk import Fault


def caught(function, *given):
    try:
        function(*given)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def line(function):
    return f"{__file__}, line {function.__code__.co_firstlineno + 1}"


def fails():
    raise KeyError("a\nb")


def asks_a_library():
    return json.loads("{")


def asks_the_package():
    return make("torch").update(True)


def test_the_innermost_line_of_the_users_is_named():
    assert place_of(caught(lambda: fails())) == line(fails)
    assert described(caught(fails)) == f"KeyError: 'a\\nb' ({line(fails)})"
    assert place_of(caught(asks_a_library)) == line(asks_a_library)
    assert place_of(caught(asks_the_package)) == line(asks_the_package)
    assert kind_and_place(caught(fails)) == f"KeyError ({line(fails)})"


def test_a_library_is_named_where_nobody_else_is_and_the_package_never():
    error = caught(json.loads, "{")
    assert place_of(error) == line(caught).rpartition(" ")[0] + f" {caught.__code__.co_firstlineno + 2}"
    error = error.with_traceback(error.__traceback__.tb_next)
    assert "json" in place_of(error)
    error = caught(make("torch").update, True)
    error = error.with_traceback(error.__traceback__.tb_next)
    assert (place_of(error), described(error)) == ("", f"TypeError: {error}")
    assert kind_and_place(error) == described(error)
    assert described(KeyError()) == "KeyError"
    assert make("torch").update(Observation())


def test_a_mistake_of_syntax_is_in_the_file_that_has_it():
    error = caught(compile, "a = (", "mine.py", "exec")
    assert described(error) == "SyntaxError: '(' was never closed (mine.py, line 1)"


def test_the_way_there_is_forgotten_down_to_the_users_code():
    def update(self, observation):
        try:
            fails()
        except KeyError:
            raise ValueError("mine") from None

    kind = type("Mine", (), {"scale": 8.0, "update": update})
    fault = caught(Case(kind).walk().tell, "o")
    assert len(traceback.extract_tb(fault.__cause__.__traceback__)) > 1
    fault.__cause__.__context__.__context__ = Fault("", "found before")
    forget_the_way(fault)
    frames = traceback.extract_tb(fault.__cause__.__traceback__)
    assert [(frame.filename, frame.name) for frame in frames] == [(__file__, "update")]
    context = fault.__cause__.__context__
    assert [frame.name for frame in traceback.extract_tb(context.__traceback__)] == ["update", "fails"]
    assert context.__context__ is None


def test_an_error_of_the_package_keeps_no_frames():
    error = caught(make("torch").update, True)
    error.__traceback__ = error.__traceback__.tb_next
    forget_the_way(error)
    assert error.__traceback__ is None


def its_own_cause():
    try:
        fails()
    except KeyError as error:
        raise error from error


def causes_in_a_ring():
    try:
        fails()
    except KeyError as error:
        other = ValueError("other")
        error.__cause__ = other
        raise other from error


@pytest.mark.parametrize("raised", [its_own_cause, causes_in_a_ring])
def test_causes_that_go_in_a_ring_end(raised):
    error = caught(raised)
    ring = [error, error.__cause__]
    forget_the_way(error)
    assert ring == [error, error.__cause__]


class Unsayable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def test_an_error_without_a_text_has_its_kind_and_its_place():
    def raises():
        raise Unsayable

    error = caught(raises)
    assert text_of(error) == ""
    assert described(error) == f"Unsayable ({line(raises)})"
    fault = caught(Case(type("Mine", (), {"scale": 8.0, "update": lambda *_: raises()})).walk().tell, "o")
    assert fault.what == f"the scaler raised Unsayable ({line(raises)})"


def asked(given, name):
    try:
        getattr(given, name)
    except AttributeError as error:
        return described(error)


def test_what_the_checks_gave_is_named_where_it_is_asked_for_what_it_lacks():
    says = (
        "; what it is given is numpy's (torch's, if it looks like a GradScaler and its module imports torch)"
    )
    assert asked(np.ones(1), "isfinite").endswith(says)
    assert asked(np.float32(1.0), "detach").endswith(says)
    optimizer = TorchDriver(TorchLike())._optimizers["all"]
    assert asked(optimizer, "state").endswith("; it is given an optimizer that has `param_groups`, `step()` and "
                                             "`zero_grad()`, and nothing else")  # fmt: skip
    assert asked(optimizer.parameter, "data").endswith(
        "; it is given a parameter that has a `grad`, and nothing else"
    )
    assert asked([], "detach").endswith(f"line {asked.__code__.co_firstlineno + 2})")
