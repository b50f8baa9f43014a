r"""
# Sophia

Gradient over curvature, cut off at the learning rate: long steps where the loss is flat, short ones where it is
steep, and none longer than $\alpha$ where the estimate of the curvature fails.

Paper: [Sophia: A Scalable Stochastic Second-order Optimizer for Language Model
Pre-training](https://arxiv.org/abs/2305.14342), Liu et al., 2023, arXiv 2305.14342; this is its variant
Sophia-G

$$\begin{aligned}
\hat h_t &= B\, \nabla \hat L(\theta) \odot \nabla \hat L(\theta) \\
h_t &= \beta_2 h_{t-k} + (1 - \beta_2)\, \hat h_t \\
\theta_t &= \theta_{t-1} - \alpha\, \mathrm{clip}\Big(\frac{m_t}{\rho\, h_t + \epsilon},\, 1\Big)
\end{aligned}$$

**Use it when** a model with a cross-entropy loss is trained for long, a language model above all: every tenth
step it takes a second backward pass.

**Don't when** the loss has no labels that the model could draw itself, or the training loop is not yours:
without `update_hessian` this is descent by the sign of the gradient.

![How far a step goes, in learning rates, against the curvature $h$, for two gradients. Where the curvature is
small the step is clipped to one learning rate; from $h = m / \rho$ on it falls like $1 / h$.](figures/sophia.svg)

```symbols
g_t      | grad             | gradient of the loss                                  | FP32 or wider | y1
m_t      | m, exp_avg       | running mean of the gradient                          | FP32 or wider | y2
h_t      | h, hessian       | running mean of the curvature (diagonal of the Hessian) | FP32 or wider | y3
\theta_t | param            | parameters                                            | FP32 or wider | y5
\alpha   | lr               | learning rate, the longest step                       | number        | y6
\rho     | rho              | share of the curvature that a step reckons with       | number        | y7
B        | n, n_tokens_training_batch | predictions in the batch                    | number        | y4
```

## Why divide by the curvature

Along one weight the loss is a parabola, near enough: slope $m$, curvature $h$. Its lowest point is $m / h$
away, and Newton's method jumps there. Adam divides by the size of the gradient instead, so it steps by about
$\alpha$ in flat and steep directions alike; in the flat ones that is too little, in the steep ones so much that
it jumps to and fro across the valley. Newton's method has a weakness of its own: where $h$ is near 0, or old,
the jump is wild. So Sophia clips each coordinate. It never moves a weight by more than $\alpha$, and only where
the curvature is large beside the gradient, $\rho\, h > \lvert m \rvert$, does it step by
$\frac{\alpha}{\rho} \frac{m}{h}$.

## Whose labels

The curvature is estimated from the gradient of
$$\hat L(\theta) = \frac{1}{B} \sum_{b=1}^{B} \ell\big(f(\theta, x_b),\, \hat y_b\big) \qquad
\hat y_b \sim \mathrm{softmax}\, f(\theta, x_b)$$
and the labels $\hat y_b$ in it are *drawn from the model's own prediction*. The labels of the data won't do.
For labels that the model draws, the mean of the squared gradient is a curvature: the diagonal of the
Gauss-Newton matrix, that part of the Hessian that is never negative (Bartlett's identity). For the labels of
the data it is only the size of the gradient. Where the model gives the right answer a probability of
$p = 0.99$, the curvature along that logit is $p\, (1 - p) = 0.0099$, and the square of the gradient is
$(1 - p)^2 = 0.0001$: the better the model fits, the more of the curvature is missed.

It needs no gradient for each example either. With labels of its own the model is right on average, so the
gradient of every single prediction has the mean 0. In the square of their mean,
$\big(\frac{1}{B} \sum_b g_b\big)^2$, the products of different predictions cancel out on average, and what is
left is $\frac{1}{B}$ times the mean of the $g_b^2$. Hence the square of the *mini-batch* gradient, times $B$:
the gradient that one backward pass gives.

## How to train with it

```python
import torch
from torch.nn.functional import cross_entropy
from labml_opt import Sophia

optimizer = Sophia(model.parameters(), lr=1e-3, weight_decay=0.1)
every = 10

for step, (x, y) in enumerate(batches):
    if step % every == 0:
        logits = model(x)
        labels = torch.distributions.Categorical(logits=logits.detach()).sample()
        cross_entropy(logits, labels).backward()
        optimizer.update_hessian(labels.numel())
        optimizer.zero_grad()

    cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
```

The first look at the curvature comes *before* the first step, the next ones every $k = 10$ steps. Each is one
more forward and backward pass, a tenth more in all; a part of the batch is enough. Don't clip those gradients:
a clipped gradient has another square. A language model predicts at every position, so its $B$ counts tokens,
not texts: `labels.numel()` is right for both, as long as the loss is the *mean* over them. Averaged over
several machines, or over several backward passes, it counts the tokens of all.

## With a loss scaler

A loss that was multiplied by $S$ has gradients that are $S$ times too large, and squares that are $S^2$ times
too large: with $S = 2^{16}$ four billion times. Steps would be shorter by as much. So hand the scaler over, and
`update_hessian` unscales, and tells the scaler about an overflow:

```python
class SophiaFP16(MasterWeights, Sophia):
    pass

scaler.scale(cross_entropy(logits.float(), labels)).backward()
counted = optimizer.update_hessian(labels.numel(), scaler=scaler)
optimizer.zero_grad()
```

After an overflow `counted` is `False`. A scaler begins with a large $S$, so that often happens at the very first
look; then look again, with the next batch, before the first step.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from labml_opt._counts import as_count, unchanged_where
from labml_opt._shards import everywhere
from labml_opt.optimizer import GenericAdaptiveOptimizer, Group, Options, State, WeightDecay, check_number, decay


class Sophia(GenericAdaptiveOptimizer):
    r"""
    **The optimizer.** State for each parameter: `step`, `exp_avg` and `hessian`, as large as Adam's. It is the
    only optimizer here that wants something of the training loop: that it calls `update_hessian`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.965, 0.99),
        eps: float = 1e-16,
        rho: float = 0.04,
        weight_decay: WeightDecay | float = WeightDecay(),
        defaults: dict[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        r"""
        * `params` is an iterable of parameters or groups: FP16, BF16, FP32, FP64 or complex, any shape
        * `lr` is $\alpha \ge 0$, a number or a tensor with one value: decay apart, no weight moves farther in a
          step
        * `betas` is $(\beta_1, \beta_2)$, each in $[0, 1)$; $\beta_2$ counts looks at the curvature, not steps
        * `eps` is $\epsilon \ge 0$; it only has to keep $0 / 0$ away
        * `rho` is $\rho > 0$: the larger it is, the fewer coordinates are clipped; the paper calls it $\gamma$
        * `weight_decay` is a `WeightDecay`, or a number that means `WeightDecay(number)`
        * `defaults` holds settings of classes that extend this one
        * `options` are those of [the base class](optimizer.md#Options)

        Raises `ValueError` or `TypeError` with the name of the argument that is out of its range. Paper: [arXiv
        2305.14342](https://arxiv.org/abs/2305.14342), algorithm 3.
        """
        settings = {**(defaults or {}), **WeightDecay.of(weight_decay).defaults(), "rho": rho}
        super().__init__(params, defaults=settings, lr=lr, betas=betas, eps=eps, **options)

    def check_settings(self, group: Group) -> None:
        r"""
        * `group` is a parameter group; each may have a $\rho$ of its own

        Raises `ValueError` or `TypeError` for a `rho` that is 0, negative, infinite or NaN: with $\rho = 0$ the
        curvature would be asked for, and never used.
        """
        super().check_settings(group)
        check_number("rho", group["rho"], "more than 0 and finite", lambda x: 0 < x < math.inf)

    def init_state(self, state: State, group: Group, param: Tensor) -> None:
        r"""
        * `state` is filled with $t = 0$, $m_0 = 0$ and $h_0 = 0$
        * `group` is the parameter group
        * `param` is $\theta_0$ in FP32 or wider; both averages take its shape, layout and dtype
        """
        state["step"] = as_count(0, group["capturable"], param.device)
        state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        state["hessian"] = torch.zeros_like(param, memory_format=torch.preserve_format)

    @torch.no_grad()
    def update_hessian(
        self, n_tokens_training_batch: float, scaler: torch.amp.GradScaler | None = None
    ) -> bool | Tensor:
        r"""
        Take the gradients that are there, of $\hat L$, into the curvature. Weights and $m$ stay as they are.

        * `n_tokens_training_batch` is $B > 0$, the number of predictions over which $\hat L$ is the mean
        * `scaler` is the loss scaler that multiplied $\hat L$, if one did. Its `unscale_` is called here before
          the squaring and its `update` after it, so call this between two steps, not between `unscale_` and
          `step`. If you have called `unscale_` yourself, leave `scaler` out, and call `update` before the next
          backward pass

        One scaler for several optimizers may change $S$ only when all of them have unscaled. Then call `unscale_`
        for each, this method for each without `scaler`, and `update` once.

        Returns whether the gradients counted: `False` after an overflow, when nothing has changed (with
        `capturable` the answer is a tensor and stays on the device).

        Raises `RuntimeError` when no parameter has a gradient, when one is sparse, or when they are still
        multiplied by a loss scale, as far as that can be seen: in FP16, or with `unscale_in_step`. An FP32
        gradient doesn't show it. Raises `ValueError` or `TypeError` for a bad $B$. Paper: [arXiv
        2305.14342](https://arxiv.org/abs/2305.14342), algorithm 2.
        """
        n = n_tokens_training_batch
        check_number("n_tokens_training_batch", n, "more than 0 and finite", lambda x: 0 < x < math.inf)
        self._refuse()
        self._refuse_scaled(scaler)
        if scaler is not None:
            scaler.unscale_(self)

        estimates = [
            (group, param, _in_float(param.grad))
            for group in self.param_groups
            for param in dict.fromkeys(group["params"])
            if param.grad is not None
        ]

        # **An overflow skips the update**, for all parameters. One infinite square would stay infinite in the
        # running mean for ever, and its weight would stand still for ever. So nothing is taken in unless every
        # $B\, g^2$ is a number that FP32 can hold; a comparison with NaN is false, so NaN is caught as well. Of a
        # weight that is spread over several processes all of them get the same answer.
        largest = math.sqrt(torch.finfo(torch.float32).max / n)
        device = estimates[0][1].device
        small_enough = [everywhere(grad.abs().le(largest).all()).to(device) for _, _, grad in estimates]
        good = torch.stack(small_enough).all()

        # The host looks at the answer once, unless the groups are `capturable`. Then what has been done is undone
        # on the device if it didn't count.
        capturable = all(group["capturable"] for group in self.param_groups)
        if capturable or good:
            for group, param, grad in estimates:
                self._take_in(group, param, grad, n, good.logical_not() if capturable else None)

        # The scaler halves $S$ if there was an overflow, and is ready for the next loss.
        if scaler is not None:
            scaler.update()
        return good if capturable else bool(good)

    def _refuse_scaled(self, scaler: torch.amp.GradScaler | None) -> None:
        grads = [param.grad for group in self.param_groups for param in group["params"] if param.grad is not None]
        name = f"{type(self).__name__}.update_hessian"
        if not grads:
            raise RuntimeError(
                f"no parameter of this {type(self).__name__} has a gradient: {name} squares the gradients of a loss "
                "whose labels the model has drawn itself, so call backward() on that loss first"
            )

        # `unscale_` leaves FP32 gradients behind, so FP16 ones can't have been unscaled. If there never was a
        # scale they are no better: a small square of FP16 is 0.
        if scaler is not None:
            return
        if any(grad.dtype is torch.float16 for grad in grads):
            raise RuntimeError(
                "the gradients are FP16, so they are still multiplied by the loss scale, and their squares by its "
                f"square: hand the scaler over, {name}(n, scaler=scaler). Without a loss scaler FP16 gradients lose "
                "what is small: use GradScalerFP16"
            )
        if self._step_supports_amp_scaling:
            raise RuntimeError(
                f"unscale_in_step=True leaves the unscaling to the step, and {name} squares the gradients before it: "
                f"hand the scaler over, {name}(n, scaler=scaler)"
            )

    def _take_in(self, group: Group, param: Tensor, grad: Tensor, n: float, skip: Tensor | None) -> None:
        # The curvature may be asked for before the first step, so the state may have to be made here.
        state = self.state[param]
        if not state:
            self.init_state(state, group, self.weights_to_update(state, group, param))
        _, beta2 = group["betas"]
        h = state["hessian"]
        grad = grad.to(h.dtype)

        # $$\hat h_t = B\, \nabla \hat L(\theta) \odot \nabla \hat L(\theta)$$
        # $$h_t = \beta_2 h_{t-k} + (1 - \beta_2)\, \hat h_t$$
        #
        # A single estimate is a product of chance: its labels were drawn once. The mean of the last hundred
        # looks ($\beta_2 = 0.99$) is steadier, and curvature changes slowly enough for that. Like $m$ it starts
        # at 0 and isn't corrected. The first estimates count for a hundredth each, $h$ is too small, and more
        # coordinates are clipped than later on.
        with unchanged_where(skip, [h]):
            h.mul_(beta2).addcmul_(grad, grad, value=(1 - beta2) * n)

    def step_param(self, state: State, group: Group, grad: Tensor, param: Tensor) -> None:
        r"""
        The whole step: decay, mean, clipped quotient.

        * `state` is what `init_state` made, as the last step or the last look at the curvature left it
        * `group` is the parameter group, `lr` in it the rate of this step
        * `grad` is $g_t$, in the shape and dtype of `param`
        * `param` is $\theta_{t-1}$ in FP32 or wider, and becomes $\theta_t$ in place
        """
        grad = decay(param, grad, group)
        beta1, _ = group["betas"]
        m, h = state["exp_avg"], state["hessian"]
        state["step"] += 1

        # $$m_t = \beta_1 m_{t-1} + (1 - \beta_1)\, g_t$$
        #
        # The numerator must be steadier than Adam's. Adam divides noise by the size of the noise; here nothing
        # but the clipping stands against it, so $\beta_1 = 0.965$ looks back over some thirty gradients.
        m.lerp_(grad, 1 - beta1)

        # **Before the first look at the curvature** $h$ is 0, every quotient is huge and is clipped: each
        # weight moves by the full $\alpha$, in the direction of the sign, be its gradient 1 or $10^{-9}$. That
        # goes on for ever if nobody calls `update_hessian`, so a first step without curvature warns. With
        # `capturable` it doesn't: the answer is on the device.
        if not group["capturable"] and state["step"] == 1 and m.any() and not h.any():
            warnings.warn(
                f"{type(self).__name__} takes a step and its Hessian is still 0: every weight moves by the full "
                "learning rate, however small its gradient. Call update_hessian before the first step and then every "
                "10 steps.",
                stacklevel=8,  # the line that called step
            )

        # $$\theta_t = \theta_{t-1} - \alpha\, \mathrm{clip}\Big(\frac{m_t}{\rho\, h_t + \epsilon},\, 1\Big)$$
        # $$\mathrm{clip}(z, 1) = \max(-1, \min(z, 1))$$
        #
        # Where $\rho\, h_t$ is larger than $\lvert m_t \rvert$ this is a damped step of Newton's method.
        # Anywhere else, in flat directions, at saddle points or with an $h$ that has become wrong since the
        # last look, it is the sign of $m_t$, and a wrong curvature can do no more harm than a step of $\alpha$.
        # The paper divides by the larger of $\rho\, h_t$ and $\epsilon$, the authors' code by their sum, as here.
        # $\rho$ says how many coordinates are clipped: if all of them are, the curvature is without effect and
        # $\rho$ is too small; if none is, steps are shorter than they need be.
        quotient = m / (h * group["rho"] + group["eps"])
        param.sub_(quotient.clamp_(-1, 1).mul_(group["lr"]))


def _in_float(grad: Tensor) -> Tensor:
    # A complex number is two real ones, and each has a curvature of its own. FP16 and BF16 are widened before
    # they are squared.
    grad = torch.view_as_real(grad) if grad.is_complex() else grad
    return grad.to(torch.promote_types(grad.dtype, torch.float32))


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("sophia")
