"""Verdict: wrong. Computes in fp16 what is promised in fp32."""

import torch

REFERENCE = "layernorm"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(x.half().float(), x.shape[-1:]).half().float()
