"""
The fast path: the pages' own update, compiled, over blocks of many parameters.

A step in Python costs some ten calls for each parameter, and each of them reads and writes memory anew. Here the very
methods that the pages show, `step_param` and what it calls, are compiled once to one loop over memory (`_kernels`), and
parameters are put together to blocks so that the loop is called a few times a step instead of 500. The guide "How it is
made fast" explains why that is all there is to gain.

* A parameter of `LARGE` values or more is a block of its own; nothing of it is copied.
* Smaller ones share blocks. Their state lives in the block (`state["exp_avg"]` is a view of it, so checkpoints look as
  always), their gradients and weights are gathered into scratch memory that all blocks share, and the weights are
  written back (`_copies`).
* The kernel runs over any slice of a block: a missing gradient, or another step count, cuts a block in two.

What doesn't fit is handed back to the loop of the base class: parameters whose state is still to be made, DTensors,
complex numbers, memory with gaps.

Whatever a step asks of each of 500 parameters, `map` asks: a loop in Python would take longer than the arithmetic.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from labml_opt._copies import Row, addresses
from labml_opt._kernels import Kernel, kernel_for, keys_of, warn_once

if TYPE_CHECKING:
    from labml_opt.optimizer import GenericAdaptiveOptimizer, Group, State

# From this size on a parameter is a block of its own: a call costs less than copying it. Blocks of smaller ones are so
# large that their scratch memory stays in the cache of a core. A GPU wants fewer and longer calls.
LARGE = 2**16
BLOCK = {"cpu": 2**18}
BLOCK_ELSEWHERE = 2**24

FORMATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

VERSION = operator.attrgetter("_version")


class Block:
    """Parameters of one group, dtype and device, and their state in one piece of memory for each kind of state."""

    def __init__(self, params: list[Tensor], states: list[State], capturable: bool) -> None:
        self.params, self.states, self.capturable = params, states, capturable
        self.keys = keys_of(states[0])
        self.device, self.dtype = params[0].device, params[0].dtype
        self.row = Row(params)
        self.ends = list(itertools.accumulate(self.row.sizes))
        self.large = self.ends[0] >= LARGE
        self.values: list[Tensor] = []
        for key in self.keys:
            if self.large:
                self.values.append(in_a_row(states[0][key]))
                continue
            flat = torch.zeros(self.ends[-1], dtype=states[0][key].dtype, device=self.device)
            for state, view in zip(states, self.views_of(flat), strict=True):
                state[key] = view.copy_(state[key])
            self.values.append(flat)

        # Counts on the device can't be compared at every step. They are read once, here; from then on those that were
        # equal and have stepped together are equal, and their kin is the same number.
        self.kin = [int(state["step"]) for state in states]
        if capturable:
            self.next_kin = max(self.kin) + 1
            self.counts = torch.zeros(len(params), device=self.device)
            for state, count in zip(states, self.counts.unbind(), strict=True):
                state["step"] = count.copy_(state["step"])
        # The state as it is. When something else is found in its place, the block is made anew.
        self.held = list(itertools.chain.from_iterable(map(dict.values, states)))
        self.locate()
        self.versions = [-1] * len(params)
        self.grads: list[Tensor | None] = []
        self.grad_places: Any = None

    def locate(self) -> None:
        """Note where the weights are."""
        self.places = addresses(self.params)
        self.in_rows = self.row.places(self.params) is not None
        # The same weights in the same memory, for which autograd does nothing but count their version.
        self.aliases = [in_a_row(self.params[0])] if self.large else [param.detach() for param in self.params]

    def fits(self) -> bool:
        """Return whether parameters and state are still what the block was made of."""
        if sum(map(len, self.states)) != len(self.held):
            return False
        if not all(map(operator.is_, self.held, itertools.chain.from_iterable(map(dict.values, self.states)))):
            return False
        if addresses(self.params) != self.places:
            if {param.dtype for param in self.params} != {self.dtype} or not all(map(is_plain, self.params)):
                return False
            self.locate()
        return True

    def has_gradients(self) -> bool:
        """Fetch the gradients; return whether all are ordinary tensors, or not there."""
        self.grads = [param.grad for param in self.params]
        self.grad_places = None
        kinds = set(map(type, self.grads))
        if kinds == {Tensor} and not self.large:
            # None of them is sparse, if each has values that simply lie there.
            self.grad_places = self.row.places(self.grads)  # type: ignore[arg-type]
            if self.grad_places is not None:
                return True
        there = [grad for grad in self.grads if grad is not None]
        return kinds <= {Tensor, type(None)} and all(grad.layout is torch.strided for grad in there)

    def stepped(self, part: slice) -> None:
        """Count a step for some parameters, whose counts are equal."""
        if self.capturable:
            # The kernel has counted the first of them.
            self.counts[part].copy_(self.counts[part.start].clone())
            if part.stop - part.start < self.kin.count(self.kin[part.start]):
                self.kin[part] = [self.next_kin] * (part.stop - part.start)
                self.next_kin += 1
            return
        now = self.kin[part.start] + 1
        self.kin[part] = [now] * (part.stop - part.start)
        for state in self.states[part]:
            state["step"] = now
        # All states have the same entries in the same order.
        width, first = len(self.states[0]), list(self.states[0]).index("step")
        self.held[part.start * width + first : part.stop * width : width] = self.kin[part]

    def views_of(self, flat: Tensor) -> list[Tensor]:
        """Return the parameters' parts of `flat`, in their shapes."""
        starts = [0, *self.ends]
        return [flat[start:end].view(p.shape) for start, end, p in zip(starts, self.ends, self.params, strict=False)]

    def runs(self, grads: list[Tensor | None]) -> Iterator[slice]:
        """
        Yield the parameters that can take the step together: side by side, with gradients of one dtype, and one count.

        * `grads` are the gradients of all of them
        """
        together = self.kin.count(self.kin[0]) == len(grads) and self.ends[-1] > 1 and set(map(type, grads)) == {Tensor}
        if together and len({grad.dtype for grad in grads}) == 1:  # type: ignore[union-attr]
            yield slice(0, len(grads))
            return
        marks = [grad if grad is None else (grad.dtype, kin) for grad, kin in zip(grads, self.kin, strict=True)]
        begin = 0
        for mark, run in itertools.groupby(marks):
            end = begin + sum(1 for _ in run)
            # The compiler takes a single value for another kind of tensor; it is left to the loop.
            if mark is not None and self.ends[end - 1] - (self.ends[begin - 1] if begin else 0) > 1:
                yield slice(begin, end)
            begin = end


