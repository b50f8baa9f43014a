"""
Kernels: the pages' own update, traced once and compiled to one loop over memory.

`step_param` of a class and all that it calls is followed with tensors that have a shape and no values. What it did is a
graph, and `torch._inductor`, the compiler behind `torch.compile`, makes one loop of it. It serves any number of values:
only the count, the rate and the memory change from call to call, so nothing has to be guarded, and a call costs a tenth
of one through `torch.compile`.

A kernel is compared with the uncompiled update before it is used. Where it can't be had, the loop over parameters goes
on, and one warning says so.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from labml_opt.optimizer import GenericAdaptiveOptimizer, Group, State

# A number that changes at every step, other than the rate, would compile a kernel at every step.
MOST_KERNELS = 16
# What a kernel is traced and compared with. Long enough that it is worth several threads.
PROBE = 2**16
# Settings that are handed to a kernel at each call, or that it doesn't know.
NOT_OF_THE_RULE = ("params", "t", "lr", "fast", "check_weights", "unscale_in_step", "capturable", "initial_lr")

# Takes rate, count, weights, gradient, grad_scale, found_inf, and the rest of the state in the order of its names.
Kernel = Callable[[list[Any]], Any]
_kernels: dict[Any, Kernel | None] = {}


def kernel_for(
    optimizer: GenericAdaptiveOptimizer,
    group: Group,
    dtype: torch.dtype,
    grad_dtype: torch.dtype,
    device: torch.device,
    grad_scale: Any,
    found_inf: Any,
) -> Kernel | None:
    """Return the kernel for weights and gradients of these dtypes, or `None` where the loop has to do."""
    settings = {key: value for key, value in group.items() if key not in NOT_OF_THE_RULE}
    rate = group["lr"].dtype if isinstance(group["lr"], Tensor) else torch.float64
    check, threads = bool(group["check_weights"]), torch.get_num_threads()
    kind = (type(optimizer), dtype, grad_dtype, device, threads, rate, check, grad_scale is None, found_inf is None)
    key = (*kind, group["capturable"], *((name, str(value)) for name, value in settings.items()))
    if key in _kernels:
        return _kernels[key]

    if sum(other[: len(kind)] == kind for other in _kernels) >= MOST_KERNELS:
        warn_once(
            optimizer,
            f"a setting of {type(optimizer).__name__} other than lr changes from step to step, and fast=True would "
            "compile a kernel for each value: the loop takes over. Leave fast out, or keep the setting constant",
        )
        return None
    _kernels[key] = None
    try:
        # The compiler's own warnings are none of the user's.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probe = Probe(optimizer, group, dtype, grad_dtype, device, rate, grad_scale, found_inf)
            update = update_of(type(optimizer), {**settings, "capturable": True}, probe.keys, probe.counts, check)
            kernel = compiled(update, probe.arguments(0), threads)
            probe.compare(kernel)
        _kernels[key] = kernel
    except Exception as error:
        reason = str(error).strip().splitlines() or [""]
        warn_once(
            optimizer,
            f"fast=True can't be had here, and {type(optimizer).__name__} steps parameter by parameter, with the same "
            f"results: {type(error).__name__}: {reason[0][:200]}. It needs what torch.compile needs: on a CPU a C++ "
            "compiler (g++, clang or cl), on a GPU Triton",
        )
    return _kernels[key]


def update_of(
    rule_class: type[GenericAdaptiveOptimizer], settings: Group, keys: list[str], counts: bool, check: bool
) -> Kernel:
    """
    Return the update of a class as a function of tensors: nothing of an optimizer is held by it.

    * `keys` name what the state holds, and `counts` says whether there is a count beside it
    * `check` has it look for weights changed from outside
    """
    # The compiler's modules take a while to import, and only this path needs them.
    from labml_opt import _hoist
    from labml_opt.split_master import join

    rule = rule_class.__new__(rule_class)

    def update(arguments: list[Any]) -> tuple[()]:
        rate, count, param, grad, grad_scale, found_inf, *values = arguments
        state: State = dict(zip(keys, values, strict=True))
        if counts:
            state["step"] = count
        group = {**settings, "lr": rate}
        weights = param
        if "master" in state:
            weights = state["master"]
            if check:
                rule._follow(weights, param, True)  # type: ignore[attr-defined]
        elif "residue" in state:
            weights = join(param, state["residue"])
        elif param.dtype in (torch.float16, torch.bfloat16):
            weights = param.float()
        with _hoist.ToTheBit():
            rule._update(state, group, grad, param, weights, grad_scale, found_inf)
        return ()

    return update


def compiled(update: Kernel, arguments: list[Any], threads: int) -> Kernel:
    """Follow `update` with arguments of this kind, and return it as a kernel."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from labml_opt import _hoist

    # A graph has tensors for its inputs; what is `None` here is so at every call.
    given = [number for number, argument in enumerate(arguments) if argument is not None]

    def of_tensors(*tensors: Tensor) -> Any:
        whole: list[Any] = [None] * len(arguments)
        for number, tensor in zip(given, tensors, strict=True):
            whole[number] = tensor
        return update(whole)

    tensors = [argument for argument in arguments if argument is not None]
    graph = make_fx(of_tensors, tracing_mode="symbolic")(*tensors)
    for node in graph.graph.nodes:
        one_of_many = _hoist.dimensions(node) == 0 and any(map(_hoist.dimensions, node.all_input_nodes))
        # `new_ones` and its like look at the kind of a tensor, not at its values.
        if one_of_many and ".new_" not in str(node.target):
            raise RuntimeError(
                f"{node.target} makes one number of a whole tensor, and the tensor here is a block of many parameters"
            )
    loop = lowered(graph, tensors, threads)
    filled = operator.itemgetter(*given)
    return lambda arguments: loop(list(filled(arguments)))


