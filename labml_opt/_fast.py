"""
The fast path: the pages' own update, compiled, over blocks of many parameters.

A step in Python costs some ten calls for each parameter, and each of them reads and writes memory anew. Here the very
methods that the pages show, `step_param` and what it calls, go through `torch.compile` once and come back as one loop
over memory, and parameters are put together to blocks so that the loop is called a few times a step instead of 500. The
guide "How it is made fast" explains why that is all there is to gain.

* A parameter of `LARGE` values or more is a block of its own; nothing of it is copied.
* Smaller ones share blocks. Their state lives in the block (`state["exp_avg"]` is a view of it, so checkpoints look as
  always), their gradients and weights are gathered into scratch memory that all blocks share, and the weights are
  written back.
* The compiled function runs over any slice of a block: a missing gradient, or another step count, cuts a block in two.

What doesn't fit is handed back to the loop of the base class: parameters whose state is still to be made, DTensors,
complex numbers, memory with gaps. A kernel is compared with the uncompiled function before it is used.
"""

from __future__ import annotations

import itertools
import operator
import types
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from labml_opt.optimizer import GenericAdaptiveOptimizer, Group, State

# From this size on a parameter is a block of its own: a call costs less than copying it. Blocks of smaller ones are so
# large that their scratch memory stays in the cache of a core. A GPU wants fewer and longer calls.
LARGE = 2**16
BLOCK = {"cpu": 2**18}
BLOCK_ELSEWHERE = 2**24
# A number that changes at every step, other than the rate, would compile a kernel at every step.
MOST_KERNELS = 16
# What a kernel is compiled and compared with. Long enough that it is worth several threads.
PROBE = 2**16

FORMATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NOT_OF_THE_RULE = ("params", "t", "lr", "fast", "check_weights", "unscale_in_step", "capturable", "initial_lr")

DTYPE = operator.attrgetter("dtype")
Update = Callable[..., None]
_kernels: dict[Any, Update | None] = {}


class Member:
    """A parameter in a block, and where its values are."""

    def __init__(self, param: Tensor, state: State, start: int) -> None:
        self.param, self.state = param, state
        self.start, self.end = start, start + param.numel()
        self.version = -1
        self.kin = 0


class Block:
    """Parameters of one group, dtype and device, and their state in one piece of memory for each kind of state."""

    def __init__(self, members: list[Member], keys: list[str], capturable: bool) -> None:
        self.members, self.capturable = members, capturable
        first = members[0].param
        self.device, self.dtype = first.device, first.dtype
        self.large = len(members) == 1 and members[0].end >= LARGE
        self.counts = torch.zeros(len(members), device=self.device)
        self.flat: State = {}
        self.parts: list[tuple[State, str, Tensor]] = []
        self.places: list[int] = []
        self.aliases: list[Tensor] = []
        self.rows: list[Tensor] = []
        self.in_rows = False
        for key in keys:
            if self.large:
                self.flat[key] = in_a_row(members[0].state[key])
                self.parts.append((members[0].state, key, members[0].state[key]))
                continue
            dtype = members[0].state[key].dtype
            self.flat[key] = torch.zeros(members[-1].end, dtype=dtype, device=self.device)
            for member, view in zip(members, self.views_of(self.flat[key]), strict=True):
                member.state[key] = view.copy_(member.state[key])
                self.parts.append((member.state, key, view))
        if capturable:
            # Counts on the device can't be compared at every step. They are read once, here; from then on those that
            # were equal and have stepped together are equal.
            for number, member in enumerate(members):
                member.kin = int(member.state["step"])
                member.state["step"] = self.counts[number].copy_(member.state["step"])
                self.parts.append((member.state, "step", member.state["step"]))
            self.next_kin = max(member.kin for member in members) + 1

    def views_of(self, flat: Tensor) -> list[Tensor]:
        """Return the members' parts of `flat`, in their shapes."""
        return [flat[m.start : m.end].view(m.param.shape) for m in self.members]

    def runs(self, grads: list[Tensor | None]) -> Iterator[slice]:
        """
        Yield the members that can take the step together: side by side, with gradients of one dtype, and one count.

        * `grads` are the gradients of the members
        """
        counts = [member.kin for member in self.members] if self.capturable else [m.state["step"] for m in self.members]
        marks = [grad if grad is None else (grad.dtype, count) for grad, count in zip(grads, counts, strict=True)]
        begin = 0
        for mark, run in itertools.groupby(marks):
            end = begin + sum(1 for _ in run)
            # The compiler takes a single value for another kind of tensor; it is left to the loop.
            if mark is not None and self.members[end - 1].end - self.members[begin].start > 1:
                yield slice(begin, end)
            begin = end

    def weights_of(self, params: list[Tensor], part: slice) -> list[Tensor]:
        """
        Return the same weights in the same memory, for which autograd does nothing but count their version.

        * `params` are the members of `part`
        """
        if [param.data_ptr() for param in params] != self.places[part]:
            self.places = [member.param.data_ptr() for member in self.members]
            self.aliases = [member.param.detach() for member in self.members]
            self.in_rows = all(alias.is_contiguous() for alias in self.aliases)
            self.rows = [alias.view(-1) for alias in self.aliases] if self.in_rows else []
        return self.aliases[part]


