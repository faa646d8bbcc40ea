"""What the peers with networks for images share: one thread, cross-entropy on one fixed batch of noise."""
import torch
import torch.nn.functional as F

import torch_steps
from torch_models import CLASSES, MODELS


def measure(name, batch, steps, warmup, threads=1, **sgd):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = MODELS[name]()
    x, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, CLASSES, (batch,))
    torch_steps.measure(model, F.cross_entropy, x, labels, steps, warmup, **sgd)
