"""Shared set-up of the optimizer tests."""

import sys
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
