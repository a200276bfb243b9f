#!/usr/bin/env python3
"""Kills what `lockstep launch` runs at random moments, and holds what comes of it to the run that nobody disturbed.

    launched_test.py LOCKSTEP [CASE=COUNT...]

Cases, each on four ranks (dp2 pp2) that save every SAVE_INTERVAL steps:
    rank      SIGKILL to one rank, then and again, while it starts, trains or saves, also right after a restart
    launcher  SIGKILL to the launcher: no rank stays behind
    hosts     two launchers of two ranks, on loopback: SIGKILL to ranks of either, while strangers send garbage to the
              coordinator and a launcher with another secret, and one of a number that is there, try to join
    stop      SIGSTOP to one rank, which is found after 2 s, named with its place, and killed
    memory    as `rank`, with a copy of the state in memory every SNAPSHOT_INTERVAL steps, also while one is written: at
              most so many steps and one are done again
    damaged   all copies damaged between a death and the restart: each is named, and the disk's checkpoint is taken
    full      no room for copies any more: that is told, and the run goes on (in a mount namespace, on a tmpfs of its own)
    lost      the same: SIGKILL to the launcher of host 1, which is named, and comes again
    first     the same: SIGKILL to the launcher of host 0, which the other names

Every line of every step (bits of loss and gradient norm, and a digest of the state) must be that of the undisturbed run, up
to the last one. Prints how long it takes from a kill to the next step, and how many steps are done again.
LOCKSTEP_LAUNCH_TRIALS=30 makes so many kills of `rank`, LOCKSTEP_KILL_SEED=2 tries other moments, LOCKSTEP_LAUNCH_SET=layout.tp=2
another layout.
"""

import fcntl
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
import threading
import time

from survivors_test import children, free_port, is_gone

STEPS, SAVE_INTERVAL = 60, 4
SECRET = "0123456789abcdef0123456789abcdef"
TINY = str(pathlib.Path(__file__).resolve().parents[2] / "examples/tiny.toml")
TRAIN = ["train", TINY, "--mock-data", "--oracle", "--set", f"train.steps={STEPS}", "--set", "batch.seq=16",
         *[word for more in os.environ.get("LOCKSTEP_LAUNCH_SET", "").split() for word in ("--set", more)],
         "--set", "batch.global_batch=8", "--set", "batch.microbatch=2", "--set", "layout.dp=2", "--set", "layout.pp=2"]
SNAPSHOT_INTERVAL = 2
KILLS_OF_A_RUN = 3  # after as many without a later step it would give up


