#!/usr/bin/env python3
"""Computes the figures of a lab directory a second time, from the records of its runs.

    recompute.py DIR

Every figure of every answer carries its source, an expression of src/lab/expr.h. This is a second implementation of that language,
without draws: what it makes of the source and the records must be the value that was written, to nine digits. It also holds
answers to their form: no digit outside of a figure, except in names, and not too long.

Ends with "N figures, N differ; N answers, N malformed"; exit code 1 where a figure differs, an answer is malformed, or there is no
figure at all.
"""
import json
import math
import pathlib
import re
import statistics
import sys

TOLERANCE = 1e-9
LONGEST = 1500  # characters of an answer: about fifteen lines

# Names with digits in them, which are no figures.
NAMES = re.compile(
    r"\b(?:int8|f32|f64|bf16|fp16|[su]8|s32|1f1b|1F1B|AVX2|AVX-512|A40|ResNet-\d+|resnet\d+|CIFAR-10|cifar10|"
    r"(?:conv|fc|pool|relu|layer)\d|(?:rank|device) 0)\b|\b95\s?%"
)


class Unknown(Exception):
    """A run that failed, or a number that is not in its record."""


def is_number(value):
    return isinstance(value, (bool, int, float)) and math.isfinite(value)


def matches(element, condition):
    """KEY=VALUE, or several of them joined by '&'."""
    for part in condition.split("&"):
        key, _, want = part.partition("=")
        if not isinstance(element, dict) or key not in element:
            return False
        have = element[key]
        if isinstance(have, bool):
            have = "true" if have else "false"
        if isinstance(have, str):
            if have != want:
                return False
        else:
            try:
                if have is None or float(want) != have:
                    return False
            except (ValueError, TypeError):
                return False
    return True


def components(value, name):
    """What a component names: nothing or one thing."""
    if isinstance(value, dict):
        return [value[name]] if name in value else []
    if not isinstance(value, list) or not name:
        return []
    if name.isdigit():
        return [value[int(name)]] if int(name) < len(value) else []
    return [e for e in value if matches(e, name)][:1] if "=" in name else []


def follow(value, path):
    """Where a path leads; a component may have dots in it. None where it leads nowhere."""
    words = path.split(".")
    for n in range(1, len(words) + 1):
        for inner in components(value, ".".join(words[:n])):
            found = inner if n == len(words) else follow(inner, ".".join(words[n:]))
            if found is not None:
                return found
    return None


class Run:
    def __init__(self, directory, row):
        self.id = row["id"]
        self.failed = row["status"] not in ("done", "reused")
        self.dir = directory / row["record"] if row.get("record") else None

    def record(self):
        if self.failed or not self.dir:
            raise Unknown(self.id)
        for name in ("run.json", "result.json"):
            if (self.dir / name).exists():
                return json.loads((self.dir / name).read_text())
        raise Unknown(self.id)

    def value(self, path):
        return follow(self.record(), path)

    def steps(self):
        self.record()
        path = self.dir / "steps.jsonl"
        if not path.exists():
            raise Unknown(self.id)
        lines = path.read_text().split("\n")[:-1]  # without its end, a line was not finished
        steps = [json.loads(line) for line in lines]
        return [(step.get("step", i + 1), step) for i, step in enumerate(steps)]

    def column(self, field):
        """A field of the steps behind the warm-up; of a run without steps, an array of its record."""
        warmup = self.value("config.warmup") or 0
        if (self.dir / "steps.jsonl").exists():
            column = [follow(step, field) for number, step in self.steps() if number > warmup]
        else:
            column = self.value(field)
            column = column if isinstance(column, list) else []
        column = [float(v) for v in column if is_number(v)]
        if not column:
            raise Unknown(self.id)
        return column

    def first(self, field, number):
        for own, step in self.steps():
            value = follow(step, field)
            if own == number and is_number(value):
                return float(value)
        raise Unknown(self.id)


STATISTICS = {
    "steps": statistics.median,
    "mean": statistics.fmean,
    "std": lambda v: statistics.stdev(v),
    "p95": lambda v: sorted(v)[math.ceil(0.95 * len(v)) - 1],
    "lowest": min,
    "highest": max,
    "total": math.fsum,
    "count": len,
    "last": lambda v: v[-1],
}


def pairs(args):
    return list(zip(args[0::2], args[1::2]))


def line(args):
    """Slope and intercept of least squares, from the normal equations."""
    n, points = len(args) // 2, pairs(args)
    sx = math.fsum(x for x, _ in points)
    sy = math.fsum(y for _, y in points)
    sxx = math.fsum(x * x for x, _ in points)
    sxy = math.fsum(x * y for x, y in points)
    slope = (n * sxy - sx * sy) / (n * sxx - sx * sx)
    return slope, (sy - slope * sx) / n


def rsquared(*args):
    slope, intercept = line(args)
    mean = statistics.fmean(y for _, y in pairs(args))
    left = math.fsum((y - intercept - slope * x) ** 2 for x, y in pairs(args))
    return 1 - left / math.fsum((y - mean) ** 2 for _, y in pairs(args))


def amdahl(*args):
    slope, intercept = line([v for x, y in pairs(args) for v in (1 / x, y)])
    if intercept < 0:
        return 0.0
    return 1.0 if slope < 0 else intercept / (intercept + slope)


def crossing(level, *args):
    points = sorted(pairs(args), key=lambda p: p[0])
    for (x, y), (u, v) in zip(points, points[1:] + points[-1:]):
        if y == level:
            return x
        if min(y, v) < level < max(y, v):
            return x + (level - y) / (v - y) * (u - x)
    raise Unknown("crossing")


