#!/usr/bin/env python3
"""Steps of long sequences that two hosts share, beside one process with as many cores.

    bench/context.py LOCKSTEP [--turns 7] [--seq 8192] [--mbit 1000 0] [--methods ring gather ulysses]

Every rank is a host with one thread (hosts.py); mbit 0 is a link that nothing shapes. Each turn trains once on one process
of two threads and once in every way; times are medians of a run's steps, ratios are taken inside a turn. What `simulate`
says comes from a calibration over the same link; of one process, from one on it.
"""
import argparse
import os
import subprocess
import sys
import tempfile

from hosts import hosts, in_own_network, measured_text, median_step, on_ranks, ratio_text, simulated

RUN = """
[model]
name = "long"
layers = 2
hidden = 256
heads = 4
kv_heads = 2
ffn = 768
vocab = 512
max_positions = {seq}
[batch]
seq = {seq}
global_batch = 1
[train]
dtype = "f32"
lr = 1e-4
"""


class Bench:
    def __init__(self, options, entries, work):
        self.program, self.entries, self.work = options.lockstep, entries, work
        self.run = os.path.join(work, "run.toml")
        with open(self.run, "w", encoding="utf-8") as file:
            file.write(RUN.format(seq=options.seq))

    def layout(self, method):
        return ["--set", "train.threads=2"] if method == "one" else \
            ["--set", "layout.cp=2", "--set", f"layout.cp_comm_type={method}"]

    def start(self, method, words):
        if method != "one":
            return on_ranks(self.entries, words)
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def simulated(self, method):
        file = os.path.join(self.work, method + ".json")
        self.start(method, [self.program, "calibrate", self.run, *self.layout(method), "--seconds", "30", "--out", file])
        return simulated([self.program, "simulate", self.run, *self.layout(method), "--calibration", file])

    def train(self, method, turn):
        folder = os.path.join(self.work, f"{method}{turn}")
        told = self.start(method, [self.program, "train", self.run, "--mock-data", *self.layout(method), "--set",
                                   "train.steps=4", "--metrics", folder])
        return median_step(folder), told.split(": loss ")[-1].split(",")[0]


def measure(options, mbit, entries, work):
    bench = Bench(options, entries, work)
    every = ["one", *options.methods]
    said = {method: bench.simulated(method) for method in every}
    times, losses = {method: [] for method in every}, set()
    for turn in range(options.turns):
        for method in every if turn % 2 else every[::-1]:
            seconds, loss = bench.train(method, turn)
            times[method].append(seconds)
            losses.add(loss)
    print(f"{options.seq} tokens, {f'{mbit} Mbit/s' if mbit else 'a link that nothing shapes'}; losses {sorted(losses)}")
    for method in every:
        ratio = "" if method == "one" else f"; {ratio_text(times[method], times['one'])} x one process"
        print(f"  {method:8} {measured_text(times[method], said[method])}{ratio}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=os.path.abspath)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--mbit", type=int, nargs="+", default=[1000, 0])
    parser.add_argument("--methods", nargs="+", default=["ring", "gather", "ulysses"])
    options = parser.parse_args()
    for mbit in options.mbit:
        with tempfile.TemporaryDirectory(prefix="lockstep-context-") as work, hosts(2, mbit) as entries:
            measure(options, mbit, entries, work)


if __name__ == "__main__":
    sys.exit(in_own_network(main))
