"""Which modules of a package become pages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def modules(package: Path, exclude: Iterable[str] = ()) -> dict[str, Path]:
    """Find the modules that become pages, by their page's name: ``adam``, ``nested/adam``.

    Whatever has an underscore in front is private and stays out, and so does what `exclude` names.
    """
    left_out = set(exclude)
    found = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).with_suffix("").as_posix()
        if name not in left_out and not any(part.startswith(("_", ".")) for part in name.split("/")):
            found[name] = path
    return found


def pages(package: Path, exclude: Iterable[str] = ()) -> dict[str, Path]:
    """Find the same modules by the file that MkDocs would know their page by: ``adam.md``."""
    return {f"{name}.md": path for name, path in modules(package, exclude).items()}
