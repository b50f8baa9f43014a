#!/usr/bin/env python3
"""The project's commands: `python tasks.py site`, `python tasks.py test` and the others that `python tasks.py` lists.

Needs nothing but Python 3.11 or later. Each command first makes `.venv` and installs what it needs, and only that; when
nothing has changed since, it starts at once. What follows a command is handed on: `python tasks.py test -k master`.

In the environment: `TORCH_INDEX` picks another index for torch (a CPU build, say), `PIP_CONSTRAINT` is honoured.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit(
        "labml_opt needs Python 3.11 or later, and this is Python {}.{}: "
        "run tasks.py with a newer one (python3.12 tasks.py ..., make PYTHON=python3.12 ...).".format(
            *sys.version_info[:2]
        )
    )

import hashlib
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENGINE = "./mkdocs_annotate"
OLDEST_TORCH = "torch==2.10.*"
PYTEST = ("python", "-m", "pytest", "-q", "-n", "auto", "--maxprocesses", "8")  # more would wait for the longest file
UNFINISHED = "unfinished"  # a file in a virtual environment while it is being made

# What is looked at before an installation is believed to be whole: every package, and what the site takes from npm.
PARTS = (
    "lib/python*/site-packages/*",
    "Lib/site-packages/*",
    "*/package.json",
    "@*/*/package.json",
    "katex/dist/*",
    "katex/dist/fonts/*",
    "@fontsource/*/files/*",
)


@dataclass(frozen=True)
class Setup:
    """What a group of commands needs installed: a virtual environment and packages from npm."""

    name: str
    venv: str
    downloads: str
    torch: str | None = None
    packages: tuple[str, ...] = ()
    npm: tuple[str, ...] = ("ci",)
    covered_by: str = ""
    honours_constraint: bool = True

    def requirements(self) -> list[str]:
        """Arguments for `pip install`.

        The site is built from sources that are read, never imported: its setup takes the packages that the extra `site`
        lists, without `labml_opt` itself, which would bring torch.
        """
        if self.torch:
            return [*self.packages, self.torch]
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return ["-e", ENGINE, *project["optional-dependencies"]["site"]]


SITE = Setup("site", ".venv", "60 MB", npm=("ci", "--omit=dev"), covered_by="full")
TOOLS = ("-e", ".[site,notebooks,test]", "-e", f"{ENGINE}[japanese]")
FULL = Setup("full", ".venv", "torch and 400 MB of tools", torch="torch", packages=TOOLS)
OLDEST = Setup(
    "oldest",
    ".venv-oldest",
    "torch 2.10 and 400 MB of tools",
    torch=OLDEST_TORCH,
    packages=TOOLS,
    honours_constraint=False,
)
BENCH = Setup(
    "bench",
    ".venv",
    "torch and 30 MB of other people's optimizers",
    torch="torch",
    packages=("-e", ".[bench]"),
    npm=(),
)


def say(message: str) -> None:
    """Print a line of our own, apart from what the tools print."""
    print(f"tasks: {message}", flush=True)


def programs(venv: Path) -> Path:
    """Return the folder in which a virtual environment keeps its programs."""
    return venv / ("Scripts" if os.name == "nt" else "bin")


def python_of(venv: Path) -> Path:
    """Return the Python of a virtual environment."""
    return programs(venv) / ("python.exe" if os.name == "nt" else "python")


def environment(setup: Setup) -> dict[str, str]:
    """Return the environment that a setup's programs run in: its own come first on the path."""
    env = dict(os.environ)
    venv = ROOT / setup.venv
    env["VIRTUAL_ENV"] = str(venv)
    env["PATH"] = os.pathsep.join([str(programs(venv)), env.get("PATH", os.defpath)])
    env.pop("PYTHONHOME", None)
    env.setdefault("NO_MKDOCS_2_WARNING", "1")  # Material's word about its successor, ten lines at every build
    if not setup.honours_constraint:
        env.pop("PIP_CONSTRAINT", None)
    return env


