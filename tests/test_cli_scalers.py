"""`fp16sim scalers`: the list, the table of traces, the picture, and misuse."""

import json
import re
import sys

import pytest

from fp16sim import scaling
from fp16sim.cli import main


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["scalers", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
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
    sys.modules.pop("fp16sim_checks_own_to_trace", None)


def test_ones_own_beside_others(own, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        word for name in ("Quarter", ":InPlace", "Raises") for word in ("--scaler", f"own_to_trace.py:{name}")
    ]
    assert main(["scalers", "oo.", *words, "--scaler", "torch"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[2:] == [
        "                                     o      o      .",
        "own_to_trace.py:Quarter       8      2   2^-1      1",
        "own_to_trace.py::InPlace   1024    512    256    128",
        "torch                     65536  32768  16384  16384",
        "",
        "own_to_trace.py:Quarter: applies step 1, though it is not finite",
        "own_to_trace.py::InPlace: step 1 multiplies by 1024 and divides by 512",
        "own_to_trace.py::InPlace: applies step 1, though it is not finite",
        "own_to_trace.py:Raises: no trace, it raised AttributeError: 'Raises' object has no attribute 'nothing' "
        f"({own}, line 24)",
    ]
    assert set(captured.err.splitlines()) == {"a scaler that talks"}
    assert main(["scalers", "oo.", *words[:2], "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["scalers"][0]
    assert (data["name"], data["after"], data["options"]) == ("own_to_trace.py:Quarter", [2.0, 0.5, 1.0], {})
    assert main(["scalers", *words[:2]]) == 0
    assert capsys.readouterr().out.startswith("own_to_trace.py:Quarter\n    no options\n")


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
    printed(capsys, *words, "--plot", str(path))
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    printed(capsys, *words, "--plot", str(path))
    assert path.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["o.x"], "'x' in a history: write one character a step"),
        ([""], "an empty history"),
        (["oo", "--window", "0"], "--window 0: it counts finite steps; choose 1 or more"),
        (["oo", "--window", "two"], "invalid int value"),
        (["oo", "--scaler", "trch"], "unknown scaler 'trch': did you mean 'torch'?"),
        (["oo", "--scaler", "torch,window=2"], "unknown option 'window' of scaler 'torch'"),
        (["--plot", "a.png"], "--plot without a history"),
        (["oo", "--plot", "a.gif"], "a picture is a .png or .svg file"),
        (["oo", "--plot", "no/such/a.png"], "is no folder; make it first (mkdir -p no/such)"),
        (["oo", "--scaler", "delayed", "--plot", "a.png"], "none of delayed has one scale to draw"),
        (["oo", "--plt", "a.png"], "did you mean '--plot'?"),
        (["o|."], "'|' in a history: a restart cannot be traced"),
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
