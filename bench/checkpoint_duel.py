#!/usr/bin/env python3
"""Checkpoints of the same size by Lockstep and by torch.distributed.checkpoint (DCP), in turn.

    PYTHON bench/checkpoint_duel.py PEERS DIR [--rounds 5] [--program build/dev/bench/bench_checkpoint]

PEERS is a folder with launch.py and bench_ckpt.py, which saves and loads an FSDP2-sharded model with its Adam state from
two processes; PYTHON is the interpreter of its environment. DIR is where both write, so it says which disk is measured
(/dev/shm: none). In every round both save and load 124M parameters, first the one, then the other, and ratios are taken
inside a round, so slow drift of the machine cancels. Both saves are timed until files are synced, both loads read the page
cache into tensors that exist. Lockstep's save takes digests of all it writes, and its load compares them; DCP has none.
Lockstep writes past the page cache, so its first load has to wait for the disk; DCP's finds its own pages, and so only
the second one of Lockstep compares. About 35 seconds a round.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("peers")
parser.add_argument("dir")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--program", default="build/dev/bench/bench_checkpoint")
parser.add_argument("--model", default="gpt2", help="Lockstep's name of it")
parser.add_argument("--size", default="gpt2-124M", help="the peer's name of it")
options = parser.parse_args()
sys.path.insert(0, os.path.abspath(options.peers))

import launch  # noqa: E402

PROGRAM = os.path.abspath(options.program)


def lockstep(folder):
    """GB/s: save, load, first load."""
    told = subprocess.run([PROGRAM, os.path.join(folder, "lockstep"), "3", options.model, "dp2 zero3 m1"], check=True,
                          capture_output=True, text=True).stdout
    size = float(re.search(r"([\d.]+) GB of state", told)[1])
    seconds = [float(re.search(rf"\n  {what} +([\d.]+) ms", told)[1]) / 1e3 for what in ("save", "load", "cold")]
    return [size / time for time in seconds]


def dcp(folder):
    """GB/s: save, load, save without sync."""
    done = launch.launch("bench_ckpt.py", ["--kind", "dcp", "--dir", folder, "--size", options.size], 2, timeout=300)
    if "error" in done:
        sys.exit(f"DCP: {done['error']} {done['error_detail']}")
    records = done["records"]
    size = records[0]["bytes"] / 1e9
    slowest = {key: max(record["dcp"][key] for record in records) for key in ("save_fsync_s", "load_s", "save_s")}
    return [size / slowest[key] for key in ("save_fsync_s", "load_s", "save_s")]


def spread(values):
    return f"{statistics.median(values):6.2f} [{min(values):.2f}, {max(values):.2f}]"


def main():
    ours, theirs = [], []
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=options.dir) as folder:
            for turn in ((lockstep, ours), (dcp, theirs))[:: 1 if number % 2 == 0 else -1]:
                turn[1].append(turn[0](folder))
        print(f"round {number + 1}: lockstep saves {ours[-1][0]:.2f} and loads {ours[-1][1]:.2f} GB/s, "
              f"DCP {theirs[-1][0]:.2f} and {theirs[-1][1]:.2f}", flush=True)
    print("\nGB/s, median [lowest, highest]     save               load")
    for name, rows in (("lockstep", ours), ("DCP", theirs)):
        print(f"  {name:30} {spread([row[0] for row in rows])} {spread([row[1] for row in rows])}")
    ratios = [[a[i] / b[i] for a, b in zip(ours, theirs)] for i in (0, 1)]
    print(f"  {'lockstep / DCP, in a round':30} {spread(ratios[0])} {spread(ratios[1])}")
    print(f"  {'lockstep, from the disk':30} {'':20} {spread([row[2] for row in ours])}")
    print(f"  {'DCP, not synced':30} {spread([row[2] for row in theirs])}")


if __name__ == "__main__":
    main()