def run(setup: Setup, *command: str) -> int:
    """Run a command in the repository's root; `python` is the one of the setup's virtual environment."""
    print("$", *command, flush=True)
    program = str(python_of(ROOT / setup.venv)) if command[0] == "python" else command[0]
    return subprocess.run([program, *command[1:]], cwd=ROOT, env=environment(setup), check=False).returncode


def must(setup: Setup, what: str, *command: str) -> None:
    """Run a command of the installation, and stop with one sentence if it fails."""
    if run(setup, *command):
        sys.exit(f"tasks: {what} failed; the reason is printed above. Mend it (often the network) and run this again.")


def pip_install(setup: Setup, what: str, *arguments: str) -> None:
    """Install Python packages; a terminal sees how far a download has come."""
    quiet = () if sys.stdout.isatty() else ("-q",)
    must(setup, what, "python", "-m", "pip", "install", "--disable-pip-version-check", *quiet, *arguments)


# ## Setting up


def pip_digest(setup: Setup) -> str:
    """Return a digest of all that decides what pip installs."""
    constraint = os.environ.get("PIP_CONSTRAINT", "") if setup.honours_constraint else ""
    parts = [str(setup), str(ROOT), os.environ.get("TORCH_INDEX", ""), constraint]
    files = [ROOT / "pyproject.toml", ROOT / "mkdocs_annotate" / "pyproject.toml", *map(Path, constraint.split())]
    digest = hashlib.sha256("\n".join(parts).encode())
    for file in files:
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()


def npm_digest() -> str:
    """Return a digest of all that decides what npm installs."""
    return hashlib.sha256(
        b"".join((ROOT / name).read_bytes() for name in ("package.json", "package-lock.json"))
    ).hexdigest()


def parts_of(folder: Path) -> set[str]:
    """Return the parts that an installation has now, without versions, so that an upgrade by hand is no loss."""
    found = {path.relative_to(folder).as_posix() for pattern in PARTS for path in folder.glob(pattern)}
    lasting = {part for part in found if not part.rpartition("/")[2].startswith(("~", "__pycache__"))}
    return {re.sub(r"-[^/]+(?=\.dist-info$)", "", part) for part in lasting}


def is_damaged(folder: Path) -> bool:
    """Tell whether an installation has lost a part since it was finished."""
    listed = folder / "parts"
    return listed.is_file() and not parts_of(folder).issuperset(listed.read_text(encoding="utf-8").splitlines())


def set_stamp(setup: Setup, folder: Path, digest: str) -> None:
    """Write down that an installation is finished, and what it consists of."""
    (folder / "parts").write_text("\n".join(sorted(parts_of(folder))), encoding="utf-8")
    (folder / f"stamp-{setup.name}").write_text(digest, encoding="utf-8")


def is_done(setup: Setup, folder: Path, digest: Callable[[Setup], str]) -> bool:
    """Tell whether a folder is whole and carries the stamp of this setup, or of one that includes it."""
    if is_damaged(folder):
        return False
    for candidate in (setup, FULL if setup.covered_by == FULL.name else setup):
        stamp = folder / f"stamp-{candidate.name}"
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest(candidate):
            return True
    return False


