#!/usr/bin/env python3
"""Two hosts on one machine: network namespaces joined by veth, in which a host's own name means loopback, as Debian has it.

A job of two ranks, one on each, trains with no variable set but a launcher's: once with rank 0's address as MASTER_ADDR, once
with its name, which on its own host means 127.0.1.1. Needs iproute2 and util-linux, and no rights: the namespaces are
inside a user namespace of the test's own.

    two_hosts_test.py LOCKSTEP
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

RUN = ["train", str(pathlib.Path(__file__).resolve().parents[2] / "examples/tiny.toml"), "--mock-data", "--oracle",
       "--set", "train.steps=2", "--set", "layout.dp=2"]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]


def sh(command):
    subprocess.run(command, shell=True, check=True)


@contextlib.contextmanager
def hosts(work):
    """In the user, network and mount namespace that enter() made: this is the first host; a child's is the second. Gives the
    words in front of a command that run it on each."""
    other = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    while os.readlink(f"/proc/{other.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        pass
    try:
        sh(f"ip link add left type veth peer name right netns {other.pid}")
        both = [("", "left"), (f"nsenter --net=/proc/{other.pid}/ns/net ", "right")]
        for number, (enter, device) in enumerate(both):
            sh(f"{enter}ip link set lo up")
            sh(f"{enter}ip addr add {ADDRESSES[number]}/24 dev {device}")
            sh(f"{enter}ip link set {device} up")
            first = "127.0.1.1" if number == 0 else ADDRESSES[0]
            (work / f"hosts{number}").write_text(f"127.0.0.1 localhost\n127.0.1.1 {os.uname().nodename}\n{first} first\n")
        yield [enter.split() + ["unshare", "--mount", "sh", "-c", f"mount --bind {work}/hosts{number} /etc/hosts && exec \"$@\"", "sh"]
               for number, (enter, _) in enumerate(both)]
    finally:
        other.kill()
        other.wait()


def inside(lockstep, work):
    with hosts(work) as enter:
        for master in (ADDRESSES[0], "first"):
            ranks = []
            for number in range(2):
                place = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": master, "MASTER_PORT": "29611"}
                ranks.append(subprocess.Popen(enter[number] + [lockstep] + RUN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                              text=True, env={**os.environ, **place, "OMP_NUM_THREADS": "1"}))
            told = [rank.communicate(timeout=120)[0] for rank in ranks]
            if any(rank.returncode != 0 for rank in ranks) or "step 2 loss" not in told[0]:
                print(f"MASTER_ADDR={master}: exit {[rank.returncode for rank in ranks]}\n{told[0]}\n{told[1]}")
                return 1
            print(f"MASTER_ADDR={master}: trained")
    return 0


def enter(script, lockstep):
    """Runs `script inside LOCKSTEP FOLDER` as root of namespaces of its own."""
    with tempfile.TemporaryDirectory(prefix="lockstep-hosts-") as work:
        return subprocess.run(["unshare", "--user", "--map-root-user", "--net", "--mount", sys.executable, "-B", script,
                               "inside", os.path.abspath(lockstep), work], check=False, timeout=300).returncode


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "inside":
        return inside(sys.argv[2], pathlib.Path(sys.argv[3]))
    return enter(__file__, sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
