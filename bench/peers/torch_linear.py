#!/usr/bin/env python3
"""Times training steps of the linear stack in PyTorch, one thread, and prints them as JSON.

    torch_linear.py DIM DEPTH BATCH STEPS WARMUP

A step is zero_grad, forward, mean-squared error, backward and plain SGD, with PyTorch's defaults. The first
WARMUP of the STEPS are run and not reported.
"""
import sys

import torch
import torch.nn.functional as F

import torch_steps
from torch_models import linear_stack


def main():
    dim, depth, batch, steps, warmup = map(int, sys.argv[1:6])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = linear_stack(dim, depth)
    x, y = torch.randn(batch, dim), torch.randn(batch, dim)
    torch_steps.measure(model, F.mse_loss, x, y, steps, warmup, lr=0.01)


if __name__ == "__main__":
    main()
