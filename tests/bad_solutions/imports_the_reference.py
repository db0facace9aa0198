"""Verdict: does not load. Imports the reference from the project, which a candidate cannot see."""

import torch
from reference.pack_tokens import Model

REFERENCE = "gelu"


class ModelNew(Model):
    pass
