#!/usr/bin/env python3
"""Times training steps of ResNet-18 for 32x32 images in PyTorch and prints them as JSON.

    torch_resnet18.py BATCH STEPS WARMUP [THREADS]

The first WARMUP of the STEPS are run and not reported. One thread unless another number is given.
"""
import sys

from torch_images import measure

if __name__ == "__main__":
    measure("resnet18", *map(int, sys.argv[1:5]), lr=0.1, momentum=0.9, weight_decay=5e-4)