def lowered(graph: torch.fx.GraphModule, tensors: list[Any], threads: int) -> Kernel:
    """
    Return the loop that the compiler makes of a graph, called with a list of tensors.

    * `tensors` are the kind of tensors that it will be called with, `threads` how many threads are to run it
    """
    from torch._functorch import config as functorch_config
    from torch._inductor import standalone_compile
    from torch._inductor.compile_fx import compile_fx_inner

    from labml_opt import _cpu_loops, _hoist

    # What is called at each step is the loop itself. Around it the compiler puts a layer that would take care of
    # autograd, of which there is none here, and that takes as long as a loop over 50,000 values.
    made: list[Any] = []

    def inner(graph: Any, inputs: Any, **how: Any) -> Any:
        made.append(compile_fx_inner(graph, inputs, **how))
        return made[-1]

    options = {"config_patches": {**_hoist.HOW, "cpp.threads": threads}, "inner_compile": inner}
    with functorch_config.patch(enable_autograd_cache=False):
        try:
            with _cpu_loops.mended():
                standalone_compile(graph, tensors, options=options)
        except Exception:
            standalone_compile(graph, tensors, options=options)
    return lambda inputs: made[-1].current_callable(inputs)


class Probe:
    """Weights, gradients and state to try a kernel on, and the loop's way with them."""

    def __init__(
        self,
        optimizer: GenericAdaptiveOptimizer,
        group: Group,
        dtype: torch.dtype,
        grad_dtype: torch.dtype,
        device: torch.device,
        rate: torch.dtype,
        grad_scale: Any,
        found_inf: Any,
    ) -> None:
        self.optimizer, self.grad_dtype = optimizer, grad_dtype
        self.wide = torch.float64 if dtype is torch.float64 else torch.float32
        self.line = torch.linspace(-3, 3, PROBE, dtype=self.wide, device=device)
        self.rate = torch.full((), 1 / 64, dtype=rate, device=device)
        self.scale = None if grad_scale is None else torch.full((), 4.0, device=device)
        self.found = None if found_inf is None else torch.zeros((), device=device)
        self.group = {**group, "capturable": True, "lr": self.rate}
        self.loop = self.line.sin().to(dtype)
        self.state: State = {}
        optimizer.init_state(self.state, self.group, optimizer.weights_to_update(self.state, self.group, self.loop))
        self.counts = "step" in self.state
        if self.counts and not group["capturable"]:
            self.state["step"] = self.state["step"].double()
        self.keys = keys_of(self.state)
        self.param = self.loop.clone()
        self.count = self.state["step"].clone() if self.counts else torch.zeros((), device=device)
        self.values = [self.state[key].clone() for key in self.keys]

    def arguments(self, number: int) -> list[Any]:
        """Return what a kernel is called with at a step."""
        grad = ((self.line + number).cos() / 8).to(self.grad_dtype)
        return [self.rate, self.count, self.param, grad, self.scale, self.found, *self.values]

    def compare(self, kernel: Kernel) -> None:
        """Raise `RuntimeError` unless two steps with the kernel are two steps of the loop."""
        for number in range(2):
            arguments = self.arguments(number)
            weights = self.optimizer.weights_to_update(self.state, self.group, self.loop)
            self.optimizer._update(self.state, self.group, arguments[3], self.loop, weights, self.scale, self.found)
            kernel(arguments)
            for weights in (self.loop, self.param) if self.group["check_weights"] else ():
                weights[::7].mul_(1.5)
        mine = seen(self.param, {"step": self.count, **dict(zip(self.keys, self.values, strict=True))})
        for name, right in seen(self.loop, self.state).items():
            tolerance = 1e-4 if right.dtype == self.wide else 1e-2
            if not torch.allclose(mine[name].double(), right.double(), rtol=tolerance, atol=1e-6):
                raise RuntimeError(
                    f"the compiled kernel gets {name} wrong with this version of torch, {torch.__version__}"
                )


def seen(param: Tensor, state: State) -> State:
    """Return all that a step changes, by its name."""
    from labml_opt.split_master import join

    # The lower half of a number says nothing without the upper one.
    if "residue" in state:
        state = {**state, "residue": join(param, state["residue"])}
    return {"the weights": param, **state}


def keys_of(state: State) -> list[str]:
    """Return what of a parameter's state a block holds: all but the count, in an order that a kernel can rely on."""
    return sorted(key for key in state if key != "step")


def warn_once(optimizer: GenericAdaptiveOptimizer, message: str, depth: int = 9) -> None:
    """Say it once for an optimizer, of the line that called `step`."""
    said: set[str] = optimizer.__dict__.setdefault("_said", set())
    if message[:40] not in said:
        said.add(message[:40])
        warnings.warn(message, stacklevel=depth)
