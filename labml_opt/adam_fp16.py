r"""
# Adam for half-precision training

The model computes with FP16 weights; the optimizer keeps their FP32 originals, so that small steps add up
instead of vanishing.

Papers: [Mixed Precision Training](https://arxiv.org/abs/1710.03740), Micikevicius et al., 2017, arXiv
1710.03740; for BF16 [A Study of BFLOAT16 for Deep Learning Training](https://arxiv.org/abs/1905.12322),
Kalamkar et al., 2019, arXiv 1905.12322, and [Revisiting BFloat16 Training](https://arxiv.org/abs/2010.06192),
Zamirai et al., 2020, arXiv 2010.06192

$$\begin{aligned}
\theta^{32}_t &= \theta^{32}_{t-1} - \alpha\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon} \\
\theta^{16}_t &= \mathrm{fp16}\big(\theta^{32}_t\big)
\end{aligned}$$

**Use it when** weights and gradients should both be FP16 or BF16, above all in fine-tuning with a learning rate
of $10^{-4}$ or less. With BF16 leave out the loss scaler.

**Don't when** FP32 weights under `torch.autocast` train fast enough: they are simpler and need no more memory,
16 bytes a parameter while gradients are there.

![Above, FP16 alone: a step of 2·10⁻⁵ from 0.070007 ends between two numbers and is rounded back. Below, with an
FP32 master: five such steps add up, and the FP16 weight has moved by two numbers. Computed with the classes on
this page.](figures/adam_fp16.svg)

```symbols
g_t           | grad      | gradient of the loss    | FP32         | y1
\theta^{16}_t | param     | the model's weights     | FP16 or BF16 | y4
\theta^{32}_t | master    | master weights          | FP32         | y5
\alpha        | lr        | learning rate           | number       | y6
S             | scale     | loss scale              | FP32         | y7
S_{\min}      | min_scale | floor of the loss scale | number       | y8
```

## Three places where half precision breaks

| | bits of exponent, fraction | largest | smallest normal | smallest above 0 | spacing at 1 |
|---|---|---|---|---|---|
| FP16 | 5, 10 | 65504 | 6.1e-5 | 6.0e-8 | 0.00098 |
| BF16 | 8, 7 | 3.4e38 | 1.2e-38 | 9.2e-41 | 0.0078 |
| FP32 | 8, 23 | 3.4e38 | 1.2e-38 | 1.4e-45 | 1.2e-7 |

FP16 spends its bits on digits and lacks range: its smallest normal number is $2^{-14}$, the smallest above 0 is
$2^{-24}$, and at 1 its numbers are $2^{-10}$ apart. BF16 has the range of FP32 and lacks digits: at 1 its
numbers are $2^{-7}$ apart. Training meets these limits in three places.

1. **Updates are lost.** $\theta + \Delta = \theta$ when $\lvert\Delta\rvert$ is less than half the spacing at
   $\theta$. Adam's step is about $\alpha$, so at $\alpha = 2 \times 10^{-5}$ every weight above
   $2^{-4} = 0.0625$ stands still in FP16, and in BF16 every weight above $2^{-7} \approx 0.008$. Nothing fails,
   and nothing is learned. *The cure:* an FP32 copy of the weights, `MasterWeights`.
2. **Moments vanish or overflow.** $g^2$ is 0 in FP16 for $\lvert g\rvert < 1.7 \times 10^{-4}$ and infinite
   from 256 up. The usual $\epsilon = 10^{-8}$ rounds to 0 as well, and $0 / 0$ is NaN. *The cure:* moments and
   arithmetic in FP32.
3. **Gradients underflow.** Those under $2^{-25} \approx 3 \times 10^{-8}$ are 0 before the optimizer ever sees
   them. *The cure:* multiply the loss by $S$ before the backward pass and divide the gradients by it
   afterwards, in FP32: `GradScalerFP16`. BF16 doesn't need it.

![Where updates of 2·10⁻⁵ are lost: half the spacing between two numbers, against the size of the weight. Above
the line of the step the weight stands still.](figures/adam_fp16_grid.svg)

## How to train with it

```python
import torch
from labml_opt import AdamFP16, GradScalerFP16

model = model.half()
optimizer = AdamFP16(model.parameters(), lr=2e-5)
scaler = GradScalerFP16()

for x, y in batches:
    loss = torch.nn.functional.cross_entropy(model(x.half()).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
```

`unscale_` and `clip_grad_norm_` are there for clipping alone; without them `step` unscales by itself. The order
matters: a norm measured before `unscale_` is $S$ times too large. The guide [Half precision in your training
script](guides/half_precision.md) says what else has to change.

## What it costs

For each parameter 2 bytes of weights, 2 of gradients, and 12 of optimizer state: master and two moments.
Between `unscale_` and the end of the step the gradient is FP32 and takes 2 bytes more. FP32 weights under
`torch.autocast` take 4, 4 and 8, which is 16 as well ([measured](guides/half_precision.md#three-recipes)).
Between steps, with the gradients dropped, it is 14 here and 12 there. What is saved is not memory but traffic:
weights and gradients of half the size in forward and backward pass, no FP16 copies of the weights that autocast
makes, and half the volume when gradients are exchanged between machines. In return each step looks at every
weight, whether it was changed from outside; on a GPU the host waits for that look, unless `capturable=True`.
BF16 weights can do with 10 bytes of state instead of 12: [Masters in two halves](split_master.md).

## The resume trap

`torch.optim.Optimizer.load_state_dict` casts each tensor of the state to the dtype of its parameter. For FP16
parameters it makes FP16 of the FP32 moments: a second moment of $10^{-12}$ becomes 0, and so does $\epsilon$,
be it $10^{-8}$ or $10^{-16}$: the first step after resuming divides by 0, and the weights become infinite or
NaN. The base class here [loads bit for bit](optimizer.md#GenericAdaptiveOptimizer.load_state_dict), and the
guide [Resume without losing a bit](guides/resume.md) shows all that belongs in a checkpoint.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer
from torch.optim.optimizer import StateDict

from labml_opt._rounding import is_rounded
from labml_opt._shards import own_shard
from labml_opt.adam import Adam
from labml_opt.adam_warmup_cosine_decay import AdamWarmupCosineDecay
from labml_opt.optimizer import HALF, GenericAdaptiveOptimizer, Group, State
from labml_opt.split_master import Watch, join, split, taken_up


class MasterWeights(GenericAdaptiveOptimizer):
    r"""
    **Half-precision weights with an FP32 original**, for any optimizer of this package, and for yours if it
    extends [GenericAdaptiveOptimizer](optimizer.md#an-optimizer-of-your-own):

    ```python
    class MyOptimizerFP16(MasterWeights, MyOptimizer):
        pass
    ```

    It adds `master` to the state of each FP16 or BF16 parameter, FP32 and of the same shape, and leaves all
    other parameters alone. The optimizer itself doesn't know: its `init_state` and `step_param` are handed
    $\theta^{32}$ and work in FP32. With `split_master=True` a BF16 parameter has `residue` instead, int16, and
    parameter and residue together are the master ([Masters in two halves](split_master.md)).

    A master beyond 65504, the largest number of FP16, is kept, and the FP16 weight becomes infinite. Held at
    65504 it would train on as if nothing had happened; an infinite loss tells you at once. When the master
    comes back under 65504, so does the weight.

    Raises what the optimizer raises, and `TypeError` for FP16 parameters with `split_master`. Paper: [arXiv
    1710.03740](https://arxiv.org/abs/1710.03740), section 3.1.
    """

    def weights_to_update(self, state: State, group: Group, param: Tensor) -> Tensor:
        r"""
        Return the master copy, up to date.

        * `state` keeps it as `master`, FP32, of the parameter's shape and layout, or the lower half of it as
          `residue`, int16
        * `group` is the parameter group
        * `param` is $\theta^{16}_{t-1}$, what the model computes with
        """
        # A parameter in FP32 is its own master. One that was in half precision before, in a model that has been
        # turned to FP32, gets the bits back that its master had kept. Whether it was FP16 or BF16 isn't known
        # any more, so both roundings are tried.
        if param.dtype not in HALF:
            kept = state.pop("master", None)
            if kept is not None:
                same = (kept.half() == param) | (kept.bfloat16() == param)
                param.copy_(torch.where(same, kept, param))
            residue = state.pop("residue", None)
            if residue is not None:
                param.copy_(taken_up(param, residue))
            return super().weights_to_update(state, group, param)

        # **In two halves** there is no master between the steps, and each step makes one. A master that comes from
        # a checkpoint, or from before `split_master` was set, is taken over whole; `write_back` will split it.
        if group["split_master"]:
            if "residue" not in state:
                state["residue"] = torch.zeros_like(param, dtype=torch.int16, memory_format=torch.preserve_format)
            if "master" not in state:
                return join(param, state["residue"])
            whole: Tensor = state.pop("master")
            self._follow(whole, param, group["capturable"])
            return whole

        # $$\theta^{32}_0 = \theta^{16}_0$$
        #
        # The master is made once, at the first step, and every FP16 number is an FP32 number as well. From here
        # on the truth is $\theta^{32}$, and $\theta^{16}$ is its rounded image.
        #
        # With a residue, from a checkpoint in two halves, it starts as what the two make.
        master = state.get("master")
        if "residue" in state:
            master = state["master"] = taken_up(param, state.pop("residue"))
        elif master is None:
            master = state["master"] = param.to(torch.float32, memory_format=torch.preserve_format, copy=True)
        else:
            self._follow(master, param, group["capturable"])
        return master

    @staticmethod
    def _follow(master: Tensor, param: Tensor, capturable: bool) -> None:
        # **Weights changed from outside win.** Loading a model, swapping in an average, clamping: all of them
        # write to $\theta^{16}$, and none of them knows of a master. Without this check the next step would
        # write the old master back, and the loaded weights would be gone. If $\theta^{16}$ is still the rounded
        # master, nothing has happened. The answer is read to the host, which a CUDA graph can't.
        #
        # Of a weight that is spread over several processes each looks at its own part. Asked about the whole,
        # torch would have every process wait for all others, once for each parameter.
        if not capturable and is_rounded(own_shard(master), own_shard(param)):
            return

        # $$\theta^{32} \leftarrow \begin{cases}
        # \theta^{32} & \mathrm{fp16}(\theta^{32}) = \theta^{16} \\
        # \theta^{16} & \mathrm{fp16}(\theta^{32}) \ne \theta^{16}
        # \end{cases}$$
        #
        # Only where the two differ is the master copied from the parameter. Elsewhere it keeps the bits that
        # the rounding hides. Moments and step counts stay as they were.
        rounded = master.to(param.dtype)
        master.copy_(torch.where(rounded == param, master, param.float()))

    def write_back(self, state: State, param: Tensor, weights: Tensor) -> None:
        r"""
        Round the master and bring it into the parameter, in place.

        * `state` may have a `residue`; then it gets the bits that the rounding takes away
        * `param` is the parameter and becomes $\theta^{16}_t$
        * `weights` is the master $\theta^{32}_t$, FP32, of the same shape
        """
        if "residue" not in state:
            return super().write_back(state, param, weights)
        upper, residue = split(weights)
        param.copy_(upper)
        state["residue"].copy_(residue)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """
        Add a group of parameters, as the base class does.

        * `param_group` holds `params` and any setting

        Raises what the base class raises, and `TypeError` for FP16 parameters with `split_master`.
        """
        super().add_param_group(param_group)
        try:
            self._refuse_fp16()
        except TypeError:
            del self.param_groups[-1]
            raise

    def _refuse_fp16(self) -> None:
        for number, group in enumerate(self.param_groups):
            for position, param in enumerate(group["params"] if group["split_master"] else ()):
                if param.dtype is torch.float16:
                    raise TypeError(
                        f"parameter {position} of group {number} is torch.float16, and split_master=True takes the "
                        "upper half of an FP32 number for the weight, which BF16 is and FP16 isn't: leave split_master "
                        "out, or turn the model to BF16"
                    )

    def _refuse(self) -> None:
        # Before anything is written, and for all parameters: several of them may share memory, and so a version.
        # What a CUDA graph records at its capture happens at every replay, so nothing is set to 0 there.
        if any(group["split_master"] for group in self.param_groups):
            if not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
                self._take_over()
            self._refuse_fp16()
        super()._refuse()

    def _drop_residues(self) -> bool:
        watch = self._watch
        changed = [state for state, param in self._in_halves() if not watch.is_ours(param)]
        for state in changed:
            state["residue"].zero_()
        return bool(changed)

    def _take_over(self) -> None:
        changed = self._drop_residues()

        # Throwing residues away rounds the masters to BF16: harmless now and then, and at every step as bad as
        # no masters at all.
        self._watch.in_a_row = self._watch.in_a_row + 1 if changed else 0
        if self._watch.in_a_row == 10:
            warnings.warn(
                f"something has written to the weights of {type(self).__name__} before each of its last 10 steps, and "
                "split_master=True can't tell which values are new: updates under half a step of BF16 are lost. Leave "
                "split_master out, or write after the training",
                stacklevel=6,  # the line that called step
            )

    def state_dict(self) -> StateDict:
        r"""
        Return the checkpoint that [load_state_dict](optimizer.md#GenericAdaptiveOptimizer.load_state_dict) takes.

        With `split_master` the residue of a weight that somebody else has written to since the last step is 0 in
        it. Otherwise whoever loads the two, and can't know of the write, would put them together.
        """
        if self._drop_residues():
            self._has_written()
        return super().state_dict()

    def _has_written(self) -> None:
        watch = self._watch
        for _, param in self._in_halves():
            watch.note(param)

    def _in_halves(self) -> list[tuple[State, Tensor]]:
        params = [param for group in self.param_groups if group["split_master"] for param in group["params"]]
        known = [(self.state.get(param, {}), param) for param in params]
        return [(state, param) for state, param in known if "residue" in state]

    @property
    def _watch(self) -> Watch:
        watch: Watch = self.__dict__.setdefault("_who_wrote", Watch())
        return watch

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy, or a checkpoint that has been loaded: what was seen before is no longer true of it.
        super().__setstate__(state)
        self.__dict__.pop("_who_wrote", None)

    def master_params(self) -> Iterator[Tensor]:
        r"""
        Yield the weights at full precision, in the order of the groups: $\theta^{32}$ where there is one, else
        the parameter itself (in FP32 if it is a half-precision one that has not been trained yet). With
        `split_master` each is a new tensor.

        This is what to export and what to average. Don't write to these tensors; write to the parameters.
        """
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state.get(param, {})
                if "master" in state:
                    yield state["master"]
                elif "residue" in state and self._watch.is_ours(param):
                    yield taken_up(param.detach(), state["residue"])
                else:
                    yield param.detach().float() if param.dtype in HALF else param.detach()

    @torch.no_grad()
    def resync(self) -> None:
        """
        Take over now what was changed in the parameters from outside.

        Every step looks by itself. Call this when `master_params()` must be right before the next step, for
        instance to save an average right after loading other weights. With `split_master` it sets every residue
        to 0, and the masters are the weights.
        """
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state.get(param, {})
                if "residue" in state and param.dtype in HALF:
                    state["residue"].zero_()
                elif "master" in state or "residue" in state:
                    self.weights_to_update(state, {**group, "split_master": False}, param)
        self._has_written()


class AdamFP16(MasterWeights, Adam):
    r"""
    **Adam for FP16 and BF16 parameters.** The arguments are those of [Adam](adam.md), the state is Adam's and
    `master`, all FP32 and of the parameter's shape.

    Where the rounding happens, and where it doesn't, is all there is to it:
    $$\theta^{32}_t = \theta^{32}_{t-1} - \alpha\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon} \qquad
    \theta^{16}_t = \mathrm{fp16}\big(\theta^{32}_t\big)$$
    The rounding error of $\theta^{16}_t$ is never fed back: the next step starts from $\theta^{32}_t$, so a
    thousand steps too small to see in FP16 still add up to one that shows.

    Raises what Adam raises. Paper: [arXiv 1710.03740](https://arxiv.org/abs/1710.03740), section 3.1.
    """


class AdamWarmupCosineDecayFP16(MasterWeights, AdamWarmupCosineDecay):
    r"""
    **For Transformers**: [warm-up and cosine decay](adam_warmup_cosine_decay.md), with FP32 masters for FP16
    and BF16 parameters. The arguments are those of [AdamWarmupCosineDecay](adam_warmup_cosine_decay.md); a step
    that the scaler skips doesn't count for the schedule. All state is FP32 and of the parameter's shape.

    Raises what AdamWarmupCosineDecay raises. Papers: [arXiv 1608.03983](https://arxiv.org/abs/1608.03983) for
    the schedule, [arXiv 1710.03740](https://arxiv.org/abs/1710.03740) for the masters.
    """


class GradScalerFP16(torch.amp.GradScaler):
    r"""
    **A loss scaler that takes FP16 gradients.** It is used like `torch.amp.GradScaler`: `scale`, `unscale_`,
    `step`, `update`, `state_dict`. Two things differ: after a step the gradients that were brought to FP32 are
    gone, and the scale has a floor.

    The stock scaler answers FP16 gradients with *"Attempting to unscale FP16 gradients."*, and it is right to.
    Divided in FP16, those under $2^{-25}$ would be 0 again, and the scaling would have been for nothing. What
    helps is not to allow the division in FP16, as some patches do, but to bring the gradients to FP32 first.

    ![Exponents of the gradients that flow back to the layers of a small network. Above, without a scale: the red
    ones are too small for FP16 and become 0. Below, with the loss times 2¹⁶: almost all of them
    fit.](figures/adam_fp16_gradients.svg)
    """

    def __init__(
        self,
        device: str | torch.device | float | None = None,
        init_scale: float | None = None,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        *,
        min_scale: float = 1.0,
    ) -> None:
        r"""
        * `device` is `"cuda"`, `"cpu"`, ...; by default CUDA if there is one, else the CPU. A number in this
          place is `init_scale`, as it was in `torch.cuda.amp.GradScaler`
        * `init_scale` is $S$ at the start, $2^{16}$ by default
        * `growth_factor` multiplies $S$ after `growth_interval` steps without an overflow
        * `backoff_factor` multiplies $S$ after an overflow
        * `enabled=False` makes `step` call `optimizer.step()` and all other methods do nothing
        * `min_scale` is the floor of $S$; under 1 a scale shrinks gradients, and does more harm than good

        Raises `TypeError` or `ValueError` when the scale is given twice or starts below its floor. Paper:
        [arXiv 1710.03740](https://arxiv.org/abs/1710.03740), section 3.2.
        """
        if isinstance(device, (int, float)):
            if init_scale is not None:
                raise TypeError(
                    f"the first argument {device} is a number and so the init_scale, but init_scale={init_scale} is "
                    "given, too: name the arguments that follow a number"
                )
            init_scale, device = float(device), None
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if init_scale is None:
            init_scale = 2.0**16
        if not math.inf > init_scale >= min_scale > 0:
            raise ValueError(
                f"init_scale, {init_scale}, must be finite and at least min_scale, {min_scale}, and that more than 0"
            )

        # By default $S$ is a power of two, and so are both factors. Multiplying by it moves the exponent and
        # leaves every bit of the fraction alone, unless the result overflows; dividing in FP32 is as exact.
        # Keep yours so.
        self.device_type = torch.device(device).type
        super().__init__(self.device_type, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.min_scale = min_scale
        self._updates = 0
        self._held_up: int | Tensor = 0

        # The parameters whose gradients have been brought to FP32 since the last `update`, by the id of their
        # optimizer.
        self._converted: dict[int, list[Tensor]] = {}

    def _progress(self, optimizer: Optimizer) -> tuple[OptState, bool]:
        # How far this optimizer has come since the last `update`, and whether its gradients have been looked
        # at. These are all the private names of torch that the class reads.
        state = self._per_optimizer_states[id(optimizer)]
        return state["stage"], bool(state["found_inf_per_device"])

    def unscale_(self, optimizer: Optimizer) -> None:
        r"""
        Divide the gradients by $S$, in FP32. Call it before you clip or look at them; otherwise `step` does it.

        * `optimizer` owns the parameters, of any shape; FP16 gradients are taken if it is one of this package

        Until the end of the step `param.grad` holds $g_t$ in FP32, unscaled, and whatever reads or changes it
        there counts: `torch.nn.utils.clip_grad_norm_`, a hook, your own code.

        Raises `RuntimeError` when it is called twice before `update`, `ValueError` for FP16 gradients of
        optimizers from elsewhere.
        """
        if not self.is_enabled():
            return

        # On a second call nothing is converted, and torch raises its error.
        stage, _ = self._progress(optimizer)
        if stage is OptState.READY and getattr(optimizer, "takes_fp32_grads", False):
            converted = self._converted.setdefault(id(optimizer), [])
            for param in _parameters(optimizer):
                if param.grad is not None and param.grad.dtype == torch.float16:
                    # $$\nabla^{32} = \mathrm{fp32}\big(S\,\nabla f(\theta^{16}_{t-1})\big)$$
                    #
                    # A tensor's gradient has the tensor's dtype, unless `grad_dtype` says otherwise; `None`
                    # there allows any. So the FP32 gradient can live where everybody looks for a gradient. With
                    # a table beside it, `clip_grad_norm_` would clip `param.grad` and the optimizer would read
                    # the table: no clipping at all.
                    grad, param.grad = param.grad, None
                    param.grad_dtype = None
                    param.grad = grad.float()
                    converted.append(param)

        # From here on the stock method is right:
        # $$g_t = \frac{1}{S}\,\nabla^{32}$$
        # It also notes whether there was an infinity or a NaN.
        try:
            super().unscale_(optimizer)
        except ValueError as error:
            raise ValueError(
                f"{error} GradScalerFP16 brings them to FP32 for the optimizers of labml_opt, and "
                f"{type(optimizer).__name__} can't take FP32 gradients of FP16 parameters: use AdamFP16, or keep the "
                "parameters in FP32 and run the model under torch.autocast."
            ) from error

    def step(self, optimizer: Optimizer, closure: None = None, *args: Any, **kwargs: Any) -> float | None:
        r"""
        Take the step, or skip it if a gradient is infinite or NaN.

        * `optimizer` takes the step
        * `closure` must be `None`; further arguments are handed to `optimizer.step`

        Returns what `optimizer.step` returned, `None` for a skipped step. After it, gradients that `unscale_`
        brought to FP32 are dropped: `param.grad` is `None`, where torch would leave them.

        Raises `RuntimeError` for a closure, for a second call before `update`, and when no parameter has a
        gradient.
        """
        if not self.is_enabled():
            return super().step(optimizer, *(() if closure is None else (closure,)), *args, **kwargs)

        # A closure would compute new gradients inside the step, after the unscaling, with $S$ still in them.
        # torch says so, too, but only if it is passed by its name.
        if closure is not None:
            raise RuntimeError(
                "GradScalerFP16.step can't take a closure: it would bring new gradients after the unscaling"
            )

        # Here torch would say "No inf checks were recorded for this optimizer.", which is true and helps
        # nobody.
        stage, has_been_checked = self._progress(optimizer)
        nothing_there = all(param.grad is None for param in _parameters(optimizer))
        if nothing_there and not has_been_checked and stage is not OptState.STEPPED:
            raise RuntimeError(
                f"no parameter of this {type(optimizer).__name__} has a gradient: call scaler.scale(loss).backward() "
                "first, and see that the loss depends on these parameters and none of them is frozen"
            )

        # Skipping is part of the method. $S$ starts so high that the first steps may overflow; each overflow
        # halves it until it fits. On such a step parameters, moments, step counts and schedules stay as they
        # are.
        try:
            result = super().step(optimizer, *args, **kwargs)
        except BaseException:
            # A hook that fails must not leave the scale behind: the next step would divide by it a second time.
            for name in ("grad_scale", "found_inf"):
                optimizer.__dict__.pop(name, None)
            raise
        self._drop(self._converted.pop(id(optimizer), []))
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        r"""
        Choose $S$ for the next iteration: half of it after an overflow, twice after `growth_interval` good
        steps in a row.

        * `new_scale` sets it by hand, a number or a tensor with one value

        Raises `AssertionError`, torch's own, when nothing was scaled or stepped before, and `ValueError` for a
        number under the floor.
        """
        if self.is_enabled() and new_scale is not None and not isinstance(new_scale, Tensor):
            new_scale = float(new_scale)
            if not self.min_scale <= new_scale < math.inf:
                raise ValueError(f"new_scale, {new_scale}, must be finite and at least min_scale, {self.min_scale}")
        super().update(new_scale)

        # A batch may have been dropped between `unscale_` and `step`; its gradients must not meet the next
        # scale.
        for params in self._converted.values():
            self._drop(params)
        self._converted.clear()

        if not self.is_enabled() or new_scale is not None:
            return

        # $$S \leftarrow \max(S,\; S_{\min})$$
        #
        # A loss that is NaN overflows at every scale. Halved for 166 steps in a row, $2^{16}$ would be 0, and
        # from then on every gradient is $0 \cdot \infty$ and every step is skipped, without a word. The scale
        # is read through `scale`, on the device, and only written: the count of good steps goes on.
        scale = self.scale(torch.ones((), device=self.device_type))
        super().update(scale.clamp(min=self.min_scale))

        # How often the floor had to hold is counted on the device. To warn, the host has to look; once in a
        # hundred updates that costs nothing.
        self._held_up = self._held_up + (scale < self.min_scale)
        self._updates += 1
        if self._updates % 100 == 0:
            if self._held_up:
                warnings.warn(
                    f"the loss scale has come down to its floor of {self.min_scale} and gradients still overflow. Look "
                    "for NaN or infinity in the loss, in the data or in the weights; a lower learning rate or BF16 may "
                    "help.",
                    stacklevel=2,
                )
            self._held_up = 0

    @staticmethod
    def _drop(params: list[Tensor]) -> None:
        # FP32 gradients don't outlive the step: DDP, FSDP2 and distributed checkpoints expect a gradient in the
        # dtype of its parameter, and the next backward pass brings one. `grad_dtype` stays `None`. Set to FP16
        # again it would hold for good, and a model that is turned to BF16 or FP32 later would go on getting
        # FP16 gradients.
        for param in params:
            param.grad = None


def _parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("adam_fp16")
