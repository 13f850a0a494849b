"""One HTML page with everything in it: opens without a network, reads on a phone, and prints with everything unfolded.

On top what a reader of the paper wants to know: five sentences, Figure 1, a row for every figure. Details are folded below.
"""

import base64
import re
from html import escape
from pathlib import Path

from evergrad._core.files import write_whole
from evergrad._core.not_none import not_none
from evergrad._training.plots import save
from evergrad.paper import summary
from evergrad.paper.claims import NO, OPEN, YES, Claim
from evergrad.paper.experiment import Experiment, Grid, Picture, Section
from evergrad.paper.plan import BUDGETS
from evergrad.paper.rates import rate_in_words
from evergrad.paper.results import Found, Result, Trace, seconds

Part = tuple[Experiment, Result, Section]
_SIGNS = {YES: ("✓", "yes"), NO: ("✗", "no"), OPEN: ("…", "open"), summary.PARTLY: ("✓✗", "partly")}
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 0 auto; padding: 0 1rem 4rem; overflow-wrap: anywhere; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; } sup { line-height: 0; font-size: .75em; }
img { max-width: 100%; height: auto; background: white; }
figure { margin: 1.5rem 0; } figcaption, .small { font-size: .875rem; opacity: .85; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .875rem; }
.wide td { overflow-wrap: normal; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
.claims td:last-child, .figures td:first-child { white-space: nowrap; } th { overflow-wrap: normal; }
.yes td:last-child, li.yes::marker { color: #006d5b; } .no td:last-child, .partly td:last-child { color: #b23b00; font-weight: 700; }
.open td:last-child { color: #666; } .claims ul { margin: 0; padding: 0; list-style: none; }
details { margin: 1rem 0; border-top: 1px solid #8888; padding-top: .6rem; } details details { border: 0; }
summary { cursor: pointer; } summary.part { font-size: 1.15rem; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  .yes td:last-child { color: #5fd3bc; } .no td:last-child, .partly td:last-child { color: #ff9d66; } .open td:last-child { color: #aaa; }
}
@media (max-width: 40rem) {
  figure { margin: 1rem 0; } .claims, .claims tbody, .claims tr, .claims td { display: block; } .claims th { display: none; }
  .claims tr { border-bottom: 1px solid #8888; padding: .5rem 0; } .claims td { border: 0; padding: 0; }
  .claims td:first-child { font-weight: 600; } .claims td[data-name]::before { content: attr(data-name) ": "; opacity: .7; }
}
@media print {
  body { max-width: none; font-size: 10pt; } details::details-content { content-visibility: visible; block-size: auto; }
  figure, tr { break-inside: avoid; } h2, summary { break-after: avoid; } .wide { overflow: visible; } .wide table { font-size: 6pt; } th, td { padding: .1rem .3rem; }
}
"""


def write_page(parts: list[Part], path: Path) -> None:
    """The page, and every picture as PNG beside its experiment's results."""
    claims = [claim for _, _, section in parts for claim in section.claims]
    pictures = {each.name: _pictures(result.folder, section) for each, result, section in parts}
    first = pictures["fig1"][:1] if "fig1" in pictures else []
    body = ["<h1>The paper, reproduced</h1>", _sentences(claims), *first, _figures(parts), _reading(), _about(parts)]
    body += ["<h2>Details</h2>"]
    body += [_section(part, pictures[part[0].name]) for part in parts]
    write_whole(path, document("The paper, reproduced", body))


def document(title: str, body: list[str]) -> str:
    """A whole page, of parts that are HTML already."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style>'
    head += f"<title>{escape(title)}</title>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def shown(text: str) -> str:
    """As HTML, with exponents raised."""
    return re.sub(r"([\w)])\^([-−]?\d+(?:\.\d+)?)", r"\1<sup>\2</sup>", escape(text)).replace("<sup>-", "<sup>−")


def _sentences(claims):
    return "".join(f"<p>{shown(sentence)}</p>" for sentence in summary.sentences(claims))


def _figures(parts):
    """A row for every figure, table and theorem of the paper."""
    names = ("where", "what", "share of training", "verdict")
    rows = ""
    for each, _, section in parts:
        for row in summary.figure_rows(section.claims):
            sign, kind = _SIGNS[row.verdict]
            clauses = "".join(
                f"<li>{_SIGNS[verdict][0]} {shown(clause)}: {shown(ours)}</li>" for clause, verdict, ours in row.clauses
            )
            cells = f'<td><a href="#{each.name}">{escape(row.figure)}</a></td><td><ul>{clauses}</ul></td>'
            cells += (
                f'<td data-name="share of the paper\'s training">{escape(row.share)}</td><td>{sign} {row.verdict}</td>'
            )
            rows += f'<tr class="{kind}">{cells}</tr>'
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<h2>Figure by figure</h2><table class="claims figures"><tr>{head}</tr>{rows}</table>'


def _reading():
    text = (
        "Nothing about the end of training is judged below a tenth of the paper's steps, nor where the seeds of two lines "
        "overlap; it is open then, and says how it stands so far. Each line is shown at the best of the paper's four rates, by the "
        "runs themselves. Baselines are judged on both sides: one that is better than published was not reproduced either. How "
        "each verdict is reached is in docs/paper.md."
    )
    return f'<p class="small">{escape(text)}</p>'


def _about(parts):
    budget = parts[0][1].budget
    lead = (
        "Benzing, Gauy, Mujika, Martinsson, Steger: Optimal Kronecker-Sum Approximation of Real Time Recurrent Learning "
        f"(ICML 2019). Made by `evergrad paper report` from runs at the budget “{budget}” ({BUDGETS[budget]})"
    )
    long = sum(run.long for _, result, _ in parts for trace in result.traces() for run in trace.runs)
    lead += f" and {long} longer ones. " if long else ". "
    total = seconds(result for _, result, _ in parts)
    made = sorted({_machine(result.document["machine"]) for _, result, _ in parts})
    return f'<p class="small">{escape(lead + "; ".join(made))}. {_clock(total)} of computing, a core each for most.</p>'


def _machine(machine):
    return " · ".join(f"{name} {value}" for name, value in machine.items() if value is not None)


def _section(part: Part, pictures: list[str]) -> str:
    each, result, section = part
    grids = "".join(table_of(grid) for grid in section.grids)
    remarks = "".join(
        f'<p class="small">{shown(text)}</p>' for text in [*section.remarks, *_starts(result), *_notes(result)]
    )
    shrunk = "<p><em>Networks, ranks and horizons are shrunk at this budget: the labels name the paper's.</em></p>"
    shrunk = shrunk if result.budget == "quick" and each.shrinks else ""
    own = pictures[1:] if each.name == "fig1" else pictures
    return (
        f'<details id="{each.name}"><summary class="part">{escape(each.title)}</summary>{shrunk}'
        f"{_claims(section.claims)}{''.join(own)}{grids}{remarks}{_settings(result)}</details>"
    )


def _starts(result: Result) -> list[str]:
    """What a reader should know of how runs were started: those that lost their influence on the way, and records by hand."""
    said: dict[str, list[str]] = {}
    for trace in result.traces():
        for run in trace.runs:
            for start in run.record.get("starts") or []:
                if said_of := _said_of(start):
                    said.setdefault(said_of, []).append(f"{trace.name}, seed {run.record['seed']}")
    return [f"{'; '.join(runs)}: {text}." for text, runs in said.items()]


def _said_of(start):
    if start.get("influence") == "empty":
        return f"continued at step {start['from']:,} with an empty influence, from an exported network"
    told = start.get("told") or ""
    return f"the record of what it was made with was written {told}" if told.startswith("by hand") else None


def _notes(result):
    """What a person has to say about it: notes.txt beside the results, a paragraph each."""
    path = result.folder / "notes.txt"
    return [text.strip() for text in path.read_text("utf-8").split("\n\n")] if path.exists() else []


def _claims(claims: list[Claim]) -> str:
    """A table, which on a narrow screen becomes a list."""
    if not claims:
        return ""
    names = ("claim", "paper", "ours", "share", "verdict")
    rows = ""
    for c in claims:
        sign, kind = _SIGNS[c.verdict]
        what = f"{c.figure}: {c.what}" if c.figure else c.what
        share = summary.share_in_words([c.share]) if c.share is not None else ""
        cells = (shown(c.paper), shown(c.ours), escape(share))
        cells = "".join(f'<td data-name="{n}">{cell}</td>' for n, cell in zip(names[1:4], cells, strict=True))
        rows += f'<tr class="{kind}"><td>{shown(what)}</td>{cells}<td>{sign} {c.verdict_in_words}</td></tr>'
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<table class="claims"><tr>{head}</tr>{rows}</table>'


def _pictures(folder: Path, section: Section) -> list[str]:
    return [picture_of(folder, picture) for picture in section.pictures]


def picture_of(folder: Path, picture: Picture) -> str:
    path = folder / f"{picture.name}.png"
    save(picture.figure, path)
    data = base64.b64encode(path.read_bytes()).decode()
    caption = shown(picture.caption)
    alt = escape(picture.caption)
    return f'<figure><img alt="{alt}" src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'


def table_of(grid: Grid) -> str:
    head = "".join(f"<th>{shown(name)}</th>" for name in grid.head)
    rows = "".join(f"<tr>{''.join(f'<td>{shown(cell)}</td>' for cell in row)}</tr>" for row in grid.rows)
    return f"<p>{shown(grid.title)}</p><div class='wide'><table><tr>{head}</tr>{rows}</table></div>"


def _settings(result: Result) -> str:
    """What was run, with what, from which commit on which processor, and how long it took."""
    head = ("line", "rate", "seed", "steps", "time", "a step", "commit", "processor", "settings")
    rows = [_run(trace, run) for trace in result.traces() for run in trace.runs]
    grid = table_of(Grid("", head, rows)) if rows else ""
    document = result.document
    about = f"written {document['written']}, {document['jobs']} runs at a time"
    about += ", each on its own cores; other work on the machine was not kept away, so see `evergrad bench` for speed"
    measured = document["measured_seconds"]
    spent = f", measurements took {_clock(measured)}" if measured else ""
    return f"<details><summary>Settings and times</summary><p class='small'>{escape(about + spent)}</p>{grid}</details>"


def _run(trace: Trace, run: Found) -> tuple[str, ...]:
    record, spent = run.record, run.record["seconds"]
    known = record.get("settings") or {}
    left_out = ("learning_rate", "seed", "data", "task")
    said = ", ".join(
        f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in known.items() if k not in left_out
    )
    starts = record.get("starts") or [{}]
    each = [" / ".join(sorted({str(start.get(name) or "–") for start in starts})) for name in ("commit", "processor")]
    steps = f"{run.steps:,}" + (" (diverged)" if record.get("diverged") else "")
    pace = f"{1000 * spent / max(1, record['steps']):.3g} ms" if spent else "–"
    rate = rate_in_words(not_none(trace.rate))
    return trace.label, rate, str(record["seed"]), steps, _clock(spent) if spent else "–", pace, *each, said


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min" if minutes else f"{seconds:.0f} s"
