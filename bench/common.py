"""What the benchmarks share: their arguments, comparisons in turns (echelon compare), tables and raw files."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE / "peers"
EQUAL, FEWEST_STARTS = 1.02, 6  # as echelon compare judges
ARM_TIMEOUT_S = 600  # torch.compile may take minutes


def fail(sentence):
    sys.exit(f"bench/{pathlib.Path(sys.argv[0]).name}: {sentence}")


def parser_of(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("--quick", action="store_true", help="leave what takes minutes out")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with this in their names")
    parser.add_argument("--budget", metavar="TIME", help="of each comparison, such as 90s or 5min (default: its own)")
    return parser


def parse(parser):
    args = parser.parse_args()
    path = pathlib.Path(args.program).resolve()
    if not os.access(path, os.X_OK):
        fail(f"{args.program} is no program: make builds it")
    args.program, args.out = str(path), path.parent / "bench"
    args.out.mkdir(exist_ok=True)
    os.environ.update(OMP_NUM_THREADS="1", NO_COLOR="1", TORCHINDUCTOR_CACHE_DIR=str(args.out / "inductor"))
    return args


def select(cases, word):
    chosen = [case for case in cases if word in case.name]
    return chosen or fail(f"no case has '{word}' in its name")


def new_tuning(out, name):
    """A file that does not exist yet: kernels are timed anew in each run."""
    (out / name).unlink(missing_ok=True)
    return out / name


def say(line):
    print(line, file=sys.stderr, flush=True)


# ---- PyTorch ----

def has_torch(python):
    return shutil.which(python) is not None and subprocess.run([python, "-c", "import torch, numpy"],
            stderr=subprocess.DEVNULL).returncode == 0


def make_venv(place):
    """The newest PyTorch that pip finds; pip's own settings say where, such as PIP_INDEX_URL for a build without CUDA."""
    say(f"installing PyTorch from PyPI in {os.path.relpath(place)}: this takes some GB, once")
    return (subprocess.run([sys.executable, "-m", "venv", "--clear", place], stdout=sys.stderr).returncode == 0 and
            subprocess.run([place / "bin" / "pip", "install", "-q", "torch", "numpy"],
                stdout=sys.stderr).returncode == 0)


def find_python(out):
    """An interpreter with PyTorch: $PYTHON, else that of a virtual environment in the directory out, else Debian's."""
    given, place, debian = os.environ.get("PYTHON"), out / "venv", "/usr/bin/python3"
    if given:
        return given if has_torch(given) else fail(f"PYTHON={given} has no PyTorch or no NumPy")
    if has_torch(place / "bin" / "python") or (make_venv(place) and has_torch(place / "bin" / "python")):
        return str(place / "bin" / "python")
    say("PyPI's PyTorch cannot be had: taking Debian's")
    if not has_torch(debian):
        subprocess.run([HERE.parent / "tools" / "setup", "torch"])
    return debian if has_torch(debian) else fail("no python3 with PyTorch")


# ---- processes ----

