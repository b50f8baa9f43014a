"""The equations that the pages print, in the authors' TeX. `test_formulas.py` carries out each one."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

# page -> name of the equation -> TeX, white space apart as in the module's comments
PRINTED = {
    "optimizer": {
        "step": r"\theta_t = (1 - \alpha_t \lambda)\, \theta_{t-1} - \alpha_t\, u_t",
        "coupled decay": r"g_t \leftarrow g_t + \lambda\, \theta_{t-1}",
        "decoupled decay": r"\theta_{t-1} \leftarrow (1 - \alpha_t \lambda)\, \theta_{t-1}",
        "unscaling": r"g_t = \frac{1}{S}\,\mathrm{fp32}\big(S\,\nabla f(\theta_{t-1})\big)",
        "rounding": r"\theta^{16}_t = \mathrm{fp16}(\theta_t)",
    },
    "adam": {
        "paper's step": r"\theta_t = \theta_{t-1} - \alpha\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}",
        "bound": r"\lvert\theta_t - \theta_{t-1}\rvert \le \alpha\, "
        r"\frac{1 - \beta_1}{\sqrt{(1 - \beta_2)\,(1 - \beta_1^2 / \beta_2)}}",
        "mean as a sum": r"m_t = (1 - \beta) \sum_{i=1}^{t} \beta^{t-i} g_i",
        "mean of equal gradients": r"m_t = (1 - \beta)\, \frac{1 - \beta^t}{1 - \beta}\, g = (1 - \beta^t)\, g",
        "correction": r"\hat m_t = \frac{m_t}{1 - \beta_1^t} \qquad \hat v_t = \frac{v_t}{1 - \beta_2^t}",
        "first moment": r"m_t = \beta_1 m_{t-1} + (1 - \beta_1)\, g_t",
        "second moment": r"v_t = \beta_2 v_{t-1} + (1 - \beta_2)\, g_t^2",
        "optimized step": r"\theta_t = \theta_{t-1} - \alpha\, \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t}\, "
        r"\frac{m_t}{\sqrt{v_t} + \hat\epsilon}",
    },
    "amsgrad": {
        "step": r"\begin{aligned} \tilde v_t &= \max(\tilde v_{t-1}, v_t) \\ \theta_t &= \theta_{t-1} - \alpha\, "
        r"\frac{m_t / (1 - \beta_1^t)}{\sqrt{\tilde v_t / (1 - \beta_2^t)} + \epsilon} \end{aligned}",
        "maximum": r"\tilde v_t = \max(\tilde v_{t-1}, v_t)",
        "counter-example": r"f_t(x) = \begin{cases} 1010\,x & t \bmod 101 = 1 \\ -10\,x & \text{otherwise} "
        r"\end{cases} \qquad x \in [-1, 1]",
    },
    "adam_warmup": {
        "rate": r"\alpha_t = \alpha\, \min\!\Big(1, \frac{t}{w}\Big)",
    },
    "noam": {
        "rate": r"\alpha_t = \alpha\, d^{-1/2} \min\!\big(t^{-1/2},\; t\, w^{-3/2}\big)",
    },
    "adam_warmup_cosine_decay": {
        "rate": r"\alpha_t = \alpha\, \min\!\Big(1, \frac{t}{w}\Big)\, "
        r"\max\!\Big(0.1,\; \frac{1 + \cos \pi p_t}{2}\Big)",
        "share of the way": r"p_t = \min\!\Big(1, \max\!\Big(0, \frac{t - w}{T - w}\Big)\Big)",
    },
    "radam": {
        "step": r"\theta_t = \theta_{t-1} - \alpha \begin{cases} r_t\, \hat m_t / \sqrt{\hat v_t} & \rho_t > 5 \\ "
        r"\hat m_t & \rho_t \le 5 \end{cases}",
        "length": r"\rho_\infty = \frac{2}{1 - \beta_2} - 1 \qquad "
        r"\rho_t = \rho_\infty - \frac{2\, t\, \beta_2^t}{1 - \beta_2^t}",
        "mean age": r"\frac{\rho_t - 1}{2} = \frac{\sum_{j=0}^{t-1} j\, \beta_2^j}{\sum_{j=0}^{t-1} \beta_2^j} "
        r"= \frac{\beta_2}{1 - \beta_2} - \frac{t\, \beta_2^t}{1 - \beta_2^t}",
        "chi-squared": r"\mathrm{E}\Big[\frac{1}{\hat v}\Big] = \frac{\rho}{(\rho - 2)\, \sigma^2} \qquad "
        r"\mathrm{Var}\Big[\frac{1}{\hat v}\Big] = \frac{2\, \rho^2}{(\rho - 2)^2 (\rho - 4)\, \sigma^4}",
        "variance": r"\mathrm{Var}\Big[\frac{1}{\sqrt{\hat v}}\Big] \approx "
        r"\frac{\rho}{2\, (\rho - 2) (\rho - 4)\, \sigma^2}",
        "rectification": r"r_t = \sqrt{\frac{(\rho_t - 4) (\rho_t - 2)\, \rho_\infty}"
        r"{(\rho_\infty - 4) (\rho_\infty - 2)\, \rho_t}}",
        "optimized step": r"\theta_t = \theta_{t-1} - \alpha\, r_t\, \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t}\, "
        r"\frac{m_t}{\sqrt{v_t} + \hat\epsilon}",
        "other step": r"\theta_t = \theta_{t-1} - \alpha\, r_t\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}",
        "step without a divisor": r"\theta_t = \theta_{t-1} - \alpha\, \hat m_t",
    },
    "ada_belief": {
        "step": r"\begin{aligned} s_t &= \beta_2 s_{t-1} + (1 - \beta_2)\, (g_t - m_t)^2 \\ "
        r"\theta_t &= \theta_{t-1} - \alpha\, r_t\, \frac{\hat m_t}{\sqrt{\hat s_t} + \epsilon} \qquad "
        r"\hat s_t = \frac{s_t + \epsilon}{1 - \beta_2^t} \end{aligned}",
        "forecast": r"m_t = \beta_1 m_{t-1} + (1 - \beta_1)\, g_t",
        "surprise": r"s_t = \beta_2 s_{t-1} + (1 - \beta_2)\, (g_t - m_t)^2",
        "old and new forecast": r"g_t - m_t = \beta_1\, (g_t - m_{t-1})",
        "update": r"\theta_t = \theta_{t-1} - \alpha\, r_t\, \frac{\hat m_t}{\sqrt{\hat s_t} + \epsilon}",
    },
    "sophia": {
        "step": r"\begin{aligned} \hat h_t &= B\, \nabla \hat L(\theta) \odot \nabla \hat L(\theta) \\ "
        r"h_t &= \beta_2 h_{t-k} + (1 - \beta_2)\, \hat h_t \\ \theta_t &= \theta_{t-1} - \alpha\, "
        r"\mathrm{clip}\Big(\frac{m_t}{\rho\, h_t + \epsilon},\, 1\Big) \end{aligned}",
        "loss of drawn labels": r"\hat L(\theta) = \frac{1}{B} \sum_{b=1}^{B} \ell\big(f(\theta, x_b),\, \hat y_b\big) "
        r"\qquad \hat y_b \sim \mathrm{softmax}\, f(\theta, x_b)",
        "estimate": r"\hat h_t = B\, \nabla \hat L(\theta) \odot \nabla \hat L(\theta)",
        "mean curvature": r"h_t = \beta_2 h_{t-k} + (1 - \beta_2)\, \hat h_t",
        "mean gradient": r"m_t = \beta_1 m_{t-1} + (1 - \beta_1)\, g_t",
        "update": r"\theta_t = \theta_{t-1} - \alpha\, \mathrm{clip}\Big(\frac{m_t}{\rho\, h_t + \epsilon},\, 1\Big)",
        "clip": r"\mathrm{clip}(z, 1) = \max(-1, \min(z, 1))",
    },
    "adam_fp16": {
        "step": r"\begin{aligned} \theta^{32}_t &= \theta^{32}_{t-1} - \alpha\, "
        r"\frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon} \\ "
        r"\theta^{16}_t &= \mathrm{fp16}\big(\theta^{32}_t\big) \end{aligned}",
        "step in a line": r"\theta^{32}_t = \theta^{32}_{t-1} - \alpha\, "
        r"\frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon} \qquad \theta^{16}_t = \mathrm{fp16}\big(\theta^{32}_t\big)",
        "first master": r"\theta^{32}_0 = \theta^{16}_0",
        "changed weights": r"\theta^{32} \leftarrow \begin{cases} "
        r"\theta^{32} & \mathrm{fp16}(\theta^{32}) = \theta^{16} \\ "
        r"\theta^{16} & \mathrm{fp16}(\theta^{32}) \ne \theta^{16} \end{cases}",
        "float32 gradient": r"\nabla^{32} = \mathrm{fp32}\big(S\,\nabla f(\theta^{16}_{t-1})\big)",
        "unscaling": r"g_t = \frac{1}{S}\,\nabla^{32}",
        "floor": r"S \leftarrow \max(S,\; S_{\min})",
    },
    "split_master": {
        "halves": r"\begin{aligned} P &= \Big\lfloor \frac{M + 2^{15}}{2^{16}} \Big\rfloor \\ "
        r"R &= M - 2^{16} P \end{aligned}",
        "master": r"M = 2^{16} P + R",
        "upper half": r"P = \Big\lfloor \frac{M + 2^{15}}{2^{16}} \Big\rfloor",
        "lower half": r"R = M - 2^{16} P",
    },
}


def plain(tex: str) -> str:
    """TeX with its white space made equal."""
    return " ".join(tex.split())


def display_equations(page: str) -> list[str]:
    """The display equations of a taught module, in the order of its source."""
    source = (ROOT / "labml_opt" / f"{page}.py").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^\s*# ?", "", source)
    return [plain(tex) for tex in re.findall(r"\$\$(.+?)\$\$", text, re.DOTALL)]


def code_on_the_page(page: str, begins: str) -> str:
    """The block of Python in a module's text that begins like this."""
    source = (ROOT / "labml_opt" / f"{page}.py").read_text(encoding="utf-8")
    (block,) = (b for b in re.findall(r"(?ms)^```python\n(.+?)^```", source) if b.startswith(begins))
    return block
