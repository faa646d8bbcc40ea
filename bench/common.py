"""What bench/run, bench/comm and bench/ddp share: their arguments, processes, tables and raw files."""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE / "peers"


def fail(sentence):
    sys.exit(f"bench/{pathlib.Path(sys.argv[0]).name}: {sentence}")


def parser_of(description, rounds=3):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("--quick", action="store_true", help="leave what takes minutes out")
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"of each side (default: {rounds})")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with this in their names")
    return parser


def parse(parser):
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds: at least 1 is needed")
    path = pathlib.Path(args.program).resolve()
    if not os.access(path, os.X_OK):
        fail(f"{args.program} is no program: make builds it")
    args.program, args.out = str(path), path.parent / "bench"
    args.out.mkdir(exist_ok=True)
    return args


def select(cases, word):
    chosen = [case for case in cases if word in case.name]
    return chosen or fail(f"no case has '{word}' in its name")


def find_python():
    """An interpreter that has PyTorch."""
    for python in (os.environ.get("PYTHON"), "/usr/bin/python3", sys.executable):
        if python and subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    fail("no python3 with PyTorch: tools/setup bench installs Debian's")


def new_tuning(out, name):
    """A file that does not exist yet: kernels are timed anew in each run."""
    (out / name).unlink(missing_ok=True)
    return out / name


# ---- processes ----

def run_together(commands, environments):
    """Runs commands at the same time. For each, standard output and the most memory that was resident, in bytes. The first
    that fails ends the others."""
    outs = [tempfile.TemporaryFile() for _ in commands]
    base = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    children = [subprocess.Popen(command, stdout=out, env={**base, **environment})
                for command, out, environment in zip(commands, outs, environments)]
    by_pid = {child.pid: k for k, child in enumerate(children)}
    resident = [0] * len(commands)
    try:
        while by_pid:
            pid, status, usage = os.wait4(-1, 0)
            if pid not in by_pid:
                continue
            k = by_pid.pop(pid)
            children[k].returncode = os.waitstatus_to_exitcode(status)
            resident[k] = usage.ru_maxrss * 1024
            if children[k].returncode != 0:
                fail(f"exit code {children[k].returncode} from: {' '.join(commands[k])}")
    finally:
        for pid in by_pid:
            os.kill(pid, 9)
    results = []
    for out, bytes_ in zip(outs, resident):
        out.seek(0)
        results.append((out.read().decode(), bytes_))
        out.close()
    return results


def run(command, **environment):
    return run_together([command], [environment])[0]


def run_peer(command, **environment):
    """A peer that prints JSON with samples_s."""
    text, resident = run(command, **environment)
    return {**json.loads(text), "command": command, "resident_bytes": resident}


