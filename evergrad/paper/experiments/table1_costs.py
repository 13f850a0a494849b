"""Table 1: memory and time of a step and stream, measured as the network and the rank grow, against the formulas.

The laws, and the sizes that they are looked at with, are those of `evergrad bench` (`evergrad/bench/growth.py`).
"""

import dataclasses

import evergrad as eg
from evergrad.bench.growth import LAWS, SECONDS, TOLERANCE, Law, exponent, fits
from evergrad.paper.claims import Claim, fact
from evergrad.paper.experiment import Experiment, Grid, Picture, Section

# in n alone: their time is a sum of terms, and not one power of the rank
OURS = (
    Law(
        "OK(rank=r, window=16), ours",
        lambda r: eg.OK(rank=r, window=16),
        (3, 0),
        (2, 0),
        (128, 256, 512, 1024),
        (8,),
        2,
    ),
    Law("RTRL(window=32), ours", lambda _: eg.RTRL(window=32), (4, 0), (3, 0), (128, 256, 512), (1,), 1),
)
PLAIN = "memory and time grow as Table 1 says"
QUICK_UNITS, QUICK_SECONDS = (8, 32), 0.05


def laws(budget: str) -> list[Law]:
    found = [*LAWS, *OURS]
    return (
        [dataclasses.replace(law, units=QUICK_UNITS, ranks=law.ranks[:2]) for law in found]
        if budget == "quick"
        else found
    )


def variables(law: Law) -> str:
    """What an estimator's cost depends on: n, or n and r."""
    return "nr" if len(law.ranks) > 1 else "n"


class Costs(Experiment):
    name, title = "table1", "Table 1: what a step costs"

    def measure(self, plan):
        found = {}
        for law in laws(plan.budget):
            for over in variables(law):
                settings = {"units": law.units, "ranks": law.ranks, "streams": law.batch, "over": over}

                def measure(law=law, over=over):
                    return self._measured(plan, law, over)

                slug = "".join(c if c.isalnum() else "-" for c in law.name)
                found[f"{law.name} {over}"] = plan.measured(f"table1-{slug}-{over}", settings, measure)
        return found

    def _measured(self, plan, law, over):
        made = fits(law, over, plan.check, QUICK_SECONDS if plan.quick else SECONDS)
        return {fit.what: {str(at): value for at, value in fit.points.items()} for fit in made}

    def section(self, result, reference):
        rows, claims = [], []
        for law in laws(result.budget):
            for axis, over in enumerate(variables(law)):
                found = result.measured[f"{law.name} {over}"]
                sizes = f"{over} = {', '.join(found['time'])}"
                numbers = []
                for what, said in (("memory", law.memory[axis]), ("time", law.time[axis])):
                    fitted = _fitted(found[what])
                    numbers += [f"{over}^{said}", f"{over}^{fitted:.2f}"]
                    if law not in OURS:
                        ours = f"{over}^{fitted:.2f} ({sizes})"
                        good = fact(abs(fitted - said) <= TOLERANCE)
                        named = f"{law.name}: {what} grows with {over}"
                        claims.append(Claim(named, f"{over}^{said}", ours, good, "Table 1", plain=PLAIN))
                rows.append((law.name, sizes, str(law.batch), *numbers))
        head = ("estimator", "sizes", "streams", "memory: formula", "measured", "time: formula", "measured")
        grid = Grid("Powers, fitted through all sizes; bytes and seconds of a stream", head, rows)
        caption = (
            "Memory and time of a step and stream as the network grows, r = 8 (KTP and TBPTT: 32); dotted: the formula, through the "
            "largest size."
        )
        remark = (
            f"A power counts as the formula's if it is within {TOLERANCE} of it. The formulas are about large networks; how the "
            "sizes were chosen is in docs/speed.md."
        )
        picture = Picture("costs", _figure(result), caption)
        return Section([picture], claims, [grid], [remark])


def _fitted(points: dict[str, float]) -> float:
    return exponent({int(at): value for at, value in points.items()})


def _figure(result):
    from evergrad._training.plots import line_style, marker, subplots

    figure, both = subplots(2, 1, figsize=(8, 7.5), sharex=True)
    for axes, what, unit in zip(both, ("time", "memory"), ("seconds a step and stream", "bytes a stream"), strict=True):
        for i, law in enumerate(laws(result.budget)):
            points = result.measured[f"{law.name} n"][what]
            xs = [int(n) for n in points]
            ys = [value / (law.batch if what == "time" else 1) for value in points.values()]
            style = line_style(i)
            axes.loglog(xs, ys, label=law.name if what == "memory" else None, marker=marker(i), **style)
            power = getattr(law, what)[0]
            axes.loglog(xs, [ys[-1] * (n / xs[-1]) ** power for n in xs], ":", color=style["color"], linewidth=1)
        axes.set_ylabel(unit)
    sizes = sorted({n for law in laws(result.budget) for n in law.units})
    both[1].set_xticks(sizes, map(str, sizes))
    both[1].minorticks_off()
    both[1].set_xlabel("units n")
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure
