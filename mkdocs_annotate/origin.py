"""What some code comes from: digests of syntax trees, in which comments and docstrings don't count."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path


def sources(cells: Sequence[str], package: Path) -> dict[str, str]:
    """Return digests of the cells of a notebook and of all modules of the package that they reach, by name."""
    trees = [_parse(cell) for cell in cells]
    found = {"cells": digest("\n".join(_written(tree, show=True) for tree in trees))}
    waiting = [module for tree in trees for module in _reached(tree, package)]
    while waiting:
        module = waiting.pop()
        if module not in found:
            tree = _module(module, package)
            found[module] = digest(_written(tree))
            waiting += _reached(tree, package, module)
    return dict(sorted(found.items()))


def homes(codes: Sequence[str], package: Path, module: str = "") -> dict[str, str]:
    """Return the classes and functions that some code imports from the package, each with its module and its name.

    `module` is the name of the module that the code is, if it is one of the package and no cell.
    """
    found: dict[str, str] = {}
    for node in (node for code in codes for node in ast.walk(_parse(code))):
        if isinstance(node, ast.ImportFrom) and (source := _from(node, module, package)).split(".")[0] == package.name:
            for alias in node.names:
                home, name = _home(source, alias.name, package)
                if name in _defined(home, package):
                    found[alias.asname or alias.name] = f"{home}#{name}"
    return found


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_COMMAND = re.compile(r"^([ \t]*)([%!].*|[^#'\"\n]*\?)$", re.MULTILINE)


@lru_cache(maxsize=64)  # every language asks for the same ones
def _parse(code: str | bytes) -> ast.AST:
    """Parse some code; a command of IPython's (`%pip`, `!ls`, `help?`) counts as the call of something."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        pass
    text = code if isinstance(code, str) else code.decode("utf-8", "replace")
    try:
        if not text.lstrip().startswith("%%"):  # the whole cell is in another language
            return ast.parse(_COMMAND.sub(lambda found: f"{found[1]}command({found[2]!r})", text))
    except (SyntaxError, ValueError):
        pass
    return ast.Constant(text)


def _module(module: str, package: Path) -> ast.AST:
    """Parse a module without what it does as a program (``if __name__ == "__main__"``), which no cell reaches."""
    tree = _parse(file_of(module, package).read_bytes())
    if not isinstance(tree, ast.Module):
        return tree
    body = [node for node in tree.body if not (isinstance(node, ast.If) and _written(node.test) == _PROGRAM)]
    return ast.Module(body, type_ignores=[])


def file_of(module: str, package: Path) -> Path:
    """Return where a module of the package is, or would be."""
    stem = package.parent.joinpath(*module.split("."))
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


def _from(node: ast.ImportFrom, module: str, package: Path) -> str:
    """Return the whole name of the module from which another one imports."""
    if not node.level or not module:
        return "" if node.level else node.module or ""
    parts = module.split(".")
    up = node.level - (file_of(module, package).name == "__init__.py")
    return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])


def _reached(tree: ast.AST, package: Path, module: str = "") -> Iterator[str]:
    """Go through the modules of the package that some code imports; a name leads to the module that defines it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(_from(node, module, package), alias.name) for alias in node.names]
        else:
            continue
        for source, name in names:
            if source.split(".")[0] == package.name and file_of(source, package).is_file():
                yield _home(source, name, package)[0]


def _home(module: str, name: str, package: Path) -> tuple[str, str]:
    """Find the module that a name comes from, where another one only hands it on, and what it is called there."""
    inner = f"{module}.{name}"
    if name and file_of(inner, package).is_file():
        return inner, ""
    if file_of(module, package).name == "__init__.py":
        for node in _body(module, package):
            if isinstance(node, ast.ImportFrom) and (source := _from(node, module, package)) != module:
                for alias in node.names:
                    if name == (alias.asname or alias.name) and file_of(source, package).is_file():
                        return _home(source, alias.name, package)
    return module, name


def _body(module: str, package: Path) -> Sequence[ast.stmt]:
    """Return the statements of a module; one that is not there (a folder without `__init__.py`) has none."""
    tree = _module(module, package) if file_of(module, package).is_file() else None
    return tree.body if isinstance(tree, ast.Module) else ()


def _defined(module: str, package: Path) -> set[str]:
    """Return the classes and functions of a module: what has a place of its own on a page."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in _body(module, package) if isinstance(node, kinds)}


def _written(node: object, *, show: bool = False) -> str:
    """Write a syntax tree without docstrings, and without empty fields, which come and go with Python's versions.

    A string that a cell begins with is no docstring: it may be what the cell shows.
    """
    if isinstance(node, list):
        return f"[{','.join(map(_written, node))}]"
    if not isinstance(node, ast.AST):
        return ascii(node)  # which signs `repr` writes as they are depends on Python's version
    fields = dict(ast.iter_fields(node))
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(node, kinds) and not show and ast.get_docstring(node):
        fields["body"] = fields["body"][1:]
    kept = [f"{name}={_written(value)}" for name, value in fields.items() if value is not None and value != []]
    return f"{type(node).__name__}({','.join(kept)})"


_PROGRAM = _written(ast.parse('__name__ == "__main__"', mode="eval").body)
