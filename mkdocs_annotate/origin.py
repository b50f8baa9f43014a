"""What some code comes from: digests of syntax trees, in which comments and docstrings don't count."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path


def sources(cells: Sequence[str], package: Path) -> dict[str, str]:
    """Return digests of the cells of a notebook and of all modules of the package that they reach, by name."""
    trees = [_parse(cell) for cell in cells]
    found = {"cells": digest("\n".join(map(_written, trees)))}
    waiting = [module for tree in trees for module in _reached(tree, package)]
    while waiting:
        module = waiting.pop()
        if module not in found:
            tree = _parse(_file(module, package).read_text(encoding="utf-8"))
            found[module] = digest(_written(tree))
            waiting += _reached(tree, package)
    return dict(sorted(found.items()))


def homes(cells: Sequence[str], package: Path) -> dict[str, str]:
    """Return the names that some cells import from the package, each with the module that defines it."""
    found: dict[str, str] = {}
    for node in (node for cell in cells for node in ast.walk(_parse(cell))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package.name:
            for alias in node.names:
                module = _home(node.module, alias.name, package)
                found |= {alias.asname or alias.name: module} if module != f"{node.module}.{alias.name}" else {}
    return found


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parse(code: str) -> ast.AST:
    try:
        return ast.parse(code)
    except SyntaxError:  # a command of IPython's (`%pip`), which only the kernel understands
        return ast.Constant(code)


def _file(module: str, package: Path) -> Path:
    stem = package.parent.joinpath(*module.split("."))
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


def _reached(tree: ast.AST, package: Path) -> Iterator[str]:
    """Go through the modules of the package that some code imports; a name leads to the module that defines it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in names:
            if module.split(".")[0] == package.name and _file(module, package).is_file():
                yield _home(module, name, package)


def _home(module: str, name: str, package: Path) -> str:
    """Find the module that a name comes from, where another one only hands it on."""
    inner = f"{module}.{name}"
    if name and _file(inner, package).is_file():
        return inner
    if _file(module, package).name == "__init__.py":
        tree = ast.parse(_file(module, package).read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    if name == (alias.asname or alias.name) and _file(node.module, package).is_file():
                        return _home(node.module, alias.name, package)
    return module


def _written(node: object) -> str:
    """Write a syntax tree without docstrings, and without empty fields, which come and go with Python's versions."""
    if isinstance(node, list):
        return f"[{','.join(map(_written, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
        fields["body"] = fields["body"][1:]
    kept = [f"{name}={_written(value)}" for name, value in fields.items() if value is not None and value != []]
    return f"{type(node).__name__}({','.join(kept)})"
