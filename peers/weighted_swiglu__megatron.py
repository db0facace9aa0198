"""weighted_swiglu by Megatron-Core's fused form, compiled by torch (package megatron-core).

Only the plain variant; its weights are a column and are rounded as x is.
"""

import warnings

import torch.nn as nn

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Megatron-Core names the optional packages it lacks
        from megatron.core.fusions.fused_bias_swiglu import weighted_bias_swiglu_impl
except ImportError as error:
    raise ImportError(
        f"needs the package megatron-core (pip install megatron-core): {error}"
    ) from None


class ModelNew(nn.Module):
    def __init__(self, variant="plain", limit=7.0, alpha=1.702):
        super().__init__()
        if variant != "plain":
            raise ValueError("Megatron-Core's weighted SwiGLU has no clamped variant")

    def forward(self, x, weight):
        return weighted_bias_swiglu_impl(x, None, weight[:, None])
