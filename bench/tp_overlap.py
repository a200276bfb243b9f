#!/usr/bin/env python3
"""Steps of tensor ranks over a slow link, with and without computation beside their collectives.

    bench/tp_overlap.py LOCKSTEP [--turns 9] [--mbit 1000] [--layout tp2|tp2dp2] [--sp]

Every rank is a host (hosts.py). Each turn trains once with train.tp_overlap and once without; times are medians of a
run's steps, ratios are taken inside a turn. What `simulate` says of both comes from a calibration that was made over the
same link.
"""
import argparse
import os
import sys
import tempfile

from hosts import hosts, in_own_network, measured_text, median_step, on_ranks, ratio_text, simulated

RUN = """
[model]
name = "overlap"
layers = 4
hidden = 512
heads = 8
kv_heads = 4
ffn = 1408
vocab = 512
max_positions = 512
[layout]
tp = 2
[batch]
seq = 512
[train]
dtype = "f32"
lr = 1e-4
"""


def measure(options, entries, work):
    run = os.path.join(work, "run.toml")
    with open(run, "w", encoding="utf-8") as file:
        file.write(RUN)
    dp = len(entries) // 2
    asked = ["--set", f"layout.dp={dp}", "--set", f"batch.global_batch={4 * dp}", "--set",
             f"layout.sp={'true' if options.sp else 'false'}"]
    on = {name: ["--set", f"train.tp_overlap={value}"] for name, value in (("with", "true"), ("without", "false"))}
    calibration = os.path.join(work, "calibration.json")
    on_ranks(entries, [options.lockstep, "calibrate", run, *asked, "--seconds", "40", "--out", calibration])
    said = {name: simulated([options.lockstep, "simulate", run, *asked, *words, "--calibration", calibration])
            for name, words in on.items()}
    times = {name: [] for name in on}
    losses = set()
    for turn in range(options.turns):
        for name in list(on) if turn % 2 else reversed(list(on)):
            folder = os.path.join(work, f"{name}{turn}")
            told = on_ranks(entries, [options.lockstep, "train", run, "--mock-data", *asked, *on[name], "--set",
                                      "train.steps=6", "--metrics", folder])
            losses.add(told.split(": loss ")[-1])
            times[name].append(median_step(folder))
    for name in on:
        print(f"{name:8} {measured_text(times[name], said[name])}")
    print(f"with / without: {ratio_text(times['with'], times['without'])} measured, "
          f"{said['with'] / said['without']:.3f} simulated; losses {'the same' if len(losses) == 1 else losses}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=os.path.abspath)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--layout", choices=("tp2", "tp2dp2"), default="tp2")
    parser.add_argument("--sp", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-overlap-") as work, \
            hosts(4 if options.layout == "tp2dp2" else 2, options.mbit) as entries:
        measure(options, entries, work)


if __name__ == "__main__":
    sys.exit(in_own_network(main))
