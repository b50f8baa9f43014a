"""Where figures come from: the machine, what ran on it, and the code that was measured."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
from pathlib import Path
from typing import Any

import torch

from labml_opt._figures import stamps

ROOT = Path(__file__).resolve().parent.parent
COMPETITORS = ("torch-optimi", "pytorch-optimizer", "torchao", "schedulefree")
COMPILERS = (os.environ.get("CXX", "g++"), "g++", "clang++")
MEASURED = ("labml_opt.adam_fp16",)
"""The modules whose code decides what is measured, with all that they import."""


def available_memory() -> float:
    """Return the bytes of memory that are free, as far as the system says."""
    return _meminfo("MemAvailable") or float("inf")


def _meminfo(name: str) -> int:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def cpu_model() -> str:
    """Return the name of the processor."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def load() -> list[float] | None:
    """Return the load averages of 1, 5 and 15 minutes, where there are such."""
    return [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def sources() -> dict[str, str]:
    """Return a digest of each module that was measured: of what it computes, without comments and docstrings."""
    found: dict[str, str] = {}
    for module in MEASURED:
        found |= stamps.modules(module, ROOT)
    return found


def digest(modules: dict[str, str]) -> str:
    """Return one digest of all of them."""
    return hashlib.sha256("\n".join(f"{name} {value}" for name, value in sorted(modules.items())).encode()).hexdigest()[
        :16
    ]


def begin(command: str) -> dict[str, Any]:
    """Return what is known before anything is measured."""
    modules = sources()
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": command,
        "machine": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "memory_gib": round(_meminfo("MemTotal") / 2**30, 1) or None,
            "system": platform.system(),
        },
        "compiler": next((name for name in COMPILERS if shutil.which(name)), None),
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "competitors": {package: _version(package) for package in COMPETITORS},
        "load_at_start": load(),
        "digest": digest(modules),
        "modules": modules,
    }
