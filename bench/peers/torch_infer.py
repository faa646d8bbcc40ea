#!/usr/bin/env python3
"""Inference in f32 in PyTorch, one thread, as an arm of echelon compare.

    torch_infer.py eager|channels_last|compile lenet|resnet18 BATCH
"""
import sys

import torch

import torch_turns
from torch_models import MODELS


def main(form, name, batch):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layout = torch.channels_last if form == "channels_last" else torch.contiguous_format
    model, x = MODELS[name]().eval().to(memory_format=layout), torch.randn(int(batch), 3, 32,
            32).to(memory_format=layout)
    if form == "compile":
        model = torch.compile(model)

    def step():
        with torch.inference_mode():
            model(x)

    torch_turns.serve(f"PyTorch {torch.__version__}, {form}, f32", step)


if __name__ == "__main__":
    main(*sys.argv[1:])
