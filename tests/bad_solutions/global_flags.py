"""Verdict: correct, noted "allow_tf32". Sets flags that would slow or spoil a shared reference."""

import os
import torch

REFERENCE = "gelu"
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_num_threads(1)
torch.set_float32_matmul_precision("medium")
os.environ["CUDA_LAUNCH_BLOCKING"] = "1"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)
