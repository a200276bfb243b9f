#!/usr/bin/env python3
"""`lockstep launch` on two hosts, which are network namespaces (two_hosts_test.py): what is killed on either, and a pulled cable.

One run of four ranks, two on each host: a rank of host 0 is killed, then one of host 1, then the launcher of host 1, which
comes again, and the launcher of host 0, which comes again too. Each is named, and every step has the bits of the run that
nobody disturbed. With LOCKSTEP_LAUNCH_TRIALS set a second run loses the cable between its hosts: host 0 names host 1 when it was
silent for 10 s.

    launched_hosts_test.py LOCKSTEP
"""

import os
import pathlib
import random
import signal
import subprocess
import sys

from launched_test import SECRET, Launcher, Trials
from two_hosts_test import enter, hosts


class Pair:
    def __init__(self, lockstep, folder, enter_words, wait):
        self.lockstep, self.folder, self.enter_words, self.wait, self.jobs = lockstep, folder, enter_words, wait, [None, None]
        self.all = []

    def start(self, host):
        # By name: on host 0 it means 127.0.1.1, as on a Debian of one's own.
        options = ["--nnodes", "2", "--node-rank", str(host), "--master-addr", "first", "--wait", str(self.wait)]
        self.jobs[host] = Launcher(self.lockstep, self.folder, options, ["--resume=auto"], {"LOCKSTEP_LAUNCH_SECRET": SECRET}, self.enter_words[host])
        self.all.append(self.jobs[host])
        return self.jobs[host]

    def await_step(self, since=0):
        assert self.jobs[0].wait_for(r"^step \d+ loss", since) is not None, self.jobs[0].text()

    def end(self):
        for job in self.all:
            job.end()


def kills(trials, pair):
    for host in (0, 1):
        pair.start(host)
    for host in (0, 1):
        seen = len(pair.jobs[0].lines)
        pair.await_step(seen)
        victim = trials.rng.choice(pair.jobs[host].ranks())
        os.kill(victim, signal.SIGKILL)
        assert pair.jobs[0].wait_for(rf"process {victim}\) was ended by signal 9 .*; restart", seen) is not None, pair.jobs[0].text()
    seen = len(pair.jobs[0].lines)
    pair.await_step(seen)
    os.kill(pair.jobs[1].pid, signal.SIGKILL)
    assert pair.jobs[0].wait_for(r"host 1 \(.*\) is lost: its launcher closed its connection", seen) is not None
    pair.start(1)
    pair.await_step(pair.jobs[0].wait_for("; restart", seen))
    os.kill(pair.jobs[0].pid, signal.SIGKILL)
    assert pair.jobs[1].wait_for("host 0 was lost") is not None, pair.jobs[1].text()
    pair.start(0)
    trials.check(pair.jobs[0])
    assert pair.jobs[1].finish() == 0, pair.jobs[1].text()
    for job in pair.all:
        trials.check_lines(job)


def pulled_cable(pair):
    for host in (0, 1):
        pair.start(host)
    pair.await_step()
    subprocess.run(["ip", "link", "set", "left", "down"], check=True)
    assert pair.jobs[0].finish() == 4 and "has said nothing for 10 s" in pair.jobs[0].text(), pair.jobs[0].text()
    assert pair.jobs[1].finish() == 4 and "host 0 was lost" in pair.jobs[1].text(), pair.jobs[1].text()


def inside(lockstep, work):
    with hosts(work) as words:
        trials = Trials(lockstep, str(work), random.Random(int(os.environ.get("LOCKSTEP_KILL_SEED", "1"))))
        cable = [(pulled_cable, 1)] if os.environ.get("LOCKSTEP_LAUNCH_TRIALS") else []
        for what, wait in [(lambda pair: kills(trials, pair), 60)] + cable:
            pair = Pair(lockstep, trials.folder(), words, wait)
            try:
                what(pair)
            finally:
                pair.end()
    print("killed on either host, ranks and launchers: all named, every step as undisturbed")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "inside":
        sys.exit(inside(sys.argv[2], pathlib.Path(sys.argv[3])))
    sys.exit(enter(__file__, sys.argv[1]))
