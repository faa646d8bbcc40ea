"""The peers' side of echelon compare: steps when they are asked for, on one rank or several."""
import ctypes
import math
import os
import socket
import subprocess
import sys
import time

WARMUP_S = 0.3


def start_ranks(count):
    """Makes this process rank 0 of torch.distributed over gloo on loopback, and starts the others as copies of it, which end
    with it. Returns their pipes; in a copy, none."""
    if count == 1:
        return []
    import torch.distributed
    pipes = []
    if "RANK" in os.environ:
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(count),
                GLOO_SOCKET_IFNAME="lo")
        pipes = [subprocess.Popen([sys.executable, *sys.argv], stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, text=True,
                                  env={**os.environ, "RANK": str(rank)}).stdin for rank in range(1, count)]
        os.environ["RANK"] = "0"
    torch.distributed.init_process_group("gloo")
    return pipes


def serve(text, step, pipes=()):
    """Says "ready TEXT" after a warm-up, and then runs a block of steps for each line "run MS" until the input ends. step()
    may return the seconds it took; else they are taken here. The other ranks are told how many steps a block has: so many
    as the last one says are needed."""
    if os.environ.get("RANK", "0") != "0":
        for line in sys.stdin:
            for _ in range(int(line)):
                step()
        return

    def block(count):
        for pipe in pipes:
            print(count, file=pipe, flush=True)
        begin = start = time.perf_counter()
        lines = []
        for _ in range(count):
            own = step()
            end = time.perf_counter()
            lines.append(f"{own or end - start:.9g}")
            start = end
        return lines, (start - begin) / count

    _, each = block(1)
    _, each = block(max(1, math.ceil(WARMUP_S / each)))
    print(f"ready {text}", flush=True)
    for line in sys.stdin:
        lines, each = block(max(2, math.ceil(float(line.split()[1]) / 1e3 / each)))
        print(*lines, "done", sep="\n", flush=True)
