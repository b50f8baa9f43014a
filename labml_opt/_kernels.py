"""
Kernels: the pages' own update, traced once and compiled to one loop over memory.

`step_param` of a class and all that it calls is followed with tensors that have a shape and no values. What it did is a
graph, and `torch._inductor`, the compiler behind `torch.compile`, makes one loop of it. It serves any number of values:
only the count, the rate and the memory change from call to call, so nothing has to be guarded, and a call costs a
fraction of one through `torch.compile`. On a CPU one call takes many parameters, where they are (`_pieces`).

A block holds many parameters, one behind the other. So only a step that treats each value by itself can be taken for a
block, and whatever else a graph contains is refused: norms, sorting, a look at the shape. A kernel is compared with the
uncompiled update before it is used. Where it can't be had, the loop over parameters goes on, and one warning says so.
"""

from __future__ import annotations

import array
import contextlib
import functools
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from labml_opt._pieces import Pieces, pieces_of, place_of

if TYPE_CHECKING:
    from labml_opt.optimizer import GenericAdaptiveOptimizer, Group, State

# What a kernel is traced and compared with. Long enough that it is worth several threads.
PROBE = 2**16
# Settings that are handed to a kernel at each call, or that it doesn't know.
NOT_OF_THE_RULE = ("params", "t", "lr", "fast", "check_weights", "unscale_in_step", "capturable", "initial_lr")
# Attributes of an optimizer that aren't its rule.
NOT_OF_THE_CLASS = {"defaults", "state", "param_groups", "grad_scale", "found_inf", "step"}
# What a graph may contain beside operations that take each value by itself: they look at none, or change none.
HARMLESS = (
    *("_to_copy", "copy_", "detach", "alias", "clone", "view.dtype", "scalar_tensor", "lift_"),
    *("full_like", "zeros_like", "ones_like", "empty_like", "new_"),
)

# Takes rate, count, weights, gradient, grad_scale, found_inf, and the rest of the state in the order of its names.
Loop = Callable[[list[Any]], Any]
Layout = tuple[tuple[str, torch.dtype], ...]


class Kind(NamedTuple):
    """What a kernel is made for: dtypes of weights, gradients and rate, the device, and what a loss scaler left."""

    dtype: torch.dtype
    grad_dtype: torch.dtype
    device: torch.device
    rate: torch.dtype
    has_scale: bool
    has_found_inf: bool


class Kernel(NamedTuple):
    """
    A compiled update.

    * `loop` takes a step for one row of values
    * `layout` is what the state has to hold for it, by name
    * `pieces` takes it for many, where they are, or is `None` if only rows will do
    """

    loop: Loop
    layout: Layout
    pieces: Pieces | None


class RefusedError(Exception):
    """A class can't have a kernel, for the reason given."""


_kernels: dict[Any, Kernel | str] = {}


def kernel_for(optimizer: GenericAdaptiveOptimizer, group: Group, kind: Kind) -> Kernel | None:
    """Return the kernel of this kind, or `None` where the loop has to do."""
    rules = {**settings_of(group), **attributes(optimizer)}
    named = tuple((name, str(value)) for name, value in rules.items())
    key = (type(optimizer), kind, bool(group["check_weights"]), group["capturable"], named)
    if key not in _kernels:
        # The compiler isn't for several threads at once. Its own lock also keeps away a `torch.compile` elsewhere.
        with compile_lock():
            if key not in _kernels:
                _kernels[key] = made(optimizer, group, kind)
    kernel = _kernels[key]
    if isinstance(kernel, str):
        warn_once(optimizer, kernel)
        return None
    return kernel


@functools.cache
def compile_lock() -> Any:
    """Return the lock that `torch.compile` holds while it compiles, or one of our own where it has another."""
    try:
        from torch._dynamo.convert_frame import compile_lock
    except ImportError:
        return threading.RLock()
    return compile_lock


def made(optimizer: GenericAdaptiveOptimizer, group: Group, kind: Kind) -> Kernel | str:
    """Return a new kernel, or a sentence that says why there can't be one."""
    advice = (
        "Its step_param has to be made of operations on tensors, in place, one value by itself, and group['lr'] is a "
        "tensor there: param.sub_(group['lr'] * update)"
    )
    try:
        # The compiler's own warnings are none of the user's.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probe = Probe(optimizer, group, kind)
            graph, given = traced(update_of(optimizer, group, probe), probe.arguments(0))
            advice = "It needs what torch.compile needs: on a CPU a C++ compiler (g++, clang or cl), on a GPU Triton"
            # Pieces are shared out among the threads. What has to be taken as one row needs its own.
            compiled = lowered(graph, given(probe.arguments(0)), 1)
            pieces = pieces_of(compiled, probe.arguments(0))
            if pieces is None and kind.device.type == "cpu" and torch.get_num_threads() > 1:
                compiled = lowered(graph, given(probe.arguments(0)), torch.get_num_threads())
            kernel = Kernel(lambda arguments: compiled(given(arguments)), probe.layout, pieces)
            probe.compare(kernel)
            return kernel
    except Exception as error:
        reason = str(error).strip().splitlines() or [""]
        sort = "" if isinstance(error, RefusedError) else f"{type(error).__name__}: "
        return (
            f"fast=True can't be had here, and {type(optimizer).__name__} steps parameter by parameter, with the same "
            f"results: {sort}{reason[0][:200]}. {advice}"
        )


