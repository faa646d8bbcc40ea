#!/usr/bin/env python3
"""Writes the golden files beside it: short trainings in PyTorch, for tests/train/test_golden.c.

    /usr/bin/python3 tests/golden/make_golden.py          (Debian's python3-torch and python3-numpy)

Run it by hand when a case is added; make test only reads what it wrote.

No tensor is stored. Inputs and starting weights come from a formula that tests/support/golden.c has too:

    z(name, i)    = mix(fnv1a(name) + (i + 1) * 0x9e3779b97f4a7c15)     mix as in splitmix64, modulo 2^64
    uniform       = ((z >> 40) - 2^23) / 2^23 * scale                   f32, in [-scale, scale)
    label         = (z >> 40) mod classes

and the SHA-256 of the bytes proves that both sides made the same. Of the final weights a file holds, for
each tensor, the L2 norm, eight entries, and a sketch: eight sums of all entries under signs from the same
formula. The mean square of the differences between two sketches estimates the squared norm of the
difference between the tensors, so eight numbers speak for every entry.

The training runs in f64, which gives the same figures on every machine. The same training in f32 must agree
with it far within the tolerance of the test, no input of a ReLU may come so near to zero that rounding decides
its sign, and something must have been learned; else a case is useless and the script fails.
"""
import hashlib
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SKETCHES, SAMPLES, STEPS = 8, 8, 20
GOLDEN = 0x9E3779B97F4A7C15


