"""Running notebooks: `python -m mkdocs_annotate notebooks` executes those whose outputs are stale and stamps them.

A run has a temporary folder of its own and leaves nothing there. Only a run that reached its end is stored, so neither
a failing cell nor Ctrl-C nor a kill changes a file. With a GPU there are two runs: the one on the CPU is the notebook
itself, the other is stored beside it (``lesson.cuda.ipynb``).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

from . import notebooks
from .notebooks import CPU, GPU, Notebook, NotebookError, Stamp, read, sources, twin_of, why_stale, with_stamp
from .translate import Project, write_twins

PATIENCE = 1800  # seconds for one cell
_LAST = "stamp-asked"
_ASK = "import json as _json; print(_json.dumps(stamp))"


def has_gpu() -> bool:
    """Tell whether there is a GPU for CUDA."""
    program = shutil.which("nvidia-smi")
    return bool(program) and subprocess.run([str(program), "-L"], capture_output=True, check=False).returncode == 0


def execute(
    path: Path, notebook: Notebook, package: Path, *, device: str = CPU, progress: Callable[[str], None] = print
) -> Notebook:
    """Run a notebook from its first cell to its last and return it with its outputs and their stamp.

    Raises `NotebookError` with the cell that failed; a notebook that doesn't say in a dictionary `stamp` where it ran
    (device, torch, python, seed) is refused.
    """
    try:
        import nbformat
        from jupyter_client.kernelspec import NoSuchKernel
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError
    except ImportError as error:
        what = f"running it needs {error.name}: install nbclient, nbformat and ipykernel."
        raise NotebookError(path, 1, what) from None

    node = nbformat.from_dict(copy.deepcopy(notebook))  # type: ignore[no-untyped-call]
    cells = [cell for cell in node.cells if cell.cell_type == "code"]
    for cell in cells:
        cell.outputs, cell.execution_count = [], None
    node.cells.append(nbformat.v4.new_code_cell(_ASK, id=_LAST))  # type: ignore[no-untyped-call]
    running = [_LAST]

    def tell(cell: nbformat.NotebookNode, cell_index: int) -> None:
        running.append(cell.id)
        if cell.id != _LAST:
            progress(f"{path.name} ({device}): cell {len(running) - 1} of {len(cells)}, {cell.id}")

    def failed(reason: str) -> NotebookError:
        return NotebookError(path, 1, f"{reason}; what is stored is unchanged.")

    started = time.monotonic()
    with _surroundings(device) as own:
        client = NotebookClient(
            node,
            timeout=PATIENCE,
            kernel_name=node.metadata.get("kernelspec", {}).get("name", "python3"),
            resources={"metadata": {"path": str(path.parent.resolve())}},
            extra_arguments=["--log-level=ERROR"],
            shutdown_kernel="immediate",
            coalesce_streams=True,
            record_timing=False,
            on_cell_execute=tell,
        )
        try:
            with asyncio.Runner(loop_factory=_Loop) as runner:
                runner.run(_cancelled_if_asked(client.async_execute(env={**os.environ, **own})))
        except NoSuchKernel as error:
            raise failed(f'there is no Jupyter kernel "{error.name}": install ipykernel') from None
        except CellExecutionError as error:
            if running[-1] == _LAST:
                raise failed("it leaves no dictionary `stamp` that says where it ran") from None
            reason = notebooks.reason_of(error.ename, error.evalue)
            raise failed(f'the cell "{running[-1]}" fails ({reason})') from None
        except CellTimeoutError:
            raise failed(f'the cell "{running[-1]}" takes longer than {PATIENCE} s') from None
        except RuntimeError as error:  # nbclient's and jupyter_client's
            if "died" not in str(error):
                raise
            where = f'in the cell "{running[-1]}" (often for want of memory)' if len(running) > 1 else "as it began"
            raise failed(f"the kernel died {where}") from None
        finally:
            if not (client.km and client.km.has_kernel):  # nbclient would still look for it when Python ends, and fail
                atexit.unregister(client._cleanup_kernel)
    seconds = round(time.monotonic() - started, 1)

    made: Notebook = json.loads(json.dumps(node))
    answer = made["cells"].pop()["outputs"]
    for cell in made["cells"]:
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                text = str(output["text"])
                said = re.findall(r"\w*Warning: .*", text) or text.split("\n")
                raise failed(f'the cell "{cell["id"]}" warns ({said[0].strip() or "it writes to stderr"})')
    try:
        told = {key: json.loads(answer[0]["text"])[key] for key in ("device", "torch", "python", "seed")}
    except (KeyError, IndexError, TypeError, ValueError):
        raise failed("its dictionary `stamp` lacks device, torch, python or seed") from None
    return with_stamp(made, Stamp(**told, seconds=seconds, sources=sources(notebook, package)))


async def _cancelled_if_asked(run: Awaitable[object]) -> None:
    """Await a run of nbclient, which takes a cancellation (Ctrl-C) for the death of the kernel."""
    task = asyncio.current_task()
    try:
        await run
    finally:
        if task and task.cancelling():
            raise asyncio.CancelledError


class _Loop(asyncio.SelectorEventLoop):
    """A loop in which nbclient can't take Ctrl-C for itself: it would end in an error of its own."""

    def add_signal_handler(self, *_: object) -> None:
        """Refuse, as a loop in a thread does."""
        raise RuntimeError


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let a kill end a run as Ctrl-C does: kernel and folder go with it."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _surroundings(device: str) -> Iterator[Mapping[str, str]]:
    """Give a run its environment: a temporary folder for all that it writes, and no GPU if it is to run on the CPU."""
    with tempfile.TemporaryDirectory(prefix="notebook-", ignore_cleanup_errors=True) as folder:
        own = dict.fromkeys(("TMPDIR", "TEMP", "TMP", "IPYTHONDIR", "MPLCONFIGDIR"), folder)
        yield own | ({"CUDA_VISIBLE_DEVICES": ""} if device != GPU else {})


