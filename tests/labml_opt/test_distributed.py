"""
DDP, FSDP2 and distributed checkpoints, on two processes of this machine with gloo.

The two processes are started once. They run every scenario of distributed_worker.py and leave what they found; each
test here judges one thing. "Equal" means equal bit for bit: one process goes through the two halves of a batch one
after the other and adds their gradients, two processes average them, and a sum of two numbers is rounded alike in any
order.
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed_worker import BOUND, DTYPES, KINDS, OPTIMIZERS, SCALE, SCENARIOS, Run, batch, network
from torch.distributed.checkpoint.state_dict import get_state_dict

pytestmark = pytest.mark.filterwarnings("ignore:.*in a single process", "ignore:.*master copy")

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("distributed_worker.py")
SILENCE = 300.0
"""Seconds without a word from any process after which the group counts as hanging; collectives give up after 120."""

Found = dict[str, Any]


def run_group(folder: Path, command: list[str], processes: int = 2, silence: float = SILENCE) -> str | None:
    """Run a command in each process of a group, and return a sentence about what went wrong, or `None`."""
    logs = [folder / f"log {rank}" for rank in range(processes)]
    group = []
    for rank, log in enumerate(logs):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
        with open(log, "wb") as file:
            group.append(subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.STDOUT))
    try:
        heard, sizes = time.monotonic(), [0] * processes
        while True:
            codes = [process.poll() for process in group]
            failed = [rank for rank, code in enumerate(codes) if code]
            if failed:
                # What it was waiting for will not come; its neighbour's error says less than its own.
                return f"process {failed[0]} ended with {codes[failed[0]]}: {last_words(logs[failed[0]])}"
            if None not in codes:
                return None
            now = [log.stat().st_size for log in logs]
            if now != sizes:
                heard, sizes = time.monotonic(), now
            elif time.monotonic() - heard > silence:
                return f"no process has said anything for {silence:g} s: {'; '.join(map(last_words, logs))}"
            time.sleep(0.05)
    finally:
        for process in group:
            if process.poll() is None:
                process.terminate()  # torchrun then ends its own
        for process in group:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def last_words(log: Path) -> str:
    return "its last words: " + (log.read_text(encoding="utf-8", errors="replace").strip()[-1500:] or "none")


def code_of_the_guide() -> str:
    text = (ROOT / "docs" / "guides" / "distributed.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("group")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Run]:
    """What one process trained in eight steps, by dtype; its checkpoints after four of them lie in `folder`."""
    runs = {}
    with one_thread():
        for label, dtype in DTYPES.items():
            stopped = Run(None, dtype, "AdamWarmupCosineDecayFP16").train(range(4))
            stopped.save(folder / f"one {label}")
            runs[label] = stopped.train(range(4, 8))
    return runs


class one_thread:  # noqa: N801 (it reads as a statement)
    """Compute as the processes of the group do."""

    def __enter__(self) -> None:
        self.before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.before)


@pytest.fixture(scope="module")
def group(folder: Path, alone: dict[str, Run]) -> Callable[[str], list[Found]]:
    """What both processes found in a scenario, by rank. A scenario that failed there fails its test here."""
    (folder / "guide.py").write_text(code_of_the_guide(), encoding="utf-8")
    command = [sys.executable, str(WORKER), str(folder)]
    wrong = run_group(folder, command)
    if wrong and re.match(r"process \d ended with -", wrong):
        # Once in a while torch's own code ends a process with a signal (seen: "malloc(): unaligned tcache chunk").
        warnings.warn(f"the group was started again, because {wrong}", stacklevel=1)
        wrong = run_group(folder, command)

    def found(name: str) -> list[Found]:
        assert name in SCENARIOS
        by_rank = []
        for rank in range(2):
            path = folder / f"{name}.{rank}.pt"
            if not path.exists():
                pytest.fail(f"process {rank} of the group didn't get through {name!r}: {wrong}", pytrace=False)
            by_rank.append(torch.load(path, weights_only=False))
            if "error" in by_rank[-1]:
                pytest.fail(f"process {rank}: {by_rank[-1]['error']}", pytrace=False)
        return by_rank

    return found


def differences(a: Found, b: Found) -> Iterator[str]:
    """What is not the same, bit for bit and dtype for dtype."""
    for key in a.keys() | b.keys():
        x, y = a.get(key), b.get(key)
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            if x.dtype != y.dtype or not torch.equal(x, y):
                yield f"{key}: {x} and {y}"
        elif x != y:
            yield f"{key}: {x} and {y}"


def equal(a: Found, b: Found) -> bool:
    return len(a) > 2 and not list(differences(a, b))


# Several processes compute what one computes


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_to_the_weights_and_state_of_one(group, kind, dtype, optimizer):
    for found in group(f"{kind}, {dtype}, {optimizer}"):
        assert list(differences(found["one"], found["several"])) == []


@pytest.mark.parametrize("kind", KINDS)
def test_capturable_two_processes_train_to_the_weights_and_state_of_one(group, kind):
    for found in group(f"{kind}, capturable"):
        assert list(differences(found["one"], found["several"])) == []


@pytest.mark.parametrize("kind", KINDS)
def test_in_halves_two_processes_train_to_the_weights_and_state_of_one(group, kind):
    for found in group(f"{kind}, in halves"):
        assert list(differences(found["one"], found["several"])) == []
        assert sum(found["several"][f"residue {number}"].count_nonzero() for number in range(6)) > 50


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_step_gradients_come_back_in_the_dtype_of_their_parameters(group, kind, dtype):
    for found in group(f"{kind}, {dtype}, AdamFP16"):
        assert found["grad_dtypes"] == {DTYPES[dtype]}


# Clipping


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_norm_that_is_clipped_is_that_of_all_shards_without_the_scale(group, kind, dtype):
    # Over shards the squares are added in another order; BF16 gradients have norms in BF16, with 8 bits.
    tolerance = {"FP16": 1e-6, "BF16": 2**-7}[dtype] if kind == "FSDP2" else 0
    for found in group(f"{kind}, {dtype}, clipped"):
        one, several = found["norms"]
        assert several == pytest.approx(one, rel=tolerance, abs=0)
        assert len(one) == 6
        assert BOUND < min(one) < max(one) < 100 * BOUND


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_clipped_two_processes_train_to_the_masters_of_one(group, kind, dtype):
    # No closer than their norms are: a step is about 0.01 long.
    tolerance = {"FP16": 1e-6, "BF16": 1e-2}[dtype] if kind == "FSDP2" else 0
    unclipped = group(f"{kind}, {dtype}, AdamWarmupCosineDecayFP16")[0]["one"]
    for found in group(f"{kind}, {dtype}, clipped"):
        one, several = found["one"], found["several"]
        masters = [key for key in one if key.startswith("master")]
        assert len(masters) == 6
        for key in masters:
            torch.testing.assert_close(several[key], one[key], rtol=0, atol=tolerance)
            moment = key.replace("master", "exp_avg")
            assert one[moment].norm() < unclipped[moment].norm() / 2


# Stop and go on


@pytest.mark.parametrize("which", ["FP16", "BF16", "capturable", "in halves"])
def test_a_distributed_checkpoint_brings_every_bit_back(group, which):
    for found in group(f"stop and go on, {which}"):
        assert list(differences(found["stopped"], found["loaded"])) == []


@pytest.mark.parametrize("which", ["FP16", "BF16", "capturable", "in halves"])
def test_under_fsdp2_a_resumed_run_equals_one_that_never_stopped(group, which):
    for found in group(f"stop and go on, {which}"):
        assert list(differences(found["unbroken"], found["resumed"])) == []
        assert not equal(found["stopped"], found["resumed"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_processes_go_on_where_one_stopped_and_end_where_it_would_have(group, alone, dtype):
    for found in group(f"go on from one process, {dtype}"):
        assert list(differences(alone[dtype].found(), found["resumed"])) == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_process_goes_on_where_two_stopped_and_ends_where_it_would_have_alone(group, folder, alone, dtype):
    stopped, _ = group(f"leave to one process, {dtype}")
    with one_thread():
        resumed = Run(None, DTYPES[dtype], "AdamWarmupCosineDecayFP16").load(folder / f"two {dtype}")
        assert list(differences(stopped["stopped"], resumed.found())) == []
        resumed.train(range(4, 8))
    assert list(differences(alone[dtype].found(), resumed.found())) == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_process_resumes_bit_exactly_through_a_distributed_checkpoint(folder, alone, dtype):
    with one_thread():
        resumed = Run(None, DTYPES[dtype], "AdamWarmupCosineDecayFP16").load(folder / f"one {dtype}")
        assert resumed.optimizer.param_groups[0]["t"] == 4
        resumed.train(range(4, 8))
    assert list(differences(alone[dtype].found(), resumed.found())) == []


def test_a_run_under_ddp_is_resumed_under_fsdp2(group):
    for found in group("from DDP to FSDP2"):
        assert list(differences(found["stopped"], found["resumed"])) == []


def test_torch_asks_a_new_optimizer_for_its_state_by_a_step_that_counts():
    new = Run(None, torch.float16, "AdamWarmupCosineDecayFP16")
    get_state_dict(new.model, new.optimizer)
    assert new.optimizer.param_groups[0]["t"] == 1


def test_a_whole_checkpoint_is_spread_over_the_shards_bit_for_bit(group):
    for found in group("a whole checkpoint"):
        assert list(differences(found["one"], found["several"])) == []


def test_a_checkpoint_in_the_wrong_form_is_refused_with_the_way_to_load_it(group):
    for found in group("checkpoints of the wrong form"):
        whole_into_shards, shards_into_whole = found["said"]
        assert "is a whole tensor in the checkpoint and spread over processes here" in whole_into_shards
        assert "is a whole tensor here and spread over processes in the checkpoint" in shards_into_whole
        assert "set_optimizer_state_dict" in whole_into_shards
        assert equal(found["before"], found["after"])


class Part(torch.Tensor):
    """What this process holds of a tensor, as far as a checkpoint can tell."""

    def to_local(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


def test_a_part_is_refused_for_a_whole_tensor_before_anything_changes():
    run = Run(None, torch.float16, "AdamFP16").train(range(2))
    before, checkpoint = run.found(), copy.deepcopy(run.optimizer.state_dict())
    checkpoint["state"][2]["exp_avg"] = checkpoint["state"][2]["exp_avg"].as_subclass(Part)
    with pytest.raises(
        ValueError, match=r"parameter 2: exp_avg is a whole tensor here and spread over processes in the"
    ):
        run.optimizer.load_state_dict(checkpoint)
    assert equal(before, run.found())


# An infinity


INFINITIES = [name for name in SCENARIOS if name.startswith("an infinity")]


@pytest.mark.parametrize("where", INFINITIES)
def test_the_step_is_skipped_everywhere_for(group, where):
    for found in group(where):
        assert set(dict(line.split(": ", 1) for line in differences(found["before"], found["after"]))) == {"scale"}


@pytest.mark.parametrize("where", INFINITIES)
def test_the_scale_is_halved_everywhere_for(group, where):
    assert [found["after"]["scale"] for found in group(where)] == [SCALE / 2] * 2


@pytest.mark.parametrize("where", INFINITIES)
def test_all_processes_go_on_together_after(group, where):
    first, second = (found["next"] for found in group(where))
    assert equal(first, second)
    assert first["t"] == 4
    assert all(value.isfinite().all() for value in first.values() if isinstance(value, torch.Tensor))


# Master weights


def test_masters_are_float32_and_spread_as_their_weights_are(group):
    for found in group("masters"):
        assert found["types"] == found["untrained"] == ["DTensor"] * 6
        assert set(found["dtypes"]) == {torch.float32}
        assert found["spread as"] == found["weights spread as"] == ["(Shard(dim=0),)"] * 6


def test_an_average_over_the_masters_is_that_of_one_process(group):
    for found in group("masters"):
        assert all(map(torch.equal, found["average"], found["expected"]))


@pytest.mark.parametrize("how", ["loaded", "clamped", "one shard written to"])
def test_weights_changed_from_outside_win_under_fsdp2(group, how):
    for found in group(f"weights {how}"):
        assert list(differences(found["one"], found["several"])) == []


def test_a_step_needs_no_word_from_other_processes(group):
    for found in group("talk"):
        assert found["in a step"] == 0
        assert found["when torch compares"] > 0


def test_a_copied_optimizer_has_masters_of_its_own_with_the_same_bits(group):
    for found in group("copies"):
        assert all(found["same"])
        assert all(found["apart"])


def test_a_snapshot_in_memory_brings_a_sharded_run_back(group):
    for found in group("copies"):
        assert list(differences(found["once"], found["again"])) == []


# Other ways to shard


def test_float32_weights_that_fsdp2_casts_train_with_the_same_scaler(group):
    first, second = group("FP32 weights")
    assert set(dict(line.split(": ", 1) for line in differences(first["before"], first["after"]))) == {"scale"}
    assert first["after"]["scale"] == second["after"]["scale"] == SCALE / 2
    assert equal(first["next"], second["next"])
    assert first["next"]["t"] == 2


def test_an_infinity_on_one_shard_keeps_every_process_from_updating_sophias_curvature(group):
    model = network(torch.float32)
    model(batch(0)[0]).square().mean().backward()
    for found in group("Sophia's curvature, an infinity on one shard"):
        assert found["counted"] == [True, False]
        for param, curvature in zip(model.parameters(), found["curvature"], strict=True):
            torch.testing.assert_close(curvature, (1 - 0.99) * 8 * param.grad.square(), rtol=1e-4, atol=1e-12)


def test_an_optimizer_that_was_built_before_the_sharding_is_told_so_by_the_scaler(group):
    for found in group("too early"):
        assert "no parameter of this AdamFP16 has a gradient" in found["said"]


# The guide and the example


@pytest.mark.parametrize("language", ["", ".ja"])
def test_the_guide_quotes_torch_on_weights_that_are_in_part_sharded(group, language):
    text = (ROOT / "docs" / "guides" / f"distributed{language}.md").read_text(encoding="utf-8")
    (quoted,) = re.findall(r"`(got mixed [^`]*)`", text)
    for found in group("mixed"):
        assert quoted in found["said"]


def test_the_code_of_the_guide_runs_from_top_to_bottom_on_two_processes(group):
    for found in group("the guide"):
        assert {"model", "optimizer", "scaler", "save", "load"} <= set(found["names"])


@pytest.mark.parametrize("how", ["FSDP2, FP16", "DDP, BF16"])
def test_the_example_resumes_to_the_loss_of_a_run_that_never_stopped(group, how):
    first, second = group(f"the example, {how}")
    assert first == second
    assert first["resumed"] == first["unbroken"]
    assert 0 < first["unbroken"] < 2


def test_the_example_runs_under_torchrun(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    folder = tmp_path / "checkpoints"
    example = [str(ROOT / "examples" / "distributed.py"), "--steps=6", "--save-every=3", f"--folder={folder}"]
    assert run_group(tmp_path, [*torchrun, *example], processes=1) is None
    said = (tmp_path / "log 0").read_text(encoding="utf-8")
    assert re.findall(r"^step (\d)  loss 0\.\d{4}", said, re.M) == ["3", "6"]
    assert sorted(path.name for path in folder.iterdir()) == ["00000003", "00000006"]


# The group itself


def test_a_process_that_dies_is_reported_with_its_last_words_and_ends_the_group(tmp_path):
    dies = "import os, sys, time; os.environ['RANK'] == '0' and time.sleep(3600); sys.exit('out of memory')"
    start = time.monotonic()
    said = run_group(tmp_path, [sys.executable, "-c", dies])
    assert said == "process 1 ended with 1: its last words: out of memory"
    assert time.monotonic() - start < SILENCE


def test_processes_that_hang_are_reported_with_their_last_words_and_ended(tmp_path):
    hangs = "import time; print('waiting', flush=True); time.sleep(3600)"
    start = time.monotonic()
    said = run_group(tmp_path, [sys.executable, "-c", hangs], silence=1)
    assert said is not None
    assert said.startswith("no process has said anything for 1 s: its last words: ")
    assert time.monotonic() - start < SILENCE