def settings_of(group: Group) -> Group:
    """Return the settings that a step depends on, beside the rate."""
    return {key: value for key, value in group.items() if key not in NOT_OF_THE_RULE}


def attributes(optimizer: GenericAdaptiveOptimizer) -> dict[str, Any]:
    """Return what an instance was given beside its settings: a step may depend on it."""
    return {
        name: value
        for name, value in vars(optimizer).items()
        if name not in NOT_OF_THE_CLASS and not name.startswith("_")
    }


def update_of(optimizer: GenericAdaptiveOptimizer, group: Group, probe: Probe) -> Loop:
    """
    Return the update of a class as a function of tensors: nothing of an optimizer's memory is held by it.

    * `probe` says what the state holds

    Raises `RefusedError` for a class that does something around `step_param` which a kernel would leave out.
    """
    # The compiler's modules take a while to import, and only this path needs them.
    from labml_opt import _hoist
    from labml_opt.split_master import join

    for name in ("weights_to_update", "write_back", "_update"):
        if not getattr(type(optimizer), name).__module__.startswith("labml_opt."):
            raise RefusedError(f"the class has a {name} of its own, which a kernel doesn't call")
    rule = type(optimizer).__new__(type(optimizer))
    rule.__dict__.update(attributes(optimizer))
    keys = [key for key, _ in probe.layout]
    settings, check = {**settings_of(group), "capturable": True}, group["check_weights"]

    def update(arguments: list[Any]) -> tuple[()]:
        rate, count, param, grad, grad_scale, found_inf, *values = arguments
        handed: State = dict(zip(keys, values, strict=True))
        if probe.counts:
            handed["step"] = count
        state = dict(handed)
        settings_now = {**settings, "lr": rate}
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
            rule._update(state, settings_now, grad, param, weights, grad_scale, found_inf)
        for key in {*handed, *state}:
            if state.get(key) is not handed.get(key):
                raise RefusedError(f"step_param puts something new into state[{key!r}] instead of changing it in place")
        return ()

    return update


def traced(update: Loop, arguments: list[Any]) -> tuple[torch.fx.GraphModule, Any]:
    """
    Follow `update` with arguments of this kind; return its graph, and a function that picks the graph's inputs.

    Raises `RefusedError` if what it does with a value depends on other values, or on the shape.
    """
    # A graph has tensors for its inputs; what is `None` here is so at every call.
    given = [number for number, argument in enumerate(arguments) if argument is not None]
    graph, other = (followed(update, given, some) for some in (arguments, [in_two_dimensions(a) for a in arguments]))
    if graph.code != other.code:
        raise RefusedError("step_param does one thing for a vector and another for a matrix")
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
        if not pointwise and not any(name in str(node.target) for name in HARMLESS):
            raise RefusedError(f"{node.target} looks at several values, and a block holds many tensors")
        if node.meta["val"].fake_mode.shape_env.guards:
            raise RefusedError("step_param looks at the size of its tensor, and a block holds many tensors")
    return graph, lambda arguments: [arguments[number] for number in given]


def in_two_dimensions(argument: Any) -> Any:
    """Return a tensor as a matrix, and anything else as it is."""
    return argument.view(2**8, -1) if isinstance(argument, Tensor) and argument.dim() else argument


