"""What torch_lenet.py and torch_resnet18.py share: timed training steps of a network for images, one thread, plain eager
PyTorch with SGD and cross-entropy on one fixed batch. Prints them as JSON."""
import json
import resource
import time

import torch
import torch.nn.functional as F

from torch_models import CLASSES, MODELS


def measure(name, batch, steps, warmup, **sgd):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), **sgd)
    x, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, CLASSES, (batch,))
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    print(json.dumps({
        "framework": f"PyTorch {torch.__version__}",
        "threads": torch.get_num_threads(),
        "warmup": warmup,
        "samples_s": times[warmup:],
        "final_loss": loss.item(),
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))