def show(line: str) -> None:
    """Show how far a run is: over the line before on a terminal, on lines of their own elsewhere."""
    sys.stdout.write(f"\r\x1b[K{line}" if sys.stdout.isatty() else f"{line}\n")
    sys.stdout.flush()


def refresh(project: Project, names: Sequence[str] = (), *, everything: bool = False, source: str = "") -> list[str]:
    """Run the notebooks that are stale, or those that are named, or all; return a line about each.

    `source` is where the install cells find the package, if that is known.
    """
    found = notebooks.find(project.notebooks) if project.notebooks else {}
    for name in names:
        if name not in found:
            raise NotebookError(project.notebooks or project.root, 1, f'there is no notebook "{name}".')
    report = []
    with _stoppable():
        for name, path in found.items():
            if not names or name in names:
                report += _refreshed(project, path, source, wanted=everything or bool(names))
    return report


def _refreshed(project: Project, path: Path, source: str, *, wanted: bool) -> list[str]:
    """Run one notebook if it is stale or wanted, on the CPU and on a GPU; return a line about each run."""
    name, notebook = path.stem, read(path)
    known = notebooks.from_source(notebook, source) if source else notebook
    reason = "as asked" if wanted else why_stale(notebook, project.package)
    if reason:
        show(f"{name}: {reason}\n")
        known = execute(path, known, project.package, progress=show)
    notebooks.write(known, path)
    report = [f"{name}: {'ran' if reason else 'as it was'} ({notebooks.stamp_of(known)})"]
    gpu = twin_of(path, GPU)
    if has_gpu() and (wanted or not gpu.exists() or why_stale(read(gpu), project.package)):
        ran = execute(path, known, project.package, device=GPU, progress=show)
        stamp = notebooks.stamp_of(ran)
        if stamp and stamp.device == CPU:
            raise NotebookError(gpu, 1, "there is a GPU, and the notebook didn't use it: its output says why.")
        notebooks.write(ran, gpu)
        report.append(f"{name}: ran on CUDA ({stamp})")
    return report + write_twins(project, path)
