"""The paper's figures and tables, one file each; `evergrad paper` runs them."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evergrad.paper.experiment import Experiment

# name: file and class, in the order of the page
EXPERIMENTS = {
    "fig1": ("fig1_copy", "CopyTask"),
    "fig2": ("fig2_ptb", "CharPtb"),
    "figA1": ("figA1_batch64", "Batch64"),
    "noise": ("noise", "NoiseFigures"),
    "fig4": ("fig4_ktp", "TripleProduct"),
    "figA8": ("figA8_bias", "Bias"),
    "table1": ("table1_costs", "Costs"),
    "theorems": ("theorems", "Theorems"),
    "lemma2": ("lemma2", "TensorLemma"),
    "ours": ("ours_pareto", "Pareto"),
}


def experiment(name: str) -> "Experiment":
    file, kind = EXPERIMENTS[name]
    return getattr(importlib.import_module(f"evergrad.paper.experiments.{file}"), kind)()
