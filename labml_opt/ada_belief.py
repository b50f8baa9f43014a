r"""
# AdaBelief

Adam divides by how large gradients are, AdaBelief by how far they are from what was expected. Where they agree
the step is long, where they contradict each other it is short.

Paper: [AdaBelief Optimizer: Adapting Stepsizes by the Belief in Observed
Gradients](https://arxiv.org/abs/2010.07468), Zhuang et al., 2020, arXiv 2010.07468

$$\begin{aligned}
s_t &= \beta_2 s_{t-1} + (1 - \beta_2)\, (g_t - m_t)^2 \\
\theta_t &= \theta_{t-1} - \alpha\, r_t\, \frac{\hat m_t}{\sqrt{\hat s_t} + \epsilon} \qquad
\hat s_t = \frac{s_t + \epsilon}{1 - \beta_2^t}
\end{aligned}$$

**Use it when** you would take Adam, and gradients change little from step to step beside their size: large
batches, slopes that go one way for long.

**Don't when** gradients are almost the same for thousands of steps, as without mini-batches: nothing bounds the
step as it does in Adam, only $\epsilon$.

![The length of a step, in learning rates, for a gradient that swings about its mean. Where it swings more than
the mean itself, AdaBelief and Adam do the same; where it swings less, Adam's step stays one learning rate and
AdaBelief's grows.](figures/ada_belief.svg)

```symbols
g_t      | grad           | gradient of the loss                          | FP32 or wider | y1
m_t      | m, exp_avg     | running mean of the gradient (first moment)   | FP32 or wider | y2
s_t      | s, exp_avg_var | running mean of the squared surprise          | FP32 or wider | y3
\theta_t | param          | parameters                                    | FP32 or wider | y5
\alpha   | lr             | learning rate                                 | number        | y6
\beta_1  | beta1          | decay of the first moment                     | number        | y7
\beta_2  | beta2          | decay of the mean of the squares              | number        | y4
\epsilon | eps            | floor of the divisor, in two places           | number        | y8
```

## What is believed

The mean $m_t$ is a forecast: the next gradient will be about like this. A gradient near the forecast confirms
it, and one may walk on boldly; a gradient far from it says that the forecast is worth little here. The
difference $g_t - m_t$ is the surprise, and its mean square takes the place of $v_t$. Three cases show what
changes.

* **Steep, and steady**: a large gradient, the same at each step. Adam's divisor is as large as the gradient,
  and the step is $\alpha$. AdaBelief isn't surprised, and its step is longer.
* **A narrow valley**: the gradient across it is large and changes its sign at each step. The mean is near 0,
  both divisors are large, and both steps are short.
* **Flat, and steady**: a small gradient, the same at each step. The size of the gradient cancels in both, so the
  steps are those of the steep case: long ones, where plain gradient descent would creep.

So the two differ where the gradient is large beside its own changes. Where noise is much
larger than the mean, as with small batches, $(g_t - m_t)^2$ is nearly $g_t^2$, and AdaBelief does what Adam does:
in noise alone the surprise is 0.85 of the square on average, and the step 8% longer.

## No bound but epsilon

In Adam $\hat m_t / \sqrt{\hat v_t}$ can't leave [a narrow range](adam.md#how-far-a-step-can-go), because the
divisor contains the very gradients of the mean. Here it doesn't. A gradient that never changes surprises less
and less: with the defaults the step is 1.1 learning rates long at $t = 100$, 13 at $t = 1000$ and 2300 at
$t = 10\,000$. Real gradients are never as steady, but an $\epsilon$ is chosen with that in mind. It is the
floor of $s_t$, and so the smallest surprise that counts.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from labml_opt._counts import as_count
from labml_opt.optimizer import Group, Options, State, WeightDecay
from labml_opt.radam import RAdam


class AdaBelief(RAdam):
    r"""
    **Adam's quotient with another divisor**, rectified as in [RAdam](radam.md). State for each parameter:
    `step`, `exp_avg`, `exp_avg_var`, and `max_exp_avg_var` where `amsgrad` is on, named as in the authors'
    code. `exp_avg_var` isn't Adam's `exp_avg_sq`, so a checkpoint of the one isn't taken for one of the other.
    For FP16 and BF16 weights write `class AdaBeliefFP16(MasterWeights, AdaBelief): pass`;
    [MasterWeights](adam_fp16.md#MasterWeights) does the rest.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-16,
        weight_decay: WeightDecay | float = WeightDecay(),
        amsgrad: bool = False,
        degenerate_to_sgd: bool = True,
        rectify: bool = True,
        defaults: dict[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        r"""
        * `eps` is $\epsilon \ge 0$; it stands under a root, so $10^{-16}$ here is Adam's $10^{-8}$
        * `amsgrad` divides by the largest $s$ so far, as [AMSGrad](amsgrad.md) does by the largest $v$
        * `degenerate_to_sgd` is RAdam's `degenerated_to_sgd`: what a rectified run does in its first steps,
          gradient descent with momentum or nothing (`False`)
        * `rectify` shortens the first steps as [RAdam](radam.md) does; `False` is the paper's algorithm, with
          $r_t = 1$
        * all other arguments are those of [Adam](adam.md)

        The order of operations is the paper's. There is no `optimized_update` to choose: it would move an
        $\epsilon$ that already stands in two places.

        Raises `ValueError` or `TypeError` with the name of the argument that is out of its range. Paper: [arXiv
        2010.07468](https://arxiv.org/abs/2010.07468), algorithm 2.
        """
        # By name, each of them. RAdam has an argument that this class hasn't, and by position everything after
        # it would arrive one place too early: `degenerate_to_sgd=True` would turn on AMSGrad.
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            optimized_update=False,
            amsgrad=amsgrad,
            degenerated_to_sgd=degenerate_to_sgd,
            defaults={**(defaults or {}), "rectify": rectify},
            **options,
        )

    def init_state(self, state: State, group: Group, param: Tensor) -> None:
        r"""
        * `state` is filled with $t = 0$, $m_0 = 0$ and $s_0 = 0$
        * `group` says whether the maximum is on
        * `param` is $\theta_0$ in FP32 or wider; the means take its shape, layout and dtype
        """
        state["step"] = as_count(0, group["capturable"], param.device)
        state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        state["exp_avg_var"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        if group["amsgrad"]:
            state["max_exp_avg_var"] = torch.zeros_like(param, memory_format=torch.preserve_format)

    def get_mv(self, state: State, group: Group, grad: Tensor) -> tuple[Tensor, Tensor]:
        r"""
        Take the gradient into both means, in place.

        * `state` holds $m_{t-1}$ and $s_{t-1}$
        * `group` holds `betas`, `eps` and `amsgrad`
        * `grad` is $g_t$, same shape and dtype as the means. Coupled decay is in it already: the forecast and
          the surprise are of the same gradient, the decayed one

        Returns $m_t$ and $s_t + \epsilon$.
        """
        beta1, beta2 = group["betas"]
        m, s = state["exp_avg"], state["exp_avg_var"]

        # $$m_t = \beta_1 m_{t-1} + (1 - \beta_1)\, g_t$$
        m.lerp_(grad, 1 - beta1)

        # $$s_t = \beta_2 s_{t-1} + (1 - \beta_2)\, (g_t - m_t)^2$$
        #
        # The forecast is the new mean, which knows $g_t$ already. It makes no difference but a factor:
        # $$g_t - m_t = \beta_1\, (g_t - m_{t-1})$$
        # With $\beta_1 = 0$ nothing could surprise, and the divisor would be $\epsilon$ alone.
        surprise = grad - m
        s.mul_(beta2).addcmul_(surprise, surprise, value=1 - beta2)

        if group["amsgrad"]:
            s_max: Tensor = state["max_exp_avg_var"]
            torch.maximum(s_max, s, out=s_max)
            s = s_max

        # **The second $\epsilon$**, under the root; Adam's is outside, and is there as well. A floor of
        # $10^{-16}$ under the root is one of $10^{-8}$ outside: Adam's usual $\epsilon = 10^{-8}$, put in here,
        # would be a floor of $10^{-4}$, and many gradients are smaller.
        #
        # It is added to what is handed on and not to the state. The paper adds it in the line of $s_t$, and the
        # authors' code in place, so that it is added again at every step: after a thousand steps with
        # $\beta_2 = 0.999$ there are 632 of them in the mean, in the end a thousand. With $10^{-16}$ hardly
        # anybody can tell; with $10^{-8}$ no surprise under $\sqrt{10^{-5}} \approx 0.003$ counts any more. One
        # of the authors has called it an oversight since, and here the mean stays a mean.
        return m, s + group["eps"]

    def r_adam_update(self, state: State, group: Group, param: Tensor, m: Tensor, v: Tensor) -> None:
        r"""
        Move the weights, in place.

        * `state` holds $t$, the number of gradients in the means
        * `group` holds $\alpha$, the betas, $\epsilon$ and `rectify`
        * `param` is $\theta_{t-1}$ and becomes $\theta_t$
        * `m` and `v` are $m_t$ and $s_t + \epsilon$, same shape and dtype
        """
        # $$\theta_t = \theta_{t-1} - \alpha\, r_t\, \frac{\hat m_t}{\sqrt{\hat s_t} + \epsilon}$$
        #
        # [RAdam](radam.md#RAdam.r_adam_update)'s update, and without `rectify`
        # [Adam's](adam.md#Adam.adam_update). Neither knows that its divisor is no mean of squared gradients.
        # RAdam's $r_t$ was derived for one that is; it is a warm-up here, as good as any. As long as there is
        # no $r_t$, in the first five steps, RAdam's step is $\alpha\, \hat m_t$, or none.
        if group["rectify"]:
            super().r_adam_update(state, group, param, m, v)
        else:
            self.adam_update(state, group, param, m, v)


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("ada_belief")