def run_ranks(count, command):
    """A peer as ranks of torch.distributed on loopback, one thread each, pinned nowhere. Rank 0 prints."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environments = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"} for rank in range(count)]
    results = run_together([command] * count, environments)
    return {**json.loads(results[0][0]), "command": command, "ranks": count,
            "resident_bytes": [resident for _, resident in results]}


def run_trainings(commands, warmup):
    """Trainings of echelon at the same time; a result for each. The steps after the warm-up are the samples."""
    with tempfile.TemporaryDirectory() as place:
        places = [pathlib.Path(place, str(k)) for k in range(len(commands))]
        commands = [[*command, "--warmup", str(warmup), "--json"] for command in commands]
        outputs = run_together([[*command, "--run-dir", str(where)] for command, where in zip(commands, places)],
                               [{}] * len(commands))
        steps = [[json.loads(line)["time_s"] for line in (where / "steps.jsonl").read_text().splitlines()]
                 for where in places]
    results = []
    for command, (text, resident), times in zip(commands, outputs, steps):
        record = json.loads(text)
        results.append({"command": command, "framework": f"Echelon {record['version']}", "resident_bytes": resident,
                        "samples_s": times[warmup:], "summary": record["summary"], "machine": record["machine"],
                        "kernels": record.get("kernels")})
    return results


# ---- what is shown and kept ----

def say(line):
    print(line, file=sys.stderr, flush=True)


def seconds(value):
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1 or unit == "us":
            return f"{value * factor:#.3g}".rstrip(".") + f" {unit}"
    return ""


def gigabytes(value):
    return f"{value / 1e9:.3f} GB"


def judge(good):
    return "met" if good else "missed"


def table(title, head, rows):
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    line = lambda row: "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
    print(f"{title}\n\n{line(head)}\n{line(['-' * width for width in widths])}")
    print("\n".join(line(row) for row in rows) + "\n")


def spread(samples):
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    return f"{seconds(low)} .. {seconds(high)}"


def keep(out, name, record):
    file = name.replace(", batch ", "-b").replace(", ", "-").replace(" ", "-") + ".json"
    (out / file).write_text(json.dumps(record, indent=1) + "\n")


def machine_text(machine):
    return f"{machine['processor']}, {machine['vectors']}; {machine['onednn']}; {machine['openblas']}"


# ---- one work, several sides ----

class Side:
    """measure() -> {"framework", "samples_s", ...}. What is held against the work's own side is this side's time by the own
    side's: at least (or, with at_most, at most) target. prepare() comes before the first round."""

    def __init__(self, name, measure, target=None, at_most=False, text=None, prepare=None):
        self.name, self.measure, self.target, self.at_most = name, measure, target, at_most
        self.text = text or ("" if target is None else "no slower" if target == 1 else f"{target:g}x")
        self.prepare = prepare or (lambda: None)

    def meets(self, ratio):
        return ratio <= self.target if self.at_most else ratio >= self.target


class Contest:
    """The same work on several sides in turns, of which the last is our own. units: what a sample does units of (images), for
    a rate."""

    def __init__(self, name, sides, units=None, rounds=None):
        self.name, self.sides, self.units, self.most_rounds = name, sides, units, rounds
        self.rounds = []

    def measure(self, rounds):
        rounds = min(rounds, self.most_rounds or rounds)
        for side in self.sides:
            side.prepare()
        for number in range(rounds):
            self.rounds.append({side.name: side.measure() for side in self.sides})
            medians = (f"{name} {seconds(statistics.median(one['samples_s']))}"
                       for name, one in self.rounds[-1].items())
            say(f"{self.name}: round {number + 1} of {rounds}: {', '.join(medians)}")

    def samples(self, side):
        return [sample for one in self.rounds for sample in one[side.name]["samples_s"]]

    def rows(self):
        own = self.sides[-1]
        for side in self.sides:
            samples = self.samples(side)
            median = statistics.median(samples)
            ratio = median / statistics.median(self.samples(own))
            by_round = [statistics.median(one[side.name]["samples_s"]) / statistics.median(one[own.name]["samples_s"])
                        for one in self.rounds]
            judged = side.target is not None
            yield [self.name if side is self.sides[0] else "", side.name, seconds(median), spread(samples),
                   str(len(samples)), rate_text(self.units / median) if self.units else "",
                   "" if side is own else f"{ratio:.2f}x",
                   "" if side is own else f"{min(by_round):.2f} .. {max(by_round):.2f}",
                   side.text, judge(side.meets(ratio)) if judged else ""]


def rate_text(value):
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def run_contests(contests, args, title, rate, head):
    """Measures, keeps and shows them. rate: heading of the rates, or None. head(contests): the line above the table."""
    start, script = time.monotonic(), pathlib.Path(sys.argv[0]).name
    for contest in contests:
        contest.measure(args.rounds)
        targets = {side.name: side.text for side in contest.sides if side.target is not None}
        record = {"name": contest.name, "targets": targets, "rounds": contest.rounds}
        keep(args.out, f"{script} {contest.name}", record)
    print(f"{head(contests)}; {args.rounds} rounds in turns, {time.monotonic() - start:.0f} s\n")
    columns = ["work", "side", "median", "middle half", "samples", rate or "", "by ours", "by round", "target", ""]
    rows = [row for contest in contests for row in contest.rows()]
    if not rate:
        columns, *rows = [row[:5] + row[6:] for row in [columns, *rows]]
    table(title, columns, rows)
    print(f"raw samples and commands: {os.path.relpath(args.out)}/*.json")
