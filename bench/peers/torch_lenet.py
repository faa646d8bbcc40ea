#!/usr/bin/env python3
"""Times training steps of the LeNet-style network in PyTorch, one thread, and prints them as JSON.

    torch_lenet.py BATCH STEPS WARMUP

The first WARMUP of the STEPS are run and not reported.
"""
import sys

from torch_images import measure

if __name__ == "__main__":
    measure("lenet", *map(int, sys.argv[1:4]), lr=0.001, momentum=0.9, weight_decay=0)
