"""
Checkpoints of this package, and of others.

A checkpoint is what `torch.optim.Optimizer.state_dict` returns: groups with their settings and the numbers of their
parameters, and for each number the state. `read` turns it into groups and state that fit an optimizer of this package,
or says what doesn't fit, before anything of the optimizer has changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from labml_opt._shards import is_distributed

if TYPE_CHECKING:
    from labml_opt.optimizer import GenericAdaptiveOptimizer, Group, State

# Settings of `torch.optim` that say how a step is carried out, not what it computes.
HOW_TORCH_RUNS = ("foreach", "fused", "differentiable")
# What only a checkpoint of `torch.optim` has.
TORCHS = {"decoupled_weight_decay", *HOW_TORCH_RUNS}
# The same of this package: what a checkpoint was made with says nothing about the machine that loads it.
HOW_WE_RUN = ("fast", "check_weights", "split_master")
# Settings that make a class train by a rule that another one doesn't have.
RULES = {"warmup", "total_steps", "d_model", "degenerated_to_sgd", "rectify", "rho", "momentum_decay"}
# What labml_nn calls the master weights.
OTHER_NAMES = {"fp32_copy": "master"}


def read(optimizer: GenericAdaptiveOptimizer, checkpoint: dict[str, Any]) -> tuple[list[Group], dict[Tensor, State]]:
    """
    Return groups and state for `optimizer`, of what `checkpoint` holds.

    Raises `ValueError` that names group, parameter and key where the two don't fit.
    """
    name = type(optimizer).__name__
    if not isinstance(checkpoint.get("param_groups"), list) or not isinstance(checkpoint.get("state"), dict):
        raise ValueError(
            f"this is no checkpoint of an optimizer, which has 'param_groups' and 'state': {name} loads what "
            "optimizer.state_dict() returned"
        )
    groups, saved_groups = optimizer.param_groups, checkpoint["param_groups"]
    if _sizes(groups) != _sizes(saved_groups):
        raise ValueError(
            f"the checkpoint has {_sizes(saved_groups)} and this {name} has {_sizes(groups)}: build the optimizer with "
            "the same groups as when it was saved"
        )
    nobodys = checkpoint["state"].keys() - {key for saved in saved_groups for key in saved["params"]}
    if nobodys:
        raise ValueError(
            f"the checkpoint has state for {_names(nobodys)}, which are the parameters of no group: the keys of "
            "'state' must be the numbers under 'params'"
        )

    steps = [state["step"] for state in checkpoint["state"].values() if isinstance(state, dict) and "step" in state]
    last_step = max((_fit(step, 0, None, "step") for step in steps), default=0)
    new_groups: list[Group] = []
    new_state: dict[Tensor, State] = {}
    for number, (group, saved) in enumerate(zip(groups, saved_groups, strict=True)):
        settings = _settings(optimizer, group, saved, last_step, f"group {number}")
        new_groups.append({**settings, "params": saved["params"]})
        for position, (param, key) in enumerate(zip(group["params"], saved["params"], strict=True)):
            if key in checkpoint["state"]:
                where = f"group {number}, parameter {position}"
                new_state[param] = _state(optimizer, settings, param, checkpoint["state"][key], where)
    return new_groups, new_state


def _sizes(groups: list[Group]) -> str:
    return f"{len(groups)} group(s) of {', '.join(str(len(group.get('params', ()))) for group in groups)} parameters"


def _settings(optimizer: GenericAdaptiveOptimizer, group: Group, saved: Group, last_step: int, where: str) -> Group:
    settings = {key: value for key, value in saved.items() if key not in ("params", *HOW_TORCH_RUNS, *HOW_WE_RUN)}
    missing = {"lr", "betas", "eps"} - settings.keys()
    # torch's SparseAdam has none of its names. But it goes up or down, and has no count of its own.
    if saved.keys() & TORCHS or ("maximize" in saved and "t" not in saved):
        strange = {"rectify", "rho"} & group.keys()
        if strange:
            raise ValueError(
                f"{where}: the checkpoint is of torch.optim, which trains without {_names(strange)}: load it into the "
                "class that has torch's rule"
            )
        # torch's RAdam is the one that decays either way and knows neither a maximum nor a fused step.
        if (
            "degenerated_to_sgd" in group
            and "decoupled_weight_decay" in saved
            and not saved.keys() & {"amsgrad", "fused"}
        ):
            settings.update(amsgrad=False, degenerated_to_sgd=True, optimized_update=True)
        missing |= {"amsgrad"} - settings.keys()
        _from_torch(optimizer, group, settings, where)
    if missing:
        raise ValueError(f"{where}: the checkpoint has no {_names(missing)}; another optimizer saved it")
    rules = RULES | ({"amsgrad"} if settings.get("amsgrad") else set())
    unknown = rules & settings.keys() - group.keys()
    if unknown:
        raise ValueError(
            f"{where}: the checkpoint was trained with {_names(unknown)}, which {type(optimizer).__name__} doesn't "
            "have: load it into the class that saved it"
        )

    # Checkpoints of other origin have no count of the schedule: its steps are those of the oldest parameter.
    settings.setdefault("t", last_step)
    settings = {**group, **settings}
    optimizer.check_settings(settings)
    return settings


def _from_torch(optimizer: GenericAdaptiveOptimizer, group: Group, settings: Group, where: str) -> None:
    # A checkpoint of torch.optim says how it decays in one flag. Before torch 2.7 it didn't say it at all.
    coupled_or_not = settings.pop("decoupled_weight_decay", None)
    if coupled_or_not is None and settings.get("weight_decay"):
        raise ValueError(
            f"{where}: the checkpoint is of torch before 2.7 and doesn't say whether its weight decay is coupled, as "
            "in Adam, or decoupled, as in AdamW: set 'decoupled_weight_decay' in its groups to False or True"
        )
    if coupled_or_not is not None:
        settings["weight_decouple"], settings["absolute"] = coupled_or_not, False

    # torch's Adam adds epsilon to the corrected root, its RAdam to the raw one: the run goes on with what it had.
    if "optimized_update" in group:
        settings.setdefault("optimized_update", False)

    # A scheduler of torch leaves the rate of the next step in `lr` and the one it started from beside it. Where the
    # optimizer has a schedule of its own, that one is meant; the other would be scheduled twice.
    if optimizer.has_schedule and "lr" in settings:
        settings["lr"] = settings.get("initial_lr", settings["lr"])


def _state(optimizer: GenericAdaptiveOptimizer, group: Group, param: Tensor, saved: State, where: str) -> State:
    if not isinstance(saved, dict):
        raise ValueError(f"{where}: the state in the checkpoint is {type(saved).__name__}, not a dictionary")
    saved = {OTHER_NAMES.get(key, key): value for key, value in saved.items()}
    name = type(optimizer).__name__

    # What the state has to look like is asked of `init_state` itself, with weights that have a shape and no memory.
    dtype = torch.float64 if param.dtype in (torch.float64, torch.complex128) else torch.float32
    shape = (*param.shape, 2) if param.is_complex() else param.shape
    expected: State = {}
    optimizer.init_state(expected, group, torch.empty(shape, dtype=dtype, device="meta"))
    if "master" in saved and hasattr(optimizer, "master_params"):
        expected["master"] = torch.empty(shape, dtype=dtype, device="meta")
    if "residue" in saved and hasattr(optimizer, "master_params"):
        expected["residue"] = torch.empty(shape, dtype=torch.int16, device="meta")

    missing, left_over = expected.keys() - saved.keys(), saved.keys() - expected.keys()
    if missing:
        raise ValueError(
            f"{where}: the checkpoint has no {_names(missing)}, which {name} needs; another optimizer saved it"
        )
    if left_over & {"master", "residue"}:
        raise ValueError(
            f"{where}: the checkpoint holds FP32 master weights and {name} keeps none, their bits would be lost: load "
            "it into an optimizer with MasterWeights and take master_params() from there"
        )
    if left_over:
        raise ValueError(
            f"{where}: the checkpoint has {_names(left_over)}, which {name} doesn't know; another optimizer saved it"
        )
    return {key: _fit(saved[key], expected[key], param, f"{where}: {key}") for key in expected}


def _names(keys: Iterable[Any]) -> str:
    return ", ".join(sorted(repr(key) for key in keys))


def _fit(value: Any, expected: Any, param: Tensor | None, what: str) -> Any:
    # A step count is a number here and may be a tensor with one value there.
    if isinstance(expected, (int, float)):
        if (
            isinstance(value, (str, bytes))
            or not hasattr(value, "__float__")
            or math.prod(getattr(value, "shape", ())) != 1
        ):
            raise ValueError(f"{what} is {value!r} in the checkpoint, and must be a number")
        if not math.isfinite(value):
            raise ValueError(f"{what} is {float(value)} in the checkpoint, and must be finite")
        return type(expected)(value)
    if not isinstance(expected, Tensor) or param is None:
        return value
    if not isinstance(value, Tensor) and expected.dim() == 0:
        return torch.full((), float(_fit(value, 0.0, None, what)), dtype=expected.dtype, device=param.device)
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_meta:
        raise ValueError(f"{what} is no dense tensor in the checkpoint")
    if value.is_complex() and not expected.is_complex():
        value = torch.view_as_real(value)
    if value.shape != expected.shape:
        raise ValueError(f"{what} has shape {tuple(value.shape)} in the checkpoint, here it is {tuple(expected.shape)}")
    # A step count is whole everywhere.
    if expected.dim() and is_distributed(value) != is_distributed(param):
        whole, shard = ("here", "in the checkpoint") if is_distributed(value) else ("in the checkpoint", "here")
        raise ValueError(
            f"{what} is a whole tensor {whole} and spread over processes {shard}: load it with "
            "set_optimizer_state_dict of torch.distributed.checkpoint.state_dict, which spreads and gathers"
        )
    if expected.dtype is torch.int16 and value.dtype is not torch.int16:
        raise ValueError(f"{what} is {value.dtype} in the checkpoint, and must be torch.int16: its bits would be lost")
    # FP32 stays FP32, bit for bit; averages that another optimizer kept in FP16 are widened.
    return value.to(device=param.device, dtype=expected.dtype)
