"""
The fast path: the pages' own update, compiled, over blocks of many parameters.

A step in Python costs some ten calls for each parameter, and each of them reads and writes memory anew. Here the very
methods that the pages show, `step_param` and what it calls, are compiled once to one loop over memory (`_kernels`), and
parameters are put together to blocks so that the loop is called a few times a step instead of 500. The guide "How it is
made fast" explains why that is all there is to gain.

* A parameter of `LARGE` values or more is a block of its own; nothing of it is copied.
* Smaller ones share blocks. Their state lives in the block (`state["exp_avg"]` is a view of it, so checkpoints look as
  always). On a CPU the kernel goes from parameter to parameter by itself, and finds weights and gradients where they
  are (`_pieces`). On a GPU, and where the kernel can't, they are gathered into scratch memory that all blocks share,
  and the weights are written back.
* The kernel runs over any slice of a block: a missing gradient, or another step count, cuts a block in two.

What doesn't fit is handed back to the loop of the base class: parameters whose state is still to be made, DTensors,
complex numbers, memory with gaps.

Whatever a step asks of each of 500 parameters, it asks of the list: a loop in Python would take longer than the
arithmetic.
"""

from __future__ import annotations

import array
import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from labml_opt._kernels import Kernel, Kind, attributes, kernel_for, keys_of, layout_of, warn_once
from labml_opt._lists import Likeness, addresses, same
from labml_opt._pieces import NUMBER, Place, apart, place_of

if TYPE_CHECKING:
    from labml_opt.optimizer import GenericAdaptiveOptimizer, Group, State

# From this size on a parameter is a block of its own: a call costs less than moving its state. Blocks of smaller ones
# are so large that calls don't count, and so small that scratch memory, where it is needed, doesn't. A GPU wants fewer
# and longer calls.
LARGE = 2**18
BLOCK = {"cpu": 2**22}
BLOCK_ELSEWHERE = 2**24
# The threads of a CPU share a large parameter in pieces of this size, many enough for all to end together.
PIECE = 2**14

# A number that changes at every step, other than the rate, would compile a kernel at every step.
MOST_CHANGES = 16

FORMATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

VERSION = operator.attrgetter("_version")


