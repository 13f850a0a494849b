"""What the claims come to: a row for every figure, and five sentences."""

import collections
import dataclasses
from collections.abc import Iterable

from evergrad.paper.claims import NEW, NO, OPEN, YES, Claim

PARTLY = "in part"


@dataclasses.dataclass(frozen=True)
class FigureRow:
    figure: str
    clauses: list[tuple[str, str, str]]  # the claim as a clause, its verdict, what was found
    share: str
    verdict: str


def together(verdicts: Iterable[str]) -> str:
    """One of several: all the same, or in part, or open if nothing failed and something is open."""
    found = set(verdicts)
    if len(found) == 1:
        return found.pop()
    return PARTLY if NO in found else OPEN


def figure_rows(claims: list[Claim]) -> list[FigureRow]:
    """Of the claims that a figure is about, those that are told as a clause."""
    told: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.plain and claim.figure:
            told.setdefault(claim.figure, []).append(claim)
    return [_row(figure, found) for figure, found in told.items()]


def _row(figure, found):
    clauses = [(plain, together(c.verdict for c in each), _ours(each)) for plain, each in _by_clause(found).items()]
    shares = [claim.share for claim in found if claim.share is not None]
    return FigureRow(figure, clauses, share_in_words(shares), together(claim.verdict for claim in found))


def _by_clause(claims):
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.plain, []).append(claim)
    return found


def _ours(claims):
    if len(claims) == 1:
        return claims[0].ours
    good = sum(claim.verdict == YES for claim in claims)
    wrong = "; ".join(f"not {claim.what}, {claim.ours}" for claim in claims if claim.verdict == NO)
    return f"{good} of {len(claims)}" + (f"; {wrong}" if wrong else "")


def share_in_words(shares: list[float]) -> str:
    if not shares:
        return "no training"
    each = [_percent(min(1.0, share)) for share in (min(shares), max(shares))]
    return each[0] if each[0] == each[1] else " to ".join(each)


def _percent(share):
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def sentences(claims: list[Claim]) -> list[str]:
    """What holds, what does not, what is open, what is better now."""
    published, new = ([c for c in claims if (c.paper == NEW) == own] for own in (False, True))
    counted = collections.Counter(claim.verdict for claim in published)
    clauses = {plain: together(c.verdict for c in each) for plain, each in _by_clause(published).items() if plain}
    kinds = {kind: [plain for plain, verdict in clauses.items() if verdict in which] for kind, which in _KINDS.items()}
    held = sum(claim.verdict == YES for claim in new)
    better = [plain for plain, each in _by_clause(new).items() if plain and together(c.verdict for c in each) == YES]
    return [
        f"Of {len(published)} figures and claims of the paper that can be put into numbers, {counted[YES]} are reproduced here, "
        f"{counted[NO]} are not, and {counted[OPEN]} are open, most for want of training.",
        _told("What holds", kinds["holds"]),
        _told("What does not hold, or only in part", kinds["fails"]),
        _told("What is open", kinds["open"]),
        _told("What is better now", better, f"{held} of our own {len(new)} claims hold"),
    ]


_KINDS = {"holds": (YES,), "fails": (NO, PARTLY), "open": (OPEN,)}


_SAID = 3  # clauses in a sentence, which is to be read at a glance; all are in the table


def _told(opening, clauses, otherwise="nothing so far"):
    more = f"; and {len(clauses) - _SAID} more, in the table" if len(clauses) > _SAID else ""
    return f"{opening}: {'; '.join(clauses[:_SAID]) or otherwise}{more}."
