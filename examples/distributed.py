"""
Half precision on several processes: train a small network in FP16, save, be stopped, go on.

    torchrun --nproc-per-node 2 examples/distributed.py          FSDP2: each process keeps a part of everything
    torchrun --nproc-per-node 2 examples/distributed.py --ddp    DDP: each process keeps everything
    python examples/distributed.py                               one process, and the same checkpoints

Started again it goes on from the last checkpoint, on another number of processes as well. Where there are GPUs it uses
one for each process and NCCL between them, else the CPU and gloo. The guide "Half precision on more than one GPU"
explains the lines.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from labml_opt import AdamWarmupCosineDecayFP16, GradScalerFP16

TOTAL_STEPS = 400  # the length of the schedule; a run may be stopped before
BATCH = 64  # over all processes together


def main(argv: Sequence[str] | None = None) -> float:
    """Train until step `--steps` and return the last loss, the mean over all processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ddp", action="store_true", help="DDP rather than FSDP2")
    parser.add_argument("--bf16", action="store_true", help="BF16, which needs no loss scale, rather than FP16")
    parser.add_argument("--steps", type=int, default=200, help="train until this step")
    parser.add_argument("--save-every", type=int, default=50, help="steps between two checkpoints")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"), help="one that all processes can see")
    arguments = parser.parse_args(argv)
    device = join()
    rank, processes = dist.get_rank(), dist.get_world_size()

    # The order matters: the dtype first, then the sharding, then the optimizer, whose masters and moments are sharded
    # as the weights are that it is given.
    dtype = torch.bfloat16 if arguments.bf16 else torch.float16
    model: nn.Module = network().to(device, dtype)
    if arguments.ddp:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        for layer in model.children():
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
    optimizer = AdamWarmupCosineDecayFP16(
        model.parameters(), lr=5e-3, weight_decay=0.01, warmup=20, total_steps=TOTAL_STEPS
    )
    scaler = GradScalerFP16(device.type, enabled=not arguments.bf16)

    first = load(arguments.folder, model, optimizer, scaler)
    last = torch.full((), float("nan"))
    for step in range(first, arguments.steps):
        # The data of a step follow from its number, so a resumed run needs no memory of what it has seen; and each
        # process takes its part of it.
        inputs, targets = (part[rank::processes].to(device) for part in batch(step))
        loss = (model(inputs.to(dtype)).float() - targets).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

        done = step + 1
        if done % arguments.save_every == 0 or done == arguments.steps:
            last = loss.detach() / processes
            dist.all_reduce(last)
            if rank == 0:
                rate = optimizer.get_last_lr()[0]
                print(f"step {done}  loss {last:.4f}  rate {rate:.5f}  scale {scaler.get_scale():.0f}", flush=True)
            save(arguments.folder, done, model, optimizer, scaler)
    return last.item()


def join() -> torch.device:
    """Meet the other processes, which torchrun has told who is who, and return the device to work on."""
    on_gpus = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        backend = "nccl" if on_gpus else "gloo"
        if "RANK" in os.environ:
            dist.init_process_group(backend)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return device


def network() -> nn.Sequential:
    """Make the model, the same in every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Make the whole batch of a step: a smooth function of random points."""
    inputs = torch.randn(BATCH, 32, generator=torch.Generator().manual_seed(step))
    return inputs, inputs[:, :4].sum(1, keepdim=True).sin()


def save(
    folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> None:
    """
    Write a checkpoint into a folder of its own, each process its part.

    It is written beside the others and renamed when it is whole, so being stopped at any moment costs at most the steps
    since the last one.
    """
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "scaler": scaler.state_dict(), "step": step}
    new = folder / "new"
    if dist.get_rank() == 0:
        shutil.rmtree(new, ignore_errors=True)
    dist.barrier()
    dcp.save(state, checkpoint_id=new)
    if dist.get_rank() == 0:
        shutil.rmtree(folder / f"{step:08}", ignore_errors=True)
        new.rename(folder / f"{step:08}")
    dist.barrier()


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> int:
    """Take over the last whole checkpoint, whatever number of processes wrote it, and return the step to go on from."""
    whole = sorted(path for path in folder.glob("*") if path.name.isdigit())
    if not whole:
        return 0
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "scaler": scaler.state_dict(), "step": 0}
    dcp.load(state, checkpoint_id=whole[-1])
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    scaler.load_state_dict(state["scaler"])
    return int(state["step"])


if __name__ == "__main__":
    try:
        main()
    finally:
        # FSDP2's hooks and modules refer to each other in circles, and what is left of them would outlive the group.
        gc.collect()
        if dist.is_initialized():
            dist.destroy_process_group()