def make_venv(venv: Path) -> None:
    """Make a virtual environment in place of what is there, or say what the system lacks for it."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(
            f"tasks: {sys.executable} can't make {venv.name} without the module {' and '.join(missing)}: "
            "install it (Debian and Ubuntu: apt-get install python3-venv) and run this again."
        )
    say(f"making {venv.name}")
    python = getattr(sys, "_base_executable", "") or sys.executable  # ours may lie in the very folder that goes
    shutil.rmtree(venv, ignore_errors=True)
    venv.mkdir(exist_ok=True)
    (venv / UNFINISHED).touch()
    try:
        made = subprocess.run([python, "-m", "venv", str(venv)], check=False).returncode == 0
    except KeyboardInterrupt:
        made = False
    if not made:
        shutil.rmtree(venv, ignore_errors=True)
        sys.exit(
            f"tasks: making {venv.name} failed; the reason is printed above "
            "(Debian and Ubuntu: apt-get install python3-venv)."
        )
    (venv / UNFINISHED).unlink()


def has_pip(venv: Path) -> bool:
    """Tell whether a virtual environment has a pip that answers; one made with uv has none."""
    return subprocess.run([python_of(venv), "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def install_python_packages(setup: Setup) -> None:
    """Bring the virtual environment up to date."""
    venv = ROOT / setup.venv
    if is_done(setup, venv, pip_digest) and python_of(venv).exists():
        return
    if is_damaged(venv):
        say(f"parts of {setup.venv} are missing")  # which pip would not notice
        make_venv(venv)
    elif not python_of(venv).exists() or (venv / UNFINISHED).exists():
        make_venv(venv)
    elif not has_pip(venv):
        must(setup, f"installing pip into {setup.venv}", "python", "-m", "ensurepip", "--default-pip")
    say(f"installing into {setup.venv} (once; {setup.downloads})")
    started = time.monotonic()
    index = os.environ.get("TORCH_INDEX")
    if setup.torch and index:
        pip_install(setup, f"installing torch from {index}", "--index-url", index, setup.torch)
    pip_install(setup, "installing the Python packages", *setup.requirements())
    set_stamp(setup, venv, pip_digest(setup))
    say(f"installed in {time.monotonic() - started:.0f} s")


def node_is_new_enough(env: dict[str, str]) -> bool:
    """Tell whether Node 20 or later and npm are on the path."""
    node, npm = (shutil.which(name, path=env["PATH"]) for name in ("node", "npm"))
    if not node or not npm:
        return False
    version = subprocess.run([node, "--version"], capture_output=True, text=True, env=env, check=False).stdout
    major = version.strip().removeprefix("v").partition(".")[0]
    return major.isdigit() and int(major) >= 20


def install_npm_packages(setup: Setup) -> None:
    """Bring `node_modules` up to date, with a Node of our own if the system has none of 20 or later."""
    if not setup.npm:
        return
    env = environment(setup)
    modules = ROOT / "node_modules"
    if is_done(setup, modules, lambda _: npm_digest()) and shutil.which("node", path=env["PATH"]):
        return
    if not node_is_new_enough(env):
        say("no Node of version 20 or later with npm here: installing one into " + setup.venv + " (once; 60 MB)")
        pip_install(setup, "installing Node", "-e", f"{ENGINE}[node]")
    started = time.monotonic()
    npm = shutil.which("npm", path=env["PATH"]) or "npm"
    must(setup, "installing the packages of npm", npm, *setup.npm, "--loglevel=error")
    set_stamp(setup, modules, npm_digest())
    say(f"installed in {time.monotonic() - started:.0f} s")


def prepare(setup: Setup) -> Setup:
    """Install what a setup needs, unless that was done already."""
    install_python_packages(setup)
    install_npm_packages(setup)
    return setup


# ## Commands: each returns an exit status


def site(*arguments: str) -> int:
    """Build the site, in every language, into site/, and the package's wheel into site/dist/."""
    setup = prepare(SITE)
    wheel = build_wheel(setup)
    if os.environ.get("SITE_URL"):
        os.environ.setdefault("PACKAGE_SOURCE", f"{os.environ['SITE_URL'].rstrip('/')}/dist/{wheel.name}")
    elif os.environ.get("REPO_URL"):
        os.environ.setdefault("PACKAGE_SOURCE", f"git+{os.environ['REPO_URL']}")
    status = run(setup, "python", "-m", "mkdocs", "build", "--strict", *arguments)
    if status == 0:
        dist = site_dir(arguments) / "dist"
        dist.mkdir(exist_ok=True)
        shutil.copy(wheel, dist)
        say(f"the package's wheel is {os.path.relpath(dist / wheel.name)}")
    return status


def site_dir(arguments: tuple[str, ...]) -> Path:
    """Return the folder that `mkdocs build` writes the site into."""
    for argument, following in itertools.pairwise((*arguments, "")):
        if argument in ("-d", "--site-dir"):
            return ROOT / following
        if argument.startswith("--site-dir="):
            return ROOT / argument.partition("=")[2]
    return ROOT / "site"


