#!/usr/bin/env python3
"""Steps of tensor ranks over a slow link, with and without computation beside their collectives.

    bench/tp_overlap.py LOCKSTEP [--turns 9] [--mbit 1000] [--layout tp2|tp2dp2] [--sp]

A host for every rank on one machine: network namespaces on a bridge, what each sends shaped by tbf. Each turn trains once with train.tp_overlap and once without; times are
medians of a run's steps, ratios are taken inside a turn. What `simulate` says of both comes from a calibration that was
made over the same link. Needs iproute2 and util-linux, and no rights.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

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


def address(host):
    return f"10.78.0.{host + 1}"

def sh(command):
    subprocess.run(command, shell=True, check=True)


def on_ranks(hosts, world, words):
    """Output of rank 0 of a program on all ranks."""
    ranks = []
    for rank in range(world):
        place = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": address(0), "MASTER_PORT": "29617"}
        ranks.append(subprocess.Popen(hosts[rank].split() + words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True, env={**os.environ, **place, "OMP_NUM_THREADS": "1"}))
    told = [rank.communicate(timeout=600)[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit("\n".join(told))
    return told[0]


def step_seconds(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        return [told["seconds"] for told in map(json.loads, file) if told["event"] == "step"]


def measure(options, hosts, work):
    run = os.path.join(work, "run.toml")
    with open(run, "w", encoding="utf-8") as file:
        file.write(RUN)
    world, dp = options.hosts, options.hosts // 2
    asked = ["--set", f"layout.dp={dp}", "--set", f"batch.global_batch={4 * dp}", "--set",
             f"layout.sp={'true' if options.sp else 'false'}"]
    on = {name: ["--set", f"train.tp_overlap={value}"] for name, value in (("with", "true"), ("without", "false"))}
    calibration = os.path.join(work, "calibration.json")
    on_ranks(hosts, world, [options.lockstep, "calibrate", run, *asked, "--seconds", "40", "--out", calibration])
    said = {}
    for name, words in on.items():
        told = subprocess.run([options.lockstep, "simulate", run, *asked, *words, "--calibration", calibration, "--json"],
                              check=True, capture_output=True, text=True).stdout
        said[name] = json.loads(told)["schedules"][0]["step_time"]
    times = {name: [] for name in on}
    losses = set()
    for turn in range(options.turns):
        for name in list(on) if turn % 2 else reversed(list(on)):
            folder = os.path.join(work, f"{name}{turn}")
            told = on_ranks(hosts, world, [options.lockstep, "train", run, "--mock-data", *asked, *on[name], "--set",
                                           "train.steps=6", "--metrics", folder])
            losses.add(told.split(": loss ")[-1])
            times[name].append(statistics.median(step_seconds(folder)[1:]))
    for name in on:
        middle = statistics.median(times[name])
        quarters = statistics.quantiles(times[name], n=4)
        print(f"{name:8} {middle * 1e3:8.1f} ms measured, quartiles {(quarters[2] - quarters[0]) / 2 / middle:.1%} of it apart; "
              f"{said[name] * 1e3:8.1f} ms simulated, {said[name] / middle - 1:+.1%}")
    logs = [math.log(a / b) for a, b in zip(times["with"], times["without"])]
    half = 2.3 * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = statistics.mean(logs)
    print(f"with / without: {math.exp(middle):.3f} [{math.exp(middle - half):.3f}, {math.exp(middle + half):.3f}] measured, "
          f"{said['with'] / said['without']:.3f} simulated; losses {'the same' if len(losses) == 1 else losses}")


def inside(options):
    """Hosts are namespaces on one bridge, each with its own link."""
    others = [subprocess.Popen(["unshare", "--net", "sleep", "3600"]) for _ in range(options.hosts)]
    try:
        sh("ip link add switch type bridge && ip link set switch up")
        hosts = []
        for number, other in enumerate(others):
            while os.readlink(f"/proc/{other.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
                pass
            enter = f"nsenter --net=/proc/{other.pid}/ns/net "
            sh(f"ip link add port{number} type veth peer name cable netns {other.pid}")
            sh(f"ip link set port{number} master switch up")
            sh(f"{enter}ip link set lo up && {enter}ip addr add {address(number)}/24 dev cable && {enter}ip link set cable up")
            sh(f"{enter}tc qdisc add dev cable root tbf rate {options.mbit}mbit burst 256kb latency 50ms")
            hosts.append(enter)
        with tempfile.TemporaryDirectory(prefix="lockstep-overlap-") as work:
            measure(options, hosts, work)
    finally:
        for other in others:
            other.kill()
            other.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=os.path.abspath)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--layout", choices=("tp2", "tp2dp2"), default="tp2")
    parser.add_argument("--sp", action="store_true")
    options = parser.parse_args()
    options.hosts = 4 if options.layout == "tp2dp2" else 2
    if os.environ.get("LOCKSTEP_OVERLAP_INSIDE"):
        return inside(options)
    words = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-B", __file__, *sys.argv[1:]]
    return subprocess.run(words, check=False, env={**os.environ, "LOCKSTEP_OVERLAP_INSIDE": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