class Plan:
    """The blocks of one parameter group."""

    def __init__(self, optimizer: GenericAdaptiveOptimizer, group: Group) -> None:
        self.listed = list(group["params"])
        self.states = list(optimizer.state.values())
        self.capturable = group["capturable"]
        self.blocks: list[Block] = []
        self.scratch: dict[Any, Tensor] = {}
        self.views: dict[Any, list[Tensor]] = {}
        self.others: list[Tensor] = []
        self.ready = False
        alike: dict[Any, list[Tensor]] = {}
        for param in dict.fromkeys(self.listed):
            state = optimizer.state.get(param, {})
            if is_plain(param) and is_complete(state, param):
                kind = (param.device, param.dtype, param.is_contiguous(), tuple(state))
                alike.setdefault(kind, []).append(param)
            else:
                self.others.append(param)
        for (device, *_), params in alike.items():
            for some in shares(params, BLOCK.get(device.type, BLOCK_ELSEWHERE)):
                states = [optimizer.state[param] for param in some]
                self.blocks.append(Block(some, states, self.capturable))

    def fits(self, optimizer: GenericAdaptiveOptimizer, group: Group) -> bool:
        """Return whether all is still where the blocks have it."""
        return (
            self.capturable == group["capturable"]
            and len(self.listed) == len(group["params"])
            and len(self.states) == len(optimizer.state)
            and all(map(operator.is_, self.listed, group["params"]))
            and all(map(operator.is_, self.states, optimizer.state.values()))
            and all(block.fits() for block in self.blocks)
        )

    def has_gradients(self) -> bool:
        """Fetch the gradients; return whether the blocks can do with them, and nothing else has one."""
        self.ready = not with_gradient(self.others) and all(block.has_gradients() for block in self.blocks)
        return self.ready

    def gathered(self, kind: str, block: Block, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
        """Return scratch memory for a block, whole and in the parameters' shapes; all blocks use the same."""
        place = (kind, dtype, block.device)
        size = block.ends[-1]
        if place not in self.scratch or self.scratch[place].numel() < size:
            self.scratch[place] = torch.zeros(size, dtype=dtype, device=block.device)
            self.views = {key: views for key, views in self.views.items() if key[1:] != place}
        flat = self.scratch[place]
        views = self.views.get((id(block), *place))
        if views is None:
            views = self.views[(id(block), *place)] = block.views_of(flat)
        return flat, views


def shares(params: list[Tensor], limit: int) -> Iterator[list[Tensor]]:
    """Share parameters out: each large one alone, small ones together until `limit` values are reached."""
    some: list[Tensor] = []
    size = 0
    for param in params:
        if param.numel() >= LARGE:
            yield [param]
            continue
        if some and size + param.numel() > limit:
            yield some
            some, size = [], 0
        some.append(param)
        size += param.numel()
    if some:
        yield some


def is_ready(optimizer: GenericAdaptiveOptimizer, number: int, group: Group) -> bool:
    """
    Return whether the blocks of a group hold all that has a gradient, and each gradient is an ordinary tensor.

    * `number` is the group's place in the optimizer
    """
    plan = optimizer.__dict__.get("_plans", {}).get(number)
    return plan is not None and plan.fits(optimizer, group) and plan.has_gradients()


def step(
    optimizer: GenericAdaptiveOptimizer, number: int, group: Group, grad_scale: Any, found_inf: Any
) -> list[Tensor]:
    """
    Take the step for all parameters of a group that can be taken in blocks, and return the others with a gradient.

    * `number` is the group's place in the optimizer
    * `group` is the group at this step, with its rate
    * `grad_scale` and `found_inf` are what a loss scaler left, numbers, tensors or `None`
    """
    plans: dict[int, Plan] = optimizer.__dict__.setdefault("_plans", {})
    plan = plans.get(number)
    if plan is None or not plan.ready:
        plan = plans[number] = Plan(optimizer, group)
    left = with_gradient(plan.others)
    odd = [param for param in left if not is_plain(param)]
    if odd:
        warn_once(
            optimizer,
            f"fast=True steps {len(odd)} parameter(s) one by one, the first of shape {tuple(odd[0].shape)}: DTensors, "
            "complex numbers and memory with gaps or overlaps are left to the loop, which is right for all of them",
            depth=7,
        )

    # Kernels are the same for many blocks, and to ask for one takes a while.
    kernels: dict[Any, Kernel | None] = {}

    def kernel_of(dtype: torch.dtype, grad_dtype: torch.dtype, device: torch.device) -> Kernel | None:
        kind = (dtype, grad_dtype, device)
        if kind not in kernels:
            kernels[kind] = kernel_for(optimizer, group, *kind, grad_scale, found_inf)
        return kernels[kind]

    # The first step of a parameter makes its state, which is the loop's business. What the next one needs is compiled
    # now, so that all waiting is in the first step.
    for param in left:
        if is_plain(param):
            kernel_of(param.dtype, param.grad.dtype, param.device)  # type: ignore[union-attr]

    scaling = [as_scalar(value) for value in (grad_scale, found_inf)]
    for block in plan.blocks:
        grads = block.grads if plan.ready else [param.grad for param in block.params]
        begin = 0
        for part in list(block.runs(grads)):
            kernel = kernel_of(block.dtype, grads[part.start].dtype, block.device)
            if kernel is not None:
                left += with_gradient(block.params[begin : part.start])
                run(optimizer, kernel, plan, block, part, grads[part], group, scaling)
                begin = part.stop
        left += with_gradient(block.params[begin:])
        block.grads, block.grad_places = [], None
    plan.ready = False
    return left


def run(
    optimizer: GenericAdaptiveOptimizer,
    kernel: Kernel,
    plan: Plan,
    block: Block,
    part: slice,
    grads: list[Any],
    group: Group,
    scaling: list[Any],
) -> None:
    """Take the step for some parameters of a block that stand side by side."""
    params, states = block.params[part], block.states[part]
    master = "master" in block.keys
    begin = block.ends[part.start - 1] if part.start else 0
    place = slice(begin, block.ends[part.stop - 1])

    # With `check_weights=False` writes that autograd knows of are noticed all the same: they count up the version.
    unseen = master and not group["check_weights"]
    if unseen and list(map(VERSION, params)) != block.versions[part]:
        for param, state, version in zip(params, states, block.versions[part], strict=True):
            if param._version != version:
                optimizer.weights_to_update(state, group, param)

    places = block.places[part] if block.in_rows else None
    if block.large:
        param, grad = block.aliases[0], in_a_row_like(grads[0], params[0])
    else:
        all_grads, grad_views = plan.gathered("grad", block, grads[0].dtype)
        all_params, param_views = plan.gathered("param", block, block.dtype)
        param, grad = all_params[place], all_grads[place]
        grad_places = block.grad_places and block.grad_places[part]
        block.row.gather(grad, grads, grad_views[part], grad_places, part.start)
        if not unseen:
            block.row.gather(param, block.aliases[part], param_views[part], places, part.start)

    count = block.counts[part.start] if block.capturable else as_number(block.kin[part.start], block.device)
    values = block.values if len(params) == len(block.params) else [value[place] for value in block.values]
    kernel(as_number(group["lr"], block.device), count, param, grad, *scaling, *values)

    if block.large:
        torch.autograd.graph.increment_version(params)
    else:
        block.row.scatter(param, block.aliases[part], param_views[part], places, part.start)
    block.stepped(part)
    if unseen:
        block.versions[part] = map(VERSION, params)


def with_gradient(params: list[Tensor]) -> list[Tensor]:
    """Return those parameters that have a gradient."""
    return [param for param in params if param.grad is not None]


def is_complete(state: State, param: Tensor) -> bool:
    """Return whether a state has been made and is one that a block can hold: a count, and tensors like the weights."""
    if (
        len(state) < 2
        or "step" not in state
        or ("master" in state and param.dtype not in (torch.float16, torch.bfloat16))
    ):
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


def as_scalar(value: Any) -> Any:
    """Return what a loss scaler left as a tensor with one value and no dimension."""
    return None if value is None else torch.as_tensor(value, dtype=torch.float32).reshape(())


def as_number(value: Any, device: torch.device) -> Tensor:
    """Return a count or a rate as a tensor; a number is written to the device without waiting for it."""
    if isinstance(value, Tensor):
        return value.reshape(()).to(device)
    return torch.full((), value, dtype=torch.float64, device=device)
