import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fp16sim_samples import four_runs, run

from fp16sim.report.html import Setting, page, write_report
from fp16sim.report.pictures import pictures

SETTING = Setting("A network learns digits & more.", 2.0**-17, "fp16sim train --seed 0")


class Reader(HTMLParser):
    """Checks that tags are closed in order, and gathers addresses and scripts."""

    VOID = frozenset({"meta", "img", "br", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_the_page_holds_everything_itself(tmp_path: Path) -> None:
    path = write_report(tmp_path, four_runs(), SETTING)
    text = path.read_text("utf-8")
    reader = read(text)
    assert reader.addresses
    assert all(address.startswith("data:image/svg+xml;base64,") for address in reader.addresses)
    assert "script" not in reader.tags
    assert not re.search(r"url\(|@import|https?://", text)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "histogram.png", "loss.png", "report.html", "scale.png",
    ]  # fmt: skip


def test_an_address_would_be_noticed() -> None:
    assert read("<img src='https://example.org/x.png'>").addresses == ["https://example.org/x.png"]


def test_the_page_tells_the_runs_and_the_factor() -> None:
    results = four_runs()
    text = page(results, SETTING, pictures(results, SETTING.loss_factor))
    for result in results:
        assert result.name in text
        assert f"{100 * result.accuracy:.1f}%" in text
    assert "digits &amp; more" in text
    assert "2⁻¹⁷" in text
    assert text.count("<td>\N{EN DASH}</td>") == 3  # float32: flushed, surviving, final scale
    assert "<td>-</td>" not in text
    assert "one image is 0.25%" in text
    assert "The run float16 dynamic starts at 2³⁶ and grows after 2000 good steps in a row." in text
    assert "SSD" in text
    assert "Interrupted" not in text


def test_what_was_interrupted_says_so() -> None:
    results = four_runs()[:1]
    setting = Setting(SETTING.task, SETTING.loss_factor, SETTING.command, complete=False)
    assert "Interrupted" in page(results, setting, [])


def test_names_are_escaped() -> None:
    results = [run("<b>bold</b>")]
    text = page(results, SETTING, pictures(results, 1.0))
    assert "<b>bold" not in text
    read(text)


def test_without_float32_there_is_no_histogram() -> None:
    assert [picture.name for picture in pictures(four_runs()[1:], 1.0)] == ["loss", "scale"]


def test_a_page_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_report(tmp_path, four_runs(), SETTING)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_report(tmp_path, four_runs()[:2], SETTING)
    assert path.read_bytes() == before
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]
