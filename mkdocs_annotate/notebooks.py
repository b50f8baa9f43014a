"""Notebooks: found, read and checked, translated into twins, and told whether their stored outputs are stale.

``lesson.ipynb`` is written by hand and executed on a CPU. ``lesson.ja.ipynb`` is its twin in another language, made
from it and the catalogue ``lesson.po``: the same code and outputs, other words. ``lesson.cuda.ipynb`` is a run on a
GPU. Each carries the stamp of its run.

Some tags of cells mean something here: ``parameters`` (a test runs the notebook with others), ``install`` (it says
where the package comes from), ``caption`` (a Markdown cell: the text of the figure above it), ``hide-input`` (code that
a page folds away) and ``raises-exception`` (a cell that is meant to fail).
"""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import origin
from .catalogue import Catalogue, Message
from .errors import FileError

Notebook = dict[str, Any]
Cell = dict[str, Any]

CPU, GPU = "CPU", "cuda"
FAILS = "raises-exception"
"""The tag of a cell that is meant to fail."""
COMMAND = "python tasks.py notebooks"


class NotebookError(FileError):
    """A notebook that can't be used; its text is one sentence that begins with the file and a line of it."""


@dataclass(frozen=True)
class Stamp:
    """Where the outputs of a notebook come from."""

    device: str
    torch: str
    python: str
    seed: int
    seconds: float
    sources: dict[str, str]
    """Digests of the notebook's cells and of the modules that they reach."""

    def __str__(self) -> str:
        return f"{self.device}, torch {self.torch}, Python {self.python}, seed {self.seed}, {self.seconds:.0f} s"


def find(folder: Path) -> dict[str, Path]:
    """Find the notebooks of a folder by name; those with a second ending are twins and runs of one of them."""
    return {path.stem: path for path in sorted(folder.glob("*.ipynb")) if "." not in path.stem}


def twin_of(path: Path, ending: str) -> Path:
    """Return the path of a notebook's twin in another language, or of its run on a GPU."""
    return path.with_suffix(f".{ending}.ipynb")


# Reading


def read(path: Path) -> Notebook:
    """Read a notebook and check what can be wrong with it before it runs."""
    try:
        text = path.read_text(encoding="utf-8")
        notebook = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise NotebookError(path, 1, f"the notebook can't be read ({reason}).") from None
    except json.JSONDecodeError as error:
        raise NotebookError(path, error.lineno, f"this is no notebook: {error.msg}.") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise NotebookError(path, 1, "this is no notebook: it has no list of cells.")
    version = notebook.get("nbformat"), notebook.get("nbformat_minor", 0)
    if not all(isinstance(part, int) for part in version) or version < (4, 5):
        raise NotebookError(path, 1, "its cells have no ids: save it in the format 4.5 or later.")
    notebook.setdefault("metadata", {})
    seen: set[str] = set()
    for number, cell in enumerate(notebook["cells"], 1):
        if not isinstance(cell, dict) or "cell_type" not in cell or not _is_text(cell.get("source")):
            raise NotebookError(path, _line(text, number), f"cell {number} is no cell: it has no type or no source.")
        name = cell.get("id")
        if not name or name in seen:
            what = f"the id {name} of cell {number} is taken" if name else f"cell {number} has no id"
            raise NotebookError(path, _line(text, number), f"{what}: give each cell an id of its own.")
        seen.add(name)
        for part, key in _texts(cell):
            if isinstance(part[key], list) and _is_text(part[key]):
                part[key] = "".join(part[key])
    return notebook


def _is_text(value: Any) -> bool:
    """Return whether a value is a text, or a list of its lines."""
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(line, str) for line in value))


def _texts(cell: Cell) -> Iterator[tuple[dict[str, Any], str]]:
    """Go through the places of a cell that may hold a text as a list of its lines."""
    yield cell, "source"
    for output in cell.get("outputs", ()):
        if "text" in output:
            yield output, "text"
    for bundle in (
        *cell.get("attachments", {}).values(),
        *(output.get("data", {}) for output in cell.get("outputs", ())),
    ):
        for kind in bundle:
            if not kind.endswith(("/json", "+json")):
                yield bundle, kind


def _line(text: str, number: int) -> int:
    """Return the line on which a cell begins."""
    starts = [match.start() for match in re.finditer(r'"cell_type"', text)]
    return text.count("\n", 0, starts[number - 1]) + 1 if number <= len(starts) else 1


def refuse_failures(path: Path, notebook: Notebook) -> None:
    """Refuse a notebook with a cell that has failed."""
    for number, cell in enumerate(notebook["cells"], 1):
        for output in cell.get("outputs", ()):
            if output.get("output_type") == "error" and FAILS not in tags(cell):
                reason = reason_of(output.get("ename"), output.get("evalue"))
                raise _at(path, number, f'the cell "{cell["id"]}" has failed ({reason}); mend it, and run it again.')


def reason_of(name: object, value: object) -> str:
    """Say on one line which error stopped a cell."""
    return " ".join(f"{name}: {value or ''}".split()).rstrip(": ")


