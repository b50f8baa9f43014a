r"""
# How an optimizer is made

An optimizer is a loop over parameters with a memory for each of them; one method says what happens to one
tensor, and everything else is written once, here.

Paper: [Decoupled Weight Decay Regularization](https://arxiv.org/abs/1711.05101), Loshchilov and Hutter, 2017,
arXiv 1711.05101

$$\theta_t = (1 - \alpha_t \lambda)\, \theta_{t-1} - \alpha_t\, u_t$$

**Use it when** you want to write an optimizer of your own: override `init_state` and `step_param`, and
parameter groups, schedules, checkpoints and half precision come with the base class.

**Don't when** you only want to train: take `Adam`, `AdamWarmupCosineDecay` or `AdamFP16`.

![The same decay, twice. Through the gradient (dashed) Adam divides it by the root of the squared gradients, and
weights with large gradients decay less. Decoupled (solid), every weight decays alike.](figures/optimizer.svg)

```symbols
g_t      | grad           | gradient of the loss            | FP32 or wider  | y1
\theta_t | param, weights | parameters                      | FP32 or wider  | y5
\alpha   | lr             | learning rate                   | number         | y6
\lambda  | weight_decay   | weight decay                    | number         | y7
S        | grad_scale     | loss scale                      | number, FP32   | y3
t        | t              | steps taken, the first one is 1 | number         | y8
```

## What the loop is made of

* **Parameter groups** are dictionaries. Each holds a list of parameters under `params` and the settings they
  share: `lr`, `betas`, `weight_decay`. One model may have several, for instance one without weight decay for
  the biases. All settings of this package live there and nowhere else, because groups are what `state_dict`,
  `deepcopy`, `pickle` and `torch.optim.lr_scheduler` know about.
* **State** is a dictionary for each parameter: what the optimizer remembers of it from step to step. It is made
  at the first step that brings a gradient, not in the constructor. Until then the parameter may still move to
  another device, and a parameter that never gets a gradient costs no memory.
* **The template method** is `step`. It walks over groups and parameters, prepares gradient and weights, and
  calls `step_param` for each tensor. An optimizer is what it does in `step_param`.

In the equation above $\alpha_t$ is the rate of step $t$, and $u_t$ is the direction that an optimizer chooses.

## An optimizer of your own

Gradient descent with momentum, $u_t = \beta\, u_{t-1} + (1 - \beta)\, g_t$, takes two methods beside the
constructor:

```python
class Momentum(GenericAdaptiveOptimizer):
    def __init__(self, params, lr=0.1, beta=0.9):
        super().__init__(params, defaults={"beta": beta}, lr=lr)

    def init_state(self, state, group, param):
        state["mean"] = torch.zeros_like(param)

    def step_param(self, state, group, grad, param):
        state["mean"].lerp_(grad, 1 - group["beta"])
        param.sub_(group["lr"] * state["mean"])
```

It has parameter groups, closures, hooks and checkpoints, and with
`class MomentumFP16(MasterWeights, Momentum): pass` it trains FP16 weights. [Adam](adam.md), on the next page,
is made in the same way.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT, StateDict

from labml_opt import _checkpoint, _fast
from labml_opt._counts import as_count, in_float64, unchanged_where

State = dict[str, Any]
Group = dict[str, Any]

# The formats with 16 bits. A weight in one of them can't hold an update that is much smaller than itself, so
# arithmetic never happens in them: weights, gradients and state are FP32 while a step is computed.
HALF = (torch.float16, torch.bfloat16)
FULL = (torch.float32, torch.float64, torch.complex64, torch.complex128)


@dataclass(frozen=True)
class WeightDecay:
    r"""
    **A pull towards zero.** Large weights make a network sensitive to small changes of its input, so each step
    takes a little of every weight away. There are two places to do it, and with Adam they are not the same.

    * `weight_decay` is $\lambda \ge 0$, a number without unit
    * `weight_decouple` says where: on the weights (`True`) or through the gradient (`False`, $L_2$
      regularization)
    * `absolute` takes $\lambda$ itself as the share that a decoupled step removes, rather than
      $\alpha_t \lambda$; a schedule then doesn't lower the decay

    Raises `ValueError` when $\lambda$ is negative, infinite or NaN, `TypeError` when it is not a number at all.
    Optimizers take a plain number, too: `weight_decay=0.1` is `WeightDecay(0.1)`. Paper: [arXiv
    1711.05101](https://arxiv.org/abs/1711.05101).
    """

    weight_decay: float = 0.0
    weight_decouple: bool = True
    absolute: bool = False

    def __post_init__(self) -> None:
        check_number("weight_decay", self.weight_decay, "at least 0 and finite", lambda x: 0 <= x < math.inf)

    @classmethod
    def of(cls, weight_decay: WeightDecay | float) -> WeightDecay:
        """Return `weight_decay` itself, or the decoupled decay that a plain number means."""
        return weight_decay if isinstance(weight_decay, WeightDecay) else cls(weight_decay)

    def defaults(self) -> dict[str, Any]:
        """Return what a parameter group holds of this decay: `weight_decay`, `weight_decouple`, `absolute`."""
        return {
            "weight_decay": self.weight_decay,
            "weight_decouple": self.weight_decouple,
            "absolute": self.absolute,
        }

    def __call__(self, param: Tensor, grad: Tensor, group: Group) -> Tensor:
        r"""
        Carry out `decay` below, for optimizers that were written against this interface.

        * `param` and `grad` are $\theta_{t-1}$ and $g_t$, same shape and dtype
        * `group` holds the settings that count, because each group may have its own

        Returns the gradient to go on with, same shape and dtype.
        """
        return decay(param, grad, group)


def decay(param: Tensor, grad: Tensor, group: Group) -> Tensor:
    r"""
    Decay `param` in place, or return a gradient that will.

    * `param` holds the weights $\theta_{t-1}$, any shape, FP32 or wider
    * `grad` is $g_t$, same shape and dtype; it is never changed in place
    * `group` is the parameter group, where `lr` is the rate of this very step

    Returns the gradient to go on with, same shape and dtype. Paper: [arXiv
    1711.05101](https://arxiv.org/abs/1711.05101).
    """
    weight_decay = group["weight_decay"]
    if not weight_decay:
        return grad

    # **Coupled: $L_2$ regularization.**
    # $$g_t \leftarrow g_t + \lambda\, \theta_{t-1}$$
    # This is the gradient of the penalty $\frac{\lambda}{2}\lVert\theta\rVert^2$. In plain gradient descent it
    # is the same decay as the one below. In Adam it isn't: the penalty is divided by $\sqrt{\hat v_t}$ along
    # with the rest, and a weight with large gradients hardly decays at all.
    if not group["weight_decouple"]:
        return grad.add(param, alpha=weight_decay)

    # **Decoupled: on the weights.**
    # $$\theta_{t-1} \leftarrow (1 - \alpha_t \lambda)\, \theta_{t-1}$$
    # The gradient stays what the loss says it is, and every weight loses the same share: with
    # $\alpha = 10^{-3}$ and $\lambda = 0.01$ a hundred-thousandth per step, half of it in 69,000 steps. The
    # share follows the rate $\alpha_t$ of this step: a schedule that lowers the rate lowers the decay with it,
    # as it does in `torch.optim.AdamW` under a scheduler.
    share = weight_decay if group["absolute"] else group["lr"] * weight_decay
    param.mul_(1 - share)
    return grad


class Options(TypedDict, total=False):
    """
    Keyword arguments that every optimizer of the package takes after its own.

    * `maximize` goes up the gradient instead of down
    * `capturable` keeps step counts in tensors on the parameters' device and reads nothing back to the host, as
      a CUDA graph needs it; it works on a CPU, too
    * `unscale_in_step` lets a loss scaler hand over its scale, and the gradient is divided inside the step (see
      [Adam for half-precision training](adam_fp16.md))
    * `fast` compiles the step and takes it for many parameters at once; the results are the same [but for last
      bits](guides/fast.md#equal-to-the-loop)
    * `check_weights` has a fast step look at every weight, whether it was changed behind autograd's back,
      through `.data` or NumPy; `False` spares it that look. The loop always looks
    * `split_master` keeps of the FP32 masters of BF16 parameters only what the parameters don't hold, 2 bytes a
      value instead of 4 (see [Masters in two halves](split_master.md)); classes with `MasterWeights` take it
    """

    maximize: bool
    capturable: bool
    unscale_in_step: bool
    fast: bool
    check_weights: bool
    split_master: bool


class GenericAdaptiveOptimizer(Optimizer):
    r"""
    **The base class of all optimizers here.** It is a `torch.optim.Optimizer`: closures, hooks, `zero_grad`,
    `state_dict` and `torch.optim.lr_scheduler` work as they do there.
    """

    # A promise to [GradScalerFP16](adam_fp16.md): the gradient of a half-precision parameter may arrive in
    # FP32. The optimizers of `torch.optim` can't promise that.
    takes_fp32_grads = True

    # A warning about lost updates is given once in a process, however many optimizers there are.
    _warned = False

    def __init__(
        self,
        params: ParamsT,
        defaults: dict[str, Any],
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-16,
        *,
        maximize: bool = False,
        capturable: bool = False,
        unscale_in_step: bool = False,
        fast: bool = False,
        check_weights: bool = True,
        split_master: bool = False,
    ) -> None:
        r"""
        * `params` is an iterable of parameters, of `(name, parameter)` pairs, or of groups: FP16, BF16, FP32,
          FP64 or complex, any shape, dense gradients
        * `defaults` holds further settings of the groups; the dictionary itself is left as it is
        * `lr` is $\alpha \ge 0$, a number or a tensor with one value
        * `betas` is $(\beta_1, \beta_2)$, each in $[0, 1)$
        * `eps` is $\epsilon \ge 0$
        * `maximize`, `capturable`, `unscale_in_step`, `fast`, `check_weights` and `split_master` are explained at
          `Options` above

        Raises `ValueError` or `TypeError` with the name of the argument that is out of its range.
        """
        settings = {
            **defaults,
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "maximize": maximize,
            "capturable": capturable,
            "unscale_in_step": unscale_in_step,
            "fast": fast,
            "check_weights": check_weights,
            "split_master": split_master,
        }
        super().__init__(params, defaults=settings)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """
        Add a group of parameters, with settings of its own where it names them.

        * `param_group` holds `params` and any setting; `weight_decay` may be a number, which keeps the
          optimizer's way to decay, or a `WeightDecay`

        Raises `ValueError` or `TypeError` with the name of the setting that is out of its range, or the number
        of the parameter that can't be trained.
        """
        group = dict(param_group)
        if isinstance(group.get("weight_decay"), WeightDecay):
            group = {**group, **group["weight_decay"].defaults()}

        # A group that joins late, a layer unfrozen in mid-training, goes on at the step where the others are.
        # With a count of its own it would start a warm-up of its own. `t` says otherwise if it is given.
        group.setdefault("t", max((int(other["t"]) for other in self.param_groups), default=0))

        self.check_settings({**self.defaults, **group})

        # torch sorts out names, iterables and duplicates first; what it let in is looked at here.
        super().add_param_group(group)
        for number, param in enumerate(self.param_groups[-1]["params"]):
            if param.dtype not in HALF + FULL:
                del self.param_groups[-1]
                raise TypeError(
                    f"parameter {number} of the group is {param.dtype}; {type(self).__name__} trains FP16, BF16, FP32, "
                    "FP64 and complex parameters"
                )

    def check_settings(self, group: Group) -> None:
        """
        Refuse what can't work, by name, before the first step. Extend it for settings of your own.

        * `group` is a parameter group with all its settings

        Raises `ValueError` or `TypeError`.
        """
        lr = group["lr"]
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(f"lr as a tensor must hold one value, this one has shape {tuple(lr.shape)}")
        check_number("lr", lr, "at least 0 and finite", lambda x: 0 <= x < math.inf)
        if not isinstance(group["betas"], (tuple, list)) or len(group["betas"]) != 2:
            raise TypeError(f"betas must be two numbers (beta1, beta2), not {group['betas']!r}")
        for i, beta in enumerate(group["betas"]):
            check_number(f"betas[{i}]", beta, "in [0, 1)", lambda x: 0 <= x < 1)
        check_number("eps", group["eps"], "at least 0 and finite", lambda x: 0 <= x < math.inf)
        if "weight_decay" in group:
            check_number("weight_decay", group["weight_decay"], "at least 0 and finite", lambda x: 0 <= x < math.inf)
        check_number("t", group["t"], "at least 0 and finite", lambda x: 0 <= x < math.inf)
        if group["split_master"] and not hasattr(self, "master_params"):
            raise ValueError(
                f"split_master=True says how FP32 masters are kept, and {type(self).__name__} keeps none: use "
                "AdamFP16, or put MasterWeights in front of the class"
            )

    def init_state(self, state: State, group: Group, param: Tensor) -> None:
        """
        Put what is remembered of a parameter into `state`. Override it.

        * `state` is the parameter's empty state
        * `group` is its parameter group
        * `param` holds its weights in FP32 or wider, whatever the model computes in: `zeros_like(param)` is
          right
        """

    def step_param(self, state: State, group: Group, grad: Tensor, param: Tensor) -> None:
        r"""
        Take the step for one tensor. Override it; this is the optimizer.

        * `state` is what is remembered of the parameter; change it in place
        * `group` is its parameter group, in which `lr` is $\alpha_t$, the rate of this step
        * `grad` is $g_t$, same shape and dtype as `param`; leave it as it is
        * `param` holds $\theta_{t-1}$ in FP32 or wider and becomes $\theta_t$, in place
        """
        raise NotImplementedError(f"{type(self).__name__} has to define step_param")

    def get_lr(self, state: State, group: Group) -> float | Tensor:
        r"""
        Return $\alpha_t$, here the constant $\alpha$; a schedule overrides this method.

        * `state` needs one entry, `step`: the step $t$ that the rate is for, counted from 1
        * `group` is a parameter group, or any dictionary with the same settings, so that a schedule can be
          plotted without an optimizer step: `[opt.get_lr({"step": t}, opt.defaults) for t in range(1, 1000)]`
        """
        return group["lr"]  # type: ignore[no-any-return]

    @property
    def has_schedule(self) -> bool:
        """Whether the class brings a schedule of its own."""
        return type(self).get_lr is not GenericAdaptiveOptimizer.get_lr

    def get_last_lr(self) -> list[float | Tensor]:
        """
        Return the schedule's rate at the last step, one per group, computed from the groups' present settings.

        Before the first step it is the rate of step 1. If a scheduler of torch has changed `lr` since the last
        step, that step used another rate.
        """
        return [self.get_lr({"step": group["t"] or 1}, group) for group in self.param_groups]

    def weights_to_update(self, state: State, group: Group, param: Tensor) -> Tensor:
        r"""
        Return the tensor that the step changes: $\theta_{t-1}$ in FP32 or wider, of the shape of `param`.

        * `state` is what is remembered of the parameter; at its first step it is empty
        * `group` is its parameter group
        * `param` is the parameter itself, in any dtype

        For most parameters that is the parameter itself. `MasterWeights` answers with the master copy.
        """
        # A complex number is two real ones. Seen that way, all that follows is the ordinary arithmetic, and
        # `view_as_real` shares the memory, so that the step still happens in place.
        if param.is_complex():
            return torch.view_as_real(param)

        # Half precision without a master copy. The arithmetic is right, but the result is rounded to 16 bits
        # after every step, and what was smaller than half the distance to the next number is gone.
        if param.dtype in HALF:
            if not GenericAdaptiveOptimizer._warned:
                GenericAdaptiveOptimizer._warned = True
                warnings.warn(
                    f"{type(self).__name__} trains {param.dtype} parameters without a master copy: updates under half "
                    "the spacing of their numbers are lost. AdamFP16, or any optimizer with MasterWeights, keeps them.",
                    stacklevel=7,  # the line that called step
                )
            return param.float()
        return param

    # Autograd must not record the step. It would keep every earlier weight alive, and it refuses to have a leaf
    # changed in place at all.
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """
        Take one step for every parameter that has a gradient.

        * `closure` computes the loss and its gradients anew and returns the loss; most training loops need none

        Returns the closure's loss, or `None`. Raises `RuntimeError` for a sparse gradient and for a parameter on
        the meta device, and `ValueError` for a capturable group on several devices, before anything changes.
        Without a loss scaler nobody looks for NaN: such a gradient makes NaN of its weights and of what is
        remembered of them, for good, as in `torch.optim`.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()

        # A loss scaler that leaves the unscaling to us sets `grad_scale` and `found_inf` on the optimizer and
        # deletes both after the step. When a step fails they must not be left for the next one.
        try:
            self._refuse()
            self._step_groups()
        except BaseException:
            self.__dict__.pop("grad_scale", None)
            self.__dict__.pop("found_inf", None)
            raise
        finally:
            _fast.release(self)
            self._has_written()
        return loss

    def _has_written(self) -> None:
        # Called when a step has ended, well or not, for classes that want to know their own writes from others'.
        pass

    def _refuse(self) -> None:
        # What can't work is said now, not halfway through a step. A sparse gradient has no entry for most
        # weights, while the averages of Adam change for every one. A weight on the meta device has a shape and
        # no values. And a group whose step count is a tensor has it on one device.
        for group_number, group in enumerate(self.param_groups):
            if group["fast"] and _fast.is_ready(self, group_number, group):
                continue
            devices = {str(param.device) for param in group["params"]} if group["capturable"] else set()
            if len(devices) > 1:
                raise ValueError(
                    f"capturable=True keeps the step count of a group on its device, and group {group_number} has "
                    f"parameters on {' and '.join(sorted(devices))}: make a group for each"
                )
            for number, param in enumerate(group["params"]):
                grad = param.grad
                if grad is None:
                    continue
                if grad.layout is not torch.strided:
                    raise RuntimeError(
                        f"parameter {number} of group {group_number}, shape {tuple(param.shape)}, has a sparse "
                        f"gradient and {type(self).__name__} needs dense ones: build the embedding with sparse=False, "
                        "or give it to torch.optim.SparseAdam"
                    )
                if param.is_meta:
                    raise RuntimeError(
                        f"parameter {number} of group {group_number}, shape {tuple(param.shape)}, is on the meta "
                        "device and has no values to step from: call to_empty on the model, and load or initialize "
                        "its weights first"
                    )

    def _step_groups(self) -> None:
        grad_scale = getattr(self, "grad_scale", None)
        found_inf = getattr(self, "found_inf", None)

        # **An infinity skips the step for all parameters**: with some of them moved and others not, the weights
        # would be in a place that no loss has ever seen. The host looks at `found_inf` once, unless the groups
        # are capturable; then it stays where it is and the result is undone on the device.
        if found_inf is not None and not all(group["capturable"] for group in self.param_groups):
            if found_inf:
                return
            found_inf = None

        # $t$ counts the steps of the optimizer, not those of a parameter, and is saved with every group. It
        # advances for a group without gradients as well: frozen layers don't stop a schedule. All rates are
        # known before any weight moves, so that a schedule that can't go on stops the whole step.
        plan = []
        for group in self.param_groups:
            device = group["params"][0].device if group["params"] else None
            group["t"] = as_count(group["t"], group["capturable"], device)
            advance = 1 if found_inf is None else 1 - torch.as_tensor(found_inf, device=device).ne(0).float()

            # All that a schedule needs is $t$, so a dictionary that holds nothing else will do.
            plan.append((group, advance, self.get_lr({"step": group["t"] + advance}, group)))

        for number, (group, advance, rate) in enumerate(plan):
            group["t"] += advance

            # This step's rate takes the place of `lr` for everything that follows, weight decay included. The
            # group keeps its own `lr`: that one belongs to the user and to `torch.optim.lr_scheduler`. A rate in a
            # tensor is reckoned with in float64, as one that is a number.
            now = {**group, "lr": in_float64(rate.reshape(()) if isinstance(rate, Tensor) else rate)}

            # [How it is made fast](guides/fast.md): the same update, compiled, for many parameters at once. It
            # returns those that it leaves to the loop.
            if group["fast"]:
                params = _fast.step(self, number, now, grad_scale, found_inf)

            # A parameter that stands in the list twice is one parameter and takes one step.
            else:
                params = [param for param in dict.fromkeys(group["params"]) if param.grad is not None]

            for param in params:
                self._step_one(now, param, param.grad, grad_scale, found_inf)  # type: ignore[arg-type]

    def _step_one(self, group: Group, param: Tensor, grad: Tensor, grad_scale: Any, found_inf: Any) -> None:
        # The state never sees half precision: it is made from, and changed together with, FP32 weights. Whether
        # it is new is asked first, because `weights_to_update` may put a master copy into it.
        state = self.state[param]
        known = bool(state)
        weights = self.weights_to_update(state, group, param)
        if not known:
            self.init_state(state, group, weights)
        elif "step" in state:
            state["step"] = as_count(state["step"], group["capturable"], param.device)
        self._update(state, group, grad, param, weights, grad_scale, found_inf)

    def _update(
        self, state: State, group: Group, grad: Tensor, param: Tensor, weights: Tensor, grad_scale: Any, found_inf: Any
    ) -> None:
        # The gradient comes to the dtype of the weights, and only then is the loss scale taken out:
        # $$g_t = \frac{1}{S}\,\mathrm{fp32}\big(S\,\nabla f(\theta_{t-1})\big)$$
        # Divided in FP16, gradients under $2^{-25}$ would be 0 again, and the scaling would have been for
        # nothing.
        grad = torch.view_as_real(grad) if grad.is_complex() else grad
        grad = grad.to(dtype=weights.dtype)
        if grad_scale is not None:
            grad = grad / torch.as_tensor(grad_scale, device=grad.device)
        if group["maximize"]:
            grad = -grad

        # With `found_inf` on the device nobody here knows whether this step counts. So it is taken: every
        # tensor that it touches is copied before, and put back on the device if it didn't count. Without
        # `found_inf` nothing is copied.
        if found_inf is None:
            self.step_param(state, group, grad, weights)
        else:
            with unchanged_where(found_inf, [weights, *(x for x in state.values() if isinstance(x, Tensor))]):
                self.step_param(state, group, grad, weights)

        # $$\theta^{16}_t = \mathrm{fp16}(\theta_t)$$
        #
        # In place, because others share this memory and have to see the change: views, tied weights, flattened
        # RNN weights, CUDA graphs. Assigning to `param.data` would leave them behind on the old memory, and
        # writing through `param.data` would hide the change from autograd, which then couldn't tell that a
        # saved weight is out of date.
        if param.dtype in HALF:
            self.write_back(state, param, weights)

    def write_back(self, state: State, param: Tensor, weights: Tensor) -> None:
        r"""
        Bring $\theta_t$ into a half-precision parameter, in place.

        * `state` is what is remembered of the parameter
        * `param` is the parameter, FP16 or BF16
        * `weights` holds $\theta_t$ in FP32, of the same shape
        """
        param.copy_(weights)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        # The name that `torch.amp.GradScaler` looks for. With it set, the scaler checks the gradients and
        # leaves the division to the step: two bytes a value and one pass less, and with `capturable` no host
        # read. It is off by default, because trainers that see it refuse to clip gradients or can't tell when a
        # step was skipped.
        return any(group["unscale_in_step"] for group in self.param_groups)

    def load_state_dict(self, state_dict: StateDict) -> None:
        r"""
        Load what `state_dict()` returned, bit for bit.

        `torch.optim.Optimizer` casts every tensor of the state to the dtype of its parameter. For a
        half-precision parameter that makes FP16 of FP32 averages: a second moment under $3 \times 10^{-8}$
        becomes 0, $\epsilon$ is 0 in FP16 as well, and the next step divides by 0. So torch is handed the
        groups, and the state is put in place here, at its own precision.

        * `state_dict` is a checkpoint of this class, of its counterpart without master weights, of
          `torch.optim.Adam`, `AdamW` or `RAdam`, or of labml_nn's optimizers (see [Checkpoints from
          elsewhere](guides/resume.md#checkpoints-from-elsewhere)). Settings in the checkpoint replace those of
          the constructor; what it doesn't name stays.

        Raises `ValueError`, naming group, parameter and key, when something is missing, left over or of another
        shape; then nothing has changed.
        """
        loaded: dict[Tensor, State] = {}

        def read(optimizer: Optimizer, state_dict: StateDict) -> StateDict:
            groups, state = _checkpoint.read(self, state_dict)
            loaded.update(state)
            return {**state_dict, "state": {}, "param_groups": groups}

        def put_back(optimizer: Optimizer) -> None:
            self.state.update(loaded)

        # The hooks of others stay in force: the last one before loading hands us what they made of the
        # checkpoint, the first one after it lets them see FP32.
        before = self.register_load_state_dict_pre_hook(read)
        after = self.register_load_state_dict_post_hook(put_back, prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()


def check_number(name: str, value: Any, range_: str, is_right: Callable[[Any], bool]) -> None:
    """
    Raise a `TypeError` or `ValueError` that names the setting `name` unless `value` is a number that
    `is_right`.

    * `range_` says in words what right is
    """
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not is_right(value):
        raise ValueError(f"{name} must be {range_}, not {value}")


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("optimizer")
