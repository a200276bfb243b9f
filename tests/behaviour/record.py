#!/usr/bin/env python3
"""What the program computes, as one file: digests of training, plans, prices, drawings. Moving code changes none of it.

    record.py LOCKSTEP RUNS.csv > recorded.json                  record
    record.py LOCKSTEP RUNS.csv --against recorded.json          say what differs, exit code 1 if anything does
    record.py LOCKSTEP RUNS.csv --against recorded.json --only train/tiny/f64
                                                                 the names that begin so

Of JSON the numbers and the words have a digest each, so that a change of words alone is seen as that. RUNS.csv are published
runs, for `lockstep backtest`. Training takes about four minutes on two cores. The bits of training are those of one machine.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
FAMILIES = ["tiny", "gpt2", "mistral", "qwen2", "qwen3"]
TYPES = ["f64", "f32", "bf16"]
# Forty layouts of one to eight ranks; microbatches of 4 unless they are said.
LAYOUTS = """
dp1 zero0; dp2 zero0; dp2 zero1; dp2 zero2; dp2 zero3; dp4 zero1; dp4 zero2; dp4 zero3; dp8 zero3;
tp2 dp1 zero1; tp2 dp2 zero1; tp2 dp2 zero3; tp2 dp1 zero1 sp=false; tp2 dp2 zero2 sp=false;
pp2 dp1 zero1 1f1b; pp2 dp1 zero1 gpipe; pp2 dp1 zero1 zb-h1; pp2 dp1 zero1 eager-1f1b; pp2 dp2 zero0 1f1b; pp2 dp2 zero1 1f1b;
pp2 dp2 zero2 1f1b; pp2 dp2 zero3 1f1b; pp2 dp2 zero3 gpipe; pp2 dp4 zero3 1f1b; pp2 dp2 zero1 recompute=full;
dp2 zero1 recompute=full; dp2 zero3 recompute=selective; pp2 dp1 zero1 recompute=selective; tp2 pp2 dp1 zero1 1f1b;
tp2 pp2 dp2 zero1 1f1b; tp2 pp2 dp2 zero3 1f1b; tp2 pp2 dp2 zero2 zb-h1; tp2 dp2 zero1 recompute=full;
pp2 dp1 zero1 v-half vpp2; pp2 dp1 zero1 zbv vpp2; pp2 dp1 zero1 dualpipe-v vpp2; pp2 dp2 zero1 v-min vpp2;
pp2 dp2 zero1 interleaved vpp2; pp4 dp1 zero1 1f1b; pp4 dp2 zero3 zb-h1
"""
PLANS = """
--model llama3-70b --cluster h100:512 --seq 8192 --global-batch 512
--model llama3-405b --cluster h100:16384 --seq 8192 --global-batch 2048
--model llama3-8b --cluster h100:64 --seq 8192 --global-batch 512
--model llama3-8b --cluster a100:8 --seq 4096 --global-batch 64
--model gpt3-175b --cluster a100:1024 --seq 2048 --global-batch 1536
--model mixtral-8x7b --cluster h100:256 --seq 4096 --global-batch 1024
--model deepseek-v3 --cluster h800:2048 --seq 4096 --global-batch 15360
--model deepseek-v3 --cluster h800:2048 --seq 4096 --global-batch 15360 --dtype fp8
--model qwen2-72b --cluster h200:256 --seq 32768 --global-batch 256
--model llama3-70b --cluster h100:512 --seq 8192 --global-batch 512 --explain
--model llama3-70b --cluster h100:512 --seq 8192 --global-batch 512 --layout tp=8,pp=4
--model llama3-70b --cluster b200:512 --seq 131072 --global-batch 64
"""
SCHEDULES = ["gpipe", "1f1b", "eager-1f1b", "interleaved:2", "looped-bfs:2", "zb-h1", "interleaved-zb:2", "zbv", "v-half",
             "v-min", "dualpipe-v"]

EFFORT = {"walk_s", "all_s", "priced", "simulated"}  # of a search, not its answer


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def leaves(value):
    if isinstance(value, dict):
        for key in sorted(value.keys() - EFFORT):
            yield key
            yield from leaves(value[key])
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one)
    else:
        yield value


def of_json(text):
    numbers, words = [], []
    for leaf in leaves(json.loads(text)):
        (words if isinstance(leaf, (str, type(None))) else numbers).append(leaf)
    return {"numbers": digest(json.dumps(numbers)), "words": digest(json.dumps(words))}


class Recorder:
    def __init__(self, lockstep, runs, only):
        self.lockstep, self.runs, self.only, self.found = lockstep, runs, only, {}

    def run(self, *words):
        env = {**os.environ, "COLUMNS": "100"}
        done = subprocess.run([self.lockstep, *words], capture_output=True, text=True, check=False, timeout=600, env=env)
        if done.returncode != 0:
            code = re.search(r"LS\d{4}", done.stderr)
            return None, f"exit {done.returncode} {code[0] if code else ''}".strip()
        return done.stdout, None

    def add(self, name, read, *words):
        if self.only and not name.startswith(self.only):
            return
        text, refusal = self.run(*words)
        self.found[name] = refusal if text is None else read(text)

    def train(self):
        for family in FAMILIES:
            for dtype in TYPES:
                for layout in [" ".join(one.split()) for one in LAYOUTS.split(";") if one.strip()]:
                    self.add(f"train/{family}/{dtype}/{layout}",
                             lambda text: digest("\n".join(re.findall(r"^step .*$", text, re.M))),
                             "train", str(EXAMPLES / f"{family}.toml"), "--mock-data", "--oracle", "--set", "train.steps=2",
                             "--set", "model.layers=4",
                             "--set", f"train.dtype={dtype}", *self.settings(layout))

    @staticmethod
    def settings(layout):
        words = []
        for word in layout.split():
            degree = re.fullmatch(r"(dp|tp|pp|vpp|zero)(\d+)", word)
            if degree:
                pair = f"layout.{degree[1]}={degree[2]}"
            elif "=" in word:
                pair = f"layout.{word}"
            else:
                pair = f"layout.schedule={word}"
            words += ["--set", pair]
        return words

    def plans(self):
        for line in PLANS.strip().splitlines():
            self.add(f"plan/{line}", of_json, "plan", *line.split(), "--json")

    def backtest(self):
        for table in ["--report", "--rows"]:
            if self.only and not f"backtest/{table}".startswith(self.only):
                continue
            with tempfile.TemporaryDirectory() as folder:
                out = os.path.join(folder, "out")
                _, refusal = self.run("backtest", self.runs, table, out)
                self.found[f"backtest/{table}"] = refusal or digest(pathlib.Path(out).read_text())

    def schedules(self):
        for name in SCHEDULES:
            for shape in [("4", "8"), ("2", "6"), ("8", "24")]:
                words = ["simulate", "--schedule", name, "--pp", shape[0], "--microbatches", shape[1]]
                label = f"{name}/pp{shape[0]} m{shape[1]}"
                self.add(f"simulate/{label}", of_json, *words, "--json")
                with tempfile.TemporaryDirectory() as folder:
                    out = os.path.join(folder, "out.svg")
                    self.add(f"draw/{label}", lambda _, out=out: digest(pathlib.Path(out).read_text()), *words, "--svg", out)


def differences(old, new):
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            continue
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict) and before["numbers"] == after["numbers"]:
            yield f"words  {name}"
        else:
            yield f"values {name}: {before} -> {after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("runs")
    parser.add_argument("--against")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    recorder = Recorder(args.lockstep, args.runs, args.only)
    for part in (recorder.plans, recorder.backtest, recorder.schedules, recorder.train):
        part()
    if not args.against:
        json.dump(recorder.found, sys.stdout, indent=0, sort_keys=True)
        print()
        return 0
    old = json.loads(pathlib.Path(args.against).read_text())
    found = list(differences({k: v for k, v in old.items() if k.startswith(args.only)}, recorder.found))
    print("\n".join(found + [f"{len(recorder.found)} recorded, {len(found)} differ"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
