"""Saving and taking up: the same bits as without an interruption, and one line for every file that does not fit."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import BatchNorm1d, CrossEntropyLoss, Dropout, Linear, Module, MSELoss, ReLU, Sequential
from fp16sim.nn.random import streams, uniform_integers
from fp16sim.optim import SGD, Adam
from fp16sim.training import saving
from fp16sim.training.data import Batches, digits
from fp16sim.training.difference import difference
from fp16sim.training.fit import fit, fit_steps
from fp16sim.training.interrupts import deferred_interrupt
from fp16sim.training.models import mlp
from fp16sim.training.results import Step
from fp16sim.training.saving import STATE_FILE, SavedRun, read_run, write_run

DATA = Batches(digits()[0], 32)
DYNAMIC = "torch,init_scale=2**22,growth_interval=3"


def arguments(kind=Adam, data=DATA, seed=0, hidden=16, **options):
    """What a run is made of: it skips steps, grows its scale, and has a state in its optimizer."""
    model = mlp(hidden=hidden, layers=2, seed=seed)
    optimizer = kind(model.parameters(), lr=options.pop("lr", 0.01))
    standard = {"policy": "mixed_float16", "scaler": DYNAMIC, "optimizer": optimizer, "steps": 20}
    return (model, data), standard | options


def trained(**options):
    positional, named = arguments(**options)
    return fit(*positional, **named)


def stopped(folder, after, **options):
    """Take some steps, save, and forget the run."""
    positional, named = arguments(save_to=folder, **options)
    loop = fit_steps(*positional, **named)
    for _ in range(after):
        next(loop)
    loop.save()


# --- the same bits


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "float16", "mixed_bfloat16", "float64"])
@pytest.mark.parametrize("after", [0, 7])
def test_a_run_goes_on_with_the_same_bits(policy, after, tmp_path):
    whole = trained(policy=policy)
    stopped(tmp_path, after, policy=policy)
    resumed = trained(policy=policy, save_to=tmp_path, resume=True)
    assert len(resumed.history) == 20
    assert repr(resumed.history) == repr(whole.history)
    assert resumed.digest == whole.digest == read_run(tmp_path).digest
    assert resumed.scaler == whole.scaler


def test_the_run_that_is_interrupted_skips_and_grows():
    """What the test above takes up is a state that matters."""
    history = trained().history
    assert sum(not step.applied for step in history[:7]) > 0
    assert any(b.scale > a.scale for a, b in zip(history[7:], history[8:], strict=False))


def test_what_is_forgotten_is_noticed(tmp_path):
    """Planted: a state without the optimizer's moments, one without the scaler's counter."""
    whole = trained()
    stopped(tmp_path, 9)
    saved = read_run(tmp_path)
    fresh = arguments()[1]["optimizer"].state_dict()
    write_run(tmp_path, replace(saved, optimizer=fresh))
    assert trained(save_to=tmp_path, resume=True).digest != whole.digest
    state = json.loads(saved.scaler)
    assert state["growth_tracker"] > 0
    write_run(tmp_path, replace(saved, scaler=json.dumps(state | {"growth_tracker": 0})))
    assert trained(save_to=tmp_path, resume=True).digest != whole.digest
    write_run(tmp_path, saved)
    assert trained(save_to=tmp_path, resume=True).digest == whole.digest


def test_accumulation_and_a_schedule_go_on_too(tmp_path):
    rates = []

    def schedule(applied):
        rates.append(applied)
        return 0.02 / (1 + applied)

    options = {"accumulate": 3, "schedule": schedule, "steps": 12}
    whole, asked = trained(**options), list(rates)
    rates.clear()
    stopped(tmp_path, 5, **options)
    resumed = trained(**options, save_to=tmp_path, resume=True)
    assert resumed.digest == whole.digest
    assert (
        rates[:5] + rates[7:] == asked
    )  # a resumption asks for the rate of the last step, of one count or the next
    assert asked[-1] == sum(step.applied for step in whole.history[:-1]) < 11


class Iterable:
    """Batches that can only be read one after the other."""

    def __iter__(self):
        return iter([DATA.at(number) for number in range(4)])


def test_data_without_numbers_is_read_on_to_the_same_place(tmp_path):
    whole = trained(data=Iterable(), steps=10)
    stopped(tmp_path, 6, data=Iterable(), steps=10)
    assert trained(data=Iterable(), steps=10, save_to=tmp_path, resume=True).digest == whole.digest


def test_an_iterator_is_read_on_too(tmp_path):
    endless = lambda: iter([DATA.at(number) for number in range(10)])  # noqa: E731
    whole = trained(data=endless(), steps=10)
    stopped(tmp_path, 6, data=endless(), steps=10)
    assert trained(data=endless(), steps=10, save_to=tmp_path, resume=True).digest == whole.digest


class Counting(Module):
    """A model with a counter and an array in its state."""

    state = ("calls",)

    def __init__(self):
        self.inner = mlp(hidden=8, layers=1)
        self.running = np.zeros(10, np.float32)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.running = self.running + np.float32(self.calls)
        return self.inner(x) * Tensor(self.running)


def test_the_state_of_modules_goes_on(tmp_path):
    def run(steps, **options):
        model = Counting()
        return fit(model, DATA, optimizer=SGD(model.parameters(), lr=1e-4), steps=steps, **options)

    whole = run(6)
    run(4, save_to=tmp_path)
    resumed = run(6, save_to=tmp_path, resume=True)
    assert resumed.digest == whole.digest
    assert resumed.model.calls == 6


def test_counters_of_dropout_and_running_statistics_go_on(tmp_path):
    def run(steps, **options):
        with streams(5):
            model = Sequential(Linear(64, 16), BatchNorm1d(16), ReLU(), Dropout(0.5), Linear(16, 10))
        optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
        return fit(model, DATA, policy="mixed_float16", optimizer=optimizer, steps=steps, **options)

    whole = run(8)
    run(5, save_to=tmp_path)
    resumed = run(8, save_to=tmp_path, resume=True)
    assert resumed.digest == whole.digest
    states = [run.model.state_dict() for run in (whole, resumed)]
    assert {name: array.tobytes() for name, array in states[0].items()} == {
        name: array.tobytes() for name, array in states[1].items()
    }
    assert len(states[0]) > len(whole.model.parameters())


def test_more_steps_are_added_to_a_finished_run(tmp_path):
    whole = trained(steps=9)
    trained(steps=5, save_to=tmp_path)
    assert read_run(tmp_path).finished
    assert trained(steps=9, save_to=tmp_path, resume=True).digest == whole.digest
    again = trained(steps=9, save_to=tmp_path, resume=True)
    assert (again.digest, len(again.history)) == (whole.digest, 9)


SCRIPT = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from fp16sim.optim import Adam
from fp16sim.training.data import Batches, digits
from fp16sim.training.difference import difference
from fp16sim.training.fit import fit
from fp16sim.training.models import mlp

def die(observed):
    if observed.step.step == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)

model = mlp()
run = fit(model, Batches(digits()[0], 64), policy="mixed_float16",
          scaler="torch,init_scale=2**22,growth_interval=5", optimizer=Adam(model.parameters(), lr=0.003),
          steps=24, save_to="run", save_every=5, resume=True, observers=[die])
print(run.digest, len(run.history))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX signal")
def test_a_killed_process_goes_on_from_its_last_saved_step(tmp_path):
    """kill -9 in step 13: the state of step 10 is whole, and its 24 steps have the digest of a run without a kill."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(folder=str(tmp_path)))

    def run(where, dies_at):
        (tmp_path / where).mkdir(exist_ok=True)
        words = [sys.executable, str(script), str(dies_at)]
        return subprocess.run(
            words, cwd=tmp_path / where, capture_output=True, text=True, check=False, timeout=300
        )

    killed = run("killed", 13)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    assert len(read_run(tmp_path / "killed" / "run").history) == 10
    resumed, whole = run("killed", 0), run("whole", 0)
    assert resumed.stdout == whole.stdout != ""
    assert resumed.stdout.split()[1] == "24"


