"""The k largest scores of each row; of equal ones the lower index first. Exact."""

import torch
import torch.nn as nn

TOLERANCE = dict(rtol=0, atol=0, source="selected values are exact")
CASES = {"headline": {}, "ties": dict(levels=3)}
FAMILIES = {"all equal": dict(levels=1)}


class Model(nn.Module):
    def forward(self, scores):
        order = torch.argsort(scores, dim=1, descending=True, stable=True)[:, :4]
        return scores.gather(1, order), order


def get_inputs(levels=0):
    scores = torch.rand(20, 32)
    return [(scores * levels).floor() if levels else scores]


def get_init_inputs():
    return []