def fnv1a(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def words(name, count):
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(name, shape, scale):
    bits = (words(name, int(np.prod(shape))) >> np.uint64(40)).astype(np.int64)
    return ((bits - 2**23).astype(np.float32) * np.float32(2.0**-23) * np.float32(scale)).reshape(shape)


def labels(name, count, classes):
    return ((words(name, count) >> np.uint64(40)) % np.uint64(classes)).astype(np.int32)


class Stack(nn.Module):
    """Linear and ReLU, every layer."""

    def __init__(self, dim, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


class Classifier(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.fc1 = nn.Linear(features, hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


def build(case):
    if case["model"] == "linear":
        return Stack(case["dim"], case["depth"]), F.mse_loss
    return Classifier(case["features"], case["hidden"], case["classes"]), F.cross_entropy


def tensors_of(case):
    """(description, values) of everything the training starts from."""
    batch = case["batch"]
    if case["model"] == "linear":
        wanted = [("x", (batch, case["dim"]), 1.0), ("y", (batch, case["dim"]), 1.0)]
    else:
        wanted = [("x", (batch, case["features"]), 1.0)]
    made = []
    for name, param in build(case)[0].named_parameters():
        fan_in = param.shape[1] if param.dim() == 2 else fan_in
        wanted.append((name, tuple(param.shape), float(np.float32(1.0 / np.sqrt(fan_in)))))
    for name, shape, scale in wanted:
        made.append(({"name": name, "shape": list(shape), "scale": scale}, uniform(name, shape, scale)))
    if case["model"] == "classifier":
        described = {"name": "labels", "shape": [batch], "classes": case["classes"]}
        made.append((described, labels("labels", batch, case["classes"])))
    for description, values in made:
        description["sha256"] = hashlib.sha256(values.astype(values.dtype.newbyteorder("<")).tobytes()).hexdigest()
    return made


def optimizer_of(case, params):
    decay = case.get("weight_decay", 0.0)
    if case["optimizer"] == "sgd":
        return torch.optim.SGD(params, lr=case["lr"], momentum=case.get("momentum", 0.0), weight_decay=decay,
                               nesterov=case.get("nesterov", False))
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[case["optimizer"]]
    return kind(params, lr=case["lr"], weight_decay=decay)


def train(case, dtype):
    values = {description["name"]: torch.from_numpy(array) for description, array in tensors_of(case)}
    model, loss_of = build(case)
    model.load_state_dict({name: values[name] for name in model.state_dict()})
    model.to(dtype)
    x = values["x"].to(dtype)
    target = values["y"].to(dtype) if "y" in values else values["labels"].long()
    optimizer = optimizer_of(case, model.parameters())
    margins, losses = [], []
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(lambda _layer, _in, out: margins.append(out.detach().abs().min().item()))
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: param.detach().double().numpy() for name, param in model.named_parameters()}, min(margins)


def figures(name, weight):
    flat = weight.reshape(-1)
    signs = [1.0 - 2.0 * (words(f"{name}/sign{k}", flat.size) >> np.uint64(63)).astype(np.float64)
             for k in range(SKETCHES)]
    places = [int(word % np.uint64(flat.size)) for word in words(f"{name}/place", SAMPLES)]
    return {"norm": float(np.linalg.norm(flat)), "sketch": [float(np.dot(s, flat)) for s in signs],
            "sample": [float(flat[p]) for p in places]}


def check(case, losses, weights, margin):
    """Ends the program where the case would prove nothing."""
    near_losses, near_weights, _ = train(case, torch.float32)
    loss_error = max(abs(a - b) / abs(b) for a, b in zip(near_losses, losses))
    weight_error = max(np.linalg.norm(near_weights[n] - w) / np.linalg.norm(w) for n, w in weights.items())
    start = {d["name"]: v for d, v in tensors_of(case)}
    moved = min(np.linalg.norm(start[n] - w) / np.linalg.norm(w) for n, w in weights.items())
    print(f"{case['name']:24} loss {losses[0]:.4f} -> {losses[-1]:.4f}   f32 off by {loss_error:.1e} and "
          f"{weight_error:.1e}   weights moved by {moved:.1e}   nearest to zero {margin:.1e}")
    if margin < 1e-6 or loss_error > 2e-6 or weight_error > 2e-6 or losses[-1] > 0.97 * losses[0] or moved < 1e-2:
        sys.exit(f"make_golden.py: case {case['name']} is no good: too sensitive, or it learns too little")


LINEAR = [
    {"name": "sgd", "optimizer": "sgd", "lr": 3.0},
    {"name": "sgd momentum", "optimizer": "sgd", "lr": 1.0, "momentum": 0.9},
    {"name": "sgd nesterov decay", "optimizer": "sgd", "lr": 1.0, "momentum": 0.9, "nesterov": True,
     "weight_decay": 0.001},
    {"name": "adam", "optimizer": "adam", "lr": 0.002, "weight_decay": 0.01},
    {"name": "adamw", "optimizer": "adamw", "lr": 0.002, "weight_decay": 0.1},
]
SHAPE = {"dim": 64, "depth": 3, "batch": 16}
FILES = {
    "linear.json": [{**case, "model": "linear", **SHAPE} for case in LINEAR] + [
        {"name": "odd shape", "optimizer": "sgd", "lr": 1.0, "momentum": 0.9, "model": "linear",
         "dim": 37, "depth": 2, "batch": 5}],
    "classifier.json": [
        {"name": "classifier sgd", "optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "model": "classifier",
         "features": 24, "hidden": 33, "classes": 10, "batch": 19},
        {"name": "classifier adamw", "optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1,
         "model": "classifier", "features": 24, "hidden": 33, "classes": 10, "batch": 19}],
}


def main():
    torch.set_num_threads(1)
    for file, cases in FILES.items():
        done = []
        for case in cases:
            losses, weights, margin = train(case, torch.float64)
            check(case, losses, weights, margin)
            done.append({**case, "tensors": [description for description, _ in tensors_of(case)], "losses": losses,
                         "weights": {name: figures(name, weight) for name, weight in weights.items()}})
        made_by = f"tests/golden/make_golden.py with PyTorch {torch.__version__}, in f64"
        text = json.dumps({"made_by": made_by, "cases": done}, indent=1)
        pathlib.Path(__file__).with_name(file).write_text(text + "\n")


if __name__ == "__main__":
    main()
