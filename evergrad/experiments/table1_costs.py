"""Table 1: memory and time of a step and stream, measured as the network grows, against the formulas."""

from evergrad.paper.claims import Claim, judged
from evergrad.paper.experiment import Experiment, Grid, Picture, Section

UNITS = {"quick": (8, 32), "desk": (64, 128, 256), "full": (64, 128, 256, 512)}  # from where kernels are used
LARGEST_RTRL = 256  # n⁴ a step: no further
STREAMS, SYMBOLS, RANK, HORIZON = 4, 4, 4, 25
SECONDS = {"quick": 0.05, "desk": 2.0, "full": 10.0}  # to time a step for
ESTIMATORS = {  # label: spelling, memory and time as powers of n in the paper
    "RTRL": ("rtrl", 3, 4),
    f"{RANK}-OK": (f"ok:rank={RANK},window=0,mix=signs", 2, 3),
    f"{RANK}-KF-RTRL-AVG": (f"kf:copies={RANK}", 2, 3),
    "UORO": ("uoro", 2, 2),
    f"{RANK}-KTP": (f"ktp:rank={RANK}", 1, 2),
    f"TBPTT-{HORIZON}": (f"tbptt:horizon={HORIZON},stride={HORIZON}", 1, 2),
    f"{RANK}-OK, window 16 (ours)": (f"ok:rank={RANK},window=16", 2, 3),
    "RTRL, window 32 (ours)": ("rtrl:window=32", 3, None),
}


class Costs(Experiment):
    name, title = "table1", "Table 1: what a step costs"

    def measure(self, plan):
        found = {}
        for label, (spelt, *_) in ESTIMATORS.items():
            found[label] = {}
            for n in UNITS[plan.budget]:
                if n <= LARGEST_RTRL or not spelt.startswith("rtrl"):
                    settings = {"units": n, "streams": STREAMS, "spelt": spelt, "by": "bench"}
                    measure = lambda spelt=spelt, n=n: measured(spelt, n, SECONDS[plan.budget])  # noqa: E731
                    slug = "".join(c if c.isalnum() else "-" for c in label)
                    found[label][str(n)] = plan.measured(f"table1-{slug}-{n}", settings, measure)
        return found

    def section(self, result, reference):
        rows, claims = [], []
        for label, (_, memory, runtime) in ESTIMATORS.items():
            found = result.measured[label]
            bytes_, seconds = growth(found, "bytes"), growth(found, "seconds")
            largest = max(found, key=int)
            said = f"n^{runtime}" if runtime else "n³ to n⁴"
            kept, took = f"{found[largest]['bytes'] / 1024:,.0f} KiB", f"{1000 * found[largest]['seconds']:.3g} ms"
            rows.append((label, largest, kept, f"n^{memory}", f"n^{bytes_:.2f}", took, said, f"n^{seconds:.2f}"))
            if "ours" not in label:
                claims += _claims(label, memory, bytes_, runtime, seconds)
        head = (
            "estimator",
            "n",
            "memory a stream",
            "formula",
            "measured growth",
            "time a step",
            "formula",
            "measured growth",
        )
        grid = Grid(
            f"At the largest network measured, and fitted through all; time of a step of {STREAMS} streams", head, rows
        )
        return Section(
            [Picture("costs", _figure(result.measured), "Time and memory as the network grows.")], claims, [grid]
        )


def _claims(label, memory, bytes_, runtime, seconds):
    """Small networks leave the processor idle, so time may well grow slower than the formula, but must not grow faster."""
    as_said, slow_enough = judged(abs(bytes_ - memory) < 0.35), judged(seconds < runtime + 0.35)
    return [
        Claim(f"{label}: memory grows as the formula", f"n^{memory}", f"n^{bytes_:.2f}", as_said),
        Claim(f"{label}: time grows no faster than the formula", f"n^{runtime}", f"n^{seconds:.2f}", slow_enough),
    ]


def growth(found: dict, what: str) -> float:
    """The power of n, fitted through all sizes."""
    from evergrad.bench.growth import exponent

    return exponent({int(n): figures[what] for n, figures in found.items()})


def measured(spelt: str, n: int, seconds: float) -> dict[str, float]:
    """Bytes that one stream more costs, and seconds of a step of `STREAMS` streams, as `evergrad bench` measures them."""
    from evergrad.bench import growth
    from evergrad.bench.settings import Setting
    from evergrad.lab.subject import parse_estimator

    setting = Setting("table 1", units=n, batch=STREAMS, rank=RANK, symbols=SYMBOLS)
    took, kept = growth.measured(setting, parse_estimator(spelt), seconds)
    return {"bytes": kept, "seconds": took}


def _figure(found):
    from evergrad.plots import line_style, marker, plt

    figure, both = plt.subplots(2, 1, figsize=(8, 7.5), sharex=True, layout="constrained")
    for axes, what, unit in zip(both, ("seconds", "bytes"), ("seconds a step", "bytes a stream"), strict=True):
        for i, (label, sizes) in enumerate(found.items()):
            xs = sorted(map(int, sizes))
            ys = [sizes[str(n)][what] for n in xs]
            axes.loglog(xs, ys, label=label if what == "bytes" else None, marker=marker(i), **line_style(i))
        axes.set_ylabel(unit)
        axes.grid(alpha=0.3)
    sizes = sorted({int(n) for each in found.values() for n in each})
    both[1].set_xticks(sizes, map(str, sizes))
    both[1].minorticks_off()
    both[1].set_xlabel("units n")
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure
