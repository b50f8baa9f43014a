"""How a notebook becomes a page: its text is set like that of the other pages, its outputs are those of mkdocs-jupyter.

mkdocs-jupyter makes HTML of every kind of output, and brings JupyterLab's stylesheet and scripts with it. Only the
outputs are taken. A picture stands in a figure whose caption is the Markdown cell after it, if that has the tag
``caption``; the caption is at the same time the text for those who can't see the picture.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from . import code, notebooks, origin
from .catalogue import Catalogue
from .equations import Katex
from .errors import seen
from .heads import shorten
from .notebooks import Cell, Notebook, Stamp
from .page import OutlineItem
from .prose import HEADING, Context, Links, Where, anchors, plain, render, render_line

GREY = "#767676"
"""The ink of a drawing that can be read on white and on black; on a page it becomes the ink of the page."""

_TITLE = re.compile(r"# (.*)\n*")
_DRAWING = re.compile(r'<img\b[^>]*src="data:image/svg\+xml;base64,([^"]*)"[^>]*>')
_PICTURE = re.compile(r"<(?:svg|img)\b")


@dataclass(frozen=True)
class NotebookPage:
    """Everything that a template needs to print a notebook."""

    name: str
    title: str
    """Plain text."""
    description: str
    """Plain text of at most 160 characters."""
    title_html: str
    lede: str
    todo_lede: bool
    """Whether title and lede are not yet translated."""
    stamp: Stamp
    gpu: Stamp | None
    """The stamp of the run on a GPU, if there is one."""
    gpu_stale: bool
    """Whether that run is one of an earlier version."""
    outline: tuple[OutlineItem, ...]
    html: str
    anchors: frozenset[str]
    todo_count: int
    problems: tuple[str, ...]


def annotate(
    path: Path,
    converted: str,
    *,
    package: Path,
    language: str,
    catalogue: Catalogue | None,
    katex: Katex,
    label: Callable[[str], str],
    links: Links,
) -> NotebookPage:
    """Make the page of an executed notebook from the HTML that mkdocs-jupyter makes of it.

    Raises `notebooks.NotebookError`, or `EquationError` for TeX that KaTeX rejects.
    """
    notebook = notebooks.read(path)
    stamp = notebooks.check_outputs(path, notebook)
    context = Context(katex, language, links, label)
    return _Page(path, notebook, stamp, package, catalogue, context, outputs(converted)).made()


@lru_cache(maxsize=16)  # every language, and every build while the site is served, reads the same outputs
def outputs(converted: str) -> dict[str, list[str]]:
    """Find the outputs of each code cell, by its id, in the HTML that mkdocs-jupyter makes of a notebook."""
    from bs4 import BeautifulSoup  # nbconvert brings it

    bare = re.sub(r"<(style|script)\b.*?</\1>", "", converted, flags=re.DOTALL)
    found = {}
    for cell in BeautifulSoup(bare, "html.parser").select('.jp-CodeCell[id^="cell-id="]'):
        children = cell.select(".jp-OutputArea-child > .jp-OutputArea-output")
        found[str(cell["id"]).removeprefix("cell-id=")] = [child.decode_contents().strip() for child in children]
    return found


class _Page:
    def __init__(
        self,
        path: Path,
        notebook: Notebook,
        stamp: Stamp,
        package: Path,
        catalogue: Catalogue | None,
        context: Context,
        outputs: Mapping[str, list[str]],
    ) -> None:
        self.path = path
        self.cells: list[Cell] = notebook["cells"]
        self.stamp = stamp
        self.package = package
        self.catalogue = catalogue
        self.context = context
        self.outputs = outputs
        self.taken = {"top"}
        self.outline: list[OutlineItem] = []
        self.todo = 0
        written = [cell["source"] for cell in self.cells if cell["cell_type"] == "code"]
        self.links = {}
        for name, home in origin.homes(written, package).items():
            module, _, anchor = home.partition("#")
            file = seen(origin.file_of(module, package), path.parent)
            if address := context.links(f"{file}#{anchor}"):
                self.links[name] = address

    def made(self) -> NotebookPage:
        first = self.cells[0] if self.cells else {}
        if first.get("cell_type") != "markdown" or not _TITLE.match(first["source"]):
            raise notebooks.NotebookError(self.path, 1, "the first cell is no text that begins with `# ` and a title.")
        text, where, todo = self.translated(first)
        match = _TITLE.match(text) or re.match(r"()", text)
        assert match is not None
        title = render_line(match[1], where, self.context)
        lede, _, rest = text[match.end() :].partition("\n\n")
        parts = [self.text(rest, where.after(match.end() + len(lede) + 2), (), todo)] if rest else []
        for number, cell in enumerate(self.cells[1:], 2):
            after = self.cells[number] if number < len(self.cells) else None
            if cell["cell_type"] == "code":
                parts.append(self.code(cell, after))
            elif cell["cell_type"] == "markdown" and not self.is_caption(cell, self.cells[number - 2]):
                parts.append(self.prose(cell))
        gpu = notebooks.twin_of(self.path, notebooks.GPU)
        gpu_run = notebooks.read(gpu) if gpu.exists() else None
        lede_html = render(lede, where.after(match.end()), self.context)
        return NotebookPage(
            name=self.path.stem,
            title=plain(title) or self.path.stem,
            description=shorten(plain(lede_html) or plain(title)),
            title_html=title,
            lede=lede_html,
            todo_lede=todo,
            stamp=self.stamp,
            gpu=notebooks.check_outputs(gpu, gpu_run) if gpu_run else None,
            gpu_stale=bool(gpu_run and notebooks.why_stale(gpu_run, self.package)),
            outline=tuple(self.outline),
            html="".join(parts),
            anchors=frozenset(self.taken),
            todo_count=self.todo,
            problems=tuple(self.context.problems),
        )

    def translated(self, cell: Cell) -> tuple[str, Where, bool]:
        """Return the text of a cell in the language of the page, where it stands, and whether it isn't translated."""
        shown = f'{self.path.as_posix()}, cell "{cell["id"]}"'
        here = Where(shown, lambda offset: (cell["source"].count("\n", 0, offset) + 1, 1))
        if self.catalogue is None:
            return cell["source"], here, False
        key = notebooks.context(self.path, cell), cell["source"]
        entry, item = self.catalogue.lookup(*key), self.catalogue.item(*key)
        if entry.state != "ok" or item is None:
            self.todo += 1
            return cell["source"], here, True
        return entry.text, Where(self.catalogue.path.as_posix(), lambda offset: (item.line_at(offset), 1)), False

    def prose(self, cell: Cell) -> str:
        """Make a Markdown cell; its headings take the anchors of the English ones."""
        ids = tuple(map(self.free, anchors(cell["source"])))
        text, where, todo = self.translated(cell)
        for heading, anchor in zip(HEADING.finditer(text), ids, strict=False):
            name = plain(render_line(heading[2], where.after(heading.start(2)), self.context))
            self.outline.append(OutlineItem(anchor, name, is_class=len(heading[1]) == 2))
        return self.text(text, where, ids, todo)

    def text(self, text: str, where: Where, ids: tuple[str, ...], todo: bool) -> str:
        made = render(text, where, self.context, ids, 2)
        return self.marked(made) if todo else made

    def marked(self, made: str, tag: str = "div") -> str:
        """Mark a text as one that isn't translated."""
        label = self.context.label("Not translated yet: this is the English text")
        label = f'<span class="label" lang="{self.context.language}">{label}</span>'
        return f'<{tag} class="todo" lang="en">{label}{made}</{tag}>'

    def free(self, anchor: str) -> str:
        number, new = 1, anchor
        while new in self.taken:
            number += 1
            new = f"{anchor}-{number}"
        self.taken.add(new)
        return new

    def code(self, cell: Cell, after: Cell | None) -> str:
        """Make a code cell with its outputs."""
        if cell.get("outputs") and cell["id"] not in self.outputs:
            what = f'mkdocs-jupyter makes no page of the cell "{cell["id"]}", so its outputs would be lost.'
            raise notebooks.NotebookError(self.path, 1, what)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "application/javascript" in data or "<script" in str(data.get("text/html")):
                what = "shows what only a script makes, and pages run none: give it another output."
                self.context.problems.append(f'{self.path.as_posix()}: the cell "{cell["id"]}" {what}')
        shown = [self.output(cell, made, after) for made in self.outputs.get(cell["id"], ())]
        count = cell.get("execution_count")
        prompt = f'<div class="jp-InputPrompt" aria-hidden="true">[{count}]</div>' if count else ""
        source = code.fence(cell["source"], "python", links=self.links, focusable=True)
        if "hide-input" in notebooks.tags(cell):
            source = f"<details><summary>{self.context.label('Show the code')}</summary>{source}</details>"
        area = f'<div class="jp-InputArea">{prompt}{source}</div>'
        return f'<div class="cell jp-CodeCell">{area}{"".join(shown)}</div>'

    def output(self, cell: Cell, made: str, after: Cell | None) -> str:
        if _PICTURE.search(made):
            made = self.figure(cell, made, after)
        else:
            made = re.sub(r"<pre\b[^>]*>", '<pre tabindex="0">', made)
        # What is wider than its column scrolls, and a keyboard reaches it: text in its `pre`, all else here.
        reached = "" if "<pre" in made else ' tabindex="0"'
        return f'<div class="jp-OutputArea-child"><div class="jp-OutputArea-output"{reached}>{made}</div></div>'

    def figure(self, cell: Cell, made: str, after: Cell | None) -> str:
        """Put a picture into a figure: with its caption and stamp, in the inks of the page, readable by a voice."""
        if after is None or not self.is_caption(after, cell):
            self.context.problems.append(
                f'{self.path.as_posix()}: the cell "{cell["id"]}" shows a picture, and no Markdown cell with the tag '
                "`caption` after it says what is to be seen."
            )
            caption, said = "", ""
        else:
            text, where, todo = self.translated(after)
            caption = render_line(text, where, self.context)
            said = html.escape(plain(caption))
            caption = self.marked(caption, "span") if todo else caption
        name = self.free(f"{cell['id']}-figure")
        made = _DRAWING.sub(lambda drawing: base64.b64decode(drawing[1]).decode(), made)
        made = re.sub(
            r"(<\?xml.*?|<!DOCTYPE[^>]*>\s*)?<svg\b.*</svg>", lambda svg: _drawing(svg[0], name), made, flags=re.DOTALL
        )
        made = re.sub(r'(<img\b[^>]*?) alt="[^"]*"', r"\1", made).replace("<img", f'<img alt="{said}"')
        stamp = f'<span class="stamp"><span>{html.escape(str(self.stamp))}</span></span>'
        return f'<figure>{made}<figcaption><span id="{name}">{caption}</span>{stamp}</figcaption></figure>'

    @staticmethod
    def is_caption(cell: Cell, before: Cell) -> bool:
        """Tell whether a cell is the caption of the picture that the one before shows."""
        return cell["cell_type"] == "markdown" and "caption" in notebooks.tags(cell) and before["cell_type"] == "code"


def _drawing(svg: str, name: str) -> str:
    """Set a drawing into a page: as large as there is room, in the inks of the page, and with its names and its style
    for itself, since all drawings of a page share theirs.
    """
    svg = svg[svg.find("<svg") :]
    svg = re.sub(r"<(script|metadata)\b.*?</\1>|<!\[CDATA\[|\]\]>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg).replace(GREY, "currentColor")
    svg = re.sub(r"(<style\b[^>]*>)(.*?)(</style>)", rf'\1[aria-labelledby="{name}"]{{\2}}\3', svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return svg.replace("<svg", f'<svg role="img" aria-labelledby="{name}"', 1)
