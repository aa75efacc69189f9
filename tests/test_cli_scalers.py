"""`fp16sim scalers`: the list, the table of traces, the picture, and misuse."""

import io
import json
import re
import subprocess
import sys

import pytest

from fp16sim import scaling
from fp16sim.cli import main

OPEN_LOOP = (
    "A history is an open loop: it says which steps overflow, and under another scale others might have. "
    'fs.scaling.simulate("torch", peaks) closes it, by log2 of the largest gradient of each step.'
)


def printed(capsys: pytest.CaptureFixture[str], *words: str, says: str = "", code: int = 0) -> str:
    assert main(["scalers", *words]) == code
    captured = capsys.readouterr()
    assert captured.err == says
    return captured.out


def table(text: str) -> dict[str, list[str]]:
    return {
        line.split()[0]: line.split()[1:]
        for line in text.splitlines()
        if re.match(r"[a-z]\w*(,\S+)?  ", line)
    }


def test_the_list_has_every_scaler_with_its_options_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys)
    for name in scaling.names():
        assert re.search(rf"^{name}: \w", text, re.MULTILINE), name
    assert "    init_scale=65536, growth_factor=2, backoff_factor=0.5, growth_interval=2000\n" in text
    assert "    no options\n" in text
    data = json.loads(printed(capsys, "--json"))["scalers"]
    assert [each["name"] for each in data] == scaling.names()
    torch = next(each for each in data if each["name"] == "torch")
    assert torch["window"] == "growth_interval"
    assert torch["options"] == {
        "init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000,
    }  # fmt: skip


HALVING = "32768 16384 16384 32768 32768 16384 16384"
FROM_2_15 = "16384 8192 8192 16384 16384 8192 8192"
FROM_2_24 = "2^23 2^22 2^22 2^23 2^23 2^22 2^22"
# The scale after each step of oo...o. with W = 2, as the frameworks were seen to give it; for oneflow, robust and
# openseq2seq_backoff by their rules.
TRACES = {
    **dict.fromkeys(("torch", "torch_fsdp", "paddle", "apex", "oneflow", "robust"), HALVING),
    "deepspeed": "65536 32768 32768 32768 65536 65536 65536",
    "deepspeed,hysteresis=1": "32768 16384 16384 16384 32768 16384 16384",
    "deepspeed_unfused": "32768 16384 16384 16384 32768 16384 16384",
    "megatron": "2^32 2^31 2^31 2^32 2^32 2^32 2^32",
    **dict.fromkeys(("keras3", "keras2", "tf_v1", "jmp", "fairseq"), FROM_2_15),
    "flax": "32768 16384 16384 16384 32768 16384 16384",
    **dict.fromkeys(("mindspore_manager", "mindspore_amp", "mindspore_cell"), FROM_2_24),
    "mxnet": "65536 32768 16384 16384 32768 32768 16384",
    "chainer": "1 1 1.41421 2 2.82843 1.41421 2",
    "apex_fp16utils": "2^31 2^30 2^30 2^31 2^31 2^30 2^30",
    "colossalai": "65536 32768 32768 65536 65536 65536 65536",
    "metaseq": "2 1 2 4 4 2 2",
    "guided_diffusion": "2^19 2^18 262326 262508 262690 131345 131436",
    "openseq2seq_backoff": "8192 4096 4096 8192 8192 4096 4096",
    "static": " ".join(["1024"] * 7),
    "none": " ".join(["1"] * 7),
}


