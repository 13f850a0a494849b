"""MkDocs' hooks: the executed tutorials become pages, and so does what the docs link to elsewhere in the repository.

Sources link to each other as files of the repository, so that links work where those are read; here they are turned into links of
the site. A file outside docs/ that some page links to is taken in under `repository/`.
"""

import os
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
DOCS, TUTORIALS, EXECUTED = ROOT / "docs", ROOT / "docs" / "tutorials", ROOT / "build" / "tutorials"
ELSEWHERE = "repository/"
_LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)]*)?(\))")
_PICTURE = re.compile(r'(<img\b[^>]*\bsrc="([^"]+)"[^>]*>)(?!\s*</a>)')
_SCHEME = re.compile(r"[a-z]+:|/")


def on_config(config):
    """Pages of docs/ that the menu does not name stand at the end of its guide."""
    named, guide = str(config.nav), next(part["Guide"] for part in config.nav if "Guide" in part)
    guide += [page.name for page in sorted(DOCS.glob("*.md")) if f"'{page.name}'" not in named]
    return config


def on_files(files, config):
    for program in sorted(TUTORIALS.glob("*.py")):
        for file in _executed(program):
            files.append(File.generated(config, f"tutorials/{file.name}", abs_src_path=str(file)))
    _add_elsewhere(files, config)
    return files


def on_page_markdown(markdown, page, config, files):
    origin = _origin(page.file.src_uri)
    return _LINK.sub(lambda match: _on_site(match, origin, page.file.src_uri), markdown)


def on_page_content(html, page, config, files):
    """A picture leads to itself in full size: a phone shows it small."""
    return _PICTURE.sub(r'<a href="\2">\1</a>', html)


def _executed(program):
    page = EXECUTED / f"{program.stem}.md"
    if not page.exists():
        raise PluginError(f"{program.name} was not executed: `make docs` does that, and then builds the site.")
    return [page, *sorted(EXECUTED.glob(f"{program.stem}-*.png"))]


def _add_elsewhere(files, config):
    """Follows links out of docs/ until no more are found."""
    waiting, known = [Path(f.abs_src_path) for f in files if f.is_documentation_page() and f.abs_src_path], set()
    while waiting:
        page = waiting.pop()
        origin = TUTORIALS / page.name if page.parent == EXECUTED else page
        for target in (_target(match[1], origin) for match in _LINK.findall(page.read_text())):
            if target is None or target in known or target.is_relative_to(DOCS):
                continue
            known.add(target)
            uri = _uri(target)
            if target.is_dir():
                files.append(File.generated(config, uri, content=_listing(target)))
                waiting.append(target / "README.md") if (target / "README.md").exists() else None
            elif files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
                waiting += [target] if target.suffix == ".md" else []
    for folder in [path for path in known if path.is_dir()]:
        for file in _members(folder):
            if files.get_file_from_path(_uri(file)) is None:
                files.append(File.generated(config, _uri(file), abs_src_path=str(file)))


def _members(folder):
    return [file for file in sorted(folder.iterdir()) if file.is_file() and file.suffix != ".pyc"]


def _listing(folder):
    lines = [f"- [{file.name}]({file.name})" for file in _members(folder)]
    return "\n".join([f"# {folder.relative_to(ROOT)}", "", *lines, ""])


def _target(link, origin):
    """The file or folder of the repository that a link means; None for one that leads out of it."""
    if _SCHEME.match(link):
        return None
    target = Path(os.path.normpath(origin.parent / link))
    return target if target.is_relative_to(ROOT) and target.exists() else None


def _uri(target):
    """Where the site has a file of the repository."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    if target == ROOT / "README.md":
        return "index.md"
    return ELSEWHERE + target.relative_to(ROOT).as_posix() + ("/folder.md" if target.is_dir() else "")


def _origin(uri):
    """The file of the repository that a page of the site was made of."""
    if uri.endswith("/folder.md"):
        return ROOT / uri.removeprefix(ELSEWHERE)
    return ROOT / uri.removeprefix(ELSEWHERE) if uri.startswith(ELSEWHERE) else DOCS / uri


def _on_site(match, origin, uri):
    target = _target(match[2], origin)
    if target is None:
        return match[0]
    of_program = (
        target.parent == TUTORIALS and target.suffix == ".py" and not uri.startswith("tutorials/" + target.stem)
    )
    there = _uri(target.with_suffix(".md") if of_program else target)
    return match[1] + os.path.relpath(there, os.path.dirname(uri)) + (match[3] or "") + match[4]
