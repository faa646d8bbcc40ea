#!/usr/bin/env python3
"""Writes the golden files beside it: short trainings in PyTorch for tests/train/test_golden.c, and gradients for
tests/train/test_gradient_error.c; and the course of a loss scale for tests/train/test_scaler.c.

    /usr/bin/python3 tests/golden/make_golden.py [FILE...]          (Debian's python3-torch and python3-numpy)

Run it by hand when a case is added; make test only reads what it wrote. FILE: only that one.

No tensor is stored. Inputs and starting weights come from a formula that tests/support/golden.c has too:

    z(name, i)    = mix(fnv1a(name) + (i + 1) * 0x9e3779b97f4a7c15)     mix as in splitmix64, modulo 2^64
    uniform       = ((z >> 40) - 2^23) / 2^23 * scale                   f32, in [-scale, scale)
    label         = (z >> 40) mod classes

(scale: 1 for images, 1/sqrt(inputs of an output) for weights and biases; batch norms start as the identity)
and the SHA-256 of the bytes proves that both sides made the same. Of the final weights a file holds, for
each tensor, the L2 norm, eight entries, and a sketch: eight sums of all entries under signs from the same
formula. The mean square of the differences between two sketches estimates the squared norm of the
difference between the tensors, so eight numbers speak for every entry.

The training runs in f64, which gives the same figures on every machine. The same training in f32 must agree
with it far within the tolerance of the test, no input of a linear layer's ReLU may come so near to zero that rounding
decides its sign, and something must have been learned; else a case is useless and the script fails.

One ReLU whose sign is decided by rounding changes a gradient by 1e-3, a thousand times what all other rounding does.
ResNet-18 has half a million of them for each image. The images of the cases for gradients ("images" names their stream)
were picked so that all inputs of ReLUs keep away from zero: by MARGIN times the usual error of f32 in their
channel. "f32" holds how far PyTorch's own f32 is off, as the measure for others. In the training of ResNet-18 there are
always some; the vectors that start at zero (biases of batch norms) are then off by a hundredth after three steps, in
PyTorch's f32 too, and the case has tolerances of its own.
"""
import hashlib
import inspect
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
from torch_models import CLASSES, MODELS

SKETCHES, SAMPLES, STEPS, MARGIN = 8, 8, 20, 7
STEPS_OF_SCALER = 9000
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
    if case["model"] in MODELS:
        return MODELS[case["model"]](), F.cross_entropy
    return Classifier(case["features"], case["hidden"], case["classes"]), F.cross_entropy


def inputs_of(case):
    batch = case["batch"]
    if case["model"] == "linear":
        return [("x", (batch, case["dim"])), ("y", (batch, case["dim"]))]
    return [("x", (batch, 3, 32, 32) if case["model"] in MODELS else (batch, case["features"]))]


def tensors_of(case):
    """(description, values) of everything the training starts from."""
    made = []

    def add(name, shape, scale, stream=None):
        description = {"name": name, **({"stream": stream} if stream else {}), "shape": list(shape), "scale": scale}
        made.append((description, uniform(stream or name, shape, scale)))

    for name, shape in inputs_of(case):
        add(name, shape, 1.0, case.get("images"))
    model, _ = build(case)
    parameters = dict(model.named_parameters())
    for name, tensor in model.state_dict().items():
        shape = tuple(tensor.shape)
        if name.endswith("num_batches_tracked"):
            continue
        if name in parameters and f"{name.rpartition('.')[0]}.running_mean" not in model.state_dict():
            fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else fan_in
            add(name, shape, float(np.float32(1.0 / np.sqrt(fan_in))))
        else:  # of a batch norm
            value = 1.0 if name.endswith(("weight", "running_var")) else 0.0
            made.append(({"name": name, "shape": list(shape), "value": value}, np.full(shape, value, np.float32)))
    if case["model"] != "linear":
        classes = case.get("classes", CLASSES)
        described = {"name": "labels", "shape": [case["batch"]], "classes": classes}
        made.append((described, labels("labels", case["batch"], classes)))
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


def start(case, dtype):
    """Model, function of the loss, input and target."""
    values = {description["name"]: torch.from_numpy(array) for description, array in tensors_of(case)}
    model, loss_of = build(case)
    model.load_state_dict({name: values.get(name, tensor) for name, tensor in model.state_dict().items()})
    target = values["y"].to(dtype) if "y" in values else values["labels"].long()
    return model.to(dtype), loss_of, values["x"].to(dtype), target


