#!/usr/bin/env python3
"""Times inference in f32 in PyTorch, one thread, and prints it as JSON.

    torch_infer.py lenet|resnet18 BATCH RUNS WARMUP
"""
import json
import sys
import time

import torch

from torch_models import MODELS


def main(name, batch, runs, warmup):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x, samples = MODELS[name]().eval(), torch.randn(batch, 3, 32, 32), []
    with torch.inference_mode():
        for run in range(warmup + runs):
            start = time.perf_counter()
            model(x)
            if run >= warmup:
                samples.append(time.perf_counter() - start)
    print(json.dumps({"framework": f"PyTorch {torch.__version__}", "samples_s": samples}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
