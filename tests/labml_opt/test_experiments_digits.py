"""The experiment runs, says what is wrong in a sentence, and survives being stopped at any moment."""

import collections
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
import torch

from labml_opt import GradScalerFP16
from labml_opt.experiments import digits

ROOT = Path(__file__).parents[2]
SHORT = ["--epochs", "2", "--batch-size", "480"]
"""Three steps an epoch: 1,437 images to learn from."""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder to work in and a home, both empty, so that what is left in them is seen."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("USERPROFILE", raising=False)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    yield home
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def saved(out):
    return torch.load(Path(out) / "checkpoint.pt", weights_only=True)


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def after_step(monkeypatch, number, do):
    """Let something happen at the end of a step."""
    step = digits.Run.train_step

    def train_step(run):
        step(run)
        if run.step == number:
            do(run)

    monkeypatch.setattr(digits.Run, "train_step", train_step)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_the_network_learns_to_read_in_each_precision(precision, capsys):
    assert digits.main(["--optimizer", "RAdam", "--precision", precision, "--epochs", "5", "--out", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert lines[0] == f"RAdam in {precision} on {'cuda' if torch.cuda.is_available() else 'cpu'}, steps 0 to 115"
    assert lines[5].startswith("epoch   5 of 5   loss 0.")
    assert float(lines[-1].partition("%")[0]) > 80
    assert {tensor.dtype for tensor in saved("out")["model"].values()} == {digits.DTYPES[precision]}


@pytest.mark.parametrize("optimizer", digits.RATES)
def test_every_optimizer_of_the_package_lowers_the_loss(optimizer):
    assert digits.main(["--optimizer", optimizer, "--precision", "bf16", "--epochs", "2", "--out", "out"]) == 0
    first, second = (loss for _, [loss] in recorded(2)["loss"])
    assert second < 0.99 * first


def recorded(epochs):
    """What labml has written, by name. It writes in a thread of its own, and in a slow run more than once."""
    for thread in threading.enumerate():
        if thread.__class__.__name__ == "FileWriterThread":
            thread.join(60)  # it ends when all is written
            assert not thread.is_alive()
    track = collections.defaultdict(list)
    for path in Path("out").rglob("log.jsonl"):
        for line in path.read_text().splitlines():
            for name, values in json.loads(line)["track"].items():
                track[name] += values
    assert len(track["scale"]) == epochs
    return track


def test_what_labml_records_is_what_was_printed(capsys):
    digits.main([*SHORT, "--precision", "fp16", "--out", "out"])
    track = recorded(2)
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    for k, line in enumerate(printed):
        (step, [loss]), (_, [accuracy]), (_, [scale]) = (track[name][k] for name in ("loss", "accuracy", "scale"))
        assert step == 3 * (k + 1)
        assert f"loss {loss:.4f}   accuracy {accuracy:.1%}" in line
        assert line.endswith(f"scale {scale:g}")
    assert len(printed) == 2


def test_nothing_is_printed_or_written_beside_its_own(home, tmp_path, capfd):
    digits.main([*SHORT, "--out", "out"])
    said = capfd.readouterr()
    assert said.err == ""
    assert len(said.out.splitlines()) == 4
    assert list(home.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"home", "out"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"labml", "checkpoint.pt"}
    assert os.environ["HOME"] == str(home)
    assert "USERPROFILE" not in os.environ


def test_settings_of_the_process_are_as_they_were_afterwards():
    digits.main([*SHORT, "--out", "out"])
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.mkldnn.enabled
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# Sophia draws labels, so its run depends on the random numbers, too.
@pytest.mark.parametrize(("optimizer", "precision"), [("Sophia", "fp16"), ("Noam", "bf16"), ("Adam", "fp32")])
def test_a_run_stopped_by_ctrl_c_ends_like_one_that_was_not_to_the_bit(optimizer, precision, monkeypatch, capsys):
    command = [*SHORT, "--optimizer", optimizer, "--precision", precision]
    digits.main([*command, "--out", "unbroken"])
    with monkeypatch.context() as patch:
        after_step(patch, 4, lambda run: signal.raise_signal(signal.SIGINT))
        assert digits.main([*command, "--out", "stopped"]) == 130
    assert saved("stopped")["step"] == 4
    assert "stopped after 4 of 6 steps; the same command with --resume goes on" in capsys.readouterr().out
    torch.manual_seed(1)  # another process has other random numbers
    assert digits.main([*command, "--out", "stopped", "--resume"]) == 0
    assert equal(saved("unbroken"), saved("stopped"))


def sophia(precision):
    """A run that is about to take its first step."""
    return digits.Run(digits.parse(["--optimizer", "Sophia", "--precision", precision]), torch.device("cpu"))


@pytest.mark.filterwarnings("error")
def test_sophia_looks_again_after_an_overflow_so_that_no_step_is_taken_without_a_curvature():
    run = sophia("fp16")
    run.scaler = GradScalerFP16("cpu", init_scale=2.0**26)
    run.train_step()
    assert run.scaler.get_scale() < 2.0**26
    assert all(run.optimizer.state[param]["hessian"].any() for param in run.model.parameters())


@pytest.mark.parametrize(("precision", "looks"), [("fp32", 1), ("bf16", 1), ("fp16", 17)])
def test_sophia_does_not_look_again_when_it_is_not_the_scale_that_overflows(precision, looks):
    run, seen = sophia(precision), []
    run.model[0].weight.register_hook(lambda grad: seen.append(1) or grad * float("inf"))
    run.look_at_curvature(run.optimizer, run.x[:64])
    assert len(seen) == looks
    assert not run.optimizer.state


def test_ctrl_c_at_the_end_of_an_epoch_leaves_the_checkpoint_of_that_epoch(monkeypatch):
    after_step(monkeypatch, 3, lambda run: signal.raise_signal(signal.SIGINT))
    assert digits.main([*SHORT, "--out", "out"]) == 130
    assert saved("out")["step"] == 3


def test_a_second_ctrl_c_stops_at_once():
    with digits.CtrlC() as ctrl_c:
        signal.raise_signal(signal.SIGINT)
        assert ctrl_c.pressed
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_complete_run_can_be_resumed_and_has_nothing_left_to_do(capsys):
    digits.main([*SHORT, "--out", "out"])
    before = saved("out")
    assert digits.main([*SHORT, "--out", "out", "--resume"]) == 0
    assert equal(before, saved("out"))
    assert "steps 6 to 6" in capsys.readouterr().out


KILLED_WHILE_SAVING = """
import io, os, signal, sys, torch
from labml_opt.experiments import digits

whole, seen = torch.save, []

def half(state, file):
    seen.append(state)
    if len(seen) == 2:
        buffer = io.BytesIO()
        whole(state, buffer)
        file.write(buffer.getvalue()[: buffer.tell() // 2])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    whole(state, file)

torch.save = half
digits.main(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_process_killed_while_it_saves_leaves_the_last_checkpoint_whole(tmp_path):
    command = [*SHORT, "--precision", "fp16"]
    env = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "PYTHONPATH": str(ROOT)}
    killed = [sys.executable, "-c", KILLED_WHILE_SAVING, *command, "--out", "killed"]
    assert subprocess.run(killed, env=env, capture_output=True).returncode == -signal.SIGKILL
    half = tmp_path / "killed" / "checkpoint.pt.new"
    assert 0 < half.stat().st_size < (tmp_path / "killed" / "checkpoint.pt").stat().st_size
    assert saved("killed")["step"] == 3
    digits.main([*command, "--out", "killed", "--resume"])
    digits.main([*command, "--out", "unbroken"])
    assert equal(saved("unbroken"), saved("killed"))
    assert not half.exists()


def sentence(arguments):
    """What the program says when it gives up."""
    with pytest.raises(SystemExit) as caught:
        digits.main(arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--optimizer", "Adma"], "invalid choice: 'Adma' (choose from"),
        (["--precision", "fp8"], "invalid choice: 'fp8'"),
        (["--epochs", "0"], "argument --epochs: 0 is no whole number from 1\n"),
        (["--batch-size", "1.5"], "argument --batch-size: 1.5 is no whole number from 1\n"),
        (["--lr", "nan"], "argument --lr: nan is no number from 0\n"),
        (["--lr", "inf"], "argument --lr: inf is no number from 0\n"),
        (["--lr", "-1"], "argument --lr: -1 is no number from 0\n"),
        (["--seed", "99999999999"], "argument --seed: 99999999999 is no whole number from 0 to 1000000000\n"),
        (["--device", "cuda"], "there is no GPU here that torch can use: leave out --device to train on the CPU\n"),
    ],
)
def test_a_bad_command_line_is_a_sentence(arguments, says, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert sentence(arguments) == "2"
    assert says in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"home"}


def test_a_checkpoint_is_not_written_over_unasked(tmp_path):
    digits.main([*SHORT, "--out", "out"])
    before = (tmp_path / "out" / "checkpoint.pt").read_bytes()
    assert sentence([*SHORT, "--out", "out"]).endswith(
        "is there already: give --resume to go on from it, or another --out"
    )
    assert (tmp_path / "out" / "checkpoint.pt").read_bytes() == before


def test_nothing_to_resume_is_a_sentence():
    assert sentence(["--resume"]).endswith("checkpoint.pt: leave out --resume to begin a run")
    assert not Path("runs").exists()


def test_a_checkpoint_of_another_run_is_not_resumed():
    digits.main([*SHORT, "--out", "out"])
    for option, other in (("--lr", "0.5"), ("--seed", "7"), ("--optimizer", "RAdam"), ("--batch-size", "999")):
        said = sentence([*SHORT, option, other, "--out", "out", "--resume"])
        assert said.startswith(f"the checkpoint is of a run with {option} ")
        assert said.endswith(": give the same to resume it")


def test_a_file_that_is_no_checkpoint_is_a_sentence():
    Path("out").mkdir()
    Path("out/checkpoint.pt").write_bytes(b"PK no checkpoint")
    assert "can't be read as a checkpoint (" in sentence(["--out", "out", "--resume"])
    torch.save([1, 2, 3], "out/checkpoint.pt")
    assert sentence(["--out", "out", "--resume"]).endswith("is no checkpoint of this program: give another --out")


def test_a_folder_that_cannot_be_made_is_a_sentence():
    Path("file").touch()
    assert sentence(["--out", "file"]).startswith("the folder file can't be made (")


def test_a_full_disk_is_a_sentence_and_the_last_checkpoint_is_whole(monkeypatch):
    def full(state, file):
        if state["step"] == 6:
            raise OSError(28, "No space left on device")
        write(state, file)

    write = torch.save
    monkeypatch.setattr(torch, "save", full)
    said = sentence([*SHORT, "--out", "out"])
    written = Path("out/checkpoint.pt")
    assert said == f"the checkpoint {written} can't be written (No space left on device); the last one is whole"
    assert saved("out")["step"] == 3


def test_a_loss_that_is_no_number_any_more_ends_the_run_and_not_the_checkpoint(monkeypatch):
    def break_it(run):
        run.losses[-1] = float("nan")

    after_step(monkeypatch, 5, break_it)
    assert sentence([*SHORT, "--out", "out"]) == "the loss is nan after 6 steps: give a lower --lr than 0.002"
    assert saved("out")["step"] == 3


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_network_that_has_diverged_under_sophia_is_a_sentence_too(precision):
    command = ["--optimizer", "Sophia", "--precision", precision, "--lr", "1e30", "--epochs", "1", "--batch-size", "96"]
    assert sentence([*command, "--out", "out"]) == "the loss is nan after 15 steps: give a lower --lr than 1e+30"


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("labml", "labml_opt.configs needs labml, which isn't installed: pip install labml"),
        ("sklearn", "the digits come with scikit-learn, which isn't installed: pip install scikit-learn"),
    ],
)
def test_what_is_not_installed_is_named_in_a_sentence(missing, says, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == missing] + [missing]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "labml_opt.configs", raising=False)
    assert sentence([*SHORT, "--out", "out"]) == says


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
def test_it_is_a_program_with_a_help(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["digits", "--help"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("labml_opt.experiments.digits", run_name="__main__")
    assert caught.value.code == 0
    options = capsys.readouterr().out
    assert [name for name in digits.SAME if f"--{name.replace('_', '-')}" not in options] == []


def test_the_page_tells_the_defaults():
    options = digits.parse([])
    assert vars(options) == vars(
        types.SimpleNamespace(
            optimizer="Adam",
            precision="fp32",
            epochs=10,
            batch_size=64,
            lr=2e-3,
            seed=0,
            device=None,
            out=Path("runs/digits-Adam-fp32"),
            resume=False,
        )
    )
    assert "3,818 weights" in digits.network.__doc__
    assert sum(weight.numel() for weight in digits.network().parameters()) == 3818


def test_the_pixels_are_exact_in_half_precision():
    images = digits.load_data(torch.float64, torch.device("cpu"))[0]
    assert images.shape == (1437, 1, 8, 8)
    for dtype in (torch.float16, torch.bfloat16):
        assert torch.equal(digits.load_data(dtype, torch.device("cpu"))[0].double(), images)


@pytest.mark.cuda
def test_on_a_gpu_a_stopped_run_ends_like_one_that_was_not_to_the_bit(monkeypatch):
    command = [*SHORT, "--optimizer", "Sophia", "--precision", "fp16", "--device", "cuda"]
    digits.main([*command, "--out", "unbroken"])
    with monkeypatch.context() as patch:
        after_step(patch, 4, lambda run: signal.raise_signal(signal.SIGINT))
        assert digits.main([*command, "--out", "stopped"]) == 130
    assert digits.main([*command, "--out", "stopped", "--resume"]) == 0
    assert equal(saved("unbroken"), saved("stopped"))