class Block:
    """Parameters of one group, dtype and device, and their state in one piece of memory for each kind of state."""

    def __init__(self, params: list[Tensor], states: list[State], capturable: bool) -> None:
        self.params, self.states, self.capturable = params, states, capturable
        self.layout = layout_of(states[0])
        self.keys = keys_of(states[0])
        self.device, self.dtype = params[0].device, params[0].dtype
        # Where the pieces begin that a kernel goes over, and where the last one ends: the parameters, or parts of a
        # large one.
        sizes = [param.numel() for param in params]
        self.large = sizes[0] >= LARGE
        self.begins = array.array("q", range(0, sizes[0], PIECE) if self.large else [])
        self.begins.extend([sizes[0]] if self.large else itertools.accumulate(sizes, initial=0))
        self.values: list[Tensor] = []
        for key in self.keys:
            if self.large:
                self.values.append(in_a_row(states[0][key]))
                continue
            flat = torch.zeros(self.begins[-1], dtype=states[0][key].dtype, device=self.device)
            for state, view in zip(states, self.views_of(flat), strict=True):
                state[key] = view.copy_(state[key])
            self.values.append(flat)
        self.values_at = list(map(place_of, self.values))

        # Counts on the device can't be compared at every step. They are read once, here; from then on those that were
        # equal and have stepped together are equal, and their kin is the same number.
        self.counted = "step" in states[0]
        self.kin = [int(state["step"]) if self.counted else 0 for state in states]
        if capturable and self.counted:
            self.next_kin = max(self.kin) + 1
            with torch.inference_mode(False):  # there, a tensor has no version
                self.counts = torch.zeros(len(params), dtype=torch.float32, device=self.device)
            for state, count, kin in zip(states, self.counts.unbind(), self.kin, strict=True):
                state["step"] = count.fill_(kin)
            self.counts_version = self.counts._version
        elif self.counted:
            for state, kin in zip(states, self.kin, strict=True):
                state["step"] = kin
        self.versions = [-1] * len(params)

        # What `Plan` finds out at each step: gradients, whether they are all there and of one dtype, whether their
        # values are in the order of the weights', and their addresses, if they are known.
        self.grads: list[Tensor | None] = []
        self.uniform = self.in_order = False
        self.grad_places: Any = None

    def locate(self) -> None:
        """Take the weights as they are now, in the memory where they are now."""
        # The same memory, for which autograd does nothing but count the version.
        self.aliases = [in_a_row(self.params[0])] if self.large else [param.detach() for param in self.params]
        self.places = addresses(self.params)

    def take(self, grads: list[Tensor | None], alike: bool, places: Any) -> None:
        """
        Take the gradients of a step.

        * `alike` says that they are what those of the last step were
        * `places` are their addresses then, or `None`
        """
        self.grads, self.grad_places = grads, places if alike else None
        if not alike:
            there = [grad for grad in grads if grad is not None]
            self.uniform = len(there) == len(grads) and len({grad.dtype for grad in there}) == 1
            self.in_order = all(
                grad is None or is_in_order(grad, param) for grad, param in zip(grads, self.params, strict=True)
            )

    def stepped(self, part: slice) -> None:
        """Count a step for some parameters, whose counts are equal."""
        if not self.counted:
            return
        if self.capturable:
            # The kernel has counted the first of them.
            self.counts[part].copy_(self.counts[part.start].clone())
            self.counts_version = self.counts._version
            if part.stop - part.start < self.kin.count(self.kin[part.start]):
                self.kin[part] = [self.next_kin] * (part.stop - part.start)
                self.next_kin += 1
        else:
            now = self.kin[part.start] + 1
            self.kin[part] = [now] * (part.stop - part.start)
            for state in self.states[part]:
                state["step"] = now

    def count(self, number: int) -> Tensor:
        """Return the steps that a parameter has taken, as a tensor that the kernel counts up."""
        if self.capturable and self.counted:
            return self.counts[number]
        return as_number(self.kin[number], self.device)

    def count_at(self, number: int) -> tuple[Place, Any]:
        """Return the place of that count, and what has to be held for it to stay there."""
        if self.capturable and self.counted:
            return place_of(self.counts[number]), self.counts
        held = array.array("d", [self.kin[number]])
        return (NUMBER, held.buffer_info()[0], held.itemsize), held

    def views_of(self, flat: Tensor) -> list[Tensor]:
        """Return the parameters' parts of `flat`, in their shapes and in the order of their memory."""
        parts = flat.split([param.numel() for param in self.params])
        return [part.as_strided(p.shape, p.stride()) for part, p in zip(parts, self.params, strict=True)]

    def runs(self) -> Iterator[slice]:
        """Yield those that can take the step together: side by side, with gradients of one dtype, and one count."""
        if self.uniform and self.kin.count(self.kin[0]) == len(self.kin):
            yield slice(0, len(self.kin))
            return
        marks = [grad if grad is None else (grad.dtype, kin) for grad, kin in zip(self.grads, self.kin, strict=True)]
        begin = 0
        for mark, run in itertools.groupby(marks):
            end = begin + sum(1 for _ in run)
            if mark is not None:
                yield slice(begin, end)
            begin = end


class Numbers:
    """The rate of a step, and what a loss scaler left, as tensors on a device, and where they are."""

    def __init__(self, rate: Any, scaling: list[Any], device: torch.device) -> None:
        self.rate = as_number(rate, device)
        self.scaling = [None if value is None else as_number(value, device).float() for value in scaling]
        self.rate_at = place_of(self.rate)
        self.scaling_at = list(map(place_of, self.scaling))


