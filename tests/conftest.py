"""Several processes run the tests (`python tasks.py test`: one for each core): what each of them is given."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

BUILT_SITE = tuple(
    f"tests/site/test_{name}.py"
    for name in ("in_a_browser", "notebooks_in_a_browser", "built_site", "printed_formulas")
)
LONGEST = (
    *BUILT_SITE,
    "tests/notebooks/test_half_precision_training.py",
    "tests/mkdocs_annotate/test_rows.py",
    "tests/site/test_bad_input.py",
    "tests/site/test_serving.py",
    "tests/site/test_small_notebooks.py",
    "tests/labml_opt/test_distributed.py",
    "tests/labml_opt/test_fast.py",
    "tests/labml_opt/test_fast_agreement.py",
    "tests/labml_opt/test_figures.py",
    "tests/labml_opt/test_torch_checks.py",
    "tests/labml_opt/test_trainers.py",
)

if "PYTEST_XDIST_WORKER" in os.environ:
    # A core for each process, so one thread in each: torch and the programs that the tests start read this.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hypothesis draws the same examples in every run, and no machine is too slow for them; `--hypothesis-profile=new` draws
# others.
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("new"), derandomize=True, database=None)
settings.load_profile("same")


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no process is left alone with it in the end."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: file_of(item.nodeid) not in LONGEST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Keep together what shares a fixture that is dear: the tests of a file, and all files about the built site.

    xdist's own marker for this would be part of the names of failed tests, by which one could not run them again.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = file_of(nodeid)
            return "the built site" if file in BUILT_SITE else file

    config.option.loadscopereorder = False  # in the order of above
    return Scheduling(config, log)
