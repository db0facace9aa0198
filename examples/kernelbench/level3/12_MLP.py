"""A small model: three linear layers with ReLU between them, log-probabilities out."""

import torch
import torch.nn as nn

batch = 8192

CASES = {"headline": {}, "small": dict(batch=21)}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def __init__(self, inputs: int, hidden: int, classes: int):
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x.flatten(1)))
        x = torch.relu(self.second(x))
        return torch.log_softmax(self.last(x), dim=1)


def get_inputs(batch=batch):
    return [torch.randn(batch, 1, 28, 28)]


def get_init_inputs():
    return [784, 256, 10]


def work(model, x):
    """Input and weights read once, output written once."""
    weights = sum(p.numel() for p in model.parameters())
    layers = [m.weight.numel() for m in (model.first, model.second, model.last)]
    outputs = len(x) * model.last.out_features
    return dict(bytes=4 * (x.numel() + weights + outputs), flops=2 * len(x) * sum(layers))
