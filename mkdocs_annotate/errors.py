"""What is wrong with a file that the engine reads, and where; and how the place of a file is written."""

from __future__ import annotations

import os
from pathlib import Path


def seen(path: str | Path, start: str | Path = ".") -> str:
    """Return the way to a file from a folder, with forward slashes; its whole path if it lies on another drive."""
    try:
        return Path(os.path.relpath(path, start)).as_posix()
    except ValueError:  # Windows
        return Path(path).as_posix()


class FileError(Exception):
    """A file that can't be read; its text is one sentence that begins with ``path:line``."""

    def __init__(self, path: Path, line: int, message: str) -> None:
        super().__init__(f"{path.as_posix()}:{line}: {message}")
        self.path = path
        self.line = line
        self.message = message