class Plan:
    """The blocks of one parameter group."""

    def __init__(self, optimizer: GenericAdaptiveOptimizer, group: Group, changes: int = 0) -> None:
        self.changes = changes
        self.listed = list(group["params"])
        self.all_states = list(optimizer.state.values())
        self.capturable = group["capturable"]
        self.scratch: dict[Any, Tensor] = {}
        self.views: dict[Any, tuple[Tensor, list[Tensor]]] = {}
        self.blocks: list[Block] = []
        self.others: list[Tensor] = []
        alike: dict[Any, list[Tensor]] = {}
        self.shared = sharing([param for param in dict.fromkeys(self.listed) if is_plain(param)])
        for param in dict.fromkeys(self.listed):
            state = optimizer.state.get(param, {})
            if is_plain(param) and id(param) not in self.shared and is_complete(state, param):
                kind = (param.device, param.dtype, tuple(state), layout_of(state))
                alike.setdefault(kind, []).append(param)
            else:
                self.others.append(param)
        for (device, *_), params in alike.items():
            for some in shares(params, BLOCK.get(device.type, BLOCK_ELSEWHERE)):
                self.blocks.append(Block(some, [optimizer.state[param] for param in some], self.capturable))
        self.params = [param for block in self.blocks for param in block.params]
        self.states = [state for block in self.blocks for state in block.states]
        self.devices = {block.device for block in self.blocks}
        self.kinds = [(block.dtype, block.device) for block in self.blocks for _ in block.params]
        self.shapes = [(param.shape, param.stride()) for param in self.params]
        self.tensors = [state[key] for block in self.blocks for state in block.states for key in block.keys]
        self.tensor_places = addresses(self.tensors)
        self.held = list(itertools.chain.from_iterable(map(dict.values, self.states)))
        self.grad_likeness = Likeness([])
        self.rules: list[Any] = []
        self.kernels: dict[Kind, Kernel | None] = {}
        self.locate()
        self.still_fits, self.ready = True, False

    def locate(self) -> None:
        """Take the parameters as they are now, in the memory where they are now."""
        self.likeness, self.places = Likeness(self.params), addresses(self.params)
        for block in self.blocks:
            block.locate()

    def hold(self) -> bool:
        """
        Take the counts as they are now; return whether all else of the state is what it was.

        State put in place of another, as programs do that move it to another device, makes the blocks anew.
        """
        now = list(itertools.chain.from_iterable(map(dict.values, self.states)))
        names = list(itertools.chain.from_iterable(self.states))
        if len(now) != len(self.held) or self.capturable:
            return False
        for name, value, held in zip(names, now, self.held, strict=True):
            if value is not held and name != "step":
                return False
        for block in self.blocks:
            for number, state in enumerate(block.states if block.counted else []):
                state["step"] = block.kin[number] = int(state["step"])
        self.held = list(itertools.chain.from_iterable(map(dict.values, self.states)))
        return True

    def fits(self, optimizer: GenericAdaptiveOptimizer, group: Group) -> bool:
        """Return whether parameters and state are still what the blocks were made of."""
        if not (
            self.capturable == group["capturable"]
            and same([group["params"]], self.listed)
            and same([optimizer.state], self.all_states)
            and (same(self.states, self.held) or self.hold())
            and addresses(self.tensors) == self.tensor_places
        ):
            return False
        if self.capturable and any(
            block.counted and block.counts._version != block.counts_version for block in self.blocks
        ):
            return False
        if not self.likeness.has(self.params) or addresses(self.params) != self.places:
            if (
                [(param.dtype, param.device) for param in self.params] != self.kinds
                or [(param.shape, param.stride()) for param in self.params] != self.shapes
                or not all(map(is_plain, self.params))
                or sharing(self.params)
            ):
                return False
            self.locate()
        return True

    def has_gradients(self) -> bool:
        """Fetch the gradients; return whether all are ordinary tensors of the weights' shapes, or not there."""
        grads = [param.grad for param in self.params]
        alike = self.grad_likeness.has(grads)
        if not alike:
            there = [grad for grad in grads if grad is not None]
            if {(type(grad), grad.layout) for grad in there} - {(Tensor, torch.strided)}:
                return False
            # torch looks at the shape of a gradient only when it is put there: weights can have grown since.
            if any(grad is not None and grad.shape != p.shape for grad, p in zip(grads, self.params, strict=True)):
                return False
            self.grad_likeness = Likeness(there if len(there) == len(grads) else [])
        places = addresses(grads) if alike else None  # type: ignore[arg-type]
        begin = 0
        for block in self.blocks:
            end = begin + len(block.params)
            block.take(grads[begin:end], alike, places and places[begin:end])
            begin = end
        return True

    def counted(self) -> None:
        """Hold the counts after a step."""
        begin = 0
        for block in [] if self.capturable else self.blocks:
            # All states of a block have the same entries in the same order.
            width = len(block.states[0])
            end = begin + width * len(block.states)
            if block.counted:
                self.held[begin + list(block.states[0]).index("step") : end : width] = block.kin
            begin = end

    def kernels_of(self, optimizer: GenericAdaptiveOptimizer, group: Group) -> dict[Kind, Kernel | None]:
        """Return the kernels that are known for the present settings."""
        settings = [value for key, value in group.items() if key not in ("params", "t", "lr")]
        # What can change in place is remembered by what it holds.
        rules = [str(x) if type(x) in (list, dict, set) else x for x in (*settings, *attributes(optimizer).values())]
        if len(rules) != len(self.rules) or any(
            now is not then and not (type(now) is str and now == then)
            for now, then in zip(rules, self.rules, strict=True)
        ):
            self.changes += bool(self.rules)
            self.rules, self.kernels = rules, {}
        return self.kernels

    def is_odd(self, state: State, param: Tensor) -> bool:
        """Return whether a parameter can't be part of a block."""
        return not is_plain(param) or id(param) in self.shared or is_strange(state, param)

    def gathered(self, kind: str, block: Block, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
        """Return scratch memory for a block, whole and in the parameters' shapes; all blocks use the same."""
        place = (kind, dtype, block.device)
        views = self.views.get((id(block), *place))
        if views is None:
            size = block.begins[-1]
            if place not in self.scratch or self.scratch[place].numel() < size:
                self.scratch[place] = torch.zeros(size, dtype=dtype, device=block.device)
                self.views = {key: views for key, views in self.views.items() if key[1:] != place}
            flat = self.scratch[place][:size]
            views = self.views[(id(block), *place)] = (flat, block.views_of(flat))
        return views


def sharing(params: list[Tensor]) -> set[int]:
    """Return the ids of those parameters whose memory is that of another one as well."""
    found: set[int] = set()
    reached, owner = -1, None
    for begin, end, number in sorted(
        (param.data_ptr(), param.data_ptr() + param.nbytes, number) for number, param in enumerate(params)
    ):
        if begin < reached and owner is not None:
            found |= {id(params[number]), id(params[owner])}
        if end > reached:
            reached, owner = end, number
    return found


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
    if plan is None or torch.compiler.is_dynamo_compiling():
        return False
    plan.still_fits = plan.fits(optimizer, group)
    plan.ready = plan.still_fits and plan.has_gradients()
    return plan.ready and not with_gradient(plan.others)


def step(
    optimizer: GenericAdaptiveOptimizer, number: int, group: Group, grad_scale: Any, found_inf: Any
) -> list[Tensor]:
    """
    Take the step for all parameters of a group that can be taken in blocks, and return the others with a gradient.

    * `number` is the group's place in the optimizer
    * `group` is the group at this step, with its rate
    * `grad_scale` and `found_inf` are what a loss scaler left, numbers, tensors or `None`
    """
    # Under a `torch.compile` of somebody's own, the loop is what it compiles.
    if torch.compiler.is_dynamo_compiling():
        return with_gradient(list(dict.fromkeys(group["params"])))
    plans: dict[int, Plan] = optimizer.__dict__.setdefault("_plans", {})
    for gone in [other for other in plans if other >= len(optimizer.param_groups)]:
        del plans[gone]
    plan = plans.get(number)
    if plan is None or not plan.still_fits:
        plan = plans[number] = Plan(optimizer, group, 0 if plan is None else plan.changes)
        plan.ready = plan.has_gradients()
    if not plan.ready:
        warn_once(
            optimizer,
            "fast=True leaves a step to the loop: a gradient isn't an ordinary tensor of its parameter's shape",
            depth=7,
        )
        return with_gradient(list(dict.fromkeys(group["params"])))
    left = with_gradient(plan.others)
    odd = [param for param in left if param.numel() and plan.is_odd(optimizer.state.get(param, {}), param)]
    if odd:
        warn_once(
            optimizer,
            f"fast=True steps {len(odd)} parameter(s) one by one, the first of shape {tuple(odd[0].shape)}: DTensors, "
            "complex numbers, memory with gaps, memory that parameters share, and state that isn't of the parameter's "
            "shape are left to the loop, which is right for all of them",
            depth=7,
        )

    kernels = plan.kernels_of(optimizer, group)
    rate = group["lr"].dtype if isinstance(group["lr"], Tensor) else torch.float64

    def kernel_of(
        dtype: torch.dtype, grad_dtype: torch.dtype, device: torch.device, block: Block | None = None
    ) -> Kernel | None:
        kind = Kind(dtype, grad_dtype, device, rate, grad_scale is not None, found_inf is not None)
        if kind not in kernels:
            if plan.changes > MOST_CHANGES:
                warn_once(
                    optimizer,
                    f"a setting of {type(optimizer).__name__} other than lr changes from step to step, and fast=True "
                    "would compile a kernel for each value: the loop takes over. Leave fast out, or keep the setting "
                    "constant",
                    depth=8,
                )
                return None
            kernels[kind] = kernel_for(optimizer, group, kind)
        kernel = kernels[kind]
        if kernel is None or block is None or kernel.layout == block.layout:
            return kernel
        # Masters that have to be made, or to be split, are made by the loop, and then it fits. What else is there
        # somebody has put there.
        if {name for name, _ in {*block.layout} ^ {*kernel.layout}} - {"master", "residue"}:
            warn_once(
                optimizer,
                f"fast=True leaves parameters to the loop whose state isn't what {type(optimizer).__name__} makes: "
                f"{dict(block.layout)} instead of {dict(kernel.layout)}",
                depth=8,
            )
        return None

    # The first step of a parameter makes its state, which is the loop's business. What the next one needs is compiled
    # now, so that all waiting is in the first step.
    for param in left:
        if is_plain(param):
            kernel_of(param.dtype, param.grad.dtype, param.device)  # type: ignore[union-attr]

    # Kernels are only called at the end, one behind the other: what Python does in between would find its own memory
    # gone from the cache, and take ten times as long.
    calls: list[Callable[[], Any]] = []
    written: list[Tensor] = []
    done: list[tuple[Block, slice]] = []
    numbers = {device: Numbers(group["lr"], [grad_scale, found_inf], device) for device in plan.devices}
    for block in plan.blocks:
        begin = 0
        for part in list(block.runs()):
            kernel = kernel_of(block.dtype, block.grads[part.start].dtype, block.device, block)
            if kernel is None:
                continue
            left += with_gradient(block.params[begin : part.start])
            begin = part.stop
            unseen = "master" in block.keys and not group["check_weights"]
            if unseen:
                take_over(optimizer, group, block, part)
            call = call_in_place(kernel, block, part, numbers[block.device])
            written += block.params[part] if call else []
            calls.append(call or call_on_copies(kernel, plan, block, part, numbers[block.device], unseen))
            done.append((block, part))
        left += with_gradient(block.params[begin:])
    # An interrupt comes when a call has returned: that one has been taken as well, and is counted.
    torch.autograd.graph.increment_version(written)
    taken = 0
    try:
        for call in calls:
            taken += 1
            call()
    except Exception:
        taken -= 1
        raise
    finally:
        for block, part in done[:taken]:
            block.stepped(part)
        for block in plan.blocks:
            block.grads, block.grad_places = [], None
        plan.counted()
    return left


def release(optimizer: GenericAdaptiveOptimizer) -> None:
    """Let go of gradients that were looked at for a step which hasn't been taken."""
    for plan in optimizer.__dict__.get("_plans", {}).values():
        for block in plan.blocks:
            block.grads, block.grad_places = [], None


def take_over(optimizer: GenericAdaptiveOptimizer, group: Group, block: Block, part: slice) -> None:
    """
    Take over weights that were changed from outside, where the kernel doesn't look for them.

    With `check_weights=False` writes that autograd knows of are noticed all the same: they count up the version.
    """
    params = block.params[part]
    # What was made in inference mode has no version, and is looked at each time.
    versions = list(map(VERSION, params)) if not any(map(Tensor.is_inference, params)) else [-2] * len(params)
    for number, version in enumerate(versions, part.start):
        if version != block.versions[number]:
            optimizer.weights_to_update(block.states[number], group, block.params[number])
    # What it will be after this step, which writes once.
    block.versions[part] = [version + 1 for version in versions]


def call_in_place(kernel: Kernel, block: Block, part: slice, numbers: Numbers) -> Callable[[], Any] | None:
    """
    Return the call that takes the step for some parameters of a block, which stand side by side.

    Nothing of them is copied, and autograd isn't told. Return `None` where that can't be.
    """
    pieces = kernel.pieces
    if block.large:
        grad = in_a_row_like(block.grads[0], block.params[0])  # type: ignore[arg-type]
        if not pieces:
            values = [block.aliases[0], grad, *numbers.scaling, *block.values]
            return functools.partial(kernel.loop, [numbers.rate, block.count(0), *values])
        held: Any = grad
        at, part = [place_of(block.aliases[0]), place_of(grad)], slice(0, len(block.begins) - 1)
    elif pieces and block.in_order:
        grads: list[Tensor] = block.grads[part]  # type: ignore[assignment]
        held = block.places[part], block.grad_places[part] if block.grad_places else addresses(grads)
        at = [apart(held[0], block.dtype.itemsize), apart(held[1], grads[0].element_size())]
    else:
        return None
    count_at, count = block.count_at(part.start)
    places = [numbers.rate_at, count_at, *at, *numbers.scaling_at, *block.values_at]
    return pieces.over(places, block.begins, part, (numbers, count, held))


def call_on_copies(
    kernel: Kernel, plan: Plan, block: Block, part: slice, numbers: Numbers, unseen: bool
) -> Callable[[], Any]:
    """Return the call that does so on copies, of gradients and weights, and writes the weights back."""
    place = slice(block.begins[part.start], block.begins[part.stop])
    count, grads, params = block.count(part.start), block.grads[part], block.aliases[part]
    values = [value[place] for value in block.values]

    def call() -> None:
        all_grads, grad_views = plan.gathered("grad", block, grads[0].dtype)  # type: ignore[union-attr]
        all_params, param_views = plan.gathered("param", block, block.dtype)
        torch._foreach_copy_(grad_views[part], grads)  # type: ignore[arg-type]
        if not unseen:
            torch._foreach_copy_(param_views[part], params)
        kernel.loop([numbers.rate, count, all_params[place], all_grads[place], *numbers.scaling, *values])
        torch._foreach_copy_(params, param_views[part])

    return call


def with_gradient(params: list[Tensor]) -> list[Tensor]:
    """Return those parameters that have a gradient."""
    return [param for param in params if param.grad is not None]


def is_complete(state: State, param: Tensor) -> bool:
    """Return whether a state has been made and is one that a block can hold."""
    return bool(keys_of(state)) and not is_strange(state, param)


def is_strange(state: State, param: Tensor) -> bool:
    """Return whether there is something in a state, beside the count, that isn't laid out like the parameter."""
    return not all(
        type(value) is Tensor
        and value.shape == param.shape
        and not value.is_neg()
        and (param.numel() < LARGE or value.stride() == param.stride())
        for key, value in state.items()
        if key != "step"
    )


def is_plain(param: Tensor) -> bool:
    """Return whether a parameter is an ordinary tensor of real numbers that lie side by side in memory."""
    if type(param) not in (Tensor, torch.nn.Parameter) or param.dtype not in FORMATS or not param.numel():
        return False
    # A view may say "the negative of this memory", which torch understands.
    if param.is_neg():
        return False
    return param.is_contiguous() or is_dense(param)


def is_in_order(grad: Tensor, param: Tensor) -> bool:
    """Return whether the values of a gradient lie in memory as they are, in the order in which the weights do."""
    return not grad.is_neg() and (grad.stride() == param.stride() or (grad.is_contiguous() and param.is_contiguous()))


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
    tensor = tensor.resolve_neg()
    if tensor.stride() != other.stride():
        tensor = torch.empty_like(other, dtype=tensor.dtype, memory_format=torch.preserve_format).copy_(tensor)
    return in_a_row(tensor)


def as_number(value: Any, device: torch.device) -> Tensor:
    """Return a count, a rate or a scale as a tensor; a number is written to the device without waiting for it."""
    if isinstance(value, Tensor):
        return value.reshape(()).to(device).resolve_neg()
    return torch.full((), value, dtype=torch.float64, device=device)