def test_a_kill_while_the_state_is_written_leaves_the_one_before(tmp_path, monkeypatch):
    stopped(tmp_path, 3)
    before = (tmp_path / STATE_FILE).read_bytes()

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", die)
    with pytest.raises(KeyboardInterrupt):
        trained(save_to=tmp_path, resume=True, save_every=1)
    assert (tmp_path / STATE_FILE).read_bytes() == before


# --- when the state is written


def test_it_is_saved_every_so_many_steps_and_at_the_end(tmp_path):
    positional, named = arguments(save_to=tmp_path / "run", save_every=4, steps=10)
    found = []
    for step in fit_steps(*positional, **named):
        path = tmp_path / "run" / STATE_FILE
        found.append((step.step, len(read_run(tmp_path / "run").history) if path.exists() else 0))
    expected = [0, 0, 0, 4, 4, 4, 4, 8, 8, 10]
    assert found == list(enumerate(expected, 1))


def test_without_save_every_it_is_saved_at_the_end(tmp_path):
    positional, named = arguments(save_to=tmp_path, steps=3)
    loop = fit_steps(*positional, **named)
    next(loop)
    assert not (tmp_path / STATE_FILE).exists()
    assert len(list(loop)) == 2
    assert read_run(tmp_path).finished


def test_the_same_run_gives_the_same_file(tmp_path):
    for name in ("a", "b"):
        trained(steps=3, save_to=tmp_path / name)
    assert (tmp_path / "a" / STATE_FILE).read_bytes() == (tmp_path / "b" / STATE_FILE).read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is a POSIX signal")
