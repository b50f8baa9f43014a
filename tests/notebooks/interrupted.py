"""Interrupts the training of the notebook in several ways, each in a process of its own, and prints what came of it.

    python interrupted.py NOTEBOOK FOLDER

The cells before `loop` run once; each way then begins in a copy of that process (`os.fork`), so that nothing of the
training survives a kill but its files. Printed is a line of JSON for each way.
"""

import io
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from mkdocs_annotate import notebooks

EPOCHS, BATCHES, RUNS = 2, 23, 5
STOP = (RUNS - 1) * EPOCHS * BATCHES + BATCHES + 10
"""A step in the second epoch of the last run, the one with masters and a loss scale."""


def cells(path: Path) -> dict[str, str]:
    """The code of the notebook, by the names of the cells."""
    notebook = notebooks.with_parameters(path, notebooks.read(path), {"EPOCHS": EPOCHS})
    return {cell["id"]: cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"}


class Notebook:
    """A notebook that is run cell by cell."""

    def __init__(self, path: Path) -> None:
        self.cells = cells(path)
        self.names = {"__name__": "__main__", "Path": Path, "tempfile": tempfile}
        self.steps = 0
        self.stop = lambda step: None

    def run(self, *names: str) -> None:
        for name in names:
            exec(compile(self.cells[name], name, "exec"), self.names)

    def prepare(self, folder: Path) -> None:
        """Run what comes before the training, with this folder for temporary files, and count the steps from now."""
        tempfile.tempdir = str(folder)
        self.run("loop", "tracking")
        step = self.names["Run"].step

        def counted(run, *data):
            self.steps += 1
            self.stop(self.steps)
            return step(run, *data)

        self.names["Run"].step = counted

    def result(self) -> str:
        """All that was measured and all weights, so that two results are equal only if every bit is."""
        ends = [self.names[name] for name in ("fp32", "bf16", "fp16", "fp16_eps", "ours")]
        weights = [run.weights().float().cpu().numpy().tobytes().hex() for run in ends]
        return repr([[run.name, run.epochs, run.curves] for run in ends]) + repr(weights)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def unbroken(notebook: Notebook) -> dict:
    notebook.run("runs")
    return {"steps": notebook.steps}


def run_twice(notebook: Notebook) -> dict:
    told = unbroken(notebook)
    first = notebook.names["ours"]
    notebook.run("runs")
    return {**told, "more": notebook.steps - told["steps"], "same": first is notebook.names["ours"]}


def interrupted(notebook: Notebook) -> dict:
    """As when the reader presses the stop button, and then runs the cell again."""
    notebook.stop = lambda step: step == STOP and signal.raise_signal(signal.SIGINT)
    try:
        return unbroken(notebook)
    except KeyboardInterrupt:
        stopped = notebook.steps
        notebook.run("runs")
        return {"stopped": stopped, "steps": notebook.steps - stopped}


def killed_in_a_step(notebook: Notebook) -> dict:
    notebook.stop = lambda step: step == STOP and kill()
    return unbroken(notebook)


def killed_while_writing(notebook: Notebook) -> dict:
    """Killed when half of the next checkpoint of the last run is written."""
    save, count = notebook.names["torch"].save, iter(range(1, 1000))

    def half(state, path):
        save(state, path)
        if next(count) == (RUNS - 1) * EPOCHS + 1:
            whole = Path(path).read_bytes()
            Path(path).write_bytes(whole[: len(whole) // 2])
            kill()

    notebook.names["torch"].save = half
    return unbroken(notebook)


WAYS = [
    (run_twice, "unbroken"),
    (interrupted, "interrupted"),
    (killed_in_a_step, "killed"),
    (killed_while_writing, "killed"),
    (unbroken, "killed"),
]


def main(path: str, top: str) -> None:
    notebook = Notebook(Path(path))
    notebook.run("parameters", "device", "data")
    sys.stdout.flush()
    for way, name in WAYS:
        folder = Path(top, name)
        folder.mkdir(exist_ok=True)
        child = os.fork()
        if not child:
            report, code = sys.stdout, 1
            try:
                sys.stdout = io.StringIO()  # for what labml shows
                notebook.prepare(folder)
                told = way(notebook)
                told |= {"way": way.__name__, "result": notebook.result()}
                told["left"] = sorted(file.name for file in notebook.names["HERE"].glob("*.pt*"))
                report.write(json.dumps(told) + "\n")
                report.flush()
                code = 0
            finally:
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            left = sorted(file.name for file in folder.glob("*/*.pt*"))
            print(json.dumps({"way": way.__name__, "status": status, "left": left}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