def run(command, text="", **environment):
    """Standard output and the most memory that was resident, in bytes. text: its standard input."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, **environment}) as child:
        child.stdin.write(text.encode())
        child.stdin.close()
        out = child.stdout.read().decode()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        fail(f"exit code {child.returncode} from: {' '.join(map(str, command))}")
    return out, usage.ru_maxrss * 1024


def run_json(command, **environment):
    """The record that a command of echelon prints, with the command and its resident memory."""
    text, resident = run([*command, "--json"], **environment)
    return {**json.loads(text), "command": command, "resident_bytes": resident}


def torch_memory(arm):
    """Most memory of a peer that does a block of two steps, and how much of it importing PyTorch takes: half a GB with CUDA."""
    _, python, *_ = arm.words
    return run(arm.words[1:], "run 1\n")[1], run([python, "-c", "import torch"])[1]


# ---- one work, several arms ----

class Arm:
    """words: of echelon's command line, or --peer and a program. What is shown is scale times how many times as fast as this
    arm the first one is; it is to be at least target, or at_most. Of the arms of one family the fastest counts."""

    def __init__(self, name, words, target=None, at_most=False, text=None, scale=1, family=None):
        self.name, self.words, self.target, self.at_most = name, [str(word) for word in words], target, at_most
        self.text = text or ("" if target is None else "no slower" if target == 1 else f"{target:g}x")
        self.scale, self.family = scale, family or name

    def side(self, record):
        """What the arm says it is, and of our own what makes it differ."""
        if "--peer" in self.words:
            return record["what"]
        return ", ".join([record["what"].replace(", measured", ""), *([self.name] if self.name else [])])

    def faster(self, record):
        """How many times as fast the first arm is, with its interval (none after one start)."""
        low, high = record["low"], record["high"]
        return (self.scale / record["ratio"], self.scale / high if high else None, self.scale / low if low else None)

    def verdict(self, record, whole):
        _, low, high = self.faster(record)
        if whole["disturbed"]:
            return "undecided: disturbed"
        if whole["starts"] < FEWEST_STARTS or not low or not high:
            return f"undecided: {whole['starts']} starts"
        if self.target / EQUAL <= low and high <= self.target * EQUAL:
            return "equal within 2 %"
        if low <= self.target <= high:
            return "undecided"
        return judge((low > self.target) != self.at_most)


def torch_arms(args, python, script, words, images, target=None, family="PyTorch", prefix=()):
    """PyTorch in all forms. torch.compile is tried first, which also fills its cache; it is left out where it does not work."""
    peer = lambda form: ["--peer", *prefix, python, PEERS / script, form, *words]
    arm = lambda form: Arm(f"{family}, {form}", peer(form), target, family=family)
    arms = [arm("eager"), *([arm("channels_last")] if images else [])]
    trial = subprocess.run(arm("compile").words[1:], input=b"run 1\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if trial.stdout.rstrip().endswith(b"done"):
        return [*arms, arm("compile")]
    lines = trial.stderr.decode().strip().splitlines() or ["it did not say why"]
    say(f"torch.compile is left out: {lines[-1]}")
    return arms


class Comparison:
    """The first arm, our own, in turns with the others. arms: a list, or a function that makes it when it is needed."""

    def __init__(self, name, budget, arms):
        self.name, self.budget, self.make_arms = name, budget, arms

    def measure(self, args):
        self.arms = self.make_arms() if callable(self.make_arms) else self.make_arms
        self.file = args.out / (f"{pathlib.Path(sys.argv[0]).name} {self.name}".replace(", ",
                "-").replace(" ", "-") + ".json")
        command = [args.program, "compare", "--json", "--budget", args.budget or self.budget,
                "--arm-timeout", str(ARM_TIMEOUT_S)]
        for arm in self.arms:
            threshold = f"{arm.scale / (arm.target or 1):.6g}"
            command += ["--", "--name", arm.name or "Echelon", "--threshold", threshold, *arm.words]
        say(f"{self.name}:")
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            try:
                text = child.communicate()[0].decode()
            except KeyboardInterrupt:  # it ends its arms by itself
                child.wait()
                raise
        if child.returncode:
            fail(f"exit code {child.returncode} from: {' '.join(command)}")
        self.record = {"work": self.name, **json.loads(text)}
        self.file.write_text(json.dumps(self.record, indent=1) + "\n")

    def rows(self):
        records = self.record["arms"]
        yield [self.name, self.arms[0].side(records[0]), seconds(records[0]["step_time_s"]["median"]), "", "", "", ""]
        best = {}
        for arm, record in zip(self.arms[1:], records[1:]):
            if arm.family not in best or record["step_time_s"]["median"] < best[arm.family]["step_time_s"]["median"]:
                best[arm.family] = record
        for arm, record in zip(self.arms[1:], records[1:]):
            ratio, low, high = arm.faster(record)
            judged = arm.target is not None and record is best[arm.family]
            yield ["", arm.side(record), seconds(record["step_time_s"]["median"]), f"{times(ratio)}x",
                   f"{times(low)} .. {times(high)}" if low and high else "", arm.text if judged else "",
                   arm.verdict(record, self.record) if judged else ""]

    def note(self):
        r = self.record
        noise = f"noise {100 * r['noise']['spread']:.1f} %" if r["starts"] > 1 else "noise unknown"
        return (f"{self.name}: {r['starts']} starts, {r['rounds']} rounds, {r['dropped_rounds']} dropped, {noise}, "
                f"{r['elapsed_s']:.0f} s" + ("; other programs used the cores" if r["disturbed"] else ""))


def compare(comparisons, args, title, figure="ours is faster by"):
    """Measures, keeps and shows them. The copies of the first arms are judged together."""
    for comparison in comparisons:
        comparison.measure(args)
    table(title, ["work", "side", "step time", figure, "95 % interval", "target", "verdict"],
          [row for comparison in comparisons for row in comparison.rows()])
    print("\n".join(comparison.note() for comparison in comparisons))
    if sum(comparison.record["starts"] for comparison in comparisons) > 1:
        print(run([args.program, "compare", *(word for one in comparisons
                for word in ("--pool", one.file))])[0], end="")
    print()


# ---- what is shown and kept ----

def seconds(value):
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1 or unit == "us":
            return f"{value * factor:#.3g}".rstrip(".") + f" {unit}"
    return ""


def times(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def gigabytes(value):
    return f"{value / 1e9:.3f} GB"


def judge(good):
    return "met" if good else "missed"


def table(title, head, rows):
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    line = lambda row: "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
    print(f"{title}\n\n{line(head)}\n{line(['-' * width for width in widths])}")
    print("\n".join(line(row) for row in rows) + "\n")


def keep(out, name, record):
    file = name.replace(", ", "-").replace(" ", "-") + ".json"
    (out / file).write_text(json.dumps(record, indent=1) + "\n")


def show_machine(args):
    info = run_json([args.program, "info"])
    machine = info["machine"]
    print(f"Echelon {info['version']}; {machine['processor']}, {machine['isa']}; {machine['onednn']}; {machine['openblas']}\n")


def show_files(args):
    print(f"raw figures and commands: {os.path.relpath(args.out)}/{pathlib.Path(sys.argv[0]).name}*.json")
