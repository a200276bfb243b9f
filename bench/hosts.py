"""Hosts on one machine: network namespaces on a bridge, what each sends shaped by tbf; programs on them, and what their
runs took. Needs iproute2 and util-linux, and no rights."""
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys

INSIDE = "LOCKSTEP_BENCH_INSIDE"


def in_own_network(body):
    """Runs `body` in a network namespace of its own, in which it may make others; its exit code."""
    if os.environ.get(INSIDE):
        return body()
    words = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-B", *sys.argv]
    return subprocess.run(words, check=False, env={**os.environ, INSIDE: "1"}).returncode


def address(host):
    return f"10.78.0.{host + 1}"


def sh(command):
    subprocess.run(command, shell=True, check=True)


@contextlib.contextmanager
def hosts(count, mbit):
    """The words that enter each of so many; mbit 0: links are not shaped. REQUIRES: in_own_network, once."""
    others = [subprocess.Popen(["unshare", "--net", "sleep", "36000"]) for _ in range(count)]
    try:
        sh("ip link add switch type bridge && ip link set switch up")
        entries = []
        for number, other in enumerate(others):
            while os.readlink(f"/proc/{other.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
                pass
            enter = f"nsenter --net=/proc/{other.pid}/ns/net "
            sh(f"ip link add port{number} type veth peer name cable netns {other.pid}")
            sh(f"ip link set port{number} master switch up")
            sh(f"{enter}ip link set lo up && {enter}ip addr add {address(number)}/24 dev cable && {enter}ip link set cable up")
            if mbit:
                sh(f"{enter}tc qdisc add dev cable root tbf rate {mbit}mbit burst 256kb latency 50ms")
            entries.append(enter)
        yield entries
    finally:
        for other in others:
            other.kill()
            other.wait()
        sh("ip link del switch")


def on_ranks(entries, words):
    """Output of rank 0 of a program with a rank of one thread on each host."""
    ranks = []
    for rank, enter in enumerate(entries):
        place = {"RANK": str(rank), "WORLD_SIZE": str(len(entries)), "MASTER_ADDR": address(0), "MASTER_PORT": "29617"}
        ranks.append(subprocess.Popen(enter.split() + words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True, env={**os.environ, **place, "OMP_NUM_THREADS": "1"}))
    told = [rank.communicate(timeout=600)[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit("\n".join(told))
    return told[0]


def median_step(folder):
    """Of a run's metrics, without the first."""
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        return statistics.median([told["seconds"] for told in map(json.loads, file) if told["event"] == "step"][1:])


def simulated(words):
    """Seconds of a step that `simulate`, so called, says."""
    told = subprocess.run([*words, "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(told)["schedules"][0]["step_time"]


def measured_text(times, said):
    middle, quarters = statistics.median(times), statistics.quantiles(times, n=4)
    return (f"{middle * 1e3:8.1f} ms measured, quartiles {(quarters[2] - quarters[0]) / 2 / middle:.1%} of it apart; "
            f"{said * 1e3:8.1f} ms simulated, {said / middle - 1:+.1%}")


def ratio_text(times, others):
    """Of times taken in turns: the mean ratio, and where 95 % of such means lie."""
    logs = [math.log(a / b) for a, b in zip(times, others)]
    half = 2.3 * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = statistics.mean(logs)
    return f"{math.exp(middle):.3f} [{math.exp(middle - half):.3f}, {math.exp(middle + half):.3f}]"