def followed(update: Loop, given: list[int], arguments: list[Any]) -> torch.fx.GraphModule:
    """Return the graph of what `update` does with those of the arguments that are given."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def of_tensors(*tensors: Tensor) -> Any:
        whole: list[Any] = [None] * len(arguments)
        for number, tensor in zip(given, tensors, strict=True):
            whole[number] = tensor
        return update(whole)

    return make_fx(of_tensors, tracing_mode="symbolic")(*(arguments[number] for number in given))


def lowered(graph: torch.fx.GraphModule, tensors: list[Any], threads: int) -> Loop:
    """
    Return the loop that the compiler makes of a graph, called with a list of tensors.

    * `tensors` are the kind of tensors that it will be called with, `threads` how many threads are to run it
    """
    from torch._dynamo.exc import RestartAnalysis
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

    def compile_with(changes: Any) -> None:
        try:
            with changes():
                standalone_compile(graph, tensors, options=options)
        except RestartAnalysis:
            # torch 2.14 takes note of something, and asks to begin anew.
            with changes():
                standalone_compile(graph, tensors, options=options)

    with functorch_config.patch(enable_autograd_cache=False):
        try:
            compile_with(_cpu_loops.mended)
        except Exception:
            compile_with(contextlib.nullcontext)
    loop: Loop = made[-1].current_callable
    return loop


class Probe:
    """Weights, gradients and state to try a kernel on, and the loop's way with them."""

    def __init__(self, optimizer: GenericAdaptiveOptimizer, group: Group, kind: Kind) -> None:
        self.optimizer, self.grad_dtype, device = optimizer, kind.grad_dtype, kind.device
        self.wide = torch.float64 if kind.dtype is torch.float64 else torch.float32
        self.line = torch.linspace(-3, 3, PROBE, dtype=self.wide, device=device)
        self.rate = torch.full((), 1 / 64, dtype=kind.rate, device=device)
        self.scale = torch.full((), 4.0, dtype=torch.float32, device=device) if kind.has_scale else None
        self.found = torch.zeros((), dtype=torch.float32, device=device) if kind.has_found_inf else None
        self.group = {**group, "capturable": True, "lr": self.rate}
        self.loop = self.line.sin().to(kind.dtype)
        self.state: State = {}
        optimizer.init_state(self.state, self.group, optimizer.weights_to_update(self.state, self.group, self.loop))
        self.counts = "step" in self.state
        if self.counts:
            self.first = float(self.state["step"])
            wide = torch.float32 if group["capturable"] else torch.float64
            self.state["step"] = torch.full((), self.first, dtype=wide, device=device)
        for key in keys_of(self.state):
            value = self.state[key]
            if not isinstance(value, Tensor) or value.shape != self.loop.shape:
                raise RefusedError(
                    f"state[{key!r}] isn't a tensor of the parameter's shape, and can't be part of a block"
                )
        if not keys_of(self.state):
            raise RefusedError("the class remembers nothing of a parameter, and blocks are made of what is remembered")
        self.layout = layout_of(self.state)
        self.param = self.loop.clone()
        self.count = self.state["step"].clone() if self.counts else torch.zeros((), dtype=torch.float64, device=device)
        self.values = [self.state[key].clone() for key, _ in self.layout]

    def arguments(self, number: int) -> list[Any]:
        """Return what a kernel is called with at a step."""
        grad = ((self.line + number).cos() / 8).to(self.grad_dtype)
        return [self.rate, self.count, self.param, grad, self.scale, self.found, *self.values]

    def compare(self, kernel: Kernel) -> None:
        """
        Raise `RuntimeError` unless two steps with the kernel are two steps of the loop.

        Where it goes over pieces, it does so here: one value, a few, and more than a register holds.
        """
        begins = array.array("q", [0, 1, 8, 200, PROBE])
        for number in range(2):
            arguments = self.arguments(number)
            weights = self.optimizer.weights_to_update(self.state, self.group, self.loop)
            self.optimizer._update(self.state, self.group, arguments[3], self.loop, weights, self.scale, self.found)
            if kernel.pieces:
                kernel.pieces.over(list(map(place_of, arguments)), begins, slice(0, len(begins) - 1))()
            else:
                kernel.loop(arguments)
            for weights in (self.loop, self.param) if self.group["check_weights"] else ():
                weights[::7].mul_(1.5)
        if self.counts and self.state["step"] != self.first + 2:
            raise RefusedError("step_param doesn't count its steps one by one in state['step']")
        keys = [key for key, _ in self.layout]
        mine = seen(self.param, {"step": self.count, **dict(zip(keys, self.values, strict=True))})
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


def layout_of(state: State) -> Layout:
    """Return what a state holds beside the count, and of which dtype, in an order that a kernel can rely on."""
    return tuple((key, state[key].dtype) for key in keys_of(state))


def keys_of(state: State) -> list[str]:
    """Return what of a parameter's state a block holds: all but the count, in an order that a kernel can rely on."""
    return sorted(key for key in state if key != "step")


def warn_once(optimizer: GenericAdaptiveOptimizer, message: str, depth: int = 9) -> None:
    """Say it once for an optimizer, of the line that called `step`."""
    said: set[str] = optimizer.__dict__.setdefault("_said", set())
    if message[:40] not in said:
        said.add(message[:40])
        warnings.warn(message, stacklevel=depth)
