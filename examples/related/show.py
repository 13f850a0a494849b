"""What the four have measured, from benchmarks/results/related: a table with the times, and docs/images/related-*.png.

python examples/related/show.py
"""

import json
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from evergrad._style import line_style, marker, subplots
from evergrad._training.plots import save

RESULTS, IMAGES = Path("benchmarks/results/related"), Path("docs/images")
SIZE = (7, 3.8)


def read(name):
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def axes_of(x, y):
    figure, axes = subplots(figsize=SIZE)
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def sparse_attentive_backtracking():
    """The share of right answers as training goes on, a line a seed."""
    found = read("sparse_attentive_backtracking")
    figure, axes = axes_of("sequences of each of 16 streams", "share of right answers")
    for i, (name, method) in enumerate(found["results"].items()):
        for j, run in enumerate(method["runs"]):
            steps = [(k + 1) * method["report"] for k in range(len(run["right"]))]
            axes.plot(
                steps, run["right"], label=f"{name}, Adam {method['rate']:g}" if j == 0 else None, **line_style(i)
            )
    axes.axhline(1 / found["settings"]["letters"], color="grey", linewidth=1, label="guessing")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure


def recurrent_backpropagation():
    """Held-out error, a dot a seed."""
    figure, axes = axes_of("", "held-out squared error a pixel")
    dots(
        axes,
        {name: [run["error"] for run in runs] for name, runs in read("recurrent_backpropagation")["results"].items()},
    )
    axes.set_ylim(0, 0.25)
    return figure


def equilibrium_propagation():
    """Error of the estimate against β, with the slopes that theory has."""
    slopes = read("equilibrium_propagation")["slopes"]
    betas, errors = slopes["betas"], list(zip(*slopes["errors"], strict=True))
    figure, axes = axes_of("β", "relative error of the estimated gradient")
    for i, (name, power) in enumerate((("one-sided", 1), ("symmetric", 2))):
        fitted = slopes["slopes"][i]
        axes.loglog(
            betas, errors[i], marker=marker(i), label=f"{name}, slope {fitted:.2f} below β = 0.1", **line_style(i)
        )
        law = [errors[i][-1] * (beta / betas[-1]) ** power for beta in betas[2:]]
        axes.loglog(
            betas[2:], law, color="grey", linewidth=3, alpha=0.4, label="slopes 1 and 2" if i else None, zorder=0
        )
    axes.legend(fontsize=8)
    return figure


def predictive_coding():
    """Bits of held-out text after each stretch, a dot a seed."""
    stages = {"A after A": (0, "A"), "A after B": (1, "A"), "A after A again": (2, "A"), "B after B": (1, "B")}
    figure, axes = axes_of("", "held-out bits a symbol")
    for i, (name, method) in enumerate(read("predictive_coding")["results"].items()):
        ys = [[run[at][f"held_out_{text}"]["plain"] for run in method["runs"]] for at, text in stages.values()]
        points = [(at + 0.12 * (i - 1.5), y) for at, seeds in enumerate(ys) for y in seeds]
        style = {"color": line_style(i)["color"], "marker": marker(i), "linestyle": "none", "markersize": 5}
        axes.plot(*zip(*points, strict=True), label=name, **style)
    axes.set_xticks(range(len(stages)), list(stages))
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return figure


def dots(axes, seeds):
    for i, values in enumerate(seeds.values()):
        axes.plot([i] * len(values), values, marker=marker(i), linestyle="none", color=line_style(i)["color"])
    axes.set_xticks(range(len(seeds)), [name.replace(", ", ",\n").replace(" ", "\n", 1) for name in seeds], fontsize=8)


PICTURES = (sparse_attentive_backtracking, recurrent_backpropagation, equilibrium_propagation, predictive_coding)


def rows():
    """Of every method: the file, the method, its figure for every seed, and how long a step takes."""
    for name, method in read("sparse_attentive_backtracking")["results"].items():
        right = [run["right"][-1] for run in method["runs"]]
        yield "sparse attentive backtracking", name, "right", right, time_of(method["runs"]), "sequence of 110 steps"
    for file, figure in (("recurrent_backpropagation", "error"), ("equilibrium_propagation", "wrong")):
        for name, runs in read(file)["results"].items():
            yield file.replace("_", " "), name, figure, [run[figure] for run in runs], time_of(runs), "batch of 50"
    for name, method in read("predictive_coding")["results"].items():
        bits = [run[2]["held_out_A"]["plain"] for run in method["runs"]]
        yield (
            "P-TNCN",
            name,
            "bits of A at the end",
            bits,
            time_of([stage for run in method["runs"] for stage in run]),
            "step",
        )


def time_of(runs):
    return statistics.median(run["ms"] for run in runs)


def main():
    print("| | method | figure | seeds | ms | a |\n|---|---|---|---|---|---|")
    for file, name, figure, seeds, ms, of in rows():
        print(f"| {file} | {name} | {figure} | {', '.join(f'{value:.3f}' for value in seeds)} | {ms:.3g} | {of} |")
    for picture in PICTURES:
        path = IMAGES / f"related-{picture.__name__.replace('_', '-')}.png"
        save(picture(), path)
        print(path)


if __name__ == "__main__":
    main()
