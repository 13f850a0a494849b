"""The code in README and docs runs as it stands."""

import re
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import evergrad as eg
from evergrad import _public as public

ROOT = Path(__file__).parent.parent


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_ten_lines(page, capsys):
    """With a shorter stream and a smaller network than it says."""
    (code,) = blocks(page)
    rng = np.random.default_rng(0)
    stream = [(rng.integers(0, 4, 16), rng.integers(0, 4, 16), np.zeros(16, bool)) for _ in range(3)]
    exec(code.replace("128", "20"), {"stream": stream})
    assert len(capsys.readouterr().out.split()) == 3


@pytest.mark.parametrize("name", ["Leaky", "MGU", "Mine"])
def test_the_cells_of_the_docs(name):
    names = {}
    for block in blocks("docs/extending-a-cell.md"):
        exec(block, names)
    key = jax.random.key(0)
    own = (eqx.nn.Linear(6, 6, key=key), 0.5 * jax.random.normal(key, (9, 6)))
    cell = names[name](3, 6, *own) if name == "Mine" else names[name](3, 6, key=key)
    model = eg.Model(cell, eg.Softmax(6, 3, key=jax.random.key(1)))
    learner = eg.Learner(model, eg.OK(rank=2, window=2), optax.adam(1e-2))
    xs = np.tile(np.arange(200)[:, None] % 3, (1, 2))
    _, out = learner.run(learner.init(batch=2, key=jax.random.key(2)), xs[:-1], xs[1:])
    assert float(out.losses[-20:].mean()) < 0.7 * float(out.losses[:20].mean())


def test_every_public_name_is_explained_and_the_example_runs(capsys):
    page = (ROOT / "docs" / "python.md").read_text()
    assert [name for name in public.__all__ if f"`eg.{name}" not in page] == []
    (code,) = blocks("docs/python.md")
    exec(code, {})
    variance, recommended = capsys.readouterr().out.splitlines()
    assert float(variance) > 0
    assert recommended.startswith("RTRL")


def test_all_that_the_page_on_learning_does(capsys, tmp_path, monkeypatch):
    """One sequence is learned from its last step alone; without the strict modes of the tests, as a user has it."""
    monkeypatch.chdir(tmp_path)
    names = {}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for block in blocks("docs/learning.md"):
            exec(block, names)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Learner of LSTM")
    assert said[1] == "(100, 4)"
    assert names["right"][:20].mean() < 0.7
    assert names["right"][-20:].mean() > 0.95
    assert {"state.npz", "last.npz"} == {path.name for path in tmp_path.iterdir()}


def test_the_forecaster_of_the_docs(capsys):
    code = next(code for code in blocks("docs/streams.md") if "OnlineRNNForecaster" in code)
    exec(code.replace("200", "30"), {"wave": np.sin(0.3 * np.arange(30)).tolist()})
    assert len(eval(capsys.readouterr().out)) == 3


def test_links_lead_somewhere():
    docs = ROOT / "docs"
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs.rglob("*.md"), *(docs / "tutorials").glob("*.py")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_and_tutorial_with_tbptt_is_on_the_referees_list():
    listed = (ROOT / "docs" / "comparisons.md").read_text()
    pages = [page for page in (ROOT / "docs").glob("*.md") if re.search(r"^\|.*TBPTT", page.read_text(), re.MULTILINE)]
    pages += [page for page in (ROOT / "docs" / "tutorials").glob("*.py") if "eg.TBPTT(" in page.read_text()]
    assert len(pages) > 7
    assert [page.name for page in pages if f"{page.name})" not in listed and page.name != "comparisons.md"] == []


def test_the_stack_of_the_docs(capsys):
    """With its encoder and layer norm, and what a layerwise scheme would drop of it."""
    stack, measure = blocks("docs/networks.md")
    names = {}
    exec(stack, names)
    rng = np.random.default_rng(0)
    exec(measure, names | {"xs": rng.integers(0, 50, (6, 2)), "ys": rng.integers(0, 50, (6, 2))})
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == [
        "layer 1 (Linear)",
        "layer 2 (GRU)",
        "layer 3 (LayerNorm)",
        "layer 4 (LSTM)",
    ]
    assert said[3].endswith("nothing of the gradient is dropped")
