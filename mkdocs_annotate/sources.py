"""Which modules of a package become pages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class PackageError(Exception):
    """A package has no modules to be read; its text is one sentence that names the package or what is wrong in it."""


def modules(package: Path, exclude: Iterable[str] = ()) -> dict[str, Path]:
    """Find the modules that become pages, by their page's name: ``adam``, ``nested/adam``.

    Whatever has an underscore in front is private and stays out, and so does what `exclude` names. Raises
    `PackageError` where there is none.
    """
    if not package.is_dir():
        what = "is a file" if package.exists() else "is not there"
        raise PackageError(
            f"{package.as_posix()} {what}: `package` names the folder of the modules, seen from mkdocs.yml."
        )
    left_out = set(exclude)
    found = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).with_suffix("").as_posix()
        if name not in left_out and not any(part.startswith(("_", ".")) for part in name.split("/")):
            if not path.is_file():
                raise PackageError(f"{path.as_posix()} is no file: rename or delete it, or name it in `exclude`.")
            found[name] = path
    if not found:
        raise PackageError(
            f"{package.as_posix()} holds no module that becomes a page: names with an underscore in front and those in "
            "`exclude` stay out."
        )
    return found


def pages(package: Path, exclude: Iterable[str] = ()) -> dict[str, Path]:
    """Find the same modules by the file that MkDocs would know their page by: ``adam.md``."""
    return {f"{name}.md": path for name, path in modules(package, exclude).items()}
