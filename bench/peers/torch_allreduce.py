#!/usr/bin/env python3
"""PyTorch's all-reduce over gloo, f32 sums in place on two ranks, as an arm of echelon compare.

    torch_allreduce.py BYTES

As echelon bench comm does it: all ranks meet before each sample, and what is too short for the clock is timed in batches.
"""
import sys
import time

import torch
import torch.distributed as dist

import torch_turns

RANKS, WARMUP, PROBES, BATCH_S, MAX_BATCH = 2, 5, 4, 200e-6, 128


def time_batch(x, batch):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(batch):
        dist.all_reduce(x)
    return (time.perf_counter() - start) / batch


def main():
    torch.set_num_threads(1)
    pipes = torch_turns.start_ranks(RANKS)
    x = torch.zeros(int(sys.argv[1]) // 4)
    time_batch(x, WARMUP)
    batch = torch.tensor([max(1, min(MAX_BATCH, int(BATCH_S / time_batch(x, PROBES))))])
    dist.broadcast(batch, 0)
    torch_turns.serve(f"gloo of PyTorch {torch.__version__}", lambda: time_batch(x, int(batch)), pipes)


if __name__ == "__main__":
    main()
