"""Whether a built site loads anything from anywhere else: scripts, style sheets, pictures, fonts, frames.

    python scripts/check_site.py site

Links that a reader may follow are no matter. Prints what it found, and ends with code 1 if that is anything.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

_ELSEWHERE = re.compile(r"(?:https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)
_LOADS = {"script", "img", "iframe", "frame", "embed", "source", "video", "audio", "track", "input"}
_LINKS = {"stylesheet", "preload", "prefetch", "preconnect", "dns-prefetch", "icon", "manifest", "modulepreload"}


class _Page(HTMLParser):
    def __init__(self):
        HTMLParser.__init__(self)
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        loads = tag in _LOADS or (tag == "link" and set(given.get("rel", "").lower().split()) & _LINKS)
        places = [given.get(name, "") for name in ("src", "srcset", "href", "data", "poster")] if loads else []
        self.found += [f"<{tag}> {place}" for place in places if _ELSEWHERE.match(place)]
        self.found += _IN_STYLE.findall(given.get("style", ""))

    def handle_data(self, data):
        self.found += _IN_STYLE.findall(data) if self.lasttag == "style" else []


def loaded_from_elsewhere(site: Path) -> list[str]:
    """A line for everything that a browser would fetch from another host."""
    lines = []
    for file in sorted(site.rglob("*.html")):
        page = _Page()
        page.feed(file.read_text())
        lines += [f"{file.relative_to(site)}: {what}" for what in page.found]
    for file in sorted(site.rglob("*.css")):
        lines += [f"{file.relative_to(site)}: {what}" for what in _IN_STYLE.findall(file.read_text())]
    return lines


def main() -> None:
    site = Path(sys.argv[1])
    lines = loaded_from_elsewhere(site)
    print("\n".join(lines) or f"{len(list(site.rglob('*.html')))} pages, which load nothing from elsewhere.")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
