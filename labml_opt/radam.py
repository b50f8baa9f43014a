r"""
# RAdam

Adam's divisor is a mean over few gradients at first, and its variance is large. RAdam computes how large, and
makes each step shorter by that much: a warm-up without a length to choose.

Paper: [On the Variance of the Adaptive Learning Rate and Beyond](https://arxiv.org/abs/1908.03265), Liu et al.,
2019, arXiv 1908.03265

$$\theta_t = \theta_{t-1} - \alpha \begin{cases} r_t\, \hat m_t / \sqrt{\hat v_t} & \rho_t > 5 \\
\hat m_t & \rho_t \le 5 \end{cases}$$

**Use it when** Adam is unstable at the beginning and you don't want to try out lengths of a warm-up.

**Don't when** a recipe that works comes with a warm-up of its own: two of them are one too many, and a straight
line of $2 / (1 - \beta_2)$ steps does [much the same](https://arxiv.org/abs/1910.04209).

![The share of Adam's step that RAdam takes, for three decays of the second moment. Each curve begins at step 6;
the longer the memory, the longer the warm-up.](figures/radam.svg)

```symbols
m_t      | m, exp_avg    | running mean of the gradient (first moment)  | FP32 or wider | y2
v_t      | v, exp_avg_sq | running mean of its square (second moment)   | FP32 or wider | y3
\theta_t | param         | parameters                                   | FP32 or wider | y5
\alpha   | lr            | learning rate                                | number        | y6
\beta_2  | beta2         | decay of the second moment                   | number        | y4
\rho_t   | rho           | how many gradients $v_t$ is worth            | number        | y7
r_t      | r             | the share of Adam's step                     | 0 to 1        | y1
t        | t, step       | gradients in the moments, from 1             | number        | y8
```

## Where the variance comes from

At $t = 1$ the quotient $\hat m_t / \sqrt{\hat v_t}$ is $\pm 1$ for every weight, and one mini-batch has chosen the
sign. A few steps later the divisor is the root of a mean over a few squares, and by mere chance some weights get
one that is far too small: they jump. The chance fades as the mean grows longer. A warm-up waits for that with
short steps, and its length is found by trying. The paper asks how far off the divisor may be after $t$
gradients. That depends on $\beta_2$ and $t$ alone, so nothing has to be tried.
"""

from __future__ import annotations

from typing import Any, Unpack

from torch import Tensor
from torch.optim.optimizer import ParamsT

from labml_opt._counts import addcdiv_, at_least, in_float64, where
from labml_opt.adam import bias_correction
from labml_opt.amsgrad import AMSGrad
from labml_opt.optimizer import Group, Options, State, WeightDecay, decay


def average_length(beta2: float, t: int | Tensor) -> Any:
    r"""
    Return how many gradients the second moment is worth.

    * `beta2` is $\beta_2$, in $[0, 1)$
    * `t` is the number of gradients it has seen, from 1

    Returns $\rho_t$, from 1 to $\rho_\infty$, in float64 where the device has it.
    """
    # $$\rho_\infty = \frac{2}{1 - \beta_2} - 1 \qquad
    # \rho_t = \rho_\infty - \frac{2\, t\, \beta_2^t}{1 - \beta_2^t}$$
    #
    # $v_t$ weighs its gradients by their age: the one $j$ steps old by $\beta_2^j$. A plain mean of $\rho$
    # values weighs them alike, and their mean age is $(\rho - 1) / 2$. The two are taken for each other when
    # their values have the same mean age:
    # $$\frac{\rho_t - 1}{2} = \frac{\sum_{j=0}^{t-1} j\, \beta_2^j}{\sum_{j=0}^{t-1} \beta_2^j}
    # = \frac{\beta_2}{1 - \beta_2} - \frac{t\, \beta_2^t}{1 - \beta_2^t}$$
    # At the beginning all weights are about the same, and $\rho_t$ is about $t$: 4.996 at $t = 5$ with
    # $\beta_2 = 0.999$. In the end it is $\rho_\infty = 1999$, however many gradients come.
    t = in_float64(t)
    rho_inf = 2 / (1 - beta2) - 1
    return rho_inf - 2 * t * beta2**t / bias_correction(beta2, t)


