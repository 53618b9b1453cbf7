"""The report of a sweep as one HTML page that needs nothing else: no network, no script, no file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from psopt.config import one_line, short_text
from psopt.record import RunDirectory, State, read_object
from psopt.report.sweep import Group, Sweep
from psopt.report.sweep_table import best_text, failures, header, rows

_SHOWN = ("hostname", "platform", "python", "cpus", "usable_cpus", "cuda")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap }
th { border-bottom: 1.5px solid #222 } .text { text-align: left }
.wide { overflow-x: auto } .failed { color: #b03000 } svg { width: 100%; height: auto }
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure on the page.

    Attributes:
        title: above it; figures that follow each other with the same title stand below one.
        svg: the text of an SVG file.
        caption: which one it is, of several with the same title.
        remarks: what has to be said of it, on the console too.
    """

    title: str
    svg: str
    caption: str = ""
    remarks: Sequence[str] = ()


def page(sweep: Sweep, groups: Sequence[Group], pictures: Sequence[Picture]) -> str:
    """The page.

    Args:
        sweep: what it is about.
        groups: rows of its table.
        pictures: in order.
    """
    title = escape(one_line(sweep.name))
    best = best_text(sweep)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{title}</h1>
<p>{escape(sweep.tally)}</p>
{_paragraphs([best] if best else [])}
<h2>Results</h2>
<p>Mean ± standard deviation over the runs of a row that are done.</p>
{_table(sweep, groups)}
{_paragraphs(failures(sweep), "failed")}
{_pictures(pictures)}
<h2>Environment</h2>
{_environments(sweep)}
</body>
</html>
"""


def _pictures(pictures: Sequence[Picture]) -> str:
    lines, before = list[str](), ""
    for each in pictures:
        lines += [f"<h2>{escape(each.title)}</h2>"] if each.title != before else []
        caption = f"<figcaption>{escape(each.caption)}</figcaption>" if each.caption else ""
        lines.append(f'<figure class="wide">{caption}{inline(each.svg)}</figure>')
        lines += [_paragraphs(each.remarks)] if each.remarks else []
        before = each.title
    return "\n".join(lines)


def inline(svg: str) -> str:
    """An SVG file as an element of a page: without what names addresses, prolog, metadata, namespaces."""
    start = svg.find("<svg")
    text = svg[start:] if start >= 0 else ""
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return re.sub(r' xmlns(:xlink)?="[^"]*"', "", text).strip()


def _table(sweep: Sweep, groups: Sequence[Group]) -> str:
    words = len(groups[0].values) if groups else 0

    def line(cells: Sequence[str], kind: str) -> str:
        marks = [' class="text"' if place < words else "" for place in range(len(cells))]
        inside = "".join(
            f"<{kind}{mark}>{escape(cell)}</{kind}>"
            for mark, cell in zip(marks, cells, strict=True)
        )
        return f"<tr>{inside}</tr>"

    body = "\n".join(line(row, "td") for row in rows(sweep, groups))
    head = line(header(sweep, groups), "th")
    return (
        f'<div class="wide"><table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody></table></div>'
    )


def _environments(sweep: Sweep) -> str:
    """What the runs met, where it differs with how many runs have each value."""
    found: dict[str, dict[str, int]] = {}
    for run in sweep.runs:
        if run.state is State.DONE:
            for name, value in _facts(read_object(RunDirectory(run.path).environment_path)).items():
                counts = found.setdefault(name, {})
                counts[value] = counts.get(value, 0) + 1
    if not found:
        return "<p>No run is done.</p>"
    lines = []
    for name, values in found.items():
        several = len(values) > 1
        said = ", ".join(f"{v} ({n} runs)" if several else v for v, n in values.items())
        lines.append(
            f'<tr><td class="text">{escape(name)}</td><td class="text">{escape(said)}</td></tr>'
        )
    return '<div class="wide"><table>' + "\n".join(lines) + "</table></div>"


def _facts(environment: dict[str, Any]) -> dict[str, str]:
    facts = {name: environment.get(name) for name in _SHOWN}
    packages, git, mpi = (environment.get(name) for name in ("packages", "git", "mpi"))
    facts |= packages if isinstance(packages, dict) else {}
    if isinstance(git, dict):
        facts["commit"] = f"{git.get('commit')}{' with changes' if git.get('dirty') else ''}"
    if isinstance(mpi, dict):
        facts["MPI"] = mpi.get("library")
    return {
        one_line(name): one_line(short_text(value))
        for name, value in facts.items()
        if value is not None
    }


def _paragraphs(lines: Sequence[str], kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return "\n".join(f"<p{mark}>{escape(line)}</p>" for line in lines)
