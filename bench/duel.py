#!/usr/bin/env python3
"""Lockstep turn by turn against PyTorch and bare LibTorch, with the duel of another folder.

    PYTHON bench/duel.py PEERS [--turns 12] [--only REGEX] [--json turns.json] [--turns-program FILE]

PEERS is a folder with duel.py, run.py, launch.py and model.py that take turns by the same protocol as
bench/turns.cc; PYTHON is the interpreter of its environment. Every contestant of a group takes one step in turn, so
slow drift of the machine cancels; ratios are taken inside a turn. A turn during which anything else used the machine is
left out.
"""
import argparse
import json
import os
import re
import statistics
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("peers")
parser.add_argument("--turns", type=int, default=12)
parser.add_argument("--seconds", type=float, default=240, help="limit of one group, start-up not counted")
parser.add_argument("--sizes", default="tiny,small,gpt2-124M")
parser.add_argument("--dtypes", default="f32,bf16ac")
parser.add_argument("--only", default="")
parser.add_argument("--json", default="turns.json")
parser.add_argument("--turns-program", default="build/dev/bench/bench_turns")
options = parser.parse_args()
sys.path.insert(0, os.path.abspath(options.peers))

import duel  # noqa: E402
import run  # noqa: E402
from model import SIZES, make_config  # noqa: E402

PROGRAM = os.path.abspath(options.turns_program)
LIBTORCH = os.path.join(sys.prefix, "peers", "bare_libtorch")
CACHE = {"TORCHINDUCTOR_CACHE_DIR": os.path.join(tempfile.gettempdir(), "inductor-cache")}


def lockstep(size, dtype, threads, nproc, layout, family="gpt2", micro_batch=0, microbatches=1):
    c = make_config(size)
    argv = [str(x) for x in (c.layers, c.hidden, c.heads, c.vocab, c.seq, micro_batch or c.micro_batch,
                             "f32" if dtype == "f32" else "bf16", threads, 2, 3, 0, family, microbatches, layout)]
    return {"id": f"lockstep/{layout}/{size}/{dtype}", "kind": "lockstep", "arch": family, "size": size, "dtype": dtype,
            "nproc": nproc, "threads": threads, "script": PROGRAM, "argv": argv,
            "env": {"OMP_NUM_THREADS": str(threads)}, "rare": False}


def single(size, dtype, threads):
    members = [("eager", run.case("eager", size, dtype, threads)),
               ("eager+malloc", run.case("eager", size, dtype, threads, env=run.MALLOC)),
               ("compile", run.case("compile", size, dtype, threads, env=CACHE)),
               ("libtorch+malloc", run.libtorch_case(size, dtype, threads, LIBTORCH, malloc=True)),
               ("lockstep", lockstep(size, dtype, threads, 1, "dp1,zero0"))]
    if dtype != "f32":
        members.append(("eager bf16mp", run.case("eager", size, "bf16mp", threads)))
    return f"single/{size}/{dtype}/1x{threads}", "lockstep", members


def data(size, dtype):
    sharded = "f32" if dtype == "f32" else "bf16mp"
    return f"data/{size}/{dtype}", "lockstep", [
        ("lockstep", lockstep(size, dtype, 1, 2, "dp2,zero1")), ("ddp", run.case("ddp", size, dtype, 1, 2)),
        ("fsdp2", run.case("fsdp2", size, sharded, 1, 2)),
        ("lockstep zero3", lockstep(size, dtype, 1, 2, "dp2,zero3,step"))]


def tensor(size, dtype):
    return f"tensor/{size}/{dtype}", "lockstep", [
        ("lockstep", lockstep(size, dtype, 1, 2, "tp2,dp1,zero0")), ("tp", run.case("tp", size, dtype, 1, 2))]


def pipeline(size, dtype):
    half = max(1, SIZES[size]["micro_batch"] // 2)
    extra = ["--micro-batch", str(half), "--microbatches", "8"]
    members = []
    for theirs, ours in (("1F1B", "1f1b"), ("Interleaved1F1B", "interleaved,vpp2"), ("ZBVZeroBubble", "zbv,vpp2")):
        members.append((f"lockstep {theirs}", lockstep(size, dtype, 1, 2, f"pp2,dp1,zero0,{ours}", micro_batch=half,
                                                       microbatches=8)))
        members.append((theirs, run.case(f"pp-{theirs}", size, dtype, 1, 2, extra=extra)))
    return f"pipeline/{size}/{dtype}", "lockstep 1F1B", members


def groups():
    for size in options.sizes.split(","):
        for dtype in options.dtypes.split(","):
            yield single(size, dtype, 2)
            yield single(size, dtype, 1)
            yield data(size, dtype)
            yield tensor(size, dtype)
            yield pipeline(size, dtype)


def main():
    results = []
    for name, reference, members in groups():
        if not re.search(options.only, name):
            continue
        group = duel.run_group(name, reference, members, options.turns, options.seconds, 0.04, 120)
        results.append(group)
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": run.machine(), "groups": results}, file, indent=1)
        own = group["members"].get(reference, {}).get("times", [])
        print(f"{name}: {group['turns']} turns, {group['dropped_turns']} dropped {group['failed'] or ''}")
        for member, row in group["members"].items():
            if own and row["times"]:
                ratio = statistics.median(a / b for a, b in zip(own, row["times"]))
                print(f"  {member:18} {1e3 * statistics.median(row['times']):9.1f} ms   {reference} / this {ratio:.3f}"
                      f"   {row.get('peak_rss_mib', 0):7.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