FUNCTIONS = {
    "min": min,
    "max": max,
    "abs": abs,
    "sqrt": math.sqrt,
    "log": math.log,
    "exp": math.exp,
    "share": lambda hits, count: hits / count,
    "paired": lambda gained, lost, count: (gained - lost) / count,
    "average": lambda *a: statistics.fmean(a),
    "amdahl": amdahl,
    "slope": lambda *a: line(a)[0],
    "intercept": lambda *a: line(a)[1],
    "rsquared": rsquared,
    "crossing": crossing,
    "best": lambda *a: max(pairs(a), key=lambda p: p[1])[0],
    "worst": lambda *a: min(pairs(a), key=lambda p: p[1])[0],
}

TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z]\w*)|(?P<brackets>\[[^]]*\])|(?P<sign>[-+*/(),]))"
)


class Expression:
    """One expression, computed while it is read."""

    def __init__(self, text, runs, names):
        self.runs, self.names, self.tokens, at = runs, names, [], 0
        text = text.strip()
        while at < len(text):
            found = TOKEN.match(text, at)
            if not found:
                raise ValueError(f"'{text}' cannot be read from character {at + 1} on")
            self.tokens.append((found.lastgroup, found.group(found.lastgroup)))
            at = found.end()

    def value(self):
        value = self.sum()
        if self.tokens:
            raise ValueError(f"{self.tokens[0][1]} is too much")
        return value

    def peek(self):
        return self.tokens[0][1] if self.tokens else None

    def take(self, *words):
        return self.tokens.pop(0)[1] if self.peek() in words else None

    def sum(self):
        value = self.product()
        while sign := self.take("+", "-"):
            value = value + self.product() if sign == "+" else value - self.product()
        return value

    def product(self):
        value = self.factor()
        while sign := self.take("*", "/"):
            value = value * self.factor() if sign == "*" else value / self.factor()
        return value

    def run(self, brackets):
        run, _, rest = brackets[1:-1].strip().partition(" ")
        return self.runs[run], rest.strip()

    def factor(self):
        if self.take("-"):
            return -self.factor()
        if self.take("("):
            value = self.sum()
            if not self.take(")"):
                raise ValueError("a ')' is missing")
            return value
        kind, word = self.tokens.pop(0)
        if kind == "number":
            return float(word)
        if kind == "brackets":
            run, path = self.run(word)
            value = run.value(path)
            if not is_number(value):
                raise Unknown(path)
            return float(value)
        if kind != "name":
            raise ValueError(f"{word} was not expected")
        if self.tokens and self.tokens[0][0] == "brackets":
            run, field = self.run(self.tokens.pop(0)[1])
            if word == "first":
                field, _, number = field.rpartition(" ")
                return run.first(field.strip(), int(number))
            return float(STATISTICS[word](run.column(field)))
        if self.take("("):
            args = [self.sum()]
            while self.take(","):
                args.append(self.sum())
            if not self.take(")"):
                raise ValueError("a ')' is missing")
            return FUNCTIONS[word](*args)
        return self.names[word]


def compute(source, runs):
    """"EXPR where NAME = EXPR; NAME = EXPR", the names in an order in which they can be computed."""
    text, _, definitions = source.partition(" where ")
    names = {}
    for definition in definitions.split("; ") if definitions else []:
        name, _, expr = definition.partition(" = ")
        names[name] = Expression(expr, runs, names).value()
    return Expression(text, runs, names).value()


def compare(figure, runs):
    """What is wrong with a figure, or None."""
    source, value = figure.get("source"), figure["value"]
    if not source:
        return "has no source"
    if isinstance(value, str):
        run, _, path = source[1:-1].partition(" ")
        found = runs[run].value(path)
        return None if found == value else f"is '{value}', and {source} is '{found}'"
    try:
        again = compute(source, runs)
    except (Unknown, ValueError, KeyError, IndexError, ZeroDivisionError, TypeError, OverflowError) as error:
        return f"cannot be computed from {source}: {type(error).__name__}: {error}"
    if value is None or not abs(again - value) <= TOLERANCE * max(abs(again), abs(value)):
        return f"is {value}, and {source} gives {again}"
    low, high = figure.get("low"), figure.get("high")
    if low is not None and not low <= value <= high:
        return f"is {value}, outside of {low} to {high}"
    return None


def malformed(text):
    """What is wrong with the form of an answer, or None."""
    if len(text) > LONGEST:
        return f"has {len(text)} characters: at most {LONGEST}"
    # Reasons come from the records of runs that failed.
    words = re.sub(r"No result: .*?\.(?= [A-Z{]|\n\n|$)", "", text, flags=re.S)
    words = re.sub(r"(?<!\{)\{(?!\{)[^{}]*\}", "", words)
    words = NAMES.sub("", words)
    digits = re.search(r".{0,30}\d.{0,10}", words)
    return f"has a digit that is no figure: '{digits.group(0)}'" if digits else None


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: recompute.py DIR")
    directory = pathlib.Path(sys.argv[1])
    figures = differ = answers = bad = 0
    for name in json.loads((directory / "lab.json").read_text())["studies"]:
        study = json.loads((directory / "studies" / f"{name}.json").read_text())
        runs = {row["id"]: Run(directory, row) for row in study.get("runs", [])}
        for answer in study.get("answers", []):
            answers += 1
            if wrong := malformed(answer["text"]):
                bad += 1
                print(f"{name}: the answer to '{answer['question']}' {wrong}")
            for figure in answer.get("figures", []):
                figures += 1
                if wrong := compare(figure, runs):
                    differ += 1
                    print(f"{name}: {figure['name']} {wrong}")
    print(f"{figures} figures, {differ} differ; {answers} answers, {bad} malformed")
    return 1 if differ or bad or not figures else 0


if __name__ == "__main__":
    sys.exit(main())
