#!/usr/bin/env python3
"""Kills and stops ranks of a real job at random moments, and looks how long the others live.

    survivors_test.py LOCKSTEP [CASE=COUNT...]

Cases, each on four ranks (dp2 pp2) that save after every step:
    rank       SIGKILL to one of ranks 1 to 3, started by environment variables
    first      SIGKILL to rank 0, started by environment variables
    processes  SIGKILL to one rank of `train --processes`
    launcher   SIGKILL to the launcher of `train --processes`
    stop       SIGSTOP to one rank, started by environment variables, with train.op_deadline = 5

After each: every other process is gone in time (2 s after a kill, 6 s after a stop), the run resumes, and the steps that
are done again have the bits they had. Prints p50 and worst of each case. One moment of five lies before the first step;
a rank that dies before it has come to the others is, for them, one that was never started: then it is named as missing.
LOCKSTEP_KILL_SEED=2 tries other moments.
"""

import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

STEPS = 40
LIMITS = {"rank": 2.0, "first": 2.0, "processes": 2.0, "launcher": 2.0, "stop": 6.0}
BY_DEFAULT = ["rank=8", "first=4", "processes=4", "launcher=4", "stop=2"]
RUN = ["train", str(pathlib.Path(__file__).resolve().parents[2] / "examples/tiny.toml"), "--mock-data", "--oracle",
       "--set", f"train.steps={STEPS}", "--set", "batch.seq=16", "--set", "batch.global_batch=8", "--set", "batch.microbatch=2",
       "--set", "layout.dp=2", "--set", "layout.pp=2"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def is_gone(pid):
    """Whether the process has ended; a child that nobody waited for yet has."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2][0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            found += [int(word) for word in file.read().split()]
    return found


def stolen():
    """Seconds that a hypervisor has taken from each processor: nothing runs in them, so no limit counts them."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK") / os.cpu_count()


class Trial:
    def __init__(self, lockstep, folder):
        self.folder, self.broken = folder, []
        self.words = [lockstep] + RUN

    def start(self, more, processes):
        words = self.words + ["--save", self.folder, "--save-interval", "1"] + more
        with open(self.folder + ".log", "w") as output:
            if processes:
                return [subprocess.Popen(words + ["--processes"], stdout=output, stderr=output)]
            place = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
            return [subprocess.Popen(words, stdout=output, stderr=output, env={**os.environ, **place, "RANK": str(rank)})
                    for rank in range(4)]

    def await_step(self, job, at_least):
        """Until the log has a step, so that the moment is somewhere in training."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with open(self.folder + ".log") as file:
                if len(re.findall(r"^step \d+ loss", file.read(), re.M)) >= at_least:
                    return True
            if any(p.poll() is not None for p in job):
                return False
            time.sleep(0.005)
        return False

    def bits(self):
        with open(self.folder + ".log") as file:
            return re.findall(r"^step \d+ loss .*$", file.read(), re.M)

    def run(self, case, rng):
        by_launcher = case in ("processes", "launcher")
        more = ["--set", "train.op_deadline=5"] if case == "stop" else []
        job = self.start(more, by_launcher)
        everyone = [p.pid for p in job]
        try:
            if rng.random() < 0.2:  # while it starts
                time.sleep(rng.random() * 0.6)
                trained = False
            else:
                trained = self.await_step(job, rng.randint(1, 3))
                time.sleep(rng.random() * 0.2)
            if by_launcher:
                everyone += children(job[0].pid)
            victim = self.choose(case, rng, everyone)
            if victim is None:
                return None
            os.kill(victim, signal.SIGSTOP if case == "stop" else signal.SIGKILL)
            rank = None if by_launcher else everyone.index(victim)
            took = self.await_end([pid for pid in everyone if pid != victim], case, rank)
        finally:
            for pid in everyone:
                if not is_gone(pid):
                    os.kill(pid, signal.SIGKILL)
            for process in job:
                process.wait()
        if "frame #" in pathlib.Path(self.folder + ".log").read_text():
            self.broken.append("prints the stack of a library")
        if trained:
            self.resume()
        return took

    @staticmethod
    def choose(case, rng, everyone):
        if case == "first":
            return everyone[0]
        if case == "launcher":
            return everyone[0]
        if case == "processes":
            return rng.choice(everyone[1:]) if len(everyone) == 5 else None
        return rng.choice(everyone[1:] if case == "rank" else everyone)

    def await_end(self, pids, case, rank):
        begin, taken_before = time.monotonic(), stolen()
        while time.monotonic() - begin < 20 + min(40, stolen() - taken_before):
            if self.never_came(rank):
                return None
            if all(is_gone(pid) for pid in pids):
                took, taken = time.monotonic() - begin, stolen() - taken_before
                if took > LIMITS[case] + taken:
                    self.broken.append(f"the last rank was gone after {took:.2f} s, not {LIMITS[case]} ({taken:.2f} s stolen)")
                return took
            time.sleep(0.002)
        self.broken.append(f"hangs: {[pid for pid in pids if not is_gone(pid)]}")
        return 20.0

    def never_came(self, rank):
        """Nobody but a launcher can tell a rank that died before it came from one that was never started; it is named."""
        if rank is None:
            return False
        with open(self.folder + ".log") as file:
            told = file.read()
        return "waiting for rank 0 at " in told or re.search(rf"waiting at \S+ for 1 of 4 ranks: {rank}$", told, re.M)

    def resume(self):
        known = {line.split()[1]: line for line in self.bits()}
        done = subprocess.run(self.words + ["--save", self.folder, "--resume=auto"], capture_output=True, text=True,
                              check=False, timeout=300)
        again = [line for line in done.stdout.splitlines() if re.match(r"step \d+ loss", line)]
        if done.returncode != 0 or (again and int(again[-1].split()[1]) != STEPS):
            self.broken.append(f"does not resume: {done.stderr.strip()}")
        if any(known.get(line.split()[1], line) != line for line in again):
            self.broken.append("other bits after the resume")


def main():
    lockstep, cases = sys.argv[1], [word for word in sys.argv[2:] if "=" in word]
    cases = [case.split("=") for case in cases or BY_DEFAULT]
    seed = int(os.environ.get("LOCKSTEP_KILL_SEED", "1"))
    work, failed, times = tempfile.mkdtemp(prefix="lockstep-survivors-"), 0, {case: [] for case, _ in cases}
    trials = [(case, number) for case, count in cases for number in range(int(count))]
    random.Random(seed).shuffle(trials)
    for case, number in trials:
        trial = Trial(lockstep, os.path.join(work, f"{case}-{number}"))
        took = trial.run(case, random.Random(f"{seed} {case} {number}"))
        times[case] += [took] if took is not None else []
        if trial.broken:
            failed += 1
            print(f"{case} {number} of seed {seed}: {'; '.join(trial.broken)}", flush=True)
            print(pathlib.Path(trial.folder + ".log").read_text()[-3000:])
    for case, taken in times.items():
        taken.sort()
        if taken:
            print(f"{case}: {len(taken)} trials, the last rank was gone after p50 {taken[len(taken) // 2]:.2f} s, "
                  f"worst {taken[-1]:.2f} s")
    shutil.rmtree(work)
    print(f"{len(trials) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
