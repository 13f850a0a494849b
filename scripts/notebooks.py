"""A tutorial, executed: its text, its code, and what that printed and drew, as one page of Markdown.

    python scripts/notebooks.py docs/tutorials/first-network.py --out build/tutorials

A tutorial is a program in Jupytext's percent format, so it can be read as it stands, run with Python and opened in Jupyter. Cells
are of three kinds: `# %% [markdown]`, `# %%` (Python) and `# %% language="bash"` (shell commands, as comments). A cell with the tag
"raises-exception" must fail, and its message is shown. A line such as `STEPS = 2_000  # small: 20` has the value that tests use.
"""

import argparse
import ast
import contextlib
import dataclasses
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from evergrad import _style

_MARKER = re.compile(r"^# %%(.*)$", re.MULTILINE)
_SMALL = re.compile(r"^(\s*\w+ ?= ?)(.+?)  # small: (.+)$", re.MULTILINE)
_BASH = 'language="bash"'
_SOURCE = "[This page is a program]({name}): run it with Python, or open it in Jupyter with Jupytext.\n{{ .program }}"


@dataclasses.dataclass(frozen=True)
class Cell:
    kind: str  # "markdown", "python" or "bash"
    text: str
    fails: bool = False  # and shall


def cells(program: str) -> list[Cell]:
    """The cells of a program; what comes before the first is no part of it."""
    parts = _MARKER.split(program)[1:]
    return [_cell(options.strip(), text.strip("\n")) for options, text in zip(parts[::2], parts[1::2], strict=True)]


def _cell(options, text):
    if options.startswith("[markdown]"):
        return Cell("markdown", _uncommented(text))
    return Cell("bash", _uncommented(text)) if _BASH in options else Cell("python", text, "raises-exception" in options)


def _uncommented(text):
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines())


def shown(code: str) -> str:
    """Without the values for tests."""
    return _SMALL.sub(r"\1\2", code)


def small(code: str) -> str:
    """With the values for tests."""
    return _SMALL.sub(r"\1\3", code)


def shell(command: str) -> str:
    """What it prints; `evergrad` is the one beside this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "96", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-euc", command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{command}\nended with code {done.returncode}:\n{done.stdout}")
    return done.stdout


def executed(
    program: str, form: Callable[[str], str] = shown, shell: Callable[[str], str] = shell
) -> list[tuple[Cell, str, list[bytes]]]:
    """Every cell with what it printed and the pictures it drew, in a folder that is gone afterwards."""
    names: dict = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), _style.in_style():
        return [(cell, *_done(cell, form, shell, names)) for cell in cells(program)]


def _done(cell, form, shell, names):
    if cell.kind == "markdown":
        return "", []
    if cell.kind == "bash":
        return shell(form(cell.text)), []
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        _run(form(cell.text), names, cell.fails)
    return printed.getvalue(), _pictures()


def _run(code, names, fails):
    try:
        _evaluate(code, names)
    except Exception as error:
        if not fails:
            raise
        print(f"{type(error).__name__}: {error}")
        return
    if fails:
        raise AssertionError(f"this cell is tagged raises-exception and raised nothing:\n{code}")


def _evaluate(code, names):
    """Prints the value of the last expression, as a notebook does."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<tutorial>", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "<tutorial>", "eval"), names) if last else None
    if value is not None:
        print(value if isinstance(value, str) else repr(value))


def _pictures():
    if "matplotlib.pyplot" not in sys.modules:
        return []
    plt = sys.modules["matplotlib.pyplot"]
    pictures = []
    for number in plt.get_fignums():
        data = io.BytesIO()
        plt.figure(number).savefig(data, format="png", dpi=150)
        pictures.append(data.getvalue())
    plt.close("all")
    return pictures


def page(name: str, results: list[tuple[Cell, str, list[bytes]]]) -> tuple[str, dict[str, bytes]]:
    """The Markdown, and the pictures by their names. A picture's text is the comment in the last line of its cell."""
    parts, files = [], {}
    for cell, printed, pictures in results:
        code, text = _described(cell.text) if pictures else (cell.text, "")
        parts.append(code if cell.kind == "markdown" else f"```{cell.kind}\n{shown(code)}\n```")
        if printed.strip():
            parts.append(f"``` {{ .text .output }}\n{printed.rstrip()}\n```")
        for picture in pictures:
            file = f"{name}-{len(files) + 1}.png"
            files[file] = picture
            parts.append(f"![{text}]({file})")
    heading, *rest = parts
    title, _, text = heading.partition("\n")
    return "\n\n".join([title, _SOURCE.format(name=f"{name}.py"), text.strip(), *rest]) + "\n", files


def _described(code):
    """The code, and what its pictures show, which must stand in its last line."""
    *lines, last = code.rstrip().splitlines()
    if not last.startswith("# "):
        raise ValueError(f"a cell that draws ends with a comment that says what is to be seen:\n{code}")
    return "\n".join(lines), last.removeprefix("# ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder for the page and its pictures")
    parser.add_argument("--small", action="store_true", help="with the values that tests use")
    options = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "agg")
    results = executed(options.program.read_text(), small if options.small else shown)
    text, pictures = page(options.program.stem, results)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, data in pictures.items():
        (options.out / name).write_bytes(data)
    (options.out / f"{options.program.stem}.md").write_text(text)


if __name__ == "__main__":
    main()
