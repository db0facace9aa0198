"""Verdict: wrong. int32 indices where int64 are promised."""

import torch

REFERENCE = "topk"


class ModelNew(torch.nn.Module):
    def forward(self, scores):
        order = torch.argsort(scores, dim=1, descending=True, stable=True)[:, :4]
        return scores.gather(1, order), order.int()
