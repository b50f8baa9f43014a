"""Notebooks that stand in a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STAMP = {"device": "CPU", "torch": "2.10", "python": "3.11", "seed": 0, "seconds": 1.2, "sources": {}}


def text(name: str, source: str, *tags: str) -> dict[str, Any]:
    """Make a Markdown cell."""
    return {"cell_type": "markdown", "id": name, "metadata": {"tags": list(tags)} if tags else {}, "source": source}


def code(name: str, source: str, *outputs: dict[str, Any], tags: tuple[str, ...] = (), count: int | None = 1) -> Any:
    """Make a code cell, executed unless it has no count."""
    return text(name, source, *tags) | {"cell_type": "code", "execution_count": count, "outputs": list(outputs)}


def shown(**data: Any) -> dict[str, Any]:
    """Make an output: `text_html="<b>"`, `image_png="..."`."""
    kinds = {kind.replace("_", "/", 1).replace("_", "+"): value for kind, value in data.items()}
    return {"output_type": "display_data", "metadata": {}, "data": kinds}


def printed(text: str, name: str = "stdout") -> dict[str, Any]:
    """Make what a cell prints."""
    return {"output_type": "stream", "name": name, "text": text}


def failed(name: str = "ValueError", value: str = "boom") -> dict[str, Any]:
    """Make what a cell leaves that fails."""
    return {"output_type": "error", "ename": name, "evalue": value, "traceback": [f"\x1b[31m{name}\x1b[0m: {value}"]}


def lesson(*cells: dict[str, Any], stamp: dict[str, Any] | None = STAMP, **metadata: Any) -> dict[str, Any]:
    """Make a notebook."""
    stamped = {"stamp": stamp} if stamp else {}
    return {"cells": list(cells), "metadata": stamped | metadata, "nbformat": 4, "nbformat_minor": 5}


def save(path: Path, notebook: dict[str, Any]) -> Path:
    """Write a notebook as some other program might."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook, indent=1), encoding="utf-8")
    return path
