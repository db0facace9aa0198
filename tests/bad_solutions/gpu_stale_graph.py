"""Verdict: wrong. Replays a graph that reads the first call's input."""

import torch

REFERENCE = "gelu_gpu"
DEVICE = "cuda"


class ModelNew(torch.nn.Module):
    graph = None

    def forward(self, x):
        if self.graph is None:
            torch.cuda.synchronize()
            self.x, self.graph = x, torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = torch.nn.functional.gelu(self.x)
        self.graph.replay()
        return self.out.clone()
