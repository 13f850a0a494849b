"""One HTML page with everything in it: opens without a network, reads on a phone."""

import base64
import collections
from html import escape
from pathlib import Path
from typing import Any

from evergrad._core.files import write_whole
from evergrad._training.plots import save
from evergrad.paper.claims import NEW, NO, OPEN, YES, Claim
from evergrad.paper.experiment import Experiment, Grid, Picture, Section
from evergrad.paper.plan import BUDGETS
from evergrad.paper.results import Result, seconds

_SIGNS = {YES: ("✓", "yes"), NO: ("✗", "no"), OPEN: ("…", "open")}
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 0 auto; padding: 0 1rem 4rem; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid #8888; padding-top: 1rem; }
img { max-width: 100%; height: auto; background: white; }
figure { margin: 1.5rem 0; } figcaption, .small { font-size: .875rem; opacity: .85; }
.wide { overflow-x: auto; background: linear-gradient(to left, #8884, #8880 1rem) right / 1rem 100% no-repeat; } table { border-collapse: collapse; font-size: .875rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
.claims td:last-child { white-space: nowrap; }
.yes td:last-child { color: #006d5b; } .no td:last-child { color: #b23b00; font-weight: 700; } .open td:last-child { color: #666; }
@media (prefers-color-scheme: dark) {
  .yes td:last-child { color: #5fd3bc; } .no td:last-child { color: #ff9d66; } .open td:last-child { color: #aaa; }
}
@media (max-width: 40rem) {
  figure { overflow-x: auto; } img { max-width: none; width: 44rem; } figcaption { position: sticky; left: 0; }
  .claims, .claims tbody, .claims tr, .claims td { display: block; } .claims th { display: none; }
  .claims tr { border-bottom: 1px solid #8888; padding: .5rem 0; } .claims td { border: 0; padding: 0; }
  .claims td:first-child { font-weight: 600; } .claims td:nth-child(2)::before, .claims td:nth-child(3)::before { content: attr(data-name) ": "; opacity: .7; }
}
details { margin: 1rem 0; } summary { cursor: pointer; }
nav a { display: inline-block; margin-right: 1rem; }
"""


def write_page(parts: list[tuple[Experiment, Result, Section]], path: Path) -> None:
    """The page, and every picture as PNG beside its experiment's results."""
    budget = parts[0][1].budget
    body = [f"<h1>The paper, reproduced</h1><p>{escape(_lead(budget))}</p>", _machine(parts), _contents(parts)]
    body += [_summary([claim for _, _, section in parts for claim in section.claims])]
    body += [_section(experiment, result, section) for experiment, result, section in parts]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style>'
    write_whole(
        path,
        f'<!doctype html><html lang="en"><head>{head}<title>The paper, reproduced</title></head><body>{"".join(body)}</body></html>\n',
    )


def _lead(budget):
    return (
        "Benzing, Gauy, Mujika, Martinsson, Steger: Optimal Kronecker-Sum Approximation of Real Time Recurrent Learning "
        f"(ICML 2019). Made by `evergrad paper report` from runs at the budget “{budget}” ({BUDGETS[budget]})."
    )


def _machine(parts):
    machines = {" · ".join(f"{k} {v}" for k, v in result.document["machine"].items()) for _, result, _ in parts}
    total = seconds(result for _, result, _ in parts)
    return f'<p class="small">{escape("; ".join(sorted(machines)))}. {_clock(total)} of computing, a core each for most.</p>'


def _contents(parts):
    links = (f'<a href="#{experiment.name}">{escape(experiment.name)}</a>' for experiment, _, _ in parts)
    return f"<nav>{''.join(links)}</nav>"


def _summary(claims: list[Claim]) -> str:
    published, new = [c for c in claims if c.paper != NEW], [c for c in claims if c.paper == NEW]
    words = f"Of the paper's figures and claims: {_counted(published)}. Of our own: {_counted(new)}."
    failed = [claim for claim in claims if claim.verdict == NO]  # ours and the paper's
    plain = "".join(f"<li>{escape(c.what)}: paper {escape(c.paper)}, ours {escape(c.ours)}</li>" for c in failed)
    listed = f"<p>What did not reproduce, or hold:</p><ul>{plain}</ul>" if failed else ""
    return f"<p><strong>{words}</strong></p>{listed}"


def _counted(claims):
    found = collections.Counter(claim.verdict_in_words for claim in claims)
    return ", ".join(f"{words} ({count})" for words, count in found.most_common()) or "none"


def _section(experiment: Experiment, result: Result, section: Section) -> str:
    pictures = "".join(_picture(result.folder, picture) for picture in section.pictures)
    grids = "".join(_table(grid) for grid in section.grids)
    remarks = "".join(f'<p class="small">{escape(text)}</p>' for text in [*section.remarks, *_notes(result)])
    shrunk = "<p><em>Networks, ranks and horizons are shrunk at this budget: the labels name the paper's.</em></p>"
    return (
        f'<h2 id="{experiment.name}">{escape(experiment.title)}</h2>{shrunk if result.budget == "quick" and experiment.shrinks else ""}'
        f"{_claims(section.claims)}{pictures}{grids}{remarks}{_settings(result)}"
    )


def _notes(result):
    """What a person has to say about it: notes.txt beside the results, a paragraph each."""
    path = result.folder / "notes.txt"
    return [text.strip() for text in path.read_text("utf-8").split("\n\n")] if path.exists() else []


def _claims(claims):
    """A table, which on a narrow screen becomes a list."""
    if not claims:
        return ""
    names = ("claim", "paper", "ours", "verdict")
    rows = ""
    for c in claims:
        sign, kind = _SIGNS[c.verdict]
        cells = (c.what, c.paper, c.ours, f"{sign} {c.verdict_in_words}")
        shown = (f'<td data-name="{name}">{escape(cell)}</td>' for name, cell in zip(names, cells, strict=True))
        rows += f'<tr class="{kind}">{"".join(shown)}</tr>'
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<table class="claims"><tr>{head}</tr>{rows}</table>'


def _picture(folder: Path, picture: Picture) -> str:
    path = folder / f"{picture.name}.png"
    save(picture.figure, path)
    data = base64.b64encode(path.read_bytes()).decode()
    caption = escape(picture.caption)
    return (
        f'<figure><img alt="{caption}" src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'
    )


def _table(grid: Grid) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in grid.head)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in grid.rows)
    return f"<p>{escape(grid.title)}</p><div class='wide'><table><tr>{head}</tr>{rows}</table></div>"


def _settings(result: Result) -> str:
    """What was run, with what, and how long it took."""
    head = ("line", "steps", "seeds", "time", "a step", "settings")
    rows = [_line(line) for line in [*result.lines(), *result.lines(search=True)]]
    grid = _table(Grid("", head, rows)) if rows else ""
    document = result.document
    about = f"written {document['written']}, evergrad {document['version']}, {document['jobs']} runs at a time"
    about += ", each on its own cores; other work on the machine was not kept away, so see `evergrad bench` for speed"
    measured = document["measured_seconds"]
    spent = f", measurements took {_clock(measured)}" if measured else ""
    return f"<details><summary>Settings and times</summary><p class='small'>{escape(about + spent)}</p>{grid}</details>"


def _line(line: dict[str, Any]) -> tuple[str, ...]:
    runs, settings = line["runs"], line["settings"]
    seconds, steps = sum(run["seconds"] for run in runs), sum(run["steps"] for run in runs)
    known = {k: Path(v).name if k == "data" else v for k, v in settings.items() if v is not None}
    said = ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in known.items())
    each = ", ".join(f"{run['steps']:,}" + (" (diverged)" if run["diverged"] else "") for run in runs)
    seeds = ", ".join(str(run["seed"]) for run in runs)
    return line["label"], each, seeds, _clock(seconds), f"{1000 * seconds / steps:.3g} ms", said


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return (
        f"{minutes // 60} h {minutes % 60:02d} min"
        if minutes >= 60
        else f"{minutes} min"
        if minutes
        else f"{seconds:.0f} s"
    )
