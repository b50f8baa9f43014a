"""Shared set-up of the optimizer tests."""

import importlib.util
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from labml_opt import GenericAdaptiveOptimizer

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker of the tests that need a GPU."""
    config.addinivalue_line("markers", "cuda: needs a CUDA GPU; skipped, with the reason, where there is none")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the GPU tests, with the reason, on a machine that has none."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="no CUDA GPU on this machine"))


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test hear the warning that a process gives once."""
    monkeypatch.setattr(GenericAdaptiveOptimizer, "_warned", False)


@pytest.fixture
def trainers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lightning and accelerate, kept quiet: no progress bar, no log, no file outside the folder of the test."""
    missing = [name for name in ("pytorch_lightning", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.fail(
            f"{' and '.join(missing)} can't be imported, so nothing is known about trainers: install what the extra "
            "`test` lists (pip install -e '.[test]')"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))  # Lightning's metrics import matplotlib, which writes a cache
    for setting in ("ENABLE_PROGRESS_BAR", "ENABLE_MODEL_SUMMARY", "LOGGER"):
        monkeypatch.setenv(f"PL_TRAINER_{setting}", "False")
    import pytorch_lightning  # noqa: F401, it sets its own level
    from accelerate.state import AcceleratorState

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
