"""Verdict: wrong. Of equal scores the higher index, where the lower is promised."""

import torch

REFERENCE = "topk"


class ModelNew(torch.nn.Module):
    def forward(self, scores):
        order = torch.argsort(scores.flip(1), dim=1, descending=True, stable=True)[:, :4]
        order = scores.shape[1] - 1 - order
        return scores.gather(1, order), order
