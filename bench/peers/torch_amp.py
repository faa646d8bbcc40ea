#!/usr/bin/env python3
"""Times training steps under PyTorch's autocast on the CPU, one thread, and prints them as JSON.

    torch_amp.py f32|bf16 linear DIM DEPTH BATCH ACCUM STEPS WARMUP
    torch_amp.py f32|bf16 resnet18 BATCH ACCUM STEPS WARMUP

A step is zero_grad, ACCUM times forward, loss and backward over BATCH samples, and SGD. The first WARMUP of the STEPS are run
and not reported.
"""
import sys

import torch
import torch.nn.functional as F

import torch_steps
from torch_models import CLASSES, MODELS, linear_stack

TYPES = {"f32": None, "bf16": torch.bfloat16}


def main():
    dtype, name, *numbers = sys.argv[1:]
    *shape, batch, accum, steps, warmup = map(int, numbers)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if name == "linear":
        model, loss_of, sgd = linear_stack(*shape), F.mse_loss, dict(lr=0.01)
        x, y = torch.randn(batch, shape[0]), torch.randn(batch, shape[0])
    else:
        model, loss_of, sgd = MODELS[name](), F.cross_entropy, dict(lr=0.1, momentum=0.9, weight_decay=5e-4)
        x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, CLASSES, (batch,))
    torch_steps.measure(model, loss_of, x, y, steps, warmup, accum=accum, dtype=TYPES[dtype], **sgd)


if __name__ == "__main__":
    main()