def train(case, dtype):
    """Losses, what is trained and what is counted along, and how near to zero a linear layer's output came."""
    model, loss_of, x, target = start(case, dtype)
    optimizer = optimizer_of(case, model.parameters())
    margins, losses, norms = [], [], []
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(lambda _layer, _in, out: margins.append(out.detach().abs().min().item()))
    for _ in range(case.get("steps", STEPS)):
        optimizer.zero_grad()
        loss = loss_of(model(x), target)
        loss.backward()
        if "clip_norm" in case:
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), case["clip_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
    state = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()
             if not name.endswith("num_batches_tracked")}
    if norms and not min(norms) < case["clip_norm"] < max(norms):
        sys.exit(f"make_golden.py: case {case['name']} is no good: norms from {min(norms)} to {max(norms)} are all clipped, "
                 "or none")
    return losses, state, min(margins)


def gradients(case, dtype):
    """Loss, gradients, and the inputs of all ReLUs."""
    model, loss_of, x, target = start(case, dtype)
    inputs, relu = [], F.relu
    F.relu = lambda h: inputs.append(h.detach().double()) or relu(h)
    loss = loss_of(model(x), target)
    F.relu = relu
    loss.backward()
    return loss.item(), {name: p.grad.double().numpy() for name, p in model.named_parameters()}, inputs


def margin_of(near, exact):
    """The smallest distance from zero, in root mean squares of the error in the same channel."""
    ratios = []
    for a, b in zip(near, exact):
        others = [k for k in range(b.dim()) if b.dim() == 2 or k != 1]
        error = (a - b).pow(2).mean(others, keepdim=True).sqrt()
        ratios.append((b.abs() / error).min().item())
    return min(ratios)


def figures(name, weight):
    flat = weight.reshape(-1)
    signs = [1.0 - 2.0 * (words(f"{name}/sign{k}", flat.size) >> np.uint64(63)).astype(np.float64)
             for k in range(SKETCHES)]
    places = [int(word % np.uint64(flat.size)) for word in words(f"{name}/place", SAMPLES)]
    return {"norm": float(np.linalg.norm(flat)), "sketch": [float(np.dot(s, flat)) for s in signs],
            "sample": [float(flat[p]) for p in places]}


def worst_error(near, exact):
    return float(max(np.linalg.norm(near[n] - w) / np.linalg.norm(w) for n, w in exact.items()))


def whole_error(near, exact):
    """Of all tensors taken as one vector."""
    square = lambda tensors: sum(np.sum(t * t) for t in tensors)
    return float(np.sqrt(square([near[n] - w for n, w in exact.items()]) / square(exact.values())))


def check(case, losses, weights, margin):
    """How far f32 is off. Ends the program where the case would prove nothing."""
    near_losses, near_weights, _ = train(case, torch.float32)
    loss_error = max(abs(a - b) / abs(b) for a, b in zip(near_losses, losses))
    weight_error = worst_error(near_weights, weights)
    before = {d["name"]: v for d, v in tensors_of(case)}
    moved = min(np.linalg.norm(before[n] - w) / np.linalg.norm(w) for n, w in weights.items())
    print(f"{case['name']:24} loss {losses[0]:.4f} -> {losses[-1]:.4f}   f32 off by {loss_error:.1e} and "
          f"{weight_error:.1e}   weights moved by {moved:.1e}   nearest to zero {margin:.1e}")
    far = loss_error > 0.2 * case.get("loss_tolerance", 1e-5) or weight_error > 0.2 * case.get("weight_tolerance", 1e-5)
    least = case.get("least", {"margin": 1e-6, "moved": 1e-2, "learned": 0.03})
    if far or margin < least["margin"] or losses[-1] > (1 - least["learned"]) * losses[0] or moved < least["moved"]:
        sys.exit(f"make_golden.py: case {case['name']} is no good: too sensitive, or it learns too little")
    return {"losses": loss_error, "weights": weight_error}


def trained(case):
    losses, weights, margin = train(case, torch.float64)
    off = check(case, losses, weights, margin)
    shown = {key: value for key, value in case.items() if key != "least"}
    return {**shown, "tensors": [description for description, _ in tensors_of(case)], "losses": losses, "f32": off,
            "weights": {name: figures(name, weight) for name, weight in weights.items()}}


