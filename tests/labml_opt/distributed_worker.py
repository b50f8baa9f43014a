"""
What the processes of a group do for test_distributed.py.

Each scenario runs in every process and returns what it found, as plain tensors, numbers and sentences. Nothing is
judged here: a scenario that judged could stop in one process while the other waits for it.

    python distributed_worker.py FOLDER    with RANK and WORLD_SIZE in the environment
"""

from __future__ import annotations

import copy
import os
import runpy
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from labml_opt import Adam, AdamFP16, AdamWarmupCosineDecay, AdamWarmupCosineDecayFP16, GradScalerFP16, Sophia

ROOT = Path(__file__).parents[2]
SCHEDULE = {"warmup": 3, "total_steps": 20}
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "Adam": Adam,
    "AdamWarmupCosineDecay": lambda params, **settings: AdamWarmupCosineDecay(params, **SCHEDULE, **settings),
    "AdamFP16": AdamFP16,
    "AdamWarmupCosineDecayFP16": lambda params, **settings: AdamWarmupCosineDecayFP16(params, **SCHEDULE, **settings),
}
DTYPES = {"FP16": torch.float16, "BF16": torch.bfloat16}
KINDS = ("DDP", "DDP with gradients in its buckets", "FSDP2")
SCALE = 1024.0
BOUND = 0.05
"""A bound of the gradient's norm that every step exceeds."""


# A run, on one process and on several