def check_outputs(path: Path, notebook: Notebook) -> Stamp:
    """Return the stamp of an executed notebook; refuse a cell that failed or never ran, and outputs without a stamp."""
    refuse_failures(path, notebook)
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] == "code" and cell["source"].strip() and cell.get("execution_count") is None:
            raise _at(path, number, f'the cell "{cell["id"]}" was not executed; run `{COMMAND}`.')
    stamp = stamp_of(notebook)
    if stamp is None:
        raise NotebookError(path, 1, f"its outputs carry no stamp that says where they come from; run `{COMMAND}`.")
    return stamp


def _at(path: Path, number: int, message: str) -> NotebookError:
    """Return an error at a cell."""
    return NotebookError(path, _line(path.read_text(encoding="utf-8"), number), message)


def stamp_of(notebook: Notebook) -> Stamp | None:
    """Return the stamp of a notebook's run, or None if it has none."""
    try:
        stamp = Stamp(**notebook["metadata"]["stamp"])
    except (KeyError, TypeError):
        return None
    return stamp if isinstance(stamp.sources, dict) and isinstance(stamp.seconds, int | float) else None


def tags(cell: Cell) -> Sequence[str]:
    """Return the tags of a cell."""
    found: Sequence[str] = cell.get("metadata", {}).get("tags", ())
    return found


# Writing

_SPLIT = ("source", "text", "application/javascript", "image/svg+xml")  # and text/…; other kinds stay in one piece


def text_of(notebook: Notebook) -> str:
    """Return a notebook as Jupyter writes it."""
    notebook = copy.deepcopy(notebook)
    for cell in notebook["cells"]:
        for part, key in _texts(cell):
            if isinstance(part[key], str) and (key in _SPLIT or key.startswith("text/")):
                part[key] = part[key].splitlines(keepends=True)
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write(notebook: Notebook, path: Path) -> bool:
    """Write a notebook; an interrupted write leaves the old one whole. Return whether it changed."""
    data = text_of(notebook).encode()
    new = path.with_name(f".{path.name}.new")
    try:
        if path.exists() and path.read_bytes() == data:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_bytes(data)
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise NotebookError(path, 1, f"the notebook can't be written ({error.strerror}).") from None
    return True


# Languages


def messages(path: Path) -> list[Message]:
    """List what the catalogue of a notebook holds: its Markdown cells, in order."""
    notebook = read(path)
    return [Message(context(path, cell), cell["source"], path.as_posix()) for cell in prose(notebook)]


def context(path: Path, cell: Cell) -> str:
    """Return the name under which a catalogue knows a cell."""
    return f"{path.stem}#{cell['id']}"


def prose(notebook: Notebook) -> Iterator[Cell]:
    """Go through the Markdown cells that say something."""
    return (cell for cell in notebook["cells"] if cell["cell_type"] == "markdown" and cell["source"].strip())


def translated(path: Path, notebook: Notebook, catalogue: Catalogue) -> Notebook:
    """Return the twin of a notebook; a cell that isn't translated stays in English."""
    twin = copy.deepcopy(notebook)
    for cell in prose(twin):
        cell["source"] = catalogue.lookup(context(path, cell), cell["source"]).text
    return twin


# Sources


def sources(notebook: Notebook, package: Path) -> dict[str, str]:
    """Return digests of what the outputs come from; the install cell only makes the others possible."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and "install" not in tags(cell)]
    return origin.sources([cell["source"] for cell in cells], package)


def why_stale(notebook: Notebook, package: Path) -> str:
    """Say why the outputs of a notebook are out of date, or nothing."""
    stamp = stamp_of(notebook)
    if stamp is None:
        return "it was never run"
    changed = sorted(name for name, _ in sources(notebook, package).items() ^ stamp.sources.items())
    return f"what it comes from has changed: {', '.join(dict.fromkeys(changed))}" if changed else ""


def with_stamp(notebook: Notebook, stamp: Stamp) -> Notebook:
    """Return a notebook with the stamp of its run."""
    return {**notebook, "metadata": {**notebook["metadata"], "stamp": asdict(stamp)}}


_SOURCE = re.compile(r'^SOURCE = "[^"\n]*"$', re.MULTILINE)


def from_source(notebook: Notebook, address: str) -> Notebook:
    """Return a notebook whose install cell knows where the package comes from."""
    known = copy.deepcopy(notebook)
    for cell in known["cells"]:
        if "install" in tags(cell):
            cell["source"] = _SOURCE.sub(lambda _: f"SOURCE = {json.dumps(address)}", cell["source"], count=1)
    return known


def with_parameters(path: Path, notebook: Notebook, values: dict[str, object]) -> Notebook:
    """Return a notebook whose cell of parameters sets other values."""
    changed = copy.deepcopy(notebook)
    cell = next((cell for cell in changed["cells"] if "parameters" in tags(cell)), None)
    for name, value in values.items():
        if cell is None or not re.search(rf"^{name} = ", cell["source"], re.MULTILINE):
            raise NotebookError(path, 1, f"no cell with the tag `parameters` sets {name}.")
        line = f"{name} = {value!r}".replace("\\", r"\\")
        cell["source"] = re.sub(rf"^{name} = .*$", line, cell["source"], flags=re.MULTILINE)
    return changed
