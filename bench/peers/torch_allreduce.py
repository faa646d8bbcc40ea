#!/usr/bin/env python3
"""Times PyTorch's all-reduce over gloo, in place, and prints the times as JSON: one of the ranks, which the environment
names (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).

    torch_allreduce.py BYTES ITERS WARMUP

As echelon bench comm does it: all ranks meet before each iteration, an iteration takes as long as its slowest rank, and what
is too short for the clock is timed in batches.
"""
import json
import sys
import time

import torch
import torch.distributed as dist

PROBES, BATCH_S, MAX_BATCH = 4, 200e-6, 128


def time_batch(x, batch):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(batch):
        dist.all_reduce(x)
    return (time.perf_counter() - start) / batch


def main():
    bytes_, iters, warmup = map(int, sys.argv[1:4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    x = torch.zeros(bytes_ // 4)
    for _ in range(warmup):
        dist.all_reduce(x)
    batch = torch.tensor([max(1, min(MAX_BATCH, int(BATCH_S / time_batch(x, PROBES))))])
    dist.broadcast(batch, 0)
    samples = torch.tensor([time_batch(x, int(batch)) for _ in range(iters)], dtype=torch.float64)
    dist.all_reduce(samples, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(json.dumps({"framework": f"gloo of PyTorch {torch.__version__}", "batch": int(batch),
                          "samples_s": samples.tolist()}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