def build_wheel(setup: Setup) -> Path:
    """Build the package's wheel from a copy of its sources, without torch; the same sources give the same bytes."""
    made = ROOT / ".cache" / "wheel"
    shutil.rmtree(made, ignore_errors=True)
    os.environ.setdefault("SOURCE_DATE_EPOCH", "1577836800")  # zip files carry the time
    with tempfile.TemporaryDirectory() as folder:
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, folder)
        shutil.copytree(ROOT / "labml_opt", Path(folder, "labml_opt"), ignore=shutil.ignore_patterns("__pycache__"))
        pip = ("python", "-m", "pip", "wheel", "--disable-pip-version-check", "-q")
        must(setup, "building the wheel", *pip, "--no-deps", "--no-build-isolation", "-w", str(made), folder)
    (wheel,) = made.glob("*.whl")
    return wheel


def serve(*arguments: str) -> int:
    """Show the site at http://127.0.0.1:8000 and rebuild it whenever a source changes."""
    return run(prepare(SITE), "python", "-m", "mkdocs", "serve", *arguments)


def test(*arguments: str) -> int:
    """Run the tests, in a process for each core; `-n 0` runs them in one."""
    return run(prepare(FULL), *PYTEST, *arguments)


def check(*arguments: str) -> int:
    """Look at style, types, translations and anchors."""
    setup = prepare(FULL)
    checks = [
        ("python", "-m", "ruff", "check", "."),
        ("python", "-m", "ruff", "format", "--check", "."),
        ("python", "-m", "mypy"),
        ("python", "-m", "mkdocs_annotate", "check", *arguments),
    ]
    failed = [" ".join(command[2:]) for command in checks if run(setup, *command)]
    say(f"failed: {', '.join(failed)}" if failed else "all checks pass")
    return 1 if failed else 0


def check_oldest(*arguments: str) -> int:
    """Run the optimizers' tests with the oldest torch that is supported, in an environment of its own."""
    return run(prepare(OLDEST), *PYTEST, *(arguments or ("tests/labml_opt",)))


def translate(*arguments: str) -> int:
    """Bring the catalogues of translations and the list of anchors up to date with the sources."""
    return run(prepare(SITE), "python", "-m", "mkdocs_annotate", "translate", *arguments)


def figures(*arguments: str) -> int:
    """Draw the figures of all pages again."""
    return run(prepare(FULL), "python", "-m", "labml_opt.figures", *arguments)


def notebooks(*arguments: str) -> int:
    """Run the notebooks whose code or package code has changed."""
    repo = os.environ.get("REPO_URL")
    source = ("--source", f"git+{repo}") if repo else ()
    return run(prepare(FULL), "python", "-m", "mkdocs_annotate", "notebooks", *source, *arguments)


def notebooks_all(*arguments: str) -> int:
    """Run all notebooks."""
    return notebooks("--all", *arguments)


def bench(*arguments: str) -> int:
    """Measure the optimizers beside others (`--bars`: what has to be reached; `--quick`: see that it runs)."""
    return run(prepare(BENCH), "python", "-m", "benchmarks", *arguments)


COMMANDS: dict[str, Callable[..., int]] = {
    "site": site,
    "serve": serve,
    "test": test,
    "check": check,
    "check-oldest": check_oldest,
    "translate": translate,
    "figures": figures,
    "notebooks": notebooks,
    "notebooks-all": notebooks_all,
    "bench": bench,
}


def main(arguments: list[str]) -> int:
    """Run one command."""
    name, *rest = arguments or [""]
    if name in COMMANDS:
        try:
            return COMMANDS[name](*rest)
        except KeyboardInterrupt:
            return 130
    if name not in ("", "help", "-h", "--help"):
        print(f"tasks: there is no command {name!r}; these are the commands:", file=sys.stderr)
    lines = [f"  {key:<14} {(command.__doc__ or '').splitlines()[0]}" for key, command in COMMANDS.items()]
    print("python tasks.py COMMAND [ARGUMENTS]\n" + "\n".join(lines), file=sys.stderr if name else sys.stdout)
    return 0 if name in ("", "help", "-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
