"""What is wrong with a file that the engine reads, and where."""

from __future__ import annotations

from pathlib import Path


class FileError(Exception):
    """A file that can't be read; its text is one sentence that begins with ``path:line``."""

    def __init__(self, path: Path, line: int, message: str) -> None:
        super().__init__(f"{path.as_posix()}:{line}: {message}")
        self.path = path
        self.line = line
        self.message = message