def differentiated(case):
    loss, exact, inputs = gradients(case, torch.float64)
    near_loss, near, near_inputs = gradients(case, torch.float32)
    margin = margin_of(near_inputs, inputs)
    off = {"loss": abs(near_loss - loss) / loss, "whole": whole_error(near, exact), "worst": worst_error(near, exact)}
    print(f"{case['name']:24} loss {loss:.4f}   f32 off by {off['loss']:.1e}, gradient by {off['whole']:.1e}, "
          f"worst tensor by {off['worst']:.1e}   margin {margin:.1f}")
    if margin < MARGIN:
        sys.exit(f"make_golden.py: case {case['name']} is no good: rounding may decide the sign of a ReLU's input")
    return {**case, "tensors": [description for description, _ in tensors_of(case)], "losses": [loss], "f32": off,
            "gradients": {name: figures(name, gradient) for name, gradient in exact.items()}}


def scaled(case):
    """The changes of the scale in PyTorch's GradScaler when the gradients of some steps are not finite: [step, scale after
    it], and the steps counted as good at the end."""
    defaults = inspect.signature(torch.cuda.amp.GradScaler.__init__).parameters
    growth, backoff, interval = (defaults[name].default for name in ("growth_factor", "backoff_factor", "growth_interval"))
    scale, tracker = torch.tensor(case["initial"]), 0
    changes, broken = [[0, scale.item()]], set(case["broken"])
    for step in range(1, STEPS_OF_SCALER + 1):
        # What _amp_update_scale_ does on a GPU, in f32; there is no such kernel for a CPU.
        if step in broken:
            scale, tracker = scale * backoff, 0
        else:
            tracker += 1
            if tracker == interval:
                grown = scale * growth
                scale, tracker = grown if torch.isfinite(grown) else scale, 0
        if scale.item() != changes[-1][1]:
            changes.append([step, scale.item()])
    return {**case, "steps": STEPS_OF_SCALER, "changes": changes, "good": tracker}


LINEAR = [
    {"name": "sgd", "optimizer": "sgd", "lr": 3.0},
    {"name": "sgd momentum", "optimizer": "sgd", "lr": 1.0, "momentum": 0.9},
    {"name": "sgd nesterov decay", "optimizer": "sgd", "lr": 1.0, "momentum": 0.9, "nesterov": True,
     "weight_decay": 0.001},
    {"name": "adam", "optimizer": "adam", "lr": 0.002, "weight_decay": 0.01},
    {"name": "adamw", "optimizer": "adamw", "lr": 0.002, "weight_decay": 0.1},
]
# loss_scale changes nothing in PyTorch's f64; the test has it to undo the scale before it clips.
CLIPPED = [
    {"name": "clipped sgd", "optimizer": "sgd", "lr": 3.0, "clip_norm": 0.05},
    {"name": "clipped scaled momentum", "optimizer": "sgd", "lr": 1.0, "momentum": 0.9, "clip_norm": 0.04,
     "loss_scale": 4096.0},
    {"name": "clipped scaled adam", "optimizer": "adam", "lr": 0.002, "weight_decay": 0.01, "clip_norm": 0.04,
     "loss_scale": 65536.0},
]
RESNET = {"optimizer": "sgd", "lr": 0.001, "momentum": 0.9, "steps": 3,
          "least": {"margin": 0, "moved": 1e-6, "learned": 0.01}}
