#!/usr/bin/env python3
"""Training steps in PyTorch as an arm of echelon compare: SGD on one fixed batch of noise.

    torch_train.py FORM linear DIM DEPTH BATCH [--threads N] [--ranks N] [--accum N] [--bf16]
    torch_train.py FORM lenet|resnet18 BATCH [...]

FORM is eager, channels_last (of images) or compile (torch.compile with its defaults). A step is zero_grad, forward, loss,
backward and update, with PyTorch's defaults; with --accum, so many passes over BATCH samples for one update; with --bf16,
under autocast; with --ranks, DistributedDataParallel over gloo on loopback, where BATCH is a rank's. Times are rank 0's; the exchange
of gradients keeps the ranks together.
"""
import argparse
import contextlib
import warnings

import torch
import torch.nn.functional as F

import torch_turns
from torch_models import CLASSES, MODELS, linear_stack

SGD = {"linear": dict(lr=0.01), "lenet": dict(lr=0.001, momentum=0.9),
        "resnet18": dict(lr=0.1, momentum=0.9, weight_decay=5e-4)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=["eager", "channels_last", "compile"])
    parser.add_argument("model", choices=SGD)
    parser.add_argument("numbers", type=int, nargs="+")
    for name in ("threads", "ranks", "accum"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    return parser.parse_args()


def describe(args):
    words = [f"PyTorch {torch.__version__}", args.form]
    words += [f"DDP over gloo, {args.ranks} ranks"] if args.ranks > 1 else []
    words += [f"{args.threads} threads"] if args.threads > 1 else []
    return ", ".join(words + (["bf16 autocast"] if args.bf16 else []))


def main():
    args = parse()
    *shape, batch = args.numbers
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    pipes = torch_turns.start_ranks(args.ranks)
    torch.manual_seed(0)
    if args.model == "linear":
        model, loss_of = linear_stack(*shape), F.mse_loss
        x, y = torch.randn(batch, shape[0]), torch.randn(batch, shape[0])
    else:
        model, loss_of = MODELS[args.model](), F.cross_entropy
        x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, CLASSES, (batch,))
    if args.form == "channels_last":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), **SGD[args.model])
    if args.ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    if args.form == "compile":
        model = torch.compile(model)
    no_sync = model.no_sync if args.ranks > 1 else contextlib.nullcontext

    def step():
        optimizer.zero_grad()
        for k in range(args.accum):
            with contextlib.nullcontext() if k + 1 == args.accum else no_sync():
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
                    loss = loss_of(model(x), y)
                (loss / args.accum).backward()
        optimizer.step()

    torch_turns.serve(describe(args), step, pipes)


if __name__ == "__main__":
    main()
