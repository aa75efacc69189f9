import sys

import pytest
from fp16sim_samples import four_runs, histogram, run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from fp16sim.recording.histogram import Histogram
from fp16sim.report.histogram_plot import histogram_figure
from fp16sim.report.plots import loss_figure, scale_figure
from fp16sim.report.style import MUTED, png, spread, svg


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes intersect, and texts that leave the picture."""
    FigureCanvasAgg(figure).draw()
    seen = list(figure.texts)
    for axes in figure.axes:
        seen += axes.texts
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_majorticklabels(), axis.get_majorticklocs(), strict=True)
            seen += [axis.label, *(label for label, place in ticks if low <= place <= high)]
    # Of an annotation the text counts, not the line to its curve.
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in seen if text.get_text().strip()]
    width, height = figure.bbox.width, figure.bbox.height
    out = [
        (name, "outside")
        for name, box in boxes
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]
    pairs = [
        (name, other)
        for index, (name, box) in enumerate(boxes)
        for other, beside in boxes[index + 1 :]
        if box.x0 < beside.x1 and beside.x0 < box.x1 and box.y0 < beside.y1 and beside.y0 < box.y1
    ]
    return out + pairs


def drawn() -> dict[str, Figure]:
    results = four_runs()
    scale = scale_figure(results)
    assert scale is not None
    return {"loss": loss_figure(results), "scale": scale, "histogram": histogram_figure(histogram())}


@pytest.mark.parametrize("name", ["loss", "scale", "histogram"])
def test_no_text_overlaps_another_or_leaves_the_picture(name: str) -> None:
    assert overlapping(drawn()[name]) == []


def test_an_overlap_would_be_noticed() -> None:
    figure = drawn()["loss"]
    figure.text(0.09, 0.95, "on top of the title")
    figure.text(0.99, 0.5, "half outside")
    found = overlapping(figure)
    assert ("half outside", "outside") in found
    assert any("on top of the title" in pair for pair in found)


def test_every_run_is_named_beside_its_curve_with_its_accuracy() -> None:
    figure = drawn()["loss"]
    for result in four_runs():
        assert f"{result.name}: {100 * result.accuracy:.1f}%" in texts(figure)
    assert figure.axes[0].get_legend() is None
    assert figure.axes[0].get_xlabel()
    assert "nats" in figure.axes[0].get_ylabel()


def test_many_runs_still_have_names_that_do_not_overlap() -> None:
    results = [run("float32", "float32"), *(run(f"float16 run {index}") for index in range(6))]
    assert overlapping(loss_figure(results)) == []


def test_losses_that_are_not_numbers_leave_a_gap() -> None:
    diverging = next(line for line in loss_figure(four_runs()).axes[0].lines if line.get_color() == "#d55e00")
    heights = diverging.get_ydata()
    assert all(height != height for height in heights[30:])
    assert heights[0] == 2.3


def test_good_runs_are_told_apart_beside_a_bad_one() -> None:
    losses = {"bad": 25.0, "good": 0.1, "better": 0.05, "best": 0.01}
    results = [run(name, losses=(2.3, *(loss,) * 39)) for name, loss in losses.items()]
    figure = loss_figure(results)
    axes = figure.axes[0]
    to_share = axes.transData + axes.transAxes.inverted()
    ends = [float(to_share.transform((40, loss))[1]) for loss in losses.values()]
    assert all(high - low > 0.05 for high, low in zip(ends, ends[1:], strict=False))
    assert 0 < ends[-1] < ends[0] < 1
    assert overlapping(figure) == []


@pytest.mark.parametrize("loss", [0.0, 1e-12, 1e9, 2.3])
def test_losses_of_any_size_stay_in_the_picture(loss: float) -> None:
    figure = loss_figure([run("one", losses=(loss,) * 40)])
    axes = figure.axes[0]
    low, high = axes.get_ylim()
    assert 0 < low < high < 200
    assert axes.lines[-1].get_ydata().min() >= low
    assert overlapping(figure) == []
    cut = {0.0: "cut at 0.001", 1e-12: "cut at 0.001", 1e9: "cut at 100"}.get(loss)
    assert any(cut in text for text in texts(figure)) if cut else not any("cut" in t for t in texts(figure))


def test_every_skipped_step_is_marked_at_its_scale() -> None:
    figure = scale_figure(four_runs())
    assert figure is not None
    marks = next(line for line in figure.axes[0].lines if line.get_marker() == "x")
    assert marks.get_xdata().tolist() == [1, 2, 23]
    assert marks.get_ydata().tolist() == [36, 35, 35]
    assert any("3 of 40" in text for text in texts(figure))


def test_without_a_moving_scale_there_is_no_picture_of_it() -> None:
    assert scale_figure(four_runs()[:3]) is None


def test_the_shares_in_the_histogram_are_those_of_the_numbers() -> None:
    figure = histogram_figure(histogram(), (1.0, 8.0))
    words = texts(figure)
    # 360 below 2^-25, and 5 at it exactly, are lost; times 8 the 160 below 2^-28.
    assert "36.5% become zero" in words
    assert "3.5% of the gradients survive" in words
    assert "24.0% of the gradients survive" in words
    bars = [
        patch for patch in figure.axes[1].patches if 0 < patch.get_height() < 0.9 and patch.get_width() < 1
    ]
    assert {round(patch.get_x() + 0.43) for patch in bars} >= {-36, -28, -22}


def test_bars_move_by_the_scale() -> None:
    figure = histogram_figure(histogram(), (1.0, 8.0))

    def places(axes: int) -> list[int]:
        return sorted(
            round(p.get_x() - 0.07) for p in figure.axes[axes].patches if p.get_width() == pytest.approx(0.86)
        )

    assert places(3) == [place + 3 for place in places(1)]


def test_an_empty_histogram_and_a_scale_between_powers_of_two_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        histogram_figure(Histogram(zeros=10))
    with pytest.raises(ValueError, match="powers of two"):
        histogram_figure(histogram(), (3.0,))


def test_the_same_results_give_the_same_bytes() -> None:
    for figure, again in zip(drawn().values(), drawn().values(), strict=True):
        assert svg(figure) == svg(again)
    assert png(scale_figure(four_runs())) == png(scale_figure(four_runs()))


def test_pyplot_is_left_alone() -> None:
    already = "matplotlib.pyplot" in sys.modules
    svg(loss_figure(four_runs()))
    assert already or "matplotlib.pyplot" not in sys.modules


def test_float32_is_grey() -> None:
    assert MUTED in {line.get_color() for line in loss_figure(four_runs()).axes[0].lines}


def test_places_are_moved_apart_within_bounds() -> None:
    assert spread([1.0, 1.0, 1.0], 1.0, 0.0, 10.0) == [1.0, 2.0, 3.0]
    assert spread([9.9, 10.0], 1.0, 0.0, 10.0) == [9.0, 10.0]


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'fp16sim\[report\]'"):
        loss_figure(four_runs())
