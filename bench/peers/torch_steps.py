"""What the peers that train share: timed steps of plain eager PyTorch with SGD on one fixed batch, printed as JSON."""
import contextlib
import json
import resource
import time

import torch


def measure(model, loss_of, x, y, steps, warmup, quiet=False, accum=1, dtype=None, **sgd):
    """The first warmup of the steps are run and not reported. quiet: another rank prints. accum: backward passes in a step.
    dtype: of autocast; None: without."""
    autocast = lambda: torch.autocast("cpu", dtype=dtype) if dtype else contextlib.nullcontext()
    optimizer = torch.optim.SGD(model.parameters(), **sgd)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        for _ in range(accum):
            with autocast():
                loss = loss_of(model(x), y)
            (loss / accum if accum > 1 else loss).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    if quiet:
        return
    print(json.dumps({
        "framework": f"PyTorch {torch.__version__}",
        "threads": torch.get_num_threads(),
        "warmup": warmup,
        "samples_s": times[warmup:],
        "final_loss": loss.item(),
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))