def test_ctrl_c_saves_between_two_steps(tmp_path, monkeypatch):
    def press(observed):
        if observed.step.step == 6:
            os.kill(os.getpid(), signal.SIGINT)

    whole = trained()
    with pytest.raises(KeyboardInterrupt, match=r"saved at step 6 in .*: go on with resume=True"):
        trained(save_to=tmp_path, observers=[press])
    assert len(read_run(tmp_path).history) == 6
    assert trained(save_to=tmp_path, resume=True).digest == whole.digest


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is a POSIX signal")
class TestInterrupts:
    def test_the_second_one_interrupts_at_once(self):
        before = signal.getsignal(signal.SIGINT)
        reached = []

        def press_twice():
            with deferred_interrupt() as interrupted:
                reached.append(interrupted())
                os.kill(os.getpid(), signal.SIGINT)
                reached.append(interrupted())
                os.kill(os.getpid(), signal.SIGINT)
                reached.append("too late")

        with pytest.raises(KeyboardInterrupt):
            press_twice()
        assert reached == [False, True]
        assert signal.getsignal(signal.SIGINT) is before

    def test_another_thread_leaves_signals_alone(self):
        found = []

        def work():
            with deferred_interrupt() as interrupted:
                found.append((interrupted(), signal.getsignal(signal.SIGINT)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == [(False, signal.getsignal(signal.SIGINT))]

    def test_an_ignored_signal_stays_ignored(self, monkeypatch):
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with deferred_interrupt():
                assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGINT, before)


# --- what does not fit


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": "float16"}, "saved with policy name mixed_float16, and now it is float16"),
        (
            {"policy": Policy("mixed_float16", matmul="h100")},
            "saved with policy matmul float32, and now it is h100",
        ),
        ({"scaler": DYNAMIC[:-1] + "4"}, "saved with scaler growth_interval 3, and now it is 4"),
        ({"scaler": "none"}, "saved with scaler torch, and now it is none"),
        ({"kind": SGD}, "saved with optimizer Adam, and now it is SGD"),
        ({"lr": 0.02}, "saved with optimizer lr 0.01, and now it is 0.02"),
        ({"accumulate": 2}, "saved with accumulate 1, and now it is 2"),
        ({"clip_norm": 1.0}, "saved with clip_norm None, and now it is 1.0"),
        ({"loss_factor": 0.5}, "saved with loss_factor 1.0, and now it is 0.5"),
        ({"measure": False}, "saved with measure True, and now it is False"),
        ({"hidden": 24}, "the state of another model"),
        (
            {"data": Batches(digits()[0], 32, seed=1)},
            "batch 4 of the data is not what the run .* was trained on",
        ),
        ({"steps": 4}, "saved at step 5, and steps=4: ask for 5 steps or more"),
    ],
)
def test_a_run_of_other_settings_is_refused_in_one_line(options, says, tmp_path):
    stopped(tmp_path, 5)
    before = (tmp_path / STATE_FILE).read_bytes()
    positional, named = arguments(save_to=tmp_path, resume=True, **options)
    weights = [p.data.tobytes() for p in positional[0].to(Policy("float32").parameters).parameters()]
    with pytest.raises(ValueError, match=says) as caught:
        fit(*positional, **named)
    assert "\n" not in str(caught.value)
    assert (tmp_path / STATE_FILE).read_bytes() == before
    if options.get("policy") != "float16":
        assert [p.data.tobytes() for p in positional[0].parameters()] == weights


def values_of(model, optimizer):
    """Give every value of both with its dtype, to see whether a refusal has left them alone."""
    state = model.state_dict() | {f"optimizer {k}": np.asarray(v) for k, v in optimizer.state_dict().items()}
    return {name: (array.dtype, array.tobytes()) for name, array in state.items()}


