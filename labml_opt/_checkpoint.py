"""
Checkpoints of this package, and of others.

A checkpoint is what `torch.optim.Optimizer.state_dict` returns: groups with their settings and the numbers of their
parameters, and for each number the state. `read` turns it into groups and state that fit an optimizer of this package,
or says what doesn't fit, before anything of the optimizer has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from labml_opt.optimizer import GenericAdaptiveOptimizer, Group, State

# Settings of `torch.optim` that say how a step is carried out, not what it computes.
HOW_TORCH_RUNS = ("foreach", "fused", "differentiable")
# What labml_nn calls the master weights.
OTHER_NAMES = {"fp32_copy": "master"}


def read(optimizer: GenericAdaptiveOptimizer, checkpoint: dict[str, Any]) -> tuple[list[Group], dict[Tensor, State]]:
    """
    Return groups and state for `optimizer`, of what `checkpoint` holds.

    Raises `ValueError` that names group, parameter and key where the two don't fit.
    """
    if not {"param_groups", "state"} <= checkpoint.keys():
        raise ValueError(
            f"this is no checkpoint of an optimizer: it has no 'param_groups' and 'state'; {type(optimizer).__name__} "
            "loads what optimizer.state_dict() returned"
        )
    groups, saved_groups = optimizer.param_groups, checkpoint["param_groups"]
    if [len(group["params"]) for group in groups] != [len(saved["params"]) for saved in saved_groups]:
        raise ValueError(
            f"the checkpoint has {_sizes(saved_groups)} and this {type(optimizer).__name__} has {_sizes(groups)}: "
            "build the optimizer with the same groups as when it was saved"
        )

    last_step = max((int(state["step"]) for state in checkpoint["state"].values() if "step" in state), default=0)
    new_groups: list[Group] = []
    new_state: dict[Tensor, State] = {}
    for number, (group, saved) in enumerate(zip(groups, saved_groups, strict=True)):
        settings = _settings(optimizer, group, saved, last_step)
        new_groups.append({**settings, "params": saved["params"]})
        for position, (param, key) in enumerate(zip(group["params"], saved["params"], strict=True)):
            if checkpoint["state"].get(key):
                where = f"group {number}, parameter {position}"
                new_state[param] = _state(optimizer, settings, param, checkpoint["state"][key], where)
    return new_groups, new_state


def _sizes(groups: list[Group]) -> str:
    return f"{len(groups)} group(s) of {', '.join(str(len(group['params'])) for group in groups)} parameters"


def _settings(optimizer: GenericAdaptiveOptimizer, group: Group, saved: Group, last_step: int) -> Group:
    settings = {key: value for key, value in saved.items() if key not in ("params", *HOW_TORCH_RUNS)}

    # A checkpoint of torch.optim says how it decays in one flag, and its Adam adds epsilon to the corrected root. The
    # run goes on with the arithmetic it had.
    if "decoupled_weight_decay" in settings:
        settings["weight_decouple"] = settings.pop("decoupled_weight_decay")
        settings["absolute"] = False
        if "optimized_update" in group:
            settings["optimized_update"] = False

        # A scheduler of torch leaves the rate of the next step in `lr` and the one it started from beside it. Where the
        # optimizer has a schedule of its own, that one is meant; the other would be scheduled twice.
        if optimizer.has_schedule:
            settings["lr"] = settings.get("initial_lr", settings["lr"])

    # Checkpoints of other origin have no count of the schedule: its steps are those of the oldest parameter.
    settings.setdefault("t", last_step)
    return {**group, **settings}


def _state(optimizer: GenericAdaptiveOptimizer, group: Group, param: Tensor, saved: State, where: str) -> State:
    saved = {OTHER_NAMES.get(key, key): value for key, value in saved.items()}
    name = type(optimizer).__name__

    # What the state has to look like is asked of `init_state` itself, with weights that have a shape and no memory.
    dtype = torch.float64 if param.dtype in (torch.float64, torch.complex128) else torch.float32
    shape = (*param.shape, 2) if param.is_complex() else param.shape
    expected: State = {}
    optimizer.init_state(expected, group, torch.empty(shape, dtype=dtype, device="meta"))
    if "master" in saved and hasattr(optimizer, "master_params"):
        expected["master"] = torch.empty(shape, dtype=dtype, device="meta")

    missing, left_over = expected.keys() - saved.keys(), saved.keys() - expected.keys()
    if missing:
        raise ValueError(
            f"{where}: the checkpoint has no {_names(missing)}, which {name} needs; another optimizer saved it"
        )
    if "master" in left_over:
        raise ValueError(
            f"{where}: the checkpoint holds FP32 master weights and {name} keeps none, their bits would be lost: load "
            "it into an optimizer with MasterWeights and take master_params() from there"
        )
    if left_over:
        raise ValueError(
            f"{where}: the checkpoint has {_names(left_over)}, which {name} doesn't know; another optimizer saved it"
        )
    return {key: _fit(saved[key], expected[key], param, f"{where}: {key}") for key in expected}


def _names(keys: set[str]) -> str:
    return ", ".join(repr(key) for key in sorted(keys))


def _fit(value: Any, expected: Any, param: Tensor, what: str) -> Any:
    if not isinstance(expected, Tensor):
        return type(expected)(value) if isinstance(value, Tensor) else value
    if not isinstance(value, Tensor):
        return torch.full((), float(value), dtype=expected.dtype, device=param.device)
    if value.is_complex() and not expected.is_complex():
        value = torch.view_as_real(value)
    if value.shape != expected.shape:
        raise ValueError(f"{what} has shape {tuple(value.shape)} in the checkpoint, here it is {tuple(expected.shape)}")
    # FP32 stays FP32, bit for bit; averages that another optimizer kept in FP16 are widened.
    return value.to(device=param.device, dtype=expected.dtype)
