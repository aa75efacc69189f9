"""One self-contained page: the table, the pictures and what they mean. No network, no script."""

from __future__ import annotations

import base64
import html
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from fp16sim import __version__
from fp16sim.report.pictures import REPORT_FILES, Picture, pictures
from fp16sim.report.style import run_colours
from fp16sim.report.tables import (
    ACCURACY_NOTE,
    HEADER,
    SHARES_NOTE,
    factor_note,
    html_table,
    percent,
    rows,
    superscript,
)
from fp16sim.training.files import remove_files, write_atomically
from fp16sim.training.results import RunResult

__all__ = ["Setting", "page", "write_report"]


@dataclass(frozen=True)
class Setting:
    """What was run, for the page to tell.

    Attributes
    ----------
    task : str
        The network and the data, in a sentence.
    loss_factor : float
        What multiplies the loss of every run, a power of two.
    command : str
        What a reader types to get the same page.
    complete : bool
        False when the comparison was interrupted and runs are missing.
    """

    task: str
    loss_factor: float
    command: str
    complete: bool = True


def page(results: Sequence[RunResult], setting: Setting, drawn: Sequence[Picture]) -> str:
    """Write the page as one HTML document with the pictures inside.

    Parameters
    ----------
    results : sequence of RunResult
        At least one.
    setting : Setting
    drawn : sequence of Picture
        What :func:`fp16sim.report.pictures.pictures` drew of the results.
    """
    escape = html.escape
    policies = [result.policy for result in results]
    cards = "".join(
        f"<div class='card' style='--run: {colour}'><b>{percent(result.accuracy)}</b>"
        f"<span>{escape(result.name)}</span></div>"
        for result, colour in zip(results, run_colours(policies), strict=True)
    )
    unfinished = "" if setting.complete else "Interrupted: these are the runs that were finished. "
    figures = "".join(
        f"<figure><img alt='{escape(picture.caption, quote=True)}' src='data:image/svg+xml;base64,"
        f"{base64.b64encode(picture.svg).decode('ascii')}'><figcaption>{escape(picture.caption)}</figcaption></figure>"
        for picture in drawn
    )
    cells = [["\N{EN DASH}" if cell == "-" else superscript(cell) for cell in row] for row in rows(results)]
    digests = [(result.name, result.policy, result.scaler, result.digest[:16]) for result in results]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fp16sim: float16 training with and without a loss scale</title>
<style>
{files("fp16sim.report").joinpath("page.css").read_text("utf-8")}</style>
</head>
<body>
<main>
<h1>float16 training with and without a loss scale</h1>
<p class="lead">{unfinished}{escape(setting.task)} Accuracy on the test images:</p>
<div class="cards">{cards}</div>
<div class="wide">{html_table(HEADER, cells)}</div>
<p class="note">{escape(ACCURACY_NOTE)} {escape(SHARES_NOTE)}</p>
{figures}
<h2>What the small factor stands for</h2>
<p>{escape(superscript(factor_note(setting.loss_factor)))}</p>
<h2>The same again</h2>
<pre>{escape(setting.command)}</pre>
<p>The digest of a run is the same on every machine. The numbers behind this page are in
<code>results.json</code> beside it.</p>
<div class="wide words">{html_table(("run", "policy", "scaler", "digest"), digests)}</div>
<footer>fp16sim {escape(__version__)}, Python {escape(platform.python_version())},
NumPy {escape(version("numpy"))}. Digits: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten
Digits, UCI Machine Learning Repository, CC BY 4.0.</footer>
</main>
</body>
</html>
"""


def write_report(folder: Path, results: Sequence[RunResult], setting: Setting) -> Path:
    """Write report.html and the pictures as PNG, each moved into place when it is whole.

    A picture of an earlier report that these results do not have is removed.

    Parameters
    ----------
    folder : Path
        An existing folder.
    results : sequence of RunResult
        At least one.
    setting : Setting

    Returns
    -------
    Path
        Of the page.

    Raises
    ------
    ImportError
        Without matplotlib; the message names the extra that brings it.
    """
    drawn = pictures(results, setting.loss_factor)
    written = {"report.html", *(f"{picture.name}.png" for picture in drawn)}
    remove_files(folder, [name for name in REPORT_FILES if name not in written])
    for picture in drawn:
        write_atomically(folder / f"{picture.name}.png", picture.png)
    return write_atomically(folder / "report.html", page(results, setting, drawn))