SHAPE = {"dim": 64, "depth": 3, "batch": 16}
FILES = {
    "linear.json": [{**case, "model": "linear", **SHAPE} for case in LINEAR] + [
        {"name": "odd shape", "optimizer": "sgd", "lr": 1.0, "momentum": 0.9, "model": "linear",
         "dim": 37, "depth": 2, "batch": 5}],
    "clipped.json": [{**case, "model": "linear", **SHAPE} for case in CLIPPED],
    "scaler.json": [
        {"name": "grows and backs off", "initial": 65536.0, "broken": [3, 4, 2005, 2006, 4100, 8300]},
        {"name": "grows to the largest f32", "initial": 2.0**126, "broken": [6500]},
        {"name": "no power of two", "initial": 1000.0, "broken": [1, 1999, 4500]}],
    "lenet.json": [
        {"name": "lenet", "optimizer": "sgd", "lr": 0.01, "momentum": 0.9, "model": "lenet", "batch": 8,
         "least": {"margin": 0, "moved": 1e-3, "learned": 0.01}}],
    "resnet.json": [
        {"name": "resnet8", **RESNET, "model": "resnet8", "batch": 4},
        {"name": "resnet18", **RESNET, "model": "resnet18", "batch": 8, "images": "2x", "loss_tolerance": 1e-3,
         "weight_tolerance": 0.1}],
    "gradients.json": [
        {"name": "lenet", "model": "lenet", "batch": 8},
        {"name": "resnet8", "model": "resnet8", "batch": 4, "images": "44x"},
        {"name": "resnet18", "model": "resnet18", "batch": 1, "images": "110x"}],
    "classifier.json": [
        {"name": "classifier sgd", "optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "model": "classifier",
         "features": 24, "hidden": 33, "classes": 10, "batch": 19},
        {"name": "classifier adamw", "optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1,
         "model": "classifier", "features": 24, "hidden": 33, "classes": 10, "batch": 19}],
}


# Learning rates. warmup: steps on a line from `from` to lr; the schedule of that kind comes after them, but drops of the step
# schedule count from the first step of all.
SCHEDULES = [
    {"name": "constant", "kind": "constant", "lr": 0.1, "steps": 7},
    {"name": "step", "kind": "step", "lr": 0.1, "steps": 20, "interval": 6, "gamma": 0.1},
    {"name": "cosine", "kind": "cosine", "lr": 0.3, "steps": 25},
    {"name": "linear", "kind": "linear", "lr": 0.3, "steps": 25},
    {"name": "warm-up and constant", "kind": "constant", "lr": 6.4, "steps": 15, "warmup": 10, "from": 0.1},
    {"name": "warm-up and step", "kind": "step", "lr": 0.8, "steps": 30, "interval": 9, "gamma": 0.2, "warmup": 5,
     "from": 0.1},
    {"name": "warm-up and cosine", "kind": "cosine", "lr": 0.4, "steps": 40, "warmup": 13, "from": 0.1},
    {"name": "warm-up and linear", "kind": "linear", "lr": 0.2, "steps": 40, "warmup": 1, "from": 0.05},
]


def scheduled(case):
    """The rate of every step, by PyTorch's schedulers."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=case["lr"])
    warmup, steps, schedulers = case.get("warmup", 0), case["steps"], torch.optim.lr_scheduler
    if warmup:
        first = schedulers.LinearLR(optimizer, start_factor=case["from"] / case["lr"], total_iters=warmup)
    drops = [at - warmup for at in range(case["interval"], steps, case["interval"])] if case["kind"] == "step" else []
    rest = {"constant": lambda: schedulers.ConstantLR(optimizer, factor=1.0),
            "step": lambda: schedulers.MultiStepLR(optimizer, drops, gamma=case["gamma"]),
            "cosine": lambda: schedulers.CosineAnnealingLR(optimizer, T_max=steps - warmup),
            "linear": lambda: schedulers.LinearLR(optimizer, 1.0, 0.0, total_iters=steps - warmup)}[case["kind"]]()
    scheduler = schedulers.SequentialLR(optimizer, [first, rest], [warmup]) if warmup else rest
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return {**case, "rates": rates}


FILES["schedules.json"] = SCHEDULES
MAKERS = {"gradients.json": differentiated, "scaler.json": scaled, "schedules.json": scheduled}


def text_of(value, depth=0):
    """JSON with a line for each tensor and for each list of numbers."""
    if isinstance(value, dict) and any(isinstance(v, (dict, list)) for v in value.values()) and "sha256" not in value:
        inner = ",\n".join(" " * (depth + 1) + json.dumps(k) + ": " + text_of(v, depth + 1) for k, v in value.items())
        return "{\n" + inner + "\n" + " " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(" " * (depth + 1) + text_of(v, depth + 1) for v in value) + "\n" + " " * depth + "]"
    return json.dumps(value)


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or FILES
    for file in wanted:
        make = MAKERS.get(file, trained)
        made_by = f"tests/golden/make_golden.py with PyTorch {torch.__version__}, in f64"
        text = text_of({"made_by": made_by, "cases": [make(case) for case in FILES[file]]})
        pathlib.Path(__file__).with_name(file).write_text(text + "\n")


if __name__ == "__main__":
    main()
