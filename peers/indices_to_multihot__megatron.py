"""indices_to_multihot by Megatron-Core's own Triton kernel (package megatron-core).

Its contract is narrower than the reference's: an index below -1 makes it write before the row,
and duplicates of an expert are not added up. It is judged like any solution, so it is timed only
on cases that it gets right.
"""

import warnings

import torch.nn as nn

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Megatron-Core names the optional packages it lacks
        from megatron.core.fusions.fused_indices_converter import IndicesToMultihot
except ImportError as error:
    raise ImportError(
        f"needs the package megatron-core (pip install megatron-core): {error}"
    ) from None


class ModelNew(nn.Module):
    def __init__(self, experts=32):
        super().__init__()
        self.experts = experts

    def forward(self, indices, probs):
        return IndicesToMultihot.apply(indices.contiguous(), probs.contiguous(), self.experts)