def test_the_traces_of_all_on_one_history(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(printed(capsys, "oo...o.", "--window", "2"))
    rows |= table(printed(capsys, "oo...o.", "--window", "2", "--scaler", "deepspeed,hysteresis=1"))
    assert {name: " ".join(cells[1:]) for name, cells in rows.items()} == TRACES
    assert rows["torch"][0] == "65536"


def test_what_a_table_of_scales_does_not_show_stands_below(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "oo...o.", "--window", "2")
    assert "deepspeed: step 5 multiplies by 32768 and divides by 65536\n" in text
    assert "none: applies step 1, though it is not finite\n" in text
    assert "fairscale_layerwise: no trace, it has a scale for each layer or tensor\n" in text
    stops = printed(capsys, "ooo", "--scaler", "fairseq,min_loss_scale=10000")
    assert "stops at step 2: FloatingPointError: minimum loss scale reached (10000" in stops
    assert table(stops)["fairseq,min_loss_scale=10000"] == ["32768", "16384", "16384", "-"]


def test_a_window_of_ones_own_stays(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("....", "--window", "2", "--scaler", "torch", "--scaler", "torch,growth_interval=4", "--json")
    data = json.loads(printed(capsys, *words))
    assert [each["options"]["growth_interval"] for each in data["scalers"]] == [2, 4]
    assert data["scalers"][1]["after"] == [65536.0, 65536.0, 65536.0, 131072.0]
    assert data["scalers"][0]["scale"] == [65536.0, 65536.0, 131072.0, 131072.0]
    assert (data["history"], data["window"]) == ("....", 2)


def test_a_long_history_is_shown_by_its_changes(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "o" + "." * 40, "--window", "20", "--scaler", "torch")
    assert "\ntorch  65536  1: 32768  21: 65536  41: 2^17\n" in text


def test_changes_step_after_step_are_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("ooo..o...ooooo.......", "--window", "1")
    text = printed(
        capsys, *words, "--scaler", "torch", "--scaler", "chainer", "--scaler", "deepspeed,hysteresis=1"
    )
    assert text.splitlines()[2:5] == [
        "torch                   65536  1-3: halved to 8192  4: 16384  5: 32768  6: 16384  7-9: doubled to 2^17  "
        "10-14: halved to 4096  15-21: doubled to 2^19",
        "chainer                 1  4: 2  5: 4  6: 2  7-9: doubled to 16  10-13: halved to 1  15-21: doubled to 128",
        "deepspeed,hysteresis=1  65536  1-3: halved to 8192  5: 16384  6: 8192  8: 16384  9: 32768  "
        "10-14: halved to 1024  16-21: doubled to 65536",
    ]
    rises = printed(capsys, "." * 40, "--scaler", "guided_diffusion")
    assert "\nguided_diffusion  2^20  1-40: raised to 1.07806e+06\n" in rises


def test_what_would_be_a_long_row_is_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("(o.{30}){30}o{170}.", "--window", "20")
    names = ("torch", "robust", "static", "fairseq", "own")
    text = printed(capsys, *words, *(word for name in names[:4] for word in ("--scaler", name)))
    assert text.splitlines() == [
        "The 1101 steps of (o.{30}){30}o{170}. with a window of 20:",
        "",
        "         applied  skipped  lowest  highest  last scale",
        "torch        901      200       0    65536           0  0 after step 1096",
        "robust       900       87   2^-16    65536       2^-16  stops at step 987",
        "static       901      200    1024     1024        1024",
        "fairseq      900       59   2^-13    32768       2^-13  stops at step 959",
        "",
        "torch: the scale is 2^-128 after step 1074, its reciprocal infinite in float32: no gradient unscaled by it is "
        "finite",
        "torch: the scale is 0 after step 1096: no gradient unscaled by it is finite, and step 1101 is applied",
        "robust: stops at step 987: gradients overflow at the smallest loss scale, 1.52588e-05, 25 steps in a row: no "
        "scale within the bounds cures this; lower the learning rate, or min_scale, or look for what is not finite",
        "fairseq: stops at step 959: FloatingPointError: minimum loss scale reached (0.0001)",
        "",
        OPEN_LOOP,
    ]
    everything = json.loads(printed(capsys, *words, "--scaler", "torch", "--json"))["scalers"][0]
    assert len(everything["after"]) == len(everything["applied"]) == 1101


def test_a_long_history_is_written_up_to_a_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    runs = "".join(f"o.{{{length}}}" for length in range(10, 70))
    text = printed(capsys, runs, "--scaler", "torch")
    (head,) = re.findall(r"^The \d+ steps of (.*):$", text, re.MULTILINE)
    assert runs.startswith(head.removesuffix(" ..."))
    assert re.fullmatch(r"(o\.\{\d+\})*o? \.\.\.", head)
    assert 190 <= len(head) <= 200


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["o{170}...", "torch"], [
            "the scale is 2^-128 after step 144, its reciprocal infinite in float32: no gradient unscaled by it is "
            "finite",
            "the scale is 0 after step 166: no gradient unscaled by it is finite, and step 171 is applied",
        ]),
        (["o{166}", "torch"], [
            "the scale is 2^-128 after step 144, its reciprocal infinite in float32: no gradient unscaled by it is "
            "finite",
            "the scale is 0 after step 166: no gradient unscaled by it is finite",
        ]),
        (["o{165}", "keras3"], ["the scale is 0 after step 165: no gradient unscaled by it is finite"]),  # it divides
        (["o{164}.", "keras3"], []),
        (["....", "keras2,dynamic_growth_steps=1,initial_scale=2**126"], []),  # it grows no more
        (["....", "apex_fp16utils,scale_window=1,init_scale=2**126"], [
            "the scale is 2^128 after step 2, infinite in float32: no gradient unscaled by it is finite, and step 3 is "
            "applied",
        ]),
        (["....", "apex_fp16utils,scale_window=1,init_scale=2**1023"], [
            "the scale is 2^1023 from the start, infinite in float32: no gradient unscaled by it is finite, and step 1 "
            "is applied",
            "the scale is inf after step 1: no gradient unscaled by it is finite, and step 2 is applied",
        ]),
        ([".", "torch,init_scale=2**-149"], [
            "the scale is 2^-149 from the start, its reciprocal infinite in float32: no gradient unscaled by it is "
            "finite, and step 1 is applied",
        ]),
        (["o...", "apex,init_scale=2**-149,scale_window=1"], [
            "the scale is 2^-149 from the start, its reciprocal infinite in float32: no gradient unscaled by it is "
            "finite, and step 3 is applied",
            "the scale is 2^-150 after step 1, zero in float32: no gradient unscaled by it is finite, and step 2 is "
            "applied",
        ]),
    ],
)  # fmt: skip
def test_a_scale_that_is_none_is_said(
    words: list[str], says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, words[0], "--scaler", words[1])
    assert [line for line in text.splitlines() if "no gradient" in line] == [
        f"{words[1]}: {each}" for each in says
    ]


