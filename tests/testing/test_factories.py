"""Scalers, claims and expectations as they are typed on a command line."""

import re
import sys

import pytest

from fp16sim.testing import watchdog
from fp16sim.testing.factories import expected_of, factory_of, traits_of

GOOD = """
from dataclasses import dataclass, replace
from fp16sim.scaling import Decision
import beside

@dataclass(frozen=True)
class Halving:
    scale: float = beside.START

    def update(self, observation):
        factor = 0.5 if observation.overflowed else 1.0
        return replace(self, scale=self.scale * factor), Decision(not observation.overflowed, self.scale)

class Inner:
    make = Halving

def make():
    return Halving(8.0)

def needs(argument):
    return Halving(argument)

def no_return():
    Halving()

def a_class():
    return Halving

def raises():
    return Halving(1 / 0)

def stops():
    raise SystemExit("no")

def hangs():
    while True:
        pass

text, made = "8", Halving()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of a user's, from which nothing stays imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    (tmp_path / "own").mkdir()
    for place in (tmp_path, tmp_path / "own"):
        (place / "beside.py").write_text("START = 32.0\n")
    (tmp_path / "own" / "scalers_of_mine.py").write_text(GOOD)
    (tmp_path / "scalers_here.py").write_text(GOOD)
    (tmp_path / "broken_scaler.py").write_text("import beside\n\nSTART = beside.START.no\n")
    (tmp_path / "wrong_scaler.py").write_text("def make():\n    return (\n")
    (tmp_path / "needy_scaler.py").write_text("import no_such_thing\n")
    (tmp_path / "own.py").mkdir()
    (tmp_path / "own.txt").write_text(GOOD)
    (tmp_path / "script.py").write_text("import sys\nsys.exit('usage: ...')\n")
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_of_the_current_folder_a_file_and_a_class(folder):
    assert factory_of("scalers_here:make")().scale == 8.0
    assert factory_of("scalers_here:Halving")().scale == 32.0
    assert factory_of("own/scalers_of_mine.py:make")().scale == 8.0
    assert factory_of(f"{folder}/own/scalers_of_mine.py:Inner.make")().scale == 32.0
    assert factory_of("own.scalers_of_mine:make")().scale == 8.0
    assert "scalers_of_mine" not in sys.modules


def test_the_current_folder_comes_first(folder):
    (folder / "colorsys.py").write_text(GOOD)
    sys.modules.pop("colorsys", None)
    assert factory_of("colorsys:make")().scale == 8.0


def test_files_of_one_name_are_modules_of_their_own_and_one_that_fails_is_none(folder):
    places = [folder / "own" / "scalers_of_mine.py", folder / "scalers_of_mine.py"]
    places[1].write_text(GOOD)
    kinds = [type(factory_of(f"{place}:make")()) for place in places]
    assert [sys.modules[kind.__module__].__file__ for kind in kinds] == [str(place) for place in places]
    places[1].write_text(f"{GOOD}\n1 / 0")
    with pytest.raises(ValueError, match=r"importing .* raised ZeroDivisionError"):
        factory_of(f"{places[1]}:make")
    assert kinds[1].__module__ not in sys.modules


@pytest.mark.parametrize("place", ["parses.py", "parses"])
def test_a_module_that_reads_its_arguments_finds_none(place, folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fp16sim", "scalers", "--check", f"{place}:make"])
    (folder / "parses.py").write_text(
        f"import argparse, sys\n{GOOD}\nargparse.ArgumentParser().parse_args()\nARGUMENTS = sys.argv\n"
    )
    make = factory_of(f"{place}:make")
    assert make.__globals__["ARGUMENTS"] == [place]
    assert sys.argv[1:3] == ["scalers", "--check"]


def test_a_scaler_that_raises_or_hangs_when_it_is_adapted_is_for_the_checks(folder, monkeypatch):
    monkeypatch.setattr(watchdog, "FIRST_LOOKS", 8)
    (folder / "odd_scalers.py").write_text(
        "class Raises:\n"
        "    scale = property(lambda self: 1 + 'x')\n"
        "    def update(self, observation): ...\n"
        "class Hangs:\n"
        "    @property\n"
        "    def scale(self):\n"
        "        while True: pass\n"
        "    def update(self, observation): ...\n"
    )
    for name in ("Raises", "Hangs"):
        assert factory_of(f"odd_scalers.py:{name}").__name__ == name


def test_a_scaler_of_the_package_with_options():
    make = factory_of(" torch,init_scale=2**-149 , growth_interval=2")
    assert (make().scale, make().growth_interval) == (2.0**-149, 2)


def test_two_colons_and_the_home_are_understood(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder / "own"))
    monkeypatch.setenv("USERPROFILE", str(folder / "own"))
    assert factory_of("scalers_here.py::make")().scale == 8.0
    assert factory_of("~/scalers_of_mine.py:Inner.make")().scale == 32.0


def test_suggestions_are_what_the_file_defines(folder):
    with pytest.raises(ValueError, match="use one of") as error:
        factory_of("scalers_here.py:xyzzy")
    names = "'Halving', 'Inner', 'a_class', 'hangs', 'make', 'needs', 'no_return', 'raises', 'stops'"
    assert str(error.value) == f"scalers_here.py:xyzzy: scalers_here.py has no 'xyzzy': use one of {names}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("scalers_here.py", r"scalers_here.py: name what makes the scaler in it too, such as scalers_here.py:Halving"),
        ("own/scalers_of_mine.py", r"such as own/scalers_of_mine.py:Halving"),
        ("wrong_scaler.py", r"such as wrong_scaler.py:make"),
        ("no_such.py", r"no_such.py: there is no such file"),
        ("scalers_here:no_return", r"scalers_here:no_return gave None: is a `return` missing\?"),
        ("trch", r"'trch' is no scaler of this package: did you mean 'torch'\? .* write module:factory"),
        ("xyzzy", r"'xyzzy' is no scaler of this package: fp16sim scalers lists them; for one"),
        ("torch,window=2", r"unknown option 'window' of scaler 'torch'"),
        ("scalers_here:", r"write module:factory, such as mine.scalers:make or mine.py:make"),
        (":make", r"write module:factory"),
        ("no_such_module:make", r"no module 'no_such_module' in .* write the path of its file"),
        ("own.none:make", r"no module 'own.none' in"),
        ("no/such.py:make", r"no/such.py: there is no such file; the current folder is"),
        ("own:make", r"own:make: own has no 'make': it defines no name"),
        ("scalers_here:mke", r"scalers_here has no 'mke': did you mean 'make'\?"),
        ("scalers_here:Inner.mak", r"Inner has no 'mak': did you mean 'make'\?"),
        ("scalers_here:text", r"a str is no factory: name a function, or a class, that makes a new scaler"),
        ("scalers_here:made", r"a Halving is no factory"),
        (
            "scalers_here:needs",
            r"^scalers_here:needs: needs is called without arguments for each new scaler: missing a required argument: "
            r"'argument'; pass a function that gives them",
        ),
        ("scalers_here:a_class", r"^scalers_here:a_class: Halving is a class: pass a factory of objects, such as"),
        ("own.py:Halving", r"^own.py: it is a folder; name a file in it, such as own.py/mine.py:make$"),
        ("own.txt:make", r"^own.txt: the name of a Python file ends in .py; rename it to own.py, or name the one"),
        ("./own.txt:make", r"^own.txt: the name of a Python file ends in .py"),
        ("scalers_here:raises", r"ZeroDivisionError: .*division by zero \(\S*scalers_here.py, line 30\) when"),
        ("scalers_here:stops", r"stops raised SystemExit: no \(\S*scalers_here.py, line 33\) when"),
        ("scalers_here:hangs", r"scalers_here:hangs does not return when it is called"),
        ("beside:START.hex", r"beside:START.hex: a str is no scaler: it needs"),
        ("broken_scaler:make", r"importing broken_scaler raised AttributeError: .* \(\S*broken_scaler.py, line 3\)"),
        ("broken_scaler.py:make", r"importing broken_scaler.py raised AttributeError: .*broken_scaler.py, line 3\)"),
        ("wrong_scaler:make", r"importing wrong_scaler raised SyntaxError: '\(' was never .*wrong_scaler.py, line 2"),
        ("needy_scaler:make", r"importing needy_scaler raised ModuleNotFoundError: No module named 'no_such_thing'"),
        ("script:make", r"importing script raised SystemExit: usage: ... \(\S*script.py, line 2\)"),
        ("delayed", r"delayed: "),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(text, says, folder, monkeypatch):
    monkeypatch.setattr(watchdog, "FIRST_LOOKS", 8)
    with pytest.raises(ValueError, match=says) as error:
        factory_of(text)
    assert "\n" not in str(error.value)


def test_traits_and_expectations():
    assert traits_of([]) == traits_of([""]) == traits_of([" "]) == {}
    assert traits_of(["interval=5,interval=5", "interval=5"]) == {"interval": 5}
    assert traits_of(["power_of_two, interval=2000", "groups"]) == {
        "power_of_two": True,
        "interval": 2000,
        "groups": True,
    }
    assert expected_of(["a = b = c, d"]) == {"a": "b = c, d"}


@pytest.mark.parametrize(
    ("read", "texts", "says"),
    [
        (traits_of, ["power_of_to"], "unknown trait 'power_of_to': did you mean 'power_of_two'?"),
        (traits_of, ["interval"], "trait 'interval' needs a number"),
        (traits_of, ["interval=5,interval=6"], "trait 'interval' is claimed as 5 and as 6: keep one"),
        (
            traits_of,
            ["interval=5", "groups,interval=6"],
            "trait 'interval' is claimed as 5 and as 6: keep one",
        ),
        (
            traits_of,
            [","],
            "traits ',': nothing stands beside a comma; write power_of_two,groups, for example",
        ),
        (traits_of, ["groups,"], "traits 'groups,': nothing stands beside a comma"),
        (traits_of, ["interval=two"], "trait 'interval=two': write a whole number, such as interval=2"),
        (traits_of, ["groups=2"], "trait 'groups=2': it is claimed or not; write groups"),
        (
            traits_of,
            ["interval=-3"],
            "trait 'interval=-3': it is the number of finite steps in a row after which the "
            "scale grows, 1 or more; write interval=2",
        ),
        (traits_of, ["power_of_two interval=5"], "write a comma between two, power_of_two,interval=5"),
        (expected_of, ["a"], "'a': write check=reason, such as"),
        (expected_of, ["=b"], "'=b': write check=reason, such as"),
        (expected_of, ["a=b", "a=c"], "a is expected to fail twice: keep one reason"),
    ],
)
def test_a_mistake_in_them_is_one_line(read, texts, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        read(texts)


def test_a_name_that_a_file_lacks_is_told_with_the_file(tmp_path):
    file = tmp_path / "ä b.py"
    file.write_text("def make(): ...\nX = 3\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r": ä b\.py has no 'mak': did you mean 'make'\?$"):
        factory_of(f"{file}:mak")
    with pytest.raises(ValueError, match="an int is no factory"):
        factory_of(f"{file}:X")


def test_a_trait_without_its_number_says_how_it_is_typed():
    with pytest.raises(ValueError, match="write interval=2, for example"):
        traits_of(["power_of_two,interval"])