def without_moments(saved):
    del saved.optimizer["Adam.second.1"], saved.optimizer["Adam.lr"]
    return saved


def negative_steps(saved):
    saved.optimizer["Adam.steps.2"] = -1
    return saved


def another_bit(saved):
    saved.model["2.bias"].view(np.uint16)[0] ^= 1
    return saved


@pytest.mark.parametrize(
    ("edit", "options", "says"),
    [
        (lambda saved: saved, {"lr": 0.02}, "optimizer lr"),
        (lambda saved: saved, {"hidden": 24}, "the state of another model"),
        (without_moments, {}, "the state lacks 'Adam.lr'"),
        (negative_steps, {}, r"Adam\.steps\.2=-1 in the state: it counts steps"),
        (another_bit, {}, "holds other weights or another history than the run of digest"),
        (
            lambda saved: replace(saved, history=(*saved.history[:-1], replace(saved.history[-1], loss=0.0))),
            {},
            "another history",
        ),
        (lambda saved: replace(saved, scaler='{"scaler": "torch"}'), {}, "the state of torch lacks"),
    ],
)
def test_a_refusal_changes_nothing(edit, options, says, tmp_path):
    common = {"policy": "float16", "scaler": "torch,init_scale=8"}
    stopped(tmp_path, 5, **common)
    write_run(tmp_path, edit(read_run(tmp_path)))
    positional, named = arguments(save_to=tmp_path, resume=True, **common, **options)
    before = values_of(positional[0], named["optimizer"])
    with pytest.raises((ValueError, TypeError), match=says) as caught:
        fit(*positional, **named)
    assert "\n" not in str(caught.value)
    assert values_of(positional[0], named["optimizer"]) == before


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_in_place_of_the_file(resume, tmp_path):
    (tmp_path / STATE_FILE).mkdir()
    with pytest.raises(
        IsADirectoryError, match="is a folder: the state of a run is a file of that name; remove"
    ):
        trained(save_to=tmp_path, resume=resume)


@pytest.mark.parametrize("name", ["", "  "])
def test_a_folder_without_a_name(name):
    with pytest.raises(ValueError, match=r"save_to='.*': the state goes into a folder; name one"):
        trained(save_to=name)


def test_a_model_of_the_same_shapes_and_other_names_is_refused(tmp_path):
    class Wrapped(Module):
        def __init__(self, model):
            self.model = model

        def forward(self, x):
            return self.model(x)

    stopped(tmp_path, 5)
    (model, data), named = arguments(save_to=tmp_path, resume=True)
    with pytest.raises(ValueError, match="saved with model Sequential, and now it is Wrapped"):
        fit(Wrapped(model), data, **named)


def test_an_unfinished_run_is_not_written_over(tmp_path):
    stopped(tmp_path, 5)
    before = (tmp_path / STATE_FILE).read_bytes()
    with pytest.raises(
        FileExistsError, match=r"saved at step 5 of 20: resume it \(resume=True\), remove it, or name"
    ):
        trained(save_to=tmp_path)
    assert (tmp_path / STATE_FILE).read_bytes() == before
    trained(save_to=tmp_path, resume=True)
    trained(save_to=tmp_path, steps=2)  # a finished one may be replaced
    assert len(read_run(tmp_path).history) == 2


def test_resuming_nothing_begins(tmp_path):
    assert trained(steps=2, save_to=tmp_path / "new", resume=True).digest == trained(steps=2).digest


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "empty", "other archive"])
def test_a_damaged_file_is_one_line(damage, tmp_path):
    stopped(tmp_path, 5)
    path = tmp_path / STATE_FILE
    content = path.read_bytes()
    middle = content.index(b'"fp16sim state"')
    if damage == "other archive":
        with path.open("wb") as file:
            np.savez(file, weights=np.zeros(3))
    else:
        path.write_bytes(
            {
                "cut": content[:middle],
                "flipped": content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :],
                "text": b"not a state",
                "empty": b"",
            }[damage]
        )
    with pytest.raises(
        ValueError, match=r"state.npz is no whole saved run .*: remove it and start"
    ) as caught:
        trained(save_to=tmp_path, resume=True)
    assert "\n" not in str(caught.value)
    assert "trust" not in str(caught.value)  # NumPy's advice for a pickle
    trained(save_to=tmp_path, steps=2)  # nothing is lost
    assert len(read_run(tmp_path).history) == 2