def test_json_has_what_the_notes_say(capsys: pytest.CaptureFixture[str]) -> None:
    (data,) = json.loads(printed(capsys, "o{170}...", "--scaler", "torch", "--json"))["scalers"]
    assert data["not_finite"] == [
        {"after": 144, "scale": 2.0**-128, "why": "its reciprocal infinite in float32", "applied": []},
        {"after": 166, "scale": 0.0, "why": "the scale itself", "applied": [171, 172, 173]},
    ]
    assert (data["start"], data["stop"], data["failure"]) == (65536.0, None, None)
    (data,) = json.loads(printed(capsys, "..", "--scaler", "torch", "--json"))["scalers"]
    assert data["not_finite"] == []


OWN = """
from fp16sim.scaling import Decision


class Quarter:
    def __init__(self, scale=8.0):
        self.scale = scale

    def update(self, observation):
        print("a scaler that talks")
        return Quarter(self.scale * (0.25 if observation.overflowed else 2)), Decision(True, self.scale)


class InPlace:
    scale = 1024

    def update(self, observation):
        self.scale //= 2
        return self, Decision(True, self.scale)


class Raises(Quarter):
    def update(self, observation):
        return self.nothing


class Exits(Quarter):
    def update(self, observation):
        if observation.overflowed:
            raise SystemExit(0)
        return Exits(self.scale), Decision(True, self.scale)


class Hangs(Quarter):
    def update(self, observation):
        while observation.overflowed:
            pass
        return Hangs(self.scale), Decision(True, self.scale)


class GivesNone(Quarter):
    def update(self, observation):
        return None


class NoBool(Quarter):
    def update(self, observation):
        return self, Decision(None, self.scale)


class Text(Quarter):
    def update(self, observation):
        return self, Decision(True, "8")


class NoScale:
    @property
    def scale(self):
        raise SystemExit(0)

    def update(self, observation):
        return self, Decision(True, 8.0)


class TwoScales:
    scale = {"a": 8.0, "b": 8.0}

    def update(self, observation):
        return self, Decision(True, self.scale)


class Twice:
    made = 0

    def __init__(self):
        Twice.made += 1
        assert Twice.made < 2, "one is enough"
        self.scale = 8.0

    def update(self, observation):
        return self, Decision(True, self.scale)


class TorchLike:
    def scale(self, loss): ...
    def step(self, optimizer): ...
    def update(self): ...
"""


@pytest.fixture
def own(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "own_to_trace.py").write_text(OWN)
    yield tmp_path / "own_to_trace.py"
    for name in [name for name in sys.modules if name.startswith("fp16sim_checks_own_to_trace")]:
        del sys.modules[name]