class Plan:
    """The blocks of one parameter group."""

    def __init__(self, optimizer: GenericAdaptiveOptimizer, group: Group, params: list[Tensor]) -> None:
        self.blocks: list[Block] = []
        self.members: list[Member] = []
        self.scratch: dict[Any, Tensor] = {}
        self.views: dict[Any, list[Tensor]] = {}
        alike: dict[Any, list[Tensor]] = {}
        for param in params:
            alike.setdefault((param.device, param.dtype, tuple(keys_of(optimizer.state[param]))), []).append(param)
        for (device, _, keys), some in alike.items():
            small = [param for param in some if param.numel() < LARGE]
            for param in some:
                if param.numel() >= LARGE:
                    self.add([Member(param, optimizer.state[param], 0)], list(keys), group)
            limit = BLOCK.get(device.type, BLOCK_ELSEWHERE)
            members: list[Member] = []
            for param in small:
                if members and members[-1].end + param.numel() > limit:
                    self.add(members, list(keys), group)
                    members = []
                members.append(Member(param, optimizer.state[param], members[-1].end if members else 0))
            if members:
                self.add(members, list(keys), group)
        self.params = [member.param for member in self.members]
        self.known = set(map(id, self.params))
        self.dtypes = [param.dtype for param in self.params]
        self.capturable = group["capturable"]
        self.states = list(optimizer.state.values())
        parts = [part for block in self.blocks for part in block.parts]
        self.parts = tuple(zip(*parts, strict=True))

    def add(self, members: list[Member], keys: list[str], group: Group) -> None:
        """Make a block."""
        self.blocks.append(Block(members, keys, group["capturable"]))
        self.members += members

    def fits(self, optimizer: GenericAdaptiveOptimizer, group: Group) -> bool:
        """Return whether all is still where the blocks have it. Asked at every step, so `map` does the loops."""
        if self.capturable != group["capturable"] or len(self.states) != len(optimizer.state):
            return False
        states, keys, tensors = self.parts
        return (
            all(map(operator.is_, self.states, optimizer.state.values()))
            and all(map(operator.is_, map(dict.get, states, keys), tensors))
            and all(map(operator.is_, map(DTYPE, self.params), self.dtypes))
        )

    def gathered(self, kind: str, block: Block, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
        """Return scratch memory for a block, whole and in the members' shapes; all blocks use the same."""
        place = (kind, dtype, block.device)
        size = block.members[-1].end
        if place not in self.scratch or self.scratch[place].numel() < size:
            self.scratch[place] = torch.zeros(size, dtype=dtype, device=block.device)
            self.views = {key: views for key, views in self.views.items() if key[1:] != place}
        flat = self.scratch[place]
        views = self.views.get((id(block), *place))
        if views is None:
            views = self.views[(id(block), *place)] = block.views_of(flat)
        return flat, views


def step(
    optimizer: GenericAdaptiveOptimizer,
    number: int,
    group: Group,
    params: list[Tensor],
    grad_scale: Any,
    found_inf: Any,
) -> list[Tensor]:
    """
    Take the step for all of `params` that can be taken in blocks, and return the others.

    * `number` is the group's place in the optimizer
    * `group` is the group at this step, with its rate
    * `params` have a gradient; each is there once
    * `grad_scale` and `found_inf` are what a loss scaler left, numbers, tensors or `None`
    """
    if group["split_master"]:
        return params
    plans: dict[int, Plan] = optimizer.__dict__.setdefault("_plans", {})
    plan = plans.get(number)
    if plan is not None and not plan.fits(optimizer, group):
        del plans[number]
        plan = None
    fresh = [param for param in params if plan is None or id(param) not in plan.known]
    odd = [param for param in fresh if not is_plain(param)]
    if odd:
        warn_once(
            optimizer,
            f"fast=True steps {len(odd)} parameter(s) one by one, the first of shape {tuple(odd[0].shape)}: DTensors, "
            "complex numbers and memory with gaps or overlaps are left to the loop, which is right for all of them",
            depth=7,
        )
        fresh = [param for param in fresh if is_plain(param)]
    if any(is_complete(optimizer.state.get(param, {}), param) for param in fresh):
        ready = [p for p in dict.fromkeys(group["params"]) if is_complete(optimizer.state.get(p, {}), p)]
        plan = plans[number] = Plan(optimizer, group, [param for param in ready if is_plain(param)])

    # The first step of a parameter makes its state, which is the loop's business. What the next one needs is compiled
    # now, so that all waiting is in the first step.
    for dtype, grad_dtype, device in {(p.dtype, p.grad.dtype, p.device) for p in fresh}:  # type: ignore[union-attr]
        kernel_for(optimizer, group, dtype, grad_dtype, device, grad_scale, found_inf)
    if plan is None:
        return params

    grad_scale, found_inf = (as_scalar(value) for value in (grad_scale, found_inf))
    done: list[Tensor] = []
    for block in plan.blocks:
        grads = [member.param.grad for member in block.members]
        for part in list(block.runs(grads)):
            grad_dtype = grads[part.start].dtype
            kernel = kernel_for(optimizer, group, block.dtype, grad_dtype, block.device, grad_scale, found_inf)
            if kernel is not None:
                run(optimizer, kernel, plan, block, part, grads[part], group, grad_scale, found_inf)
                done += [member.param for member in block.members[part]]
    if len(done) == len(params):
        return []
    taken = set(map(id, done))
    return [param for param in params if id(param) not in taken]


def run(
    optimizer: GenericAdaptiveOptimizer,
    kernel: Update,
    plan: Plan,
    block: Block,
    part: slice,
    grads: list[Any],
    group: Group,
    grad_scale: Any,
    found_inf: Any,
) -> None:
    """Take the step for some members of a block that stand side by side."""
    members = block.members[part]
    params = [member.param for member in members]
    master = "master" in block.flat
    values = slice(members[0].start, members[-1].end)

    # With `check_weights=False` writes that autograd knows of are noticed all the same: they count up the version.
    if master and not group["check_weights"]:
        for member in members:
            if member.version != member.param._version:
                optimizer.weights_to_update(member.state, group, member.param)

    if block.large:
        param, grad, flat = in_a_row(params[0]), in_a_row_like(grads[0], params[0]), block.flat
    else:
        all_grads, grad_views = plan.gathered("grad", block, grads[0].dtype)
        gather(all_grads[values], grads, grad_views[part])
        weights = block.weights_of(params, part)
        all_params, param_views = plan.gathered("param", block, block.dtype)
        if not master or group["check_weights"]:
            gather(all_params[values], block.rows[part] if block.in_rows else weights, param_views[part])
        param, grad = all_params[values], all_grads[values]
        flat = {key: value[values] for key, value in block.flat.items()}

    count = (
        block.counts[part.start] if block.capturable else torch.full((), members[0].state["step"], dtype=torch.float64)
    )
    count = count if block.capturable or block.device.type == "cpu" else count.to(block.device)
    kernel({"step": count, **flat}, as_rate(group["lr"], block.device), param, grad, grad_scale, found_inf)

    if block.large:
        torch.autograd.graph.increment_version(params[0])
    else:
        torch._foreach_copy_(weights, param_views[part])

    if block.capturable:
        block.counts[part].copy_(count.clone())
        if len(members) < sum(member.kin == members[0].kin for member in block.members):
            for member in members:
                member.kin = block.next_kin
            block.next_kin += 1
    else:
        now = members[0].state["step"] + 1
        for member in members:
            member.state["step"] = now
    if master and not group["check_weights"]:
        for member in members:
            member.version = member.param._version


def kernel_for(
    optimizer: GenericAdaptiveOptimizer,
    group: Group,
    dtype: torch.dtype,
    grad_dtype: torch.dtype,
    device: torch.device,
    grad_scale: Any,
    found_inf: Any,
) -> Update | None:
    """Return the compiled update for a kind of block, or `None` where the loop has to do."""
    settings = {key: value for key, value in group.items() if key not in NOT_OF_THE_RULE}
    rate = group["lr"].dtype if isinstance(group["lr"], Tensor) else torch.float64
    check = bool(group["check_weights"])
    kind = (type(optimizer), dtype, grad_dtype, device, rate, check, grad_scale is None, found_inf is None)
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
        kernel = compiled(type(optimizer), {**settings, "capturable": True}, check)
        compare(optimizer, kernel, group, dtype, grad_dtype, device, rate, grad_scale, found_inf)
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


def compiled(rule_class: type[GenericAdaptiveOptimizer], settings: Group, check: bool) -> Update:
    """Return `update` below for one class and one set of settings, ready to be compiled at its first call."""
    # The compiler's modules take a while to import, and only this path needs them.
    from labml_opt import _hoist

    # The rule without parameters: nothing of an optimizer is held by its kernel.
    rule = rule_class.__new__(rule_class)

    def update(
        state: State, rate: Tensor, param: Tensor, grad: Tensor, grad_scale: Tensor | None, found_inf: Tensor | None
    ) -> None:
        group = {**settings, "lr": rate}
        weights = param
        if "master" in state:
            weights = state["master"]
            if check:
                rule._follow(weights, param, True)  # type: ignore[attr-defined]
        elif param.dtype in (torch.float16, torch.bfloat16):
            weights = param.float()
        with _hoist.ToTheBit():
            rule._update(state, group, grad, param, weights, grad_scale, found_inf)

    # torch keeps a limited number of versions for each piece of code, so every kernel is a piece of its own.
    code = update.__code__.replace(co_name=f"update_{len(_kernels)}")
    own = types.FunctionType(code, update.__globals__, code.co_name, None, update.__closure__)
    return torch.compile(own, dynamic=True, fullgraph=True, **_hoist.HOW)


def compare(
    optimizer: GenericAdaptiveOptimizer,
    kernel: Update,
    group: Group,
    dtype: torch.dtype,
    grad_dtype: torch.dtype,
    device: torch.device,
    rate: torch.dtype,
    grad_scale: Any,
    found_inf: Any,
) -> None:
    """Compile the kernel, and raise `RuntimeError` unless two steps with it are two steps of the loop."""
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    line = torch.linspace(-3, 3, PROBE, dtype=wide, device=device)
    param = line.sin().to(dtype)
    group, counts_on_the_host = {**group, "capturable": True}, not group["capturable"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state: State = {}
        weights = optimizer.weights_to_update(state, group, param)
        optimizer.init_state(state, group, weights)
    if counts_on_the_host:
        state["step"] = state["step"].double()
    there = {key: state[key].clone() for key in ("step", *keys_of(state))}
    loop, own = param.clone(), param.clone()
    scale = None if grad_scale is None else torch.full((), 4.0, device=device)
    found = None if found_inf is None else torch.zeros((), device=device)
    with torch._dynamo.config.patch(specialize_float=True):
        for number in range(2):
            grad = ((line + number).cos() / 8).to(grad_dtype)
            lr = torch.full((), 1 / 64, dtype=rate, device=device)
            weights = optimizer.weights_to_update(state, group, loop)
            optimizer._update(state, {**group, "lr": lr}, grad, loop, weights, scale, found)
            kernel(there, lr, own, grad, scale, found)
            for weights in (loop, own) if group["check_weights"] else ():
                weights[::7].mul_(1.5)
    for name, mine, right in [("the weights", own, loop), *((key, there[key], state[key]) for key in state)]:
        if not torch.allclose(mine.double(), right.double(), rtol=1e-2 if mine.dtype != wide else 1e-4, atol=1e-6):
            raise RuntimeError(f"the compiled kernel gets {name} wrong with this version of torch, {torch.__version__}")


def keys_of(state: State) -> list[str]:
    """Return what of a parameter's state a block holds: all but the count, in an order that a kernel can rely on."""
    return sorted(key for key in state if key != "step")


def is_complete(state: State, param: Tensor) -> bool:
    """Return whether a state has been made and is one that a block can hold: a count, and tensors like the weights."""
    if "step" not in state or ("master" in state and param.dtype not in (torch.float16, torch.bfloat16)):
        return False
    return all(
        type(value) is Tensor
        and value.shape == param.shape
        and (param.numel() < LARGE or value.stride() == param.stride())
        for key, value in state.items()
        if key != "step"
    )


def is_plain(param: Tensor) -> bool:
    """Return whether a parameter is an ordinary tensor of real numbers that lie side by side in memory."""
    if type(param) not in (Tensor, torch.nn.Parameter) or param.dtype not in FORMATS or not param.numel():
        return False
    return param.is_contiguous() or is_dense(param)


def is_dense(tensor: Tensor) -> bool:
    """Return whether the values fill their memory without gaps and without sharing a place."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def in_a_row(tensor: Tensor) -> Tensor:
    """Return the values of a dense tensor in the order of its memory."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def in_a_row_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Return the values in the order in which the other tensor has them; a copy only where it differs."""
    if tensor.stride() != other.stride():
        tensor = torch.empty_like(other, dtype=tensor.dtype, memory_format=torch.preserve_format).copy_(tensor)
    return in_a_row(tensor)


def gather(flat: Tensor, tensors: list[Tensor], views: list[Tensor]) -> None:
    """Copy tensors into `flat` one behind the other; `views` are their places in it, in their shapes."""
    # Joining rows takes a third of the time, but it takes rows only.
    if all(tensor.dim() == 1 for tensor in tensors):
        torch.cat(tensors, out=flat)
    else:
        torch._foreach_copy_(views, tensors)


def as_scalar(value: Any) -> Any:
    """Return what a loss scaler left as a tensor with one value and no dimension."""
    return None if value is None else torch.as_tensor(value, dtype=torch.float32).reshape(())


def as_rate(value: Any, device: torch.device) -> Tensor:
    """Return the rate as a tensor; a number is written to the device without waiting for it."""
    if isinstance(value, Tensor):
        return value.reshape(()).to(device)
    return torch.full((), value, dtype=torch.float64, device=device)


def warn_once(optimizer: GenericAdaptiveOptimizer, message: str, depth: int = 8) -> None:
    """Say it once for an optimizer, of the line that called `step`."""
    said: set[str] = optimizer.__dict__.setdefault("_said", set())
    if message[:40] not in said:
        said.add(message[:40])
        warnings.warn(message, stacklevel=depth)
