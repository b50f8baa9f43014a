"""What the README and the other pages of the house promise is there, and their examples run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("number", "low", "high"), [(0, 0, 0.01), (1, 0.89, 0.91)], ids=["half", "fast"])
def test_the_examples_train(number, low, high):
    examples = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(examples) == 2
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", examples[number]], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    assert low <= float(done.stdout) < high
    assert done.stderr == ""


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_the_commands_it_names_are_there(text):
    listed = subprocess.run([sys.executable, "tasks.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    commands = set(re.findall(r"^  (\S+)  ", listed, re.M))
    named = set(re.findall(r"(?:python3 tasks\.py|make) ([a-z-]+)", re.sub(r"PYTHON=\S+ ", "", text)))
    assert named
    assert named <= commands


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_the_files_it_names_are_there(text):
    linked = set(re.findall(r"\]\((?!https?:)([^)#]+)", text))
    quoted = {name for name in re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", text) if "NAME" not in name}
    assert not [name for name in linked | quoted if not (ROOT / name).exists()]


def test_the_pages_it_names_are_taught_modules():
    pages = re.findall(r"`(\w+)/`", README)
    assert {"adam_fp16", "adam_warmup_cosine_decay"} <= set(pages)
    assert not [page for page in pages if page != "site" and not (ROOT / "labml_opt" / f"{page}.py").exists()]


def test_it_says_whether_the_notebooks_have_run_on_cuda():
    """As long as one of them has not, it says so, and no longer."""
    names = [path.stem for path in (ROOT / "notebooks").glob("*.ipynb") if "." not in path.stem]
    waiting = [name for name in names if not (ROOT / "notebooks" / f"{name}.cuda.ipynb").exists()]
    assert names
    assert bool(re.search(r"not yet\s+(?:been\s+)?run\s+on\s+CUDA", README, re.I)) is bool(waiting)


def test_the_picture_is_small():
    (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert 10_000 < (ROOT / picture).stat().st_size < 150_000


def test_contributing_is_ten_lines():
    assert len([line for line in CONTRIBUTING.splitlines() if line]) <= 12