def test_a_byte_changed_anywhere_is_noticed_or_changes_nothing(tmp_path):
    """Two hundred places: one line, or a byte of the archive that says nothing, such as a file mode."""
    stopped(tmp_path, 3)
    path = tmp_path / STATE_FILE
    content, before = path.read_bytes(), read_run(tmp_path)
    said = []
    for draw in uniform_integers(11, 200).tolist():
        place = draw * len(content) >> 24
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 + draw % 255)]) + content[place + 1 :])
        try:
            found = read_run(tmp_path)
        except ValueError as error:
            said.append(str(error))
            continue
        assert difference(found, before) is None
        assert repr(replace(found, model={}, optimizer={})) == repr(replace(before, model={}, optimizer={}))
    assert len(said) > 150
    assert all("\n" not in each and len(each) < 300 for each in said)


def test_another_version_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "VERSION", 2)
    stopped(tmp_path, 2)
    monkeypatch.undo()
    with pytest.raises(
        ValueError, match="version 2 of the format and this fp16sim reads version 1: go on with"
    ):
        trained(save_to=tmp_path, resume=True)


def test_a_folder_without_a_run():
    with pytest.raises(FileNotFoundError, match=r"nowhere holds no saved run \(state.npz\)"):
        read_run("nowhere")


def test_a_step_that_was_broken_off_is_not_saved(tmp_path):
    class Breaking(SGD):
        def moved(self, position, *arguments):
            if position == 3:
                raise KeyboardInterrupt
            return super().moved(position, *arguments)

    stopped(tmp_path, 4, kind=SGD, scaler="none")
    positional, named = arguments(kind=SGD, scaler="none", save_to=tmp_path, resume=True)
    loop = fit_steps(*positional, **named)
    loop._optimizer.__class__ = Breaking
    with pytest.raises(KeyboardInterrupt):
        next(loop)
    with pytest.raises(RuntimeError, match="step 5 was broken off inside"):
        loop.save()
    assert len(read_run(tmp_path).history) == 4


@dataclass(frozen=True)
class Halving:
    """A scaler that is a dataclass and no more, with a tuple and an infinity in its state."""

    scale: float = 2.0**24
    seen: tuple[float, ...] = (math.inf,)
    steps: int = field(default=0, init=False)

    def update(self, observation):
        scale = self.scale / 2 if observation.overflowed else self.scale
        following = Halving(scale, (*self.seen, self.scale))
        object.__setattr__(following, "steps", self.steps + 1)
        return following, scaling.Decision(not observation.overflowed, self.scale)


def test_a_dataclass_is_a_scaler_that_is_saved(tmp_path):
    whole = trained(scaler=Halving())
    stopped(tmp_path, 7, scaler=Halving())
    again = trained(scaler=Halving(), save_to=tmp_path, resume=True)
    assert again.digest == whole.digest
    assert again.scaler == whole.scaler
    assert again.scaler.steps == 20
    assert again.scaler.scale < 2.0**24


def test_scalers_that_would_not_be_read_back_are_refused_before_the_first_step(tmp_path):
    @dataclass(frozen=True)
    class Holding(Halving):
        what: object = None

    @dataclass(frozen=True)
    class Doubling(Halving):
        def __post_init__(self):
            object.__setattr__(self, "scale", 2 * self.scale)

    class Written(Halving):
        def to_json(self):
            return "{}"

    for scaler, message in (
        (Holding(what=object()), "a Holding cannot be saved .*define to_json"),
        (Doubling(), "a Doubling is another one when it is read back"),
        (Written(), "a Written has to_json and no from_state"),
    ):
        with pytest.raises(TypeError, match=message):
            trained(scaler=scaler, save_to=tmp_path)


def test_what_cannot_be_saved_is_refused_before_the_first_step(tmp_path):
    class Bare:
        scale = 1.0

        def update(self, observation):
            return self, scaling.Decision(True, 1.0)

    with pytest.raises(TypeError, match="a Bare has no to_json, so the run cannot be saved"):
        trained(scaler=Bare(), save_to=tmp_path)
    with pytest.raises(ValueError, match="pass save_to="):
        trained(save_every=3)
    with pytest.raises(ValueError, match="pass save_to="):
        trained(resume=True)
    with pytest.raises(ValueError, match="save_every=0"):
        trained(save_every=0, save_to=tmp_path)
    positional, named = arguments()
    with pytest.raises(ValueError, match="nowhere to save to"):
        fit_steps(*positional, **named).save()


def test_a_parent_folder_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="mkdir -p"):
        trained(save_to=tmp_path / "no" / "run", observers=[lambda _: pytest.fail("it trains")])


