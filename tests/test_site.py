"""The site's tutorials run, its reference is complete and its examples are true, and it loads nothing from elsewhere."""

import doctest
import importlib
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
import typer

import evergrad as eg
from evergrad import _extend, _public
from evergrad._cli import app
from scripts import check_site, notebooks
from tests.training_helpers import command_line_config

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
ROOMS = {"evergrad": _public.__all__} | {
    room: [name for name in vars(importlib.import_module(room)) if not name.startswith("_")]
    for room in ("evergrad.lab", "evergrad.river", "evergrad.export")
}


def public_names():
    """Every name that somebody may import, with what it is; modules inside a room are not among them."""
    found = [(f"{room}.{name}", getattr(importlib.import_module(room), name)) for room in ROOMS for name in ROOMS[room]]
    return {name: thing for name, thing in found if hasattr(thing, "__doc__") and hasattr(thing, "__qualname__")}


@pytest.fixture
def plain_jax():
    """As a reader of an example has it, but for what is optimised."""
    ranks = jax.config.jax_numpy_rank_promotion
    jax.config.update("jax_numpy_rank_promotion", "allow")
    with command_line_config():
        yield
    jax.config.update("jax_numpy_rank_promotion", ranks)


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_has_an_example_that_is_true(name, plain_jax):
    thing = public_names()[name]
    text = thing.__doc__ or ""
    assert len(text.split(">>>")[0].split()) >= 2, "says nothing"
    names = {
        "eg": eg,
        "evergrad": importlib.import_module("evergrad"),
        "jax": jax,
        "jnp": jnp,
        "optax": optax,
        "eqx": eqx,
    }
    names |= {"key": jax.random.key(0), "Path": Path}
    example = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert example.examples, "has no example"
    said = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=said.append)
    assert said == []


def test_an_example_that_is_false_is_noticed():
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "planted", None, None)
    assert doctest.DocTestRunner().run(example, out=lambda text: None).failed == 1


def test_every_name_of_extend_is_explained():
    assert [name for name in _extend.__all__ if not getattr(_extend, name).__doc__] == []


def test_the_reference_has_every_public_name():
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    there = set(re.findall(r"^::: (\S+)$", pages, re.MULTILINE))
    assert sorted(set(public_names()) - there) == []
    assert [
        n for n in _extend.__all__ if not {f"evergrad._extend.{n}", f"evergrad.{n}"} & there and n != "Memory"
    ] == []


@pytest.mark.parametrize("program", TUTORIALS, ids=lambda program: program.stem)
def test_tutorials_run(program, plain_jax, monkeypatch):
    """With small values; commands of the shell are only looked at."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    results = notebooks.executed(program.read_text(), notebooks.small, shell=look_at)
    page, pictures = notebooks.page(program.stem, results)
    assert page.startswith("# ")
    assert all(f"]({name})" in page for name in pictures)


def look_at(commands):
    """Every call of evergrad has a command and options that there are."""
    for line in commands.splitlines():
        words = line.split("|")[0].split(">")[0].split()
        if words and words[0] == "evergrad":
            command, rest = find_command(words[1:])
            known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
            assert {word for word in rest if word.startswith("--")} <= known, line
    return ""


def find_command(words):
    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_commands_that_are_none_are_noticed():
    with pytest.raises(AssertionError, match="fast"):
        look_at("evergrad train copy --fast --out runs/a")


@pytest.mark.slow
def test_the_tutorial_on_long_runs_in_a_shell():
    program = (ROOT / "docs" / "tutorials" / "long-runs.py").read_text()
    said = "".join(printed for _, printed, _ in notebooks.executed(program, notebooks.small))
    assert "the same, byte by byte" in said


def test_cells_of_a_program():
    program = '# %% [markdown]\n# # A\n#\n# b\n\n# %%\nN = 9  # small: 1\nN\n\n# %% language="bash"\n# echo c\n'
    kinds = [(cell.kind, cell.text) for cell in notebooks.cells(program)]
    assert kinds == [("markdown", "# A\n\nb"), ("python", "N = 9  # small: 1\nN"), ("bash", "echo c")]
    assert [printed for _, printed, _ in notebooks.executed(program)] == ["", "9\n", "c\n"]
    assert [printed for _, printed, _ in notebooks.executed(program, notebooks.small)] == ["", "1\n", "c\n"]
    assert "small" not in notebooks.page("a", notebooks.executed(program))[0]


def test_a_cell_that_should_fail_must():
    assert (
        notebooks.executed('# %% tags=["raises-exception"]\n1 / 0\n')[0][1] == "ZeroDivisionError: division by zero\n"
    )
    with pytest.raises(AssertionError, match="raised nothing"):
        notebooks.executed('# %% tags=["raises-exception"]\n1 + 1\n')
    with pytest.raises(ZeroDivisionError):
        notebooks.executed("# %%\n1 / 0\n")


def test_every_page_is_in_the_menu_once(site):
    menu = str(site.nav)
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    pages += [program.relative_to(ROOT / "docs").with_suffix(".md") for program in TUTORIALS]
    assert [str(page) for page in pages if menu.count(f"'{page.as_posix()}'") != 1] == []


@pytest.mark.parametrize(
    ("page", "loads"),
    [
        ('<a href="https://a.b/c">a link</a>', 0),
        ('<script src="https://a.b/c.js"></script>', 1),
        ('<link rel="stylesheet" href="//a.b/c.css">', 1),
        ('<img src="pictures/a.png"><img src="http://a.b/c.png">', 1),
        ("<style>@import 'https://a.b/c.css'; p {background: url(https://a.b/c.png)}</style>", 2),
    ],
)
def test_what_a_page_loads(tmp_path, page, loads):
    (tmp_path / "index.html").write_text(page)
    assert len(check_site.loaded_from_elsewhere(tmp_path)) == loads


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The configuration of a site that was built, strictly, with pages for tutorials that nobody has executed."""
    config = importlib.import_module("mkdocs.config")
    build = importlib.import_module("mkdocs.commands.build")
    folder = tmp_path_factory.mktemp("built")
    for program in TUTORIALS:
        (folder / f"{program.stem}.md").write_text(f"# {program.stem}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        made = config.load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder / "site"))
        patch.setattr(made.plugins["scripts/docs_site.py"], "EXECUTED", folder)
        build.build(made)
    return made


def test_the_site_loads_nothing_from_elsewhere(site):
    assert check_site.loaded_from_elsewhere(Path(site.site_dir)) == []


def test_a_picture_leads_to_itself(site):
    page = (Path(site.site_dir) / "gallery.html").read_text()
    assert re.search(r'<a href="images/cue.png"><img [^>]*src="images/cue.png"', page)
    assert page.count("<img") == len(re.findall(r"<a [^>]*><img[^>]*></a>", page))


def test_tutorials_are_pages_and_programs(site):
    folder = Path(site.site_dir) / "tutorials"
    for program in TUTORIALS:
        assert f'<h1 id="{program.stem}">' in (folder / f"{program.stem}.html").read_text()
        assert (folder / program.name).read_bytes() == program.read_bytes()


def test_files_elsewhere_in_the_repository_are_taken_in(site):
    folder = Path(site.site_dir) / "repository"
    assert (folder / "experiments" / "results" / "desk" / "report.html").exists()
    assert "../repository/examples/related/folder.html" not in (Path(site.site_dir) / "related-work.html").read_text()
    assert "repository/examples/related/folder.html" in (Path(site.site_dir) / "related-work.html").read_text()
