"""Where a figure comes from, so that one that is out of date can be told."""

from __future__ import annotations

import ast
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "stamps.json"


@dataclass(frozen=True)
class Stamp:
    """The origin of one figure, with a digest of each module that it came from and of each file that it is in."""

    device: str
    torch: str
    seed: int | None
    command: str
    modules: dict[str, str]
    words: str
    files: dict[str, str]

    def line(self) -> str:
        """Return the origin in a line."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.device}, torch {self.torch}{seed}, {self.command}"


def load(folder: Path) -> dict[str, Stamp]:
    """Read the stamps of a folder of figures; what can't be read counts as never drawn."""
    try:
        stored = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return {name: Stamp(**fields) for name, fields in stored.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def store(folder: Path, name: str, stamp: Stamp) -> None:
    """Write one stamp among the others."""
    stamps = load(folder) | {name: stamp}
    fields = {key: asdict(stamps[key]) for key in sorted(stamps)}
    text = json.dumps(fields, ensure_ascii=False, indent=1) + "\n"
    (folder / FILE).write_text(text, encoding="utf-8", newline="\n")


def why_stale(stamp: Stamp | None, modules: dict[str, str], words: str, files: list[Path]) -> str:
    """Say why a figure must be drawn again, or nothing if it need not."""
    if stamp is None:
        return "it was never drawn"
    changed = sorted(name for name, _ in set(modules.items()) ^ set(stamp.modules.items()))
    if changed:
        return f"what it comes from has changed: {', '.join(dict.fromkeys(changed))}"
    if stamp.words != words:
        return "its words were translated anew"
    for path in files:
        if not path.exists():
            return f"{path.name} is missing"
        if digest(path.read_text(encoding="utf-8")) != stamp.files.get(path.name):
            return f"{path.name} was changed by hand"
    return ""


def modules(name: str, root: Path) -> dict[str, str]:
    """
    Return the modules of the package that module `name` is made from, itself included, in alphabetical order.

    Each comes with a digest of what it computes: of its syntax tree, where comments don't appear, without docstrings.
    """
    package = name.split(".")[0]
    found: dict[str, str] = {}
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if module not in found:
            tree = _parse(module, root)
            found[module] = digest(_written(tree))
            waiting += [other for other in _imports(tree, root) if other.split(".")[0] == package]
    return dict(sorted(found.items()))


def words_digest(name: str, translations: dict[str, dict[str, dict[str, str]]]) -> str:
    """Return a digest of the translations of a figure."""
    return digest(json.dumps({language: figures.get(name, {}) for language, figures in translations.items()}))


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _path(module: str, root: Path) -> Path | None:
    """Return the file of a module, or nothing if there is no such module."""
    stem = root.joinpath(*module.split("."))
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.exists():
            return path
    return None


def _parse(module: str, root: Path) -> ast.Module:
    path = _path(module, root)
    assert path is not None
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _imports(tree: ast.Module, root: Path) -> list[str]:
    """Return the modules that a module imports at its top, as far as they are files here."""
    names = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.append(inner if _path(inner, root) else node.module)
    return [name for name in names if _path(name, root)]


def _written(node: object) -> str:
    """
    Write a syntax tree without docstrings, and without what is empty.

    `ast.dump` writes the same tree in another way in another version of Python: empty fields come and go.
    """
    if isinstance(node, list):
        return f"[{','.join(map(_written, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    fields = []
    for name, value in ast.iter_fields(node):
        if name == "body" and documented and ast.get_docstring(node, clean=False) is not None:  # type: ignore[arg-type]
            value = value[1:]
        if value is not None and value != []:
            fields.append(f"{name}={_written(value)}")
    return f"{type(node).__name__}({','.join(fields)})"