def test_ones_own_beside_others(own, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        word for name in ("Quarter", ":InPlace", "Raises") for word in ("--scaler", f"own_to_trace.py:{name}")
    ]
    assert main(["scalers", "oo.", *words, "--scaler", "torch"]) == 1  # Raises was not taken through
    captured = capsys.readouterr()
    assert captured.out.splitlines()[2:] == [
        "                                     o      o      .",
        "own_to_trace.py:Quarter       8      2   2^-1      1",
        "own_to_trace.py::InPlace   1024    512    256    128",
        "own_to_trace.py:Raises        8      -      -      -",
        "torch                     65536  32768  16384  16384",
        "",
        "own_to_trace.py:Quarter: applies step 1, though it is not finite",
        "own_to_trace.py::InPlace: step 1 multiplies by 1024 and divides by 512",
        "own_to_trace.py::InPlace: applies step 1, though it is not finite",
        "own_to_trace.py:Raises: fails at step 1: AttributeError: 'Raises' object has no attribute 'nothing' "
        f"({own}, line 24)",
        "",
        OPEN_LOOP,
    ]
    assert set(captured.err.splitlines()) == {"a scaler that talks"}
    assert main(["scalers", "oo.", *words[:2], "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["scalers"][0]
    assert (data["name"], data["after"], data["options"]) == ("own_to_trace.py:Quarter", [2.0, 0.5, 1.0], {})
    assert main(["scalers", *words[:2]]) == 0
    assert capsys.readouterr().out.startswith("own_to_trace.py:Quarter\n    no options\n")


def test_a_scaler_that_fails_shows_how_far_it_came_and_gives_exit_code_1(
    own, capsys: pytest.CaptureFixture[str]
) -> None:
    gives = "a scaler gives the next one and a decision; return self, fs.scaling.Decision(apply=not"
    for name, cells, says in (
        (
            "Exits",
            "8 8 8 -",
            "fails at step 3: TypeError: Exits.update raised SystemExit(0): the process is not",
        ),
        ("Hangs", "8 8 8 -", "fails at step 3: Hangs.update does not return"),
        ("GivesNone", "8 - - -", f"fails at step 1: TypeError: GivesNone.update gave None: {gives}"),
        (
            "NoBool",
            "8 - - -",
            "fails at step 1: TypeError: NoBool.update decided apply=None: it is True or False",
        ),
        (
            "Text",
            "8 - - -",
            "fails at step 1: TypeError: Text.update decided divide_by='8': a scale is a number",
        ),
        ("NoScale", "", f"no trace, SystemExit: 0 ({own}, line "),
    ):
        label = f"own_to_trace.py:{name}"
        text = printed(capsys, "..o", "--scaler", label, code=1)
        assert [
            " ".join(line.split()[1:]) for line in text.splitlines() if line.startswith(f"{label}  ")
        ] == [*[cells] * bool(cells)]
        assert f"\n{label}: {says}" in text, name
    (data,) = json.loads(printed(capsys, "..o", "--scaler", "own_to_trace.py:Exits", "--json", code=1))[
        "scalers"
    ]
    assert data["after"] == [8.0, 8.0]
    assert data["failure"]["step"] == 3
    assert data["failure"]["says"].startswith("TypeError: Exits.update raised SystemExit(0)")
    (data,) = json.loads(printed(capsys, "..o", "--scaler", "own_to_trace.py:NoScale", "--json", code=1))[
        "scalers"
    ]
    assert (data["start"], data["after"], data["failure"]["step"]) == (None, [], 1)


def test_what_has_several_scales_is_no_failure(own, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--scaler", "own_to_trace.py:TwoScales", "--scaler", "openseq2seq_logmax")
    assert printed(capsys, "..o", *words).splitlines() == [
        "The scale after each step of ..o, from the initial scale on:",
        "",
        "own_to_trace.py:TwoScales: no trace, it has a scale for each layer or tensor",
        "openseq2seq_logmax: no trace, it depends on the size of every gradient, which no history tells: "
        'fs.scaling.simulate("openseq2seq_logmax", peaks)',
        "",
        OPEN_LOOP,
    ]


def test_a_factory_that_works_once(own, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scalers", "oo.", "--scaler", "own_to_trace.py:Twice"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "own_to_trace.py:Twice: called a second time: AssertionError: one is enough (" in line


WITHOUT_HYPOTHESIS = """
import importlib.util
import sys


class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hypothesis":
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Refuses())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "hypothesis" else found(name, *more)
from fp16sim.cli import main

sys.exit(main(["scalers", "..o", "--scaler", "own_to_trace.py:Quarter", "--scaler", "own_to_trace.py:Hangs"]))
"""


def test_hypothesis_is_not_needed(own) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_HYPOTHESIS], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "own_to_trace.py:Hangs: fails at step 3: Hangs.update does not return" in ran.stdout
    assert set(ran.stderr.splitlines()) == {"a scaler that talks"}


def test_a_history_from_a_file(tmp_path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "last night.txt"
    file.write_text("\ufeffoo .\r\n\t.{2}\n\no.\n", encoding="utf-8")
    typed = printed(capsys, "oo...o.", "--scaler", "torch")
    assert printed(capsys, "--history", str(file), "--scaler", "torch") == typed
    for words in (("-",), ("--history", "-")):
        monkeypatch.setattr(sys, "stdin", io.StringIO("oo..\n.o.\n"))
        assert printed(capsys, *words, "--scaler", "torch") == typed
    file.write_text("." * 140_000)
    text = printed(capsys, "--history", str(file), "--scaler", "torch")
    assert text.startswith("The 140000 steps of .{140000}:\n") or "\ntorch  65536  2000: 2^17" in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"...\n..x\n", "h.txt: line 2: 'x' in a history: write one character a step"),
        (b"...\n..(o\n", "h.txt: '.....(o': "),
        (b" \n", "h.txt: an empty history"),
        (b"o|o", "h.txt: '|' in a history"),
        (b"\xff\xfe\x80", "--history h.txt: it is no text"),
        (
            None,
            "--history h.txt cannot be read (No such file or directory): name a file that holds a history",
        ),
        (b"." * 500 + b"(", f"h.txt: '{'.' * 40}...': "),
    ],
)
def test_a_file_that_holds_no_history(
    content: bytes | None, says: str, tmp_path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "h.txt").write_bytes(content)
    assert main(["scalers", "--history", "h.txt"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fp16sim: {says}")
    assert len(line) < 300


def test_what_is_no_value_is_not_traced(own, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scalers", "oo.", "--scaler", "own_to_trace.py:TorchLike"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "fp16sim: --scaler: own_to_trace.py:TorchLike: a TorchLike cannot be traced, only an object"
    )
    assert line.endswith("fp16sim scalers --check own_to_trace.py:TorchLike tests it")


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_picture(suffix: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"traces.{suffix}"
    words = ("oo...o.n", "--window", "2", "--scaler", "torch", "--scaler", "fairseq,min_loss_scale=10000")
    printed(capsys, *words, "--plot", str(path), says=f"wrote {path}\n")
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    printed(capsys, *words, "--plot", str(path), says=f"wrote {path}\n")
    assert path.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["o.x"], "'x' in a history: write one character a step"),
        ([""], "an empty history"),
        (["oo", "--window", "0"], "--window 0: it counts finite steps; choose 1 or more"),
        (
            ["oo", "--window", "two"],
            "argument --window: 'two' is no whole number: it counts the finite steps after",
        ),
        (["oo", "--scaler", "trch"], "unknown scaler 'trch': did you mean 'torch'?"),
        (["oo", "--scaler", "torch,window=2"], "unknown option 'window' of scaler 'torch'"),
        (["--plot", "a.png"], "--plot without a history"),
        (["oo", "--plot", "a.gif"], "a picture is a .png or .svg file"),
        (["oo", "--plot", "no/such/a.png"], "is no folder; make it first (mkdir -p no/such)"),
        (["oo", "--scaler", "delayed", "--plot", "a.png"], "none of delayed has one scale to draw"),
        (["oo", "--plt", "a.png"], "did you mean '--plot'?"),
        (
            ["o|."],
            "'|' in a history: a restart cannot be traced; leave it out, or let fp16sim scalers --check FILE",
        ),
        (["oo", "--history", "h.txt"], "a history twice, oo and --history h.txt: keep one"),
        (["--check", "torch", "--history", "h.txt"], "--check torch with a history: the checks choose"),
        (["oo", "--scaler", "no_such.py:make"], "--scaler: no_such.py: there is no such file"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["scalers", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert says in captured.err
    assert list(tmp_path.iterdir()) == []


def test_the_failure_is_told_where_nothing_is_left_to_draw(
    own, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "a.png"
    words = ("--scaler", "own_to_trace.py:NoScale", "--plot", str(picture))
    assert "own_to_trace.py:NoScale: no trace, SystemExit: 0" in printed(capsys, "..o", *words, code=1)
    assert not picture.exists()
