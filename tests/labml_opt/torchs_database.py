"""
PyTorch's database of optimizers, imported without what the import does to the rest of the process.

`torch.testing._internal` is made for PyTorch's own tests: it forbids to set `torch.backends.*` for good and loads a
profile of hypothesis. Both would reach tests that have nothing to do with it.
"""

from unittest.mock import patch

import hypothesis
import torch

_profile = hypothesis.settings.get_current_profile_name()
with patch.object(torch.backends, "disable_global_flags", lambda: None):
    from torch.testing._internal.common_optimizers import (
        ErrorOptimizerInput,
        OptimizerErrorEnum,
        OptimizerInfo,
        OptimizerInput,
        get_error_inputs_for_all_optims,
    )
hypothesis.settings.load_profile(_profile)

__all__ = [
    "ErrorOptimizerInput",
    "OptimizerErrorEnum",
    "OptimizerInfo",
    "OptimizerInput",
    "get_error_inputs_for_all_optims",
]
