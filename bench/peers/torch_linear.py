#!/usr/bin/env python3
"""Times training steps of the linear stack in PyTorch, one thread, and prints them as JSON.

    torch_linear.py DIM DEPTH BATCH STEPS WARMUP

A step is zero_grad, forward, mean-squared error, backward and plain SGD, with PyTorch's defaults. The first
WARMUP of the STEPS are run and not reported.
"""
import json
import resource
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def main():
    dim, depth, batch, steps, warmup = map(int, sys.argv[1:6])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(dim, dim), nn.ReLU()]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(batch, dim), torch.randn(batch, dim)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    print(json.dumps({
        "framework": f"PyTorch {torch.__version__}",
        "threads": torch.get_num_threads(),
        "warmup": warmup,
        "samples_s": times[warmup:],
        "final_loss": loss.item(),
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))


if __name__ == "__main__":
    main()
