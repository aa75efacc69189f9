"""The small panels of `fp16sim scalers --plot`: what is written, what is marked, and that nothing overlaps."""

import math

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from fp16sim.report.scaler_plot import DARK, PALE, Curve, marked, traces_figure, wrapped

LONG = "torch,init_scale=2**24,growth_interval=40"


def boxes_of(figure: Figure) -> dict[str, object]:
    """The names of panels, what is below them, and the title, with the boxes that they take."""
    FigureCanvasAgg(figure).draw()
    seen = [*figure.texts, *(text for axes in figure.axes for text in [axes._left_title, *axes.texts])]
    return {text.get_text(): Text.get_window_extent(text) for text in seen if text.get_text()}


def test_long_names_are_wrapped_and_overlap_nothing() -> None:
    names = [
        LONG,
        "own.py:Mine",
        f"{LONG},backoff_factor=0.25,growth_factor=8",
        "a/very/long/folder/own.py:Mine",
        "x",
    ]
    curves = {name: Curve([8.0, 4.0, 2.0], "stops at step 2", 2) for name in names}
    figure = traces_figure(curves, "oo", "Loss scalers on oo")
    boxes = boxes_of(figure)
    assert "torch,init_scale=2**24,\ngrowth_interval=40" in boxes
    found = list(boxes.items())
    width, height = figure.bbox.width, figure.bbox.height
    for place, (name, box) in enumerate(found):
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= 0, name
        assert [other for other, beside in found[place + 1 :] if box.overlaps(beside)] == []


def test_the_names_of_one_scaler_overlap_if_they_are_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fp16sim.report.scaler_plot.wrapped", lambda name, most: [name])
    names = [f"{LONG},backoff_factor=0.25", "own.py:Mine", "c", "d"]
    boxes = boxes_of(traces_figure({name: Curve([8.0, 4.0]) for name in names}, "o", "title"))
    assert boxes[names[0]].overlaps(boxes["own.py:Mine"])


def line_and_cross(curve: Curve, history: str) -> tuple[list[float], list[tuple[float, float]], list[str]]:
    (axes,) = traces_figure({"a": curve}, history, "title").axes
    line, *crosses = axes.lines
    points = [(float(cross.get_xdata()[0]), float(cross.get_ydata()[0])) for cross in crosses]
    return list(line.get_ydata()), points, [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    ("curve", "cross"),
    [
        (Curve([8.0, 4.0, 2.0]), []),
        (Curve([8.0, 4.0], "stops at step 1", 1), [(1.0, 2.0)]),
        (Curve([8.0, 4.0, 0.0, 0.0], "0 after step 2", 2), [(2.0, 2.0)]),
        (Curve([8.0, math.inf, math.inf, math.inf], "inf after step 1", 1), [(1.0, 3.0)]),
        (Curve([math.nan, math.nan, math.nan, math.nan], "nan from the start", 0), [(0.0, 0.0)]),
        (Curve([8.0], "fails at step 1", 0), [(0.0, 3.0)]),
    ],
)
def test_where_a_scaler_ends_there_is_a_cross_and_words(
    curve: Curve, cross: list[tuple[float, float]]
) -> None:
    _, points, texts = line_and_cross(curve, "ooo")
    assert points == cross
    assert texts == [curve.end] * bool(curve.end)


def test_a_line_has_points_only_where_it_turns() -> None:
    values, _, _ = line_and_cross(Curve([8.0] * 50_000 + [4.0] * 50_001), "." * 100_000)
    assert values == [3.0, 2.0, 2.0, 2.0]


def test_a_single_step_among_thousands_is_drawn_as_wide_as_can_be_seen() -> None:
    wide, thin = marked("." * 5000 + "o" + "." * 5000 + "n" * 500, 100)
    assert (wide, thin) == ([(10001, 500)], [(5000, 100)])
    assert marked("o.o.o" + "." * 95 + "o", 10) == ([], [(0, 10), (100, 10)])  # no two bars on each other
    assert marked("", 1) == marked("...", 1) == ([], [])


@pytest.mark.parametrize(("history", "alpha"), [("." * 5000 + "o" + "." * 5000, DARK), (".o" * 5000, PALE)])
def test_single_steps_are_dark_unless_they_cover_the_panel(history: str, alpha: float) -> None:
    (axes,) = traces_figure({"a": Curve([8.0] * (len(history) + 1))}, history, "title").axes
    bars = [bar for bar in axes.collections if isinstance(bar, PolyCollection) and len(bar.get_paths())]
    assert [bar.get_alpha() for bar in bars] == [alpha]


def test_ticks_of_a_scale_that_falls_for_ever_do_not_overlap() -> None:
    (axes,) = traces_figure({"a": Curve([2.0**16, 2.0**-1000])}, "o", "title").axes
    assert len(axes.get_yticks()) <= 6


def test_words_are_broken_where_they_must() -> None:
    assert wrapped("torch", 25) == ["torch"]
    assert wrapped("a" * 60, 25) == ["a" * 25, "a" * 25, "a" * 10]
    assert wrapped("folder/own.py:Mine", 12) == ["folder/", "own.py:Mine"]
    assert "".join(wrapped(LONG, 10)) == LONG