def variance(rho: float | Tensor) -> Any:
    r"""
    Return the variance of $1 / \sqrt{\hat v_t}$, in units of $1 / \sigma^2$.

    * `rho` is $\rho > 4$, the number of gradients in the mean
    """
    # Take the gradients of a weight for independent draws from a normal distribution with mean 0 and variance
    # $\sigma^2$. The reciprocal of a mean of $\rho$ squares then has the scaled inverse chi-squared
    # distribution, with
    # $$\mathrm{E}\Big[\frac{1}{\hat v}\Big] = \frac{\rho}{(\rho - 2)\, \sigma^2} \qquad
    # \mathrm{Var}\Big[\frac{1}{\hat v}\Big] = \frac{2\, \rho^2}{(\rho - 2)^2 (\rho - 4)\, \sigma^4}$$
    # The second is finite only for $\rho > 4$: fewer squares are all near 0 too often. What the step needs is the
    # root, and to first order $\mathrm{Var}[\sqrt x] = \mathrm{Var}[x] / (4\, \mathrm{E}[x])$:
    # $$\mathrm{Var}\Big[\frac{1}{\sqrt{\hat v}}\Big] \approx \frac{\rho}{2\, (\rho - 2) (\rho - 4)\, \sigma^2}$$
    return rho / (2 * (rho - 2) * (rho - 4))


def rectification(beta2: float, t: int | Tensor) -> Any:
    r"""
    Return the share of Adam's step that is taken.

    * `beta2` is $\beta_2$, in $[0, 1)$
    * `t` is the number of gradients in the second moment, from 1

    Returns $r_t$, between 0 and 1, or 0 as long as $\rho_t \le 5$. Paper: [arXiv
    1908.03265](https://arxiv.org/abs/1908.03265), section 4.
    """
    # With a memory of $\rho_\infty \le 5$ gradients, which is $\beta_2 \le 2/3$, no step ever gets as far.
    rho, rho_inf = average_length(beta2, t), 2 / (1 - beta2) - 1
    if rho_inf <= 5:
        return 0.0

    # $$r_t = \sqrt{\frac{(\rho_t - 4) (\rho_t - 2)\, \rho_\infty}{(\rho_\infty - 4) (\rho_\infty - 2)\, \rho_t}}$$
    #
    # The factor that brings the variance down to what it will be in the end: $r_t^2$ times
    # $\mathrm{Var}(\rho_t)$ is $\mathrm{Var}(\rho_\infty)$, and $\sigma$ cancels.
    r = (variance(rho_inf) / variance(at_least(rho, 5))) ** 0.5

    # **Why 5, if 4 is the limit?** The paper begins behind 4, the code of its authors and `torch.optim.RAdam` at
    # 5. Near 4 the first order is no good: there it says infinity, and at 5 still 3.3 times the true variance,
    # 1.4 times at 10. An estimate that is too large errs on the safe side, towards shorter steps. With
    # $\beta_2 = 0.999$ the first rectified step is the sixth, at 2.6% of Adam's; half of it is reached at
    # $t = 556$, nine tenths at $t = 2737$.
    return where(rho > 5, r, 0.0)


