"""Builds the site, reads its pages, and stands in for a reader at a browser."""

import functools
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADDRESS = "https://example.org/labml_opt/"
REPOSITORY = "https://github.com/example/labml_opt"
PATIENCE = 180  # seconds: more than a loaded machine needs, so that only what never comes is given up
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def mkdocs(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run mkdocs in a folder; the environment is this one without what the site reads, plus what is given."""
    read = ("SITE_URL", "REPO_URL", "REPO_REF", "PACKAGE_SOURCE")
    kept = {name: value for name, value in os.environ.items() if name not in read}
    command = [sys.executable, "-m", "mkdocs", *arguments]
    return subprocess.run(command, cwd=folder, env=kept | environment, capture_output=True, text=True, check=False)


def copy_of_project(folder: Path) -> Path:
    """A copy of all that the site is made of, to be spoilt."""
    for name in ("labml_opt", "docs", "locale", "notebooks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("mkdocs.yml", "anchors.tsv"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    return folder


class Document(HTMLParser):
    """A page, as far as the tests look at it: its elements with their attributes, and the text of each row."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.html = html
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        found = [attrs for name, attrs in self.elements if name == tag]
        return [attrs for attrs in found if all(attrs.get(name.rstrip("_")) == value for name, value in wanted.items())]

    @property
    def ids(self) -> set[str]:
        return {attrs["id"] for _, attrs in self.elements if "id" in attrs}


@dataclass
class Built:
    """A built site."""

    folder: Path
    log: str

    def pages(self, language: str = "") -> list[str]:
        """Addresses of the pages of a language (`""`, `"adam/"`), 404 apart."""
        top = self.folder / language
        found = (path.parent.relative_to(top).as_posix() for path in sorted(top.rglob("index.html")))
        own = ["" if name == "." else name + "/" for name in found]
        return own if language else [name for name in own if not name.startswith("ja/")]

    @functools.cache  # noqa: B019
    def document(self, page: str) -> Document:
        path = self.folder / page
        return Document((path / "index.html" if page.endswith("/") or not page else path).read_text(encoding="utf-8"))

    def __hash__(self) -> int:
        return hash(self.folder)


def built(folder: Path, out: Path, **environment: str) -> Built:
    done = mkdocs("build", "--strict", "-d", str(out), folder=folder, **environment)
    assert done.returncode == 0, done.stderr
    return Built(out, done.stderr)


class Reader:
    """A reader at a browser: what goes wrong in the page, and what is asked of other hosts, is remembered."""

    def __init__(self, browser, address: str, **options) -> None:
        settings = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce", "color_scheme": "light"}
        self.context = browser.new_context(**(settings | options))
        self.context.set_default_timeout(1000 * PATIENCE)
        self.page = self.context.new_page()
        self.address = address
        self.wrong: list[str] = []
        self.page.on(
            "console", lambda message: message.type in ("error", "warning") and self.wrong.append(message.text)
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("requestfailed", self._failed)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.address.split("/labml_opt/")[0], "data:", "file:", "blob:")):
            self.wrong.append(f"asks another host: {url}")

    def _failed(self, request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the reader went on before it was there
            self.wrong.append(f"{request.url}: {request.failure}")

    def open(self, page: str):
        self.page.goto(self.address + page)
        return self.page

    def resize(self, width: int, height: int) -> None:
        """Give the window another size, and wait until the page has it."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.wait_for_function("size => innerWidth === size[0] && innerHeight === size[1]", arg=[width, height])

    def search(self, query: str):
        """Type a query into Material's search, opened with the key `/`; return the links that it finds."""
        if not self.searching:
            self.page.keyboard.press("/")
        # The answer to an empty box is waited for, too: coming later, it would be taken for the one to the query.
        self._type("")
        self.page.wait_for_function(EMPTY)
        self._type(query)
        self.page.wait_for_function(ANSWERED)
        return self.page.locator(".md-search-result__link")

    def _type(self, text: str) -> None:
        box = self.page.locator(".md-search__input")
        box.fill(text)
        box.press("End")  # Material looks at the box when a key comes up

    @property
    def searching(self) -> bool:
        return self.page.locator("#__search").is_checked()


# What Material's search says of the query.
SAID = """
    const words = JSON.parse(document.querySelector("#__config").textContent).translations
    const said = document.querySelector(".md-search-result__meta").textContent.trim()
"""
EMPTY = f"""() => {{ {SAID}
    return said === words["search.result.placeholder"] && !document.querySelector(".md-search-result__link")
}}"""
ANSWERED = f"""() => {{ {SAID} return said === words["search.result.none"] || /[0-9]/.test(said) }}"""


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
