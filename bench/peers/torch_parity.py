#!/usr/bin/env python3
"""Trains a network in PyTorch and keeps what another program needs to do the same and compare.

    torch_parity.py linear|lenet|resnet18|resnet8 PREFIX [--dim 256] [--depth 3] [--data-dir .] [--batch 32]
                    [--steps 20] [--seed 0] [--lr 0.01] [--momentum 0.9] [--wd 0] [--optimizer sgd|adam|adamw] [--nesterov]

PREFIX.safetensors         starting weights        PREFIX.json               {"losses": [...], "args": {...}}
PREFIX.data.safetensors    linear: x, y            PREFIX.after.safetensors  final weights

The linear stack sees one batch again and again. The others take the records of data_batch_1.bin in --data-dir (CIFAR-10's
binary files) in their order, as (pixel / 255 - mean) / deviation.
"""
import argparse
import json
import struct

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_models import MODELS

CIFAR = ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])
NORMS = {"lenet": ([0.5] * 3, [0.5] * 3), "resnet18": CIFAR, "resnet8": CIFAR}  # means and deviations

def write_safetensors(path, tensors):
    """Length of the header, header, data, as the format wants it. Tensors of f32 only."""
    header, blocks, offset = {}, [], 0
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32:
            continue  # a batch norm's count of batches
        block = tensor.detach().contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(block)]}
        offset += len(block)
        blocks.append(block)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blocks))


class Stack(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["linear", *MODELS])
    parser.add_argument("prefix")
    parser.add_argument("--data-dir", default=".")
    for name, default in (("dim", 256), ("depth", 3), ("batch", 32), ("steps", 20), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("lr", 0.01), ("momentum", 0.9), ("wd", 0.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--optimizer", choices=["sgd", "adam", "adamw"], default="sgd")
    parser.add_argument("--nesterov", action="store_true")
    return parser.parse_args()


def read_images(args):
    """Inputs and labels of all steps."""
    raw = np.fromfile(f"{args.data_dir}/data_batch_1.bin", np.uint8, args.batch * args.steps * 3073).reshape(-1, 3073)
    mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in NORMS[args.model])
    pixels = torch.from_numpy(raw[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32))
    return (pixels / 255 - mean) / deviation, torch.from_numpy(raw[:, 0].astype(np.int64))


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    is_linear = args.model == "linear"
    model = Stack(args.dim, args.depth) if is_linear else MODELS[args.model]()
    write_safetensors(args.prefix + ".safetensors", model.state_dict())
    if is_linear:
        x, y = torch.randn(args.batch, args.dim), torch.randn(args.batch, args.dim)
        write_safetensors(args.prefix + ".data.safetensors", {"x": x, "y": y})
    else:
        x, y = read_images(args)
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=args.wd,
                                    nesterov=args.nesterov)
    else:
        kind = torch.optim.Adam if args.optimizer == "adam" else torch.optim.AdamW
        optimizer = kind(model.parameters(), lr=args.lr, weight_decay=args.wd)
    losses = []
    for step in range(args.steps):
        part = slice(None) if is_linear else slice(step * args.batch, (step + 1) * args.batch)
        optimizer.zero_grad()
        loss = (F.mse_loss if is_linear else F.cross_entropy)(model(x[part]), y[part])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    write_safetensors(args.prefix + ".after.safetensors", model.state_dict())
    with open(args.prefix + ".json", "w") as file:
        json.dump({"losses": losses, "args": vars(args)}, file)


if __name__ == "__main__":
    main()