class Launcher:
    """One `lockstep launch`, whose lines are read with the moments at which they came."""

    def __init__(self, lockstep, folder, options=(), train=(), environment=None, enter=()):
        words = list(enter) + [lockstep, "launch", *options, *TRAIN, "--save", folder, "--save-interval", str(SAVE_INTERVAL), *train]
        self.lines, self.moments = [], []
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, **(environment or {})})
        self.pid = self.process.pid
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.moments.append(time.monotonic())
            self.lines.append(line.rstrip("\n"))

    def steps(self, since=0):
        return [line for line in self.lines[since:] if re.match(r"step \d+ loss", line)]

    def wait_for(self, pattern, since=0, seconds=120):
        """The index of the first line from `since` on that matches; None when it ends before."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for at in range(since, len(self.lines)):
                if re.search(pattern, self.lines[at]):
                    return at
            if not self.reader.is_alive():
                return None
            time.sleep(0.002)
        raise AssertionError(f"no `{pattern}` in {seconds} s:\n" + self.text())

    def ranks(self):
        """Not those that wait to become some."""
        return [] if is_gone(self.pid) else [pid for pid in children(self.pid) if name_of(pid) != "lockstep-spare"]

    def finish(self, seconds=180):
        code = self.process.wait(timeout=seconds)
        self.reader.join()
        return code

    def text(self):
        return "\n".join(self.lines)

    def end(self):
        for pid in ([] if is_gone(self.pid) else children(self.pid)) + [self.pid]:
            if not is_gone(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()


def number_of(line):
    return int(line.split()[1])


class Trials:
    def __init__(self, lockstep, work, rng):
        self.lockstep, self.work, self.rng, self.count = lockstep, work, rng, 0
        self.stopped = []  # seconds from SIGSTOP to the restart
        self.took, self.redone, self.ended = [], [], []  # of kills: seconds, steps, seconds until ranks start again
        done = self.launch(TRAIN_ALONE)
        assert done.finish() == 0, done.text()
        self.whole = {number_of(line): line for line in done.steps()}
        assert len(self.whole) == STEPS, done.text()

    def folder(self):
        self.count += 1
        return os.path.join(self.work, str(self.count))

    def launch(self, options=(), **more):
        return Launcher(self.lockstep, self.folder(), options, **more)

    def check(self, job, code=0):
        assert job.finish() == code, job.text()
        self.check_lines(job)
        if code == 0:
            assert number_of(job.steps()[-1]) == STEPS, job.text()

    def check_lines(self, job):
        for line in job.steps():
            assert line == self.whole[number_of(line)], f"not the undisturbed run:\n{line}\n{self.whole[number_of(line)]}\n" + job.text()

    def kill_one(self, job, launchers):
        """At a moment among steps, or shortly after a start. False: it has ended."""
        seen = len(job.lines)
        if self.rng.random() < 0.7 and job.wait_for(r"^step \d+ loss", seen) is None:
            return False
        time.sleep(self.rng.random() * 0.3)
        ranks = [pid for launcher in launchers for pid in launcher.ranks()]
        if not ranks:
            return False
        told, begun = len(job.lines), time.monotonic()
        before = max([number_of(line) for line in job.steps()], default=0)
        try:
            os.kill(self.rng.choice(ranks), signal.SIGKILL)
        except ProcessLookupError:
            return False
        at = job.wait_for(r"; restart \d+ of at most", told)
        if at is None:  # it had come to its end
            return False
        self.ended.append(job.moments[at] - begun)
        if self.rng.random() < 0.3:  # right after it, too: no figure of this one
            return True
        at = job.wait_for(r"^step \d+ loss", at)
        if at is not None and before > 0:
            self.took.append(job.moments[at] - begun)
            self.redone.append(before - number_of(job.lines[at]) + 1)
        return True

    def rank(self, kills, options=()):
        made = 0
        while made < kills:
            job = self.launch(options)
            try:
                for _ in range(min(KILLS_OF_A_RUN, kills - made)):
                    if not self.kill_one(job, [job]):
                        break
                    made += 1
                self.check(job)
            finally:
                job.end()

    def memory(self, kills):
        before = len(self.redone)
        self.rank(kills, ["--snapshot-interval", str(SNAPSHOT_INTERVAL)])
        assert all(redone <= SNAPSHOT_INTERVAL + 1 for redone in self.redone[before:]), self.redone
        assert not self.own_folders(), self.own_folders()
        job = self.launch(["--snapshot-interval", str(SNAPSHOT_INTERVAL)])
        try:
            job.wait_for(r"^step \d+ loss")
            folder = self.snapshots_of(job)
            end = time.monotonic() + 60
            while not any(".tmp-" in name for name in os.listdir(folder)):
                assert time.monotonic() < end, job.text()
            os.kill(self.rng.choice(job.ranks()), signal.SIGKILL)
            assert job.wait_for(r"; restart 1 of at most") is not None, job.text()
            self.check(job)
        finally:
            job.end()

    def own_folders(self):
        """Copies of launchers that have ended: there are none."""
        left = []
        for name in os.listdir("/dev/shm"):
            path = os.path.join("/dev/shm", name)
            if name.startswith(f"lockstep-{os.getuid()}-") and not is_locked(os.path.join(path, ".launcher")):
                left.append(path)
        return left

    def snapshots_of(self, job):
        """The folder of a launcher, by the descriptor that locks it."""
        for fd in os.listdir(f"/proc/{job.pid}/fd"):
            path = os.readlink(f"/proc/{job.pid}/fd/{fd}")
            if path.endswith("/.launcher"):
                return os.path.dirname(path)
        raise AssertionError("no copies in memory:\n" + job.text())

    def stop(self, count):
        for _ in range(count):
            job = self.launch()
            try:
                while len(job.ranks()) < 4:  # of the first start: none is a spare
                    assert job.reader.is_alive(), job.text()
                victim = self.rng.choice(job.ranks())
                job.wait_for(r"^step \d+ loss")
                time.sleep(self.rng.random() * 0.3)
                begun = time.monotonic()
                os.kill(victim, signal.SIGSTOP)
                at = job.wait_for(rf"process {victim}\) was stopped for 2\.\d s (in step|behind step|before its first step).*, and was killed; restart")
                assert at is not None, job.text()
                self.stopped.append(job.moments[at] - begun)
                self.check(job)
            finally:
                job.end()

    def damaged(self, count):
        for _ in range(count):
            job = self.launch(["--snapshot-interval", str(SNAPSHOT_INTERVAL)])
            try:
                while number_of((job.steps() or ["step 0"])[-1]) < SAVE_INTERVAL + 4:
                    job.wait_for(r"^step \d+ loss", len(job.lines))
                os.kill(job.pid, signal.SIGSTOP)
                for pid in job.ranks():
                    os.kill(pid, signal.SIGKILL)
                folder, hit = self.snapshots_of(job), 0
                for path in pathlib.Path(folder).glob("step-*/rank-*.safetensors"):
                    size = path.stat().st_size
                    with open(path, "r+b") as file:
                        file.seek(size - 1)
                        last = file.read(1)[0]
                        file.seek(size - 1)
                        file.write(bytes([last ^ 1]))
                    hit += 1
                assert hit > 0, os.listdir(folder)
                os.kill(job.pid, signal.SIGCONT)
                assert job.wait_for(rf"left aside: .*{folder}") is not None, job.text()
                self.check(job)
            finally:
                job.end()

    def full(self, count):
        for _ in range(count):
            mount = os.path.join(self.work, "tmpfs")
            os.makedirs(mount, exist_ok=True)
            words = ["unshare", "--mount", "--map-root-user", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs "$0" && exec "$@"', mount]
            job = self.launch(["--snapshot-interval", str(SNAPSHOT_INTERVAL), "--snapshot-dir", mount], enter=words)
            try:
                job.wait_for(r"^step \d+ loss")
                with open(f"/proc/{job.pid}/root{mount}/filler", "wb", buffering=0) as file:
                    try:
                        while True:
                            file.write(bytes(1 << 20))
                    except OSError:
                        pass
                assert job.wait_for(r"has no snapshot: .*No space left") is not None, job.text()
                self.check(job)
            finally:
                job.end()

    def launcher(self, count):
        for _ in range(count):
            job = self.launch()
            try:
                job.wait_for(r"^step \d+ loss")
                ranks = job.ranks()
                assert len(ranks) == 4, job.text()
                os.kill(job.pid, signal.SIGKILL)
                end = time.monotonic() + 5
                while not all(is_gone(pid) for pid in ranks):
                    assert time.monotonic() < end, "ranks outlive their launcher"
                    time.sleep(0.01)
            finally:
                job.end()

    def two_hosts(self, wait=60):
        port, folder = str(free_port()), self.folder()
        options = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port, "--wait", str(wait)]
        start = lambda number, secret=SECRET, **more: Launcher(
            self.lockstep, folder, options + ["--node-rank", str(number)], environment={"LOCKSTEP_LAUNCH_SECRET": secret}, **more)
        return start, int(port)

    def hosts(self, count):
        for _ in range(count):
            start, port = self.two_hosts()
            jobs = [start(0), start(1)]
            others = []
            try:
                jobs[0].wait_for(r"^step \d+ loss")
                others = [start(1, "another secret of many letters"), start(1)]
                noise = [stranger(port, self.rng) for _ in range(100)]
                self.kill_one(jobs[0], [jobs[self.rng.randint(0, 1)]])
                noise += [stranger(port, self.rng) for _ in range(100)]
                self.check(jobs[0])
                assert jobs[1].finish() == 0, jobs[1].text()
                assert others[0].finish() == 2 and "LOCKSTEP_LAUNCH_SECRET the same" in others[0].text(), others[0].text()
                assert others[1].finish() == 2 and "is here already" in others[1].text(), others[1].text()
            finally:
                for job in jobs + others:
                    job.end()

    def lost(self, count):
        for _ in range(count):
            start, _ = self.two_hosts()
            jobs = [start(0), start(1)]
            try:
                jobs[0].wait_for(r"^step \d+ loss")
                begun = time.monotonic()
                os.kill(jobs[1].pid, signal.SIGKILL)
                at = jobs[0].wait_for("host 1 .* is lost: its launcher closed its connection")
                print(f"a lost host is named after {jobs[0].moments[at] - begun:.3f} s")
                jobs.append(start(1))
                self.check(jobs[0])
                assert jobs[2].finish() == 0, jobs[2].text()
            finally:
                for job in jobs:
                    job.end()

    def first(self, count):
        for _ in range(count):
            start, _ = self.two_hosts(wait=2)
            jobs = [start(0), start(1)]
            try:
                jobs[0].wait_for(r"^step \d+ loss")
                ranks = jobs[1].ranks()
                os.kill(jobs[0].pid, signal.SIGKILL)
                assert jobs[1].finish() == 4 and "host 0 was lost" in jobs[1].text(), jobs[1].text()
                assert all(is_gone(pid) for pid in ranks), jobs[1].text()
            finally:
                for job in jobs:
                    job.end()


TRAIN_ALONE = ["--max-restarts", "0"]
BY_DEFAULT = ["rank=3", "launcher=1", "hosts=1", "stop=1", "memory=3", "damaged=1", "full=1"]  # launched_hosts_test.py has the others


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def is_locked(path):
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return True  # it is gone
    return False


def stranger(port, rng):
    """Says something to the coordinator, or nothing, and stays."""
    connection = socket.create_connection(("127.0.0.1", port))
    try:
        connection.sendall(rng.choice([b"", b"GET / HTTP/1.1\r\n\r\n", rng.randbytes(5000), b"lockstep.launch/1 " + b"0" * 32 + b"\n{}\n"]))
    except OSError:
        pass
    return connection


def main():
    lockstep, cases = sys.argv[1], [word.split("=") for word in sys.argv[2:] if "=" in word]
    trials = os.environ.get("LOCKSTEP_LAUNCH_TRIALS")
    cases = cases or [["rank", trials]] if trials else cases or [case.split("=") for case in BY_DEFAULT]
    seed = int(os.environ.get("LOCKSTEP_KILL_SEED", "1"))
    work = tempfile.mkdtemp(prefix="lockstep-launched-")
    try:
        run = Trials(lockstep, work, random.Random(seed))
        for case, count in cases:
            begun = time.monotonic()
            getattr(run, case)(int(count))
            print(f"{case} x {count}: {time.monotonic() - begun:.1f} s", flush=True)
        took, redone, ended = sorted(run.took), sorted(run.redone), sorted(run.ended)
        if run.stopped:
            print(f"from SIGSTOP to the restart: at most {max(run.stopped):.2f} s of {len(run.stopped)}")
        if took:
            print(f"from a kill to the next step: {len(took)} of them, p50 {took[len(took) // 2]:.2f} s, "
                  f"p99 {took[min(len(took) - 1, len(took) * 99 // 100)]:.2f} s (until ranks start again: p50 {ended[len(ended) // 2]:.2f} s); "
                  f"steps done again: at most {redone[-1]}")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
