#!/usr/bin/env python3
"""Times training steps under PyTorch's DistributedDataParallel over gloo and prints them as JSON: one of the ranks, which
the environment names (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), with one thread.

    torch_ddp.py linear DIM DEPTH BATCH STEPS WARMUP
    torch_ddp.py resnet18 BATCH STEPS WARMUP

BATCH is a rank's. Times are rank 0's; the exchange of gradients keeps the ranks together.
"""
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import torch_steps
from torch_models import CLASSES, MODELS, linear_stack


def main():
    name, *numbers = sys.argv[1:]
    *shape, batch, steps, warmup = map(int, numbers)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    if name == "linear":
        model, loss_of, sgd = linear_stack(*shape), F.mse_loss, dict(lr=0.01)
        x, y = torch.randn(batch, shape[0]), torch.randn(batch, shape[0])
    else:
        model, loss_of, sgd = MODELS[name](), F.cross_entropy, dict(lr=0.1, momentum=0.9, weight_decay=5e-4)
        x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, CLASSES, (batch,))
    torch_steps.measure(DistributedDataParallel(model), loss_of, x, y, steps, warmup, quiet=dist.get_rank() > 0, **sgd)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
