r"""
# Adam

Two running averages for each weight, of the gradient and of its square, and a step that is the quotient of the
one and the root of the other: about as long as the learning rate says, whatever the size of the gradients.

Paper: [Adam: A Method for Stochastic Optimization](https://arxiv.org/abs/1412.6980), Kingma and Ba, 2014, arXiv
1412.6980

$$\theta_t = \theta_{t-1} - \alpha\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}$$

**Use it when** gradients differ in size from weight to weight, as they do in almost every deep network, and you
don't want to find a rate for each.

**Don't when** the parameters are FP16 or BF16: take [AdamFP16](adam_fp16.md), or small updates are lost.

![A mean that starts at 0 is too small by the factor 1 − βᵗ. Dashed and dotted: the two means as they are; solid:
divided by that factor, right from the first step. Below, what the correction does to the length of a
step.](figures/adam.svg)

```symbols
g_t      | grad          | gradient of the loss                        | FP32 or wider | y1
m_t      | m, exp_avg    | running mean of the gradient (first moment) | FP32 or wider | y2
v_t      | v, exp_avg_sq | running mean of its square (second moment)  | FP32 or wider | y3
\theta_t | param         | parameters                                  | FP32 or wider | y5
\alpha   | lr            | learning rate                               | number        | y6
\beta_1  | beta1         | decay of the first moment                   | number        | y7
\beta_2  | beta2         | decay of the second moment                  | number        | y4
t        | step          | gradients in the moments, from 1            | number        | y8
```

## Why divide by the root of the squared gradients

The mean $m_t$ says where to go; $\sqrt{v_t}$ says how large gradients usually are. Their quotient has no unit:
multiply the loss by a thousand, and nothing changes. If all gradients agree it is 1 and the weight moves by
$\alpha$; if they contradict each other it is near 0. So $\alpha$ is a length in the space of weights, which is
why one value works for layers whose gradients differ by orders of magnitude.

## How far a step can go

Both moments are weighted sums of the past (`bias_correction` below writes one out), and the Cauchy-Schwarz
inequality bounds the first by the root of the second. So no gradients at all can take a step longer than
$$\lvert\theta_t - \theta_{t-1}\rvert \le \alpha\, \frac{1 - \beta_1}{\sqrt{(1 - \beta_2)\,(1 - \beta_1^2 / \beta_2)}}$$
once the corrections have faded, provided that $\beta_1^2 < \beta_2$. With $\beta_1 = 0.9$ and $\beta_2 = 0.999$
that is $7.27\,\alpha$, reached by gradients that grow by the factor $\beta_2 / \beta_1$ from step to step. The
paper gives $\alpha\,(1 - \beta_1) / \sqrt{1 - \beta_2} = 3.16\,\alpha$. That is the step of a single gradient
after a long silence; gradients that grow go further.

![Steps in units of α. Gradients that grow by β₂/β₁ a step reach the bound; a single gradient after 10,000
zeros reaches 3.16.](figures/adam_step.svg)
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from labml_opt._counts import addcdiv_, as_count, in_float64
from labml_opt.optimizer import GenericAdaptiveOptimizer, Group, Options, State, WeightDecay, decay


def bias_correction(beta: float, t: int | Tensor) -> Any:
    r"""
    Return the factor by which a running mean that started at 0 is too small.

    * `beta` is the decay of the mean
    * `t` is the number of values it has seen, from 1

    Returns $1 - \beta^t$, in float64 where the device has it.
    """
    # Written out, the mean is a weighted sum of all gradients so far:
    # $$m_t = (1 - \beta) \sum_{i=1}^{t} \beta^{t-i} g_i$$
    # Its weights are a geometric series. Were all gradients the same $g$, the sum would be
    # $$m_t = (1 - \beta)\, \frac{1 - \beta^t}{1 - \beta}\, g = (1 - \beta^t)\, g$$
    # so the mean is too small by exactly the factor $1 - \beta^t$: the weight $\beta^t$ still lies on the 0 it
    # started from. For gradients that vary the same holds on average. Dividing by the factor takes the 0 out:
    # $$\hat m_t = \frac{m_t}{1 - \beta_1^t} \qquad \hat v_t = \frac{v_t}{1 - \beta_2^t}$$
    # Without it the first step would be $(1-\beta_1)/\sqrt{1-\beta_2} = 3.16$ times as long as it should be.
    return 1 - beta ** in_float64(t)


class Adam(GenericAdaptiveOptimizer):
    r"""
    **The optimizer.** State for each parameter: `step`, `exp_avg`, `exp_avg_sq`, named as in
    `torch.optim.Adam`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-16,
        weight_decay: WeightDecay | float = WeightDecay(),
        optimized_update: bool = True,
        defaults: dict[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        r"""
        * `params` is an iterable of parameters or groups: FP16, BF16, FP32, FP64 or complex, any shape
        * `lr` is $\alpha \ge 0$, a number or a tensor with one value: about how far a weight moves in a step
        * `betas` is $(\beta_1, \beta_2)$, each in $[0, 1)$
        * `eps` is $\epsilon \ge 0$, or $\hat\epsilon$ with `optimized_update`
        * `weight_decay` is a `WeightDecay`, or a number that means `WeightDecay(number)`
        * `optimized_update` chooses the order of operations in `adam_update` below; `False` is the formula at
          the head of this page
        * `defaults` holds settings of classes that extend this one
        * `options` are those of [the base class](optimizer.md#Options)

        The default $\epsilon$ is small enough never to matter beside a gradient that does: FP32 holds it, FP16
        wouldn't. `Adam(params, optimized_update=False, eps=1e-8)` computes what `torch.optim.Adam` computes, up
        to the rounding of the last digits, and with `weight_decay=0.01` what `torch.optim.AdamW` does.

        Raises `ValueError` or `TypeError` with the name of the argument that is out of its range. Paper: [arXiv
        1412.6980](https://arxiv.org/abs/1412.6980).
        """
        settings = {
            **(defaults or {}),
            **WeightDecay.of(weight_decay).defaults(),
            "optimized_update": optimized_update,
        }
        super().__init__(params, defaults=settings, lr=lr, betas=betas, eps=eps, **options)

    def init_state(self, state: State, group: Group, param: Tensor) -> None:
        r"""
        * `state` is filled with $t = 0$, $m_0 = 0$ and $v_0 = 0$
        * `group` is the parameter group
        * `param` is $\theta_0$ in FP32 or wider; the moments take its shape, layout and dtype
        """
        # Each parameter has its own count: the correction has to know how many gradients *this* mean has seen.
        state["step"] = as_count(0, group["capturable"], param.device)
        state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(param, memory_format=torch.preserve_format)

    def get_mv(self, state: State, group: Group, grad: Tensor) -> tuple[Tensor, Tensor]:
        r"""
        Take the gradient into both moments, in place.

        * `state` holds $m_{t-1}$ and $v_{t-1}$
        * `group` holds `betas`
        * `grad` is $g_t$, same shape and dtype as the moments

        Returns $m_t$ and $v_t$.
        """
        beta1, beta2 = group["betas"]
        m, v = state["exp_avg"], state["exp_avg_sq"]

        # $$m_t = \beta_1 m_{t-1} + (1 - \beta_1)\, g_t$$
        #
        # A running mean of the gradient. With $\beta_1 = 0.9$ the past loses half its weight every 7 steps, so
        # one odd mini-batch has a tenth of the say and is soon forgotten.
        m.lerp_(grad, 1 - beta1)

        # $$v_t = \beta_2 v_{t-1} + (1 - \beta_2)\, g_t^2$$
        #
        # The same for the square, element by element, with a longer memory: $\beta_2 = 0.999$ halves it every
        # 693 steps. A size can be judged only over many gradients, and a divisor that jumped about would make
        # every step a surprise.
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)

        return m, v

    def adam_update(self, state: State, group: Group, param: Tensor, m: Tensor, v: Tensor) -> None:
        r"""
        Move the weights, in place.

        * `state` holds $t$, the step being taken
        * `group` holds $\alpha$, the betas and $\epsilon$
        * `param` is $\theta_{t-1}$ and becomes $\theta_t$
        * `m` and `v` are $m_t$ and $v_t$, same shape and dtype
        """
        beta1, beta2 = group["betas"]
        correction1 = bias_correction(beta1, state["step"])
        correction2 = bias_correction(beta2, state["step"])

        # **The optimized order.**
        # $$\theta_t = \theta_{t-1} - \alpha\, \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t}\,
        # \frac{m_t}{\sqrt{v_t} + \hat\epsilon}$$
        #
        # Both corrections are numbers, so they can be taken out of the quotient, and one pass over the weights
        # is saved. It is the same rule only with $\hat\epsilon = \epsilon \sqrt{1 - \beta_2^t}$. With a
        # constant $\hat\epsilon$ the constant is 32 times as strong at the first step as the $\epsilon$ below.
        # As long as it is tiny beside $\sqrt{v_t}$, as the default is, nobody can tell; with an $\epsilon$ of
        # 0.1, chosen to damp small gradients, these are two different optimizers.
        if group["optimized_update"]:
            denominator = v.sqrt().add_(group["eps"])
            step_size = group["lr"] * correction2**0.5 / correction1

        # **The order of the paper**, and of `torch.optim.Adam`.
        # $$\theta_t = \theta_{t-1} - \alpha\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}$$
        #
        # $\epsilon$ stands outside the root and after the correction. Where it is tiny, all it has to do is to
        # keep a weight that never saw a gradient at $0 / \epsilon = 0$.
        else:
            denominator = v.sqrt().div_(correction2**0.5).add_(group["eps"])
            step_size = group["lr"] / correction1

        # The quotient has no unit, the step size has that of the weights. Multiplied, divided and added in one
        # pass: memory is slower than arithmetic, and each pass over it costs what the whole formula does.
        addcdiv_(param, m, denominator, value=-step_size)

    def step_param(self, state: State, group: Group, grad: Tensor, param: Tensor) -> None:
        r"""
        The whole step: decay, moments, update.

        * `state` is what `init_state` made, as the last step left it
        * `group` is the parameter group, `lr` in it the rate of this step
        * `grad` is $g_t$, in the shape and dtype of `param`
        * `param` is $\theta_{t-1}$ in FP32 or wider, and becomes $\theta_t$ in place
        """
        # Decay comes first: coupled decay belongs in the gradient before the moments see it, and decoupled
        # decay acts on $\theta_{t-1}$, as in `torch.optim.AdamW`.
        grad = decay(param, grad, group)

        m, v = self.get_mv(state, group, grad)

        # $t$ counts the gradients in the moments, this one included. At $t = 0$ the corrections would divide by
        # 0.
        state["step"] += 1

        self.adam_update(state, group, param, m, v)


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("adam")
