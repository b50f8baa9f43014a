"""PyTorch optimizers whose source is the tutorial. The names below are in the reading order of the pages."""

from labml_opt.optimizer import GenericAdaptiveOptimizer, WeightDecay  # isort: skip
from labml_opt.adam import Adam  # isort: skip
from labml_opt.amsgrad import AMSGrad  # isort: skip
from labml_opt.adam_warmup import AdamWarmup  # isort: skip
from labml_opt.noam import Noam  # isort: skip
from labml_opt.adam_warmup_cosine_decay import AdamWarmupCosineDecay  # isort: skip
from labml_opt.radam import RAdam  # isort: skip
from labml_opt.ada_belief import AdaBelief  # isort: skip
from labml_opt.sophia import Sophia  # isort: skip
from labml_opt.adam_fp16 import (  # isort: skip
    MasterWeights,
    AdamFP16,
    AdamWarmupCosineDecayFP16,
    GradScalerFP16,
)

__all__ = [  # noqa: RUF022 (the reading order)
    "GenericAdaptiveOptimizer",
    "WeightDecay",
    "Adam",
    "AMSGrad",
    "AdamWarmup",
    "Noam",
    "AdamWarmupCosineDecay",
    "RAdam",
    "AdaBelief",
    "Sophia",
    "MasterWeights",
    "AdamFP16",
    "AdamWarmupCosineDecayFP16",
    "GradScalerFP16",
]

__version__ = "0.1.0"
