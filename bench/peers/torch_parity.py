#!/usr/bin/env python3
"""Trains the linear stack in PyTorch and keeps what another program needs to do the same and compare.

    torch_parity.py linear PREFIX [--dim 256] [--depth 3] [--batch 32] [--steps 20] [--seed 0] [--lr 0.01]
                    [--momentum 0.9] [--wd 0] [--optimizer sgd|adam|adamw] [--nesterov]

PREFIX.safetensors         starting weights        PREFIX.json               {"losses": [...], "args": {...}}
PREFIX.data.safetensors    the batch: x, y         PREFIX.after.safetensors  final weights
"""
import argparse
import json
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F


def write_safetensors(path, tensors):
    """Length of the header, header, data, as the format wants it. All tensors are f32."""
    header, blocks, offset = {}, [], 0
    for name, tensor in tensors.items():
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
    parser.add_argument("model", choices=["linear"])
    parser.add_argument("prefix")
    for name, default in (("dim", 256), ("depth", 3), ("batch", 32), ("steps", 20), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("lr", 0.01), ("momentum", 0.9), ("wd", 0.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--optimizer", choices=["sgd", "adam", "adamw"], default="sgd")
    parser.add_argument("--nesterov", action="store_true")
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = Stack(args.dim, args.depth)
    x, y = torch.randn(args.batch, args.dim), torch.randn(args.batch, args.dim)
    write_safetensors(args.prefix + ".safetensors", model.state_dict())
    write_safetensors(args.prefix + ".data.safetensors", {"x": x, "y": y})
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=args.wd,
                                    nesterov=args.nesterov)
    else:
        kind = torch.optim.Adam if args.optimizer == "adam" else torch.optim.AdamW
        optimizer = kind(model.parameters(), lr=args.lr, weight_decay=args.wd)
    losses = []
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    write_safetensors(args.prefix + ".after.safetensors", model.state_dict())
    with open(args.prefix + ".json", "w") as file:
        json.dump({"losses": losses, "args": vars(args)}, file)


if __name__ == "__main__":
    main()