# --- the file itself


def test_every_bit_of_every_format_comes_back(tmp_path):
    patterns = np.arange(2**16, dtype=np.uint16)
    model = {
        "half": patterns.view(np.float16),
        "brain": patterns.view(ml_dtypes.bfloat16),
        "single": np.uint32([0, 0x80000000, 1, 0x7FC00001, 0x7F800000]).view(np.float32),
        "double": np.array([[5e-324, -0.0]]),
        "calls": np.array(3),
    }
    steps = (
        Step(1, float("nan"), 65536.0, False, True, 0.1, 0.2, 0.7),
        Step(2, 5e-324, float("inf"), True, False, float("nan"), -0.0, 1 / 3),
    )
    optimizer = {
        "X.lr": 0.1,
        "X.flag": True,
        "X.count": 7,
        "X.velocity.0": model["half"],
        "X.eps": np.float64(1e-8),
    }
    before = SavedRun({"a": None, "b": 1.5}, 9, 1, 2, "ab", '{"x": 1}', "cd", model, optimizer, steps)
    write_run(tmp_path, before)
    after = read_run(tmp_path)
    for name, array in model.items():
        found = after.model[name]
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert repr(after.history) == repr(steps)
    assert [type(value) for value in vars(after.history[0]).values()] == [
        int,
        *[float] * 2,
        *[bool] * 2,
        *[float] * 3,
    ]
    assert after.optimizer.pop("X.velocity.0").tobytes() == model["half"].tobytes()
    assert after.optimizer == {"X.lr": 0.1, "X.flag": True, "X.count": 7, "X.eps": 1e-8}
    assert (after.settings, after.steps, after.applied, after.batches) == ({"a": None, "b": 1.5}, 9, 1, 2)
    assert (after.last_batch, after.scaler, after.digest, after.finished) == ("ab", '{"x": 1}', "cd", False)


def test_a_fingerprint_sees_dtype_shape_and_every_bit():
    batch = (np.float32([[0.0, 1.0]]), np.array([1]))
    others = [
        (np.float32([[-0.0, 1.0]]), np.array([1])),
        (np.float32([0.0, 1.0]), np.array([1])),
        (np.float16([[0.0, 1.0]]), np.array([1])),
        (np.float32([[0.0, 1.0]]), np.array([2])),
        ((np.float32([[0.0, 1.0]]), np.array([1])), np.array([1])),
        (np.float32([[0.0, 1.0]]), None),
    ]
    found = {saving.fingerprint(each) for each in (batch, *others)}
    assert len(found) == 7
    assert saving.fingerprint((Tensor(batch[0]), [1])) == saving.fingerprint(batch)


def test_nothing_of_an_interrupted_write_stays(tmp_path):
    stopped(tmp_path, 1)
    assert [path.name for path in Path(tmp_path).iterdir()] == [STATE_FILE]


def dropping(p=0.5, seed=0, loss=None, rate=None):
    """A run whose bits depend on what is in no array."""
    with streams(seed):
        model = Sequential(Linear(64, 8), Dropout(p), ReLU(), Linear(8, 10))
    options = {"loss_function": loss, "schedule": None if rate is None else lambda applied: rate}
    return (model, DATA), {"optimizer": SGD(model.parameters(), lr=0.1), "steps": 4} | options


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 7}, r"saved with layer '1' stream \[0, 1\], and now it is \[7, 1\]"),
        ({"p": 0.25}, "saved with layer '1' p 0.5, and now it is 0.25"),
        ({"loss": MSELoss()}, "saved with loss_function CrossEntropyLoss, and now it is MSELoss"),
        ({"loss": CrossEntropyLoss(0.1)}, "saved with loss_function label_smoothing 0.0, and now it is 0.1"),
        ({"rate": 0.2}, "saved with a rate of 0.1 at step 2, and the schedule gives 0.2"),
    ],
)
def test_what_stands_in_no_array_is_compared_too(change, says, tmp_path):
    standard = {"rate": 0.1} if "rate" in change else {}
    positional, named = dropping(**standard)
    loop = fit_steps(*positional, save_to=tmp_path, **named)
    for _ in range(2):
        next(loop)
    loop.save()
    positional, named = dropping(**standard | change)
    with pytest.raises(ValueError, match=says):
        fit(*positional, save_to=tmp_path, resume=True, **named)
    positional, named = dropping(**standard)
    assert len(fit(*positional, save_to=tmp_path, resume=True, **named).history) == 4