def network(dtype: torch.dtype) -> nn.Sequential:
    """A small network; 7, 5 and 1 rows don't divide by two, and of the last layer one process has nothing."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 1)).to(dtype)


def batch(step: int) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(8, 12, generator=torch.Generator().manual_seed(step))
    return inputs, inputs[:, :1].sin()


def sharded(model: nn.Sequential, **settings: Any) -> nn.Sequential:
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **settings)
    return fully_shard(model, **settings)


class Run:
    """
    A model, its optimizer and its scaler, on one process (`kind=None`) or spread over all.

    One process goes through the parts of the batch that the others share out, one after the other.
    """

    def __init__(self, kind: str | None, dtype: torch.dtype, optimizer: str, **settings: Any) -> None:
        self.dtype = dtype
        self.model: nn.Module = network(dtype)
        if kind == "FSDP2":
            self.model = sharded(network(dtype))
        elif kind is not None:
            self.model = DistributedDataParallel(network(dtype), gradient_as_bucket_view="buckets" in kind)
        self.parts = range(2) if kind is None else [dist.get_rank()]
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters(), lr=1e-2, weight_decay=0.1, **settings)
        self.scaler: torch.amp.GradScaler = GradScalerFP16("cpu", SCALE, enabled=dtype == torch.float16)
        self.grad_dtypes: set[torch.dtype] = set()
        self.norms: list[float] = []

    def backward(self, step: int) -> None:
        inputs, targets = batch(step)
        for part in self.parts:
            loss = (self.model(inputs[part::2].to(self.dtype)).float() - targets[part::2]).square().mean()
            self.scaler.scale(loss / len(self.parts)).backward()
        self.grad_dtypes |= {param.grad.dtype for param in self.model.parameters() if param.grad is not None}

    def train(self, steps: Iterable[int], clip: float | None = None, spoil: Callable[[], None] = lambda: None) -> Run:
        for step in steps:
            self.backward(step)
            spoil()
            if clip is not None:
                self.scaler.unscale_(self.optimizer)
                self.norms.append(float(whole(clip_grad_norm_(self.model.parameters(), clip))))
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        return self

    def found(self) -> dict[str, Any]:
        """All that a next step depends on, whole tensors by name."""
        found = {"scale": self.scaler.get_scale(), "t": float(self.optimizer.param_groups[0]["t"])}
        for number, param in enumerate(self.model.parameters()):
            found[f"param {number}"] = whole(param.detach())
            for key, value in self.optimizer.state[param].items():
                found[f"{key} {number}"] = whole(value) if isinstance(value, Tensor) else value
        return found

    def save(self, folder: Path) -> None:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.save({"model": model, "optimizer": optimizer, "scaler": self.scaler.state_dict()}, checkpoint_id=folder)

    def load(self, folder: Path) -> Run:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer, "scaler": self.scaler.state_dict()}
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        return self


def whole(tensor: Tensor) -> Tensor:
    """The tensor with all its shards, or a copy of an ordinary one."""
    if tensor.dtype is torch.int16:  # which neither gloo nor NCCL sends
        return whole(tensor.int()).short()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


# The scenarios

Scenario = Callable[[Path], dict[str, Any]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str) -> Callable[[Scenario], Scenario]:
    def enter(function: Scenario) -> Scenario:
        SCENARIOS[name] = function
        return function

    return enter


def compare(kind: str, dtype: torch.dtype, optimizer: str, clip: float | None = None, **settings: Any) -> Scenario:
    def run(_: Path) -> dict[str, Any]:
        one = Run(None, dtype, optimizer, **settings).train(range(6), clip)
        several = Run(kind, dtype, optimizer, **settings).train(range(6), clip)
        return {
            "one": one.found(),
            "several": several.found(),
            "norms": (one.norms, several.norms),
            "grad_dtypes": several.grad_dtypes,
        }

    return run


for _kind in KINDS:
    for _label, _dtype in DTYPES.items():
        for _optimizer in OPTIMIZERS:
            SCENARIOS[f"{_kind}, {_label}, {_optimizer}"] = compare(_kind, _dtype, _optimizer)
        SCENARIOS[f"{_kind}, {_label}, clipped"] = compare(_kind, _dtype, "AdamWarmupCosineDecayFP16", clip=BOUND)
    SCENARIOS[f"{_kind}, capturable"] = compare(_kind, torch.float16, "AdamWarmupCosineDecayFP16", capturable=True)
    SCENARIOS[f"{_kind}, in halves"] = compare(_kind, torch.bfloat16, "AdamFP16", split_master=True)


def stop_and_go_on(dtype: torch.dtype, **settings: Any) -> Scenario:
    def run(folder: Path) -> dict[str, Any]:
        def new() -> Run:
            return Run("FSDP2", dtype, "AdamWarmupCosineDecayFP16", **settings)

        unbroken = new().train(range(8))
        stopped = new().train(range(4))
        stopped.save(folder / "stopped")
        resumed = new().load(folder / "stopped")
        loaded = resumed.found()
        resumed.train(range(4, 8))
        return {
            "stopped": stopped.found(),
            "loaded": loaded,
            "unbroken": unbroken.found(),
            "resumed": resumed.found(),
        }

    return run


for _label, _dtype in DTYPES.items():
    SCENARIOS[f"stop and go on, {_label}"] = stop_and_go_on(_dtype)
SCENARIOS["stop and go on, capturable"] = stop_and_go_on(torch.float16, capturable=True)
SCENARIOS["stop and go on, in halves"] = stop_and_go_on(torch.bfloat16, split_master=True)


def go_on_from_one(label: str) -> Scenario:
    def run(folder: Path) -> dict[str, Any]:
        resumed = Run("FSDP2", DTYPES[label], "AdamWarmupCosineDecayFP16").load(folder.parent / f"one {label}")
        loaded = resumed.found()
        return {"loaded": loaded, "resumed": resumed.train(range(4, 8)).found()}

    return run


def leave_to_one(label: str) -> Scenario:
    def run(folder: Path) -> dict[str, Any]:
        stopped = Run("FSDP2", DTYPES[label], "AdamWarmupCosineDecayFP16").train(range(4))
        stopped.save(folder.parent / f"two {label}")
        return {"stopped": stopped.found()}

    return run


for _label in DTYPES:
    SCENARIOS[f"go on from one process, {_label}"] = go_on_from_one(_label)
    SCENARIOS[f"leave to one process, {_label}"] = leave_to_one(_label)


@scenario("from DDP to FSDP2")
def from_ddp_to_fsdp2(folder: Path) -> dict[str, Any]:
    stopped = Run("DDP", torch.float16, "AdamWarmupCosineDecayFP16").train(range(4))
    stopped.save(folder / "stopped")
    resumed = Run("FSDP2", torch.float16, "AdamWarmupCosineDecayFP16").load(folder / "stopped")
    return {"stopped": stopped.train(range(4, 8)).found(), "resumed": resumed.train(range(4, 8)).found()}


@scenario("a whole checkpoint")
def a_whole_checkpoint(_: Path) -> dict[str, Any]:
    one = Run(None, torch.float16, "AdamWarmupCosineDecayFP16").train(range(4))
    model, optimizer = get_state_dict(one.model, one.optimizer)
    several = Run("FSDP2", torch.float16, "AdamWarmupCosineDecayFP16")
    set_state_dict(
        several.model,
        several.optimizer,
        model_state_dict=copy.deepcopy(model),
        optim_state_dict=copy.deepcopy(optimizer),
        options=StateDictOptions(full_state_dict=True),
    )
    return {"one": one.found(), "several": several.found()}


@scenario("checkpoints of the wrong form")
def checkpoints_of_the_wrong_form(_: Path) -> dict[str, Any]:
    one, several = (Run(kind, torch.float16, "AdamFP16").train(range(2)) for kind in (None, "FSDP2"))
    before, said = several.found(), []
    for into, saved in ((several, one), (one, several)):
        try:
            into.optimizer.load_state_dict(saved.optimizer.state_dict())
            said.append("")
        except ValueError as error:
            said.append(str(error))
    return {"said": said, "before": before, "after": several.found()}


def an_infinity(kind: str, where: str, stock: bool = False, **settings: Any) -> Scenario:
    def run(_: Path) -> dict[str, Any]:
        run = Run(kind, torch.float16, "AdamWarmupCosineDecayFP16", **settings)
        if stock:
            run.scaler = torch.amp.GradScaler("cpu", SCALE)
        run.train(range(3))
        before = run.found()

        def spoil() -> None:
            if dist.get_rank() == 1:
                grad = next(run.model.parameters()).grad
                grad.to_local().view(-1)[0] = torch.inf

        if where == "shard":
            run.train([3], spoil=spoil)
        else:
            # A target this large on one process makes its gradients infinite, and through the average those of all.
            inputs, targets = batch(3)
            inputs[1::2] *= 100
            targets[1::2] = 1e7
            part = slice(dist.get_rank(), None, 2)
            run.scaler.scale(((run.model(inputs[part].half()).float() - targets[part]).square()).mean()).backward()
            run.scaler.step(run.optimizer)
            run.scaler.update()
            run.optimizer.zero_grad()
        after = run.found()
        return {"before": before, "after": after, "next": run.train([4]).found()}

    return run


for _kind in KINDS:
    SCENARIOS[f"an infinity in the data of one process, {_kind}"] = an_infinity(_kind, "data")
SCENARIOS["an infinity on one shard, GradScalerFP16"] = an_infinity("FSDP2", "shard")
SCENARIOS["an infinity on one shard, torch's scaler, unscale_in_step"] = an_infinity(
    "FSDP2", "shard", stock=True, unscale_in_step=True
)
SCENARIOS["an infinity on one shard, capturable"] = an_infinity("FSDP2", "shard", unscale_in_step=True, capturable=True)


@scenario("masters")
def masters(_: Path) -> dict[str, Any]:
    run = Run("FSDP2", torch.float16, "AdamFP16")
    untrained = [type(master).__name__ for master in run.optimizer.master_params()]
    run.train(range(2))
    pairs = list(zip(run.optimizer.master_params(), run.model.parameters(), strict=True))
    average = [master.clone() for master, _ in pairs]
    run.train([2])
    for mean, master in zip(average, run.optimizer.master_params(), strict=True):
        mean.lerp_(master, 0.25)
    one = Run(None, torch.float16, "AdamFP16").train(range(2))
    expected = [master.clone() for master in one.optimizer.master_params()]
    one.train([2])
    for mean, master in zip(expected, one.optimizer.master_params(), strict=True):
        mean.lerp_(master, 0.25)
    return {
        "untrained": untrained,
        "types": [type(master).__name__ for master, _ in pairs],
        "dtypes": [master.dtype for master, _ in pairs],
        "spread as": [str(master.placements) for master, _ in pairs],
        "weights spread as": [str(param.placements) for _, param in pairs],
        "average": [whole(mean) for mean in average],
        "expected": expected,
    }


def changed(how: str) -> Scenario:
    def run(_: Path) -> dict[str, Any]:
        runs = [Run(kind, torch.float16, "AdamFP16").train(range(2)) for kind in (None, "FSDP2")]
        other = Run(None, torch.float16, "AdamFP16").train(range(5))
        with torch.no_grad():
            for run in runs:
                first = next(run.model.parameters())
                if how == "loaded":
                    options = StateDictOptions(full_state_dict=True)
                    weights = {key: value.clone() for key, value in get_model_state_dict(other.model).items()}
                    set_model_state_dict(run.model, weights, options=options)
                elif how == "clamped":
                    for param in run.model.parameters():
                        param.clamp_(-0.1, 0.1)
                elif isinstance(first, DTensor):
                    # Four of the seven rows are on the first process, three on the second.
                    if dist.get_rank() == 1:
                        first.to_local().fill_(0.25)
                else:
                    first[4:] = 0.25
        return {"one": runs[0].train([2]).found(), "several": runs[1].train([2]).found()}

    return run


for _how in ("loaded", "clamped", "one shard written to"):
    SCENARIOS[f"weights {_how}"] = changed(_how)


@scenario("talk")
def talk(_: Path) -> dict[str, Any]:
    run = Run("FSDP2", torch.float16, "AdamFP16").train(range(2))
    run.backward(2)
    run.scaler.unscale_(run.optimizer)
    with CommDebugMode() as heard:
        run.optimizer.step()
    with CommDebugMode() as proof:
        torch.equal(*[next(run.model.parameters())] * 2)
    return {"in a step": heard.get_total_counts(), "when torch compares": proof.get_total_counts()}


@scenario("copies")
def copies(_: Path) -> dict[str, Any]:
    run = Run("FSDP2", torch.float16, "AdamFP16").train(range(2))
    twin = copy.deepcopy(run.optimizer)
    params = (twin.param_groups[0]["params"], run.optimizer.param_groups[0]["params"])
    same = [
        torch.equal(whole(twin.state[a]["master"]), whole(run.optimizer.state[b]["master"]))
        for a, b in zip(*params, strict=True)
    ]
    apart = [twin.state[a]["master"] is not run.optimizer.state[b]["master"] for a, b in zip(*params, strict=True)]

    weights, state = (copy.deepcopy(thing.state_dict()) for thing in (run.model, run.optimizer))
    once = run.train([2]).found()
    run.model.load_state_dict(weights)
    run.optimizer.load_state_dict(state)
    return {"same": same, "apart": apart, "once": once, "again": run.train([2]).found()}


@scenario("FP32 weights")
def fp32_weights(_: Path) -> dict[str, Any]:
    model = sharded(network(torch.float32), mp_policy=MixedPrecisionPolicy(param_dtype=torch.float16))
    run = Run(None, torch.float16, "Adam")
    run.model, run.parts = model, [dist.get_rank()]
    run.optimizer = Adam(model.parameters(), lr=1e-2)
    before = run.train([0]).found()

    def spoil() -> None:
        if dist.get_rank() == 1:
            next(model.parameters()).grad.to_local().view(-1)[0] = torch.inf

    return {"before": before, "after": run.train([1], spoil=spoil).found(), "next": run.train([2]).found()}


@scenario("mixed")
def mixed(_: Path) -> dict[str, Any]:
    model = network(torch.float16)
    fully_shard(model[0])
    optimizer, scaler = AdamFP16(model.parameters()), GradScalerFP16("cpu", SCALE)
    scaler.scale(model(batch(0)[0].half()).float().sum()).backward()
    try:
        scaler.unscale_(optimizer)
    except RuntimeError as error:
        return {"said": str(error)}
    return {"said": ""}


@scenario("Sophia's curvature, an infinity on one shard")
def curvature(_: Path) -> dict[str, Any]:
    model, counted = sharded(network(torch.float32)), []
    optimizer = Sophia(model.parameters())
    for spoil in (False, True):
        model(batch(0)[0]).square().mean().backward()
        if spoil and dist.get_rank() == 1:
            next(model.parameters()).grad.to_local().view(-1)[0] = torch.inf
        counted.append(optimizer.update_hessian(8))
        optimizer.zero_grad()
    return {"counted": counted, "curvature": [whole(state["hessian"]) for state in optimizer.state.values()]}


@scenario("too early")
def too_early(_: Path) -> dict[str, Any]:
    model = network(torch.float16)
    optimizer, scaler = AdamFP16(model.parameters()), GradScalerFP16("cpu", SCALE)
    sharded(model)
    scaler.scale(model(batch(0)[0].half()).float().sum()).backward()
    try:
        scaler.step(optimizer)
    except RuntimeError as error:
        return {"said": str(error)}
    return {"said": ""}


def the_example(*arguments: str) -> Scenario:
    def run(folder: Path) -> dict[str, Any]:
        main = runpy.run_path(str(ROOT / "examples" / "distributed.py"))["main"]

        def train(name: str, steps: int) -> float:
            return main([*arguments, f"--folder={folder / name}", f"--steps={steps}", "--save-every=6"])

        unbroken = train("unbroken", 12)
        train("stopped", 6)
        # A process that was killed while it wrote the next one.
        (folder / "stopped" / "new").mkdir(exist_ok=True)
        return {"unbroken": unbroken, "resumed": train("stopped", 12)}

    return run


SCENARIOS["the example, FSDP2, FP16"] = the_example()
SCENARIOS["the example, DDP, BF16"] = the_example("--ddp", "--bf16")


@scenario("the guide")
def the_guide(folder: Path) -> dict[str, Any]:
    code = (folder.parent / "guide.py").read_text(encoding="utf-8")
    os.chdir(folder)
    join, dist.init_process_group = dist.init_process_group, lambda backend: None  # the group is there already
    try:
        names: dict[str, Any] = {}
        exec(compile(code, "docs/guides/distributed.md", "exec"), names)
    finally:
        dist.init_process_group = join
    return {"names": sorted(name for name in names if not name.startswith("_"))}


def main(folder: Path) -> None:
    """Run every scenario, and leave what each found in `folder` as soon as it is known."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'meeting place'}",
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=120),
    )
    for number, (name, run) in enumerate(SCENARIOS.items()):
        print(f"{name} ...", flush=True)
        mine = folder / str(number)
        mine.mkdir(exist_ok=True)
        try:
            found = run(mine)
        except Exception:
            found = {"error": traceback.format_exc()}
        torch.save(found, folder / f"{name}.{rank}.new")
        os.replace(folder / f"{name}.{rank}.new", folder / f"{name}.{rank}.pt")
        dist.barrier()
    # All is written. Taking the group down is not what is tested, and gloo's threads may abort a process that ends.
    print("all scenarios have been run", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
