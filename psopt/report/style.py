"""How every figure looks: colours that the colour-blind tell apart, units, sizes for a paper."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psopt.record import write_atomic
from psopt.report.runs import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito, "Color Universal Design" (2008), without its yellow, which white paper swallows.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK = "#CC79A7", "#56B4E9", "#000000"
_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
_DASHES = ("-", "--", ":", "-.")
_MARKERS = "osD^vP*X"
GREY = "#8C8C8C"

WIDTH = 7.2  # inches: the text width of a page
_DPI = 200
_LABEL = 60  # characters
_FEW_DECADES = 3.0
_SMALL = 1e-3
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_STYLE: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.2,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.parse_math": False,  # a "$" in a path is a "$"
    "svg.hashsalt": "psopt",  # the same runs give the same file
    "svg.fonttype": "none",
}


@contextmanager
def figure(height: float) -> Iterator[Figure]:
    """An empty figure of the page's width in the house style.

    Args:
        height: inches.

    Raises:
        ReportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.style import context
    except ImportError as error:
        raise ReportError(
            f"plots need matplotlib ({error}); install it with: pip install 'psopt[plot]'"
        ) from error
    with context(["default", _STYLE]), warnings.catch_warnings():
        # A path may hold characters that the font lacks; a box in their place is good enough.
        warnings.filterwarnings("ignore", r"Glyph .* missing from")
        yield Figure(figsize=(WIDTH, height), layout="constrained")


def save(figure: Figure, stem: Path, formats: tuple[str, ...]) -> list[Path]:
    """Write a figure once a format; call it inside `figure(...)`.

    Args:
        figure: what to write.
        stem: the file without its suffix.
        formats: "png" and "svg".

    Returns:
        The files.
    """
    paths = []
    for form in formats:
        stream = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else {"Software": None}
        figure.savefig(stream, format=form, dpi=_DPI, metadata=metadata)
        paths.append(stem.with_name(f"{stem.name}.{form}"))
        write_atomic(paths[-1], stream.getvalue())
    return paths


def line_style(index: int, points: int) -> dict[str, object]:
    """Colour, dash and marker of the run of that index; seven colours, then other dashes.

    Args:
        index: place of the run in the report.
        points: how many points the line has; few ones are marked.
    """
    return {
        "color": _COLOURS[index % len(_COLOURS)],
        "linestyle": _DASHES[index // len(_COLOURS) % len(_DASHES)],
        "marker": _MARKERS[index % len(_MARKERS)] if points <= 30 else None,
    }


def note(axes: Axes, text: str) -> None:
    """Say in the middle of an empty plot why it is empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set_yticks([])


def corner(axes: Axes, text: str) -> None:
    """Say something small in the upper right corner of a plot."""
    axes.text(
        *(0.98, 0.96),
        text,
        transform=axes.transAxes,
        ha="right",
        va="top",
        fontsize=7.5,
        color=GREY,
    )


def logarithmic(plots: Iterable[Axes], low: float, high: float) -> None:
    """A logarithmic axis of ordinates, its numbers without the markup that the style turns off.

    Args:
        plots: whose axis it is.
        low: the lowest value shown. Below 0.001, numbers are written with powers of ten.
        high: the highest one. Up to three decades have numbers at 1, 2 and 5 of each, and more have
            powers of ten only.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    few = math.log10(high) - math.log10(low) <= _FEW_DECADES
    plain = few and low >= _SMALL
    for axes in plots:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _place: f"{value:g}" if plain else scientific(value))
        )
        axes.yaxis.set_minor_formatter(NullFormatter())
        if not few:
            axes.yaxis.set_minor_locator(NullLocator())  # nine a decade would be a black bar


def scientific(value: float) -> str:
    """10⁻³ and 2·10⁻³: a positive number to three digits, without markup."""
    mantissa, exponent = f"{value:.2e}".split("e")
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    return power if float(mantissa) == 1 else f"{float(mantissa):g}·{power}"


def shorten(label: str) -> str:
    """A label that fits a plot: the middle of a long one, such as a path, is left out."""
    half = _LABEL // 2
    return label if len(label) <= _LABEL else f"{label[:half]}…{label[-half:]}"