class RAdam(AMSGrad):
    r"""
    **Rectified Adam.** State and moments are those of [Adam](adam.md), and of [AMSGrad](amsgrad.md) where
    `amsgrad` is on. What is new is how far a step goes. For FP16 and BF16 weights write
    `class RAdamFP16(MasterWeights, RAdam): pass`; [MasterWeights](adam_fp16.md#MasterWeights) does the rest.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: WeightDecay | float = WeightDecay(),
        optimized_update: bool = True,
        amsgrad: bool = False,
        degenerated_to_sgd: bool = True,
        defaults: dict[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        r"""
        * `degenerated_to_sgd` says what happens as long as $\rho_t \le 5$: a step of gradient descent with
          momentum, or none (`False`)
        * all other arguments are those of [AMSGrad](amsgrad.md), which is off by default here; `eps` is larger

        With its defaults it computes what `torch.optim.RAdam` computes, up to the rounding of the last digits;
        for the coupled decay that is the default there, give `WeightDecay(number, weight_decouple=False)`.

        Raises `ValueError` or `TypeError` with the name of the argument that is out of its range. Paper: [arXiv
        1908.03265](https://arxiv.org/abs/1908.03265).
        """
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            optimized_update=optimized_update,
            amsgrad=amsgrad,
            defaults={**(defaults or {}), "degenerated_to_sgd": degenerated_to_sgd},
            **options,
        )

    def step_param(self, state: State, group: Group, grad: Tensor, param: Tensor) -> None:
        r"""
        The whole step: decay and moments as in [Adam](adam.md), then the rectified update.

        * `state` holds $t$ and the moments, as the last step left them
        * `group` is the parameter group, `lr` in it the rate of this step
        * `grad` is $g_t$, in the shape and dtype of `param`
        * `param` is $\theta_{t-1}$ in FP32 or wider, and becomes $\theta_t$ in place
        """
        grad = decay(param, grad, group)
        m, v = self.get_mv(state, group, grad)
        state["step"] += 1
        self.r_adam_update(state, group, param, m, v)

    def r_adam_update(self, state: State, group: Group, param: Tensor, m: Tensor, v: Tensor) -> None:
        r"""
        Move the weights, in place.

        * `state` holds $t$, the number of gradients in the moments
        * `group` holds $\alpha$, the betas and $\epsilon$
        * `param` is $\theta_{t-1}$ and becomes $\theta_t$
        * `m` and `v` are $m_t$ and $v_t$, same shape and dtype
        """
        lr, (beta1, beta2) = group["lr"], group["betas"]
        correction1 = bias_correction(beta1, state["step"])
        correction2 = bias_correction(beta2, state["step"])

        # $t$ counts the gradients of this parameter. A layer unfrozen late has a divisor as uncertain as any
        # other's at its first steps, and gets a warm-up of its own; a schedule would be over by then.
        r = rectification(beta2, state["step"])

        # **The variance is known: Adam's step, times $r_t$.** Both orders of operations are
        # [Adam's](adam.md#Adam.adam_update-2). The optimized one is the default, and that of `torch.optim.RAdam`:
        # $$\theta_t = \theta_{t-1} - \alpha\, r_t\, \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t}\,
        # \frac{m_t}{\sqrt{v_t} + \hat\epsilon}$$
        if group["optimized_update"]:
            denominator = v.sqrt().add_(group["eps"])
            step_size = lr * r * correction2**0.5 / correction1

        # The other adds $\epsilon$ after the correction, while the paper has none at all:
        # $$\theta_t = \theta_{t-1} - \alpha\, r_t\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}$$
        else:
            denominator = v.sqrt().div_(correction2**0.5).add_(group["eps"])
            step_size = lr * r / correction1

        # **It isn't known: no divisor.**
        # $$\theta_t = \theta_{t-1} - \alpha\, \hat m_t$$
        #
        # Gradient descent with momentum, for five steps with the usual $\beta_2$. Mind that such a step is as
        # long as the gradient: the unit that Adam takes out is back. With gradients of 100 the weights move a
        # hundred rates, further than any later step takes them. Where that is too far,
        # `degenerated_to_sgd=False` lets the weights rest while the moments fill.
        #
        # With a count on the device the host doesn't know which of the two it will be, so both are computed and
        # `where` takes one.
        until_then = lr / correction1 if group["degenerated_to_sgd"] else 0.0
        step_size = where(r > 0, step_size, until_then)
        denominator = where(r > 0, denominator, denominator.new_ones(()))
        addcdiv_(param, m, denominator, value=-step_size)


if __name__ == "__main__":
    from labml_opt.figures import draw

    draw("radam")
