#!/usr/bin/env python3
"""Runs of four processes that save after every step are killed at random moments and resumed.

A run is killed, resumed, killed again, until it comes to its end; then the next begins. Whatever the moment was, what is
there is a whole checkpoint, of the last steps that were told; and every line of every run (the bits of its loss and
gradient norm, and a digest of its state) is that of the run that nobody killed. Three moments of four lie among steps
and saves, the fourth anywhere from the start of the processes on. 10 kills; LOCKSTEP_KILLS=200 makes more of them,
LOCKSTEP_KILL_SEED=2 others.

    killed_test.py LOCKSTEP
"""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

STEPS = 40
STEPS_BETWEEN = 10  # the longest time among steps until a kill, in steps of the undisturbed run
RUN = ["train", str(pathlib.Path(__file__).resolve().parents[2] / "examples/tiny.toml"), "--mock-data", "--oracle",
       "--set", f"train.steps={STEPS}", "--set", "batch.seq=16", "--set", "batch.global_batch=8", "--set", "batch.microbatch=2",
       "--save-interval", "1", "--processes"]
# One class of layouts, so that all have the same bits; four processes each.
LAYOUTS = [["layout.dp=2", "layout.pp=2", "layout.zero=1", "layout.reduce=step"],
           ["layout.dp=2", "layout.pp=2", "layout.zero=3", "layout.reduce=step"]]


def step_lines(path):
    """Whole lines alone: a killed process may have written half of one."""
    return [line for line in path.read_text().splitlines(keepends=True) if line.startswith("step ") and line.endswith("\n")]


def step_of(line):
    return int(line.split()[1])


def members(group):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.getpgid(int(entry)) == group:
                    found.append(int(entry))
            except ProcessLookupError:
                pass
    return found


class Run:
    """Processes that were started and write to one file."""

    def __init__(self, lockstep, folder, layout, resumes):
        words = [lockstep] + RUN + [word for setting in layout for word in ("--set", setting)] + ["--save", str(folder)]
        self.path = folder.with_suffix(".out")
        self.begun = time.monotonic()
        with open(self.path, "w") as out:
            self.process = subprocess.Popen(words + ["--resume"] * resumes, stdout=out, stderr=subprocess.STDOUT,
                                            start_new_session=True)

    def lasts(self, seconds):
        try:
            self.process.wait(timeout=seconds)
            return False
        except subprocess.TimeoutExpired:
            return True

    def comes_to_steps(self):
        """Waits for its first line; False: it ended before."""
        while not step_lines(self.path):
            if not self.lasts(0.01):
                return bool(step_lines(self.path))
        return True

    def kill(self, dice):
        """All at once, as a machine goes down; or one of them, and the others have to notice."""
        if dice.random() < 0.5:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            ranks = [pid for pid in members(self.process.pid) if pid != self.process.pid] or [self.process.pid]
            try:
                os.kill(dice.choice(ranks), signal.SIGKILL)
            except ProcessLookupError:
                pass
        assert not self.lasts(120), "one was killed, and the others wait"
        for left in members(self.process.pid):
            try:
                os.kill(left, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Trials:
    def __init__(self, lockstep, scratch, dice):
        self.lockstep, self.scratch, self.dice = lockstep, pathlib.Path(scratch), dice
        self.kills = self.runs = self.in_saves = 0
        run = Run(lockstep, self.folder(), LAYOUTS[0], resumes=False)
        assert run.comes_to_steps(), run.path.read_text()
        self.start = time.monotonic() - run.begun
        assert run.process.wait() == 0
        self.among = (time.monotonic() - run.begun - self.start) * STEPS_BETWEEN / STEPS
        self.whole = step_lines(run.path)
        assert [step_of(line) for line in self.whole] == list(range(1, STEPS + 1)), self.whole

    def folder(self):
        made = self.scratch / str(self.runs)
        made.mkdir()
        return made

    def newest(self, folder):
        """The step of the newest checkpoint; all that are there must be whole. 0: none is."""
        done = subprocess.run([self.lockstep, "checkpoint", "verify", str(folder), "--json"], capture_output=True, text=True)
        if done.returncode == 3:
            assert not list(folder.glob("step-????????")), done.stderr
            return 0
        assert done.returncode == 0, f"a checkpoint is not whole:\n{done.stdout}{done.stderr}"
        paths = [checkpoint["path"] for checkpoint in json.loads(done.stdout)["checkpoints"]]
        return max(int(re.search(r"step-(\d+)", pathlib.Path(path).name)[1]) for path in paths)

    def check(self, run, begun_at):
        """Returns the last step that was told, or where the run began."""
        lines = step_lines(run.path)
        for number, line in enumerate(lines, begun_at):
            assert line == self.whole[number], (
                f"resumed at step {begun_at}, not the undisturbed run:\n{line}{self.whole[number]}{run.path.read_text()}")
        return begun_at + len(lines)

    def killed(self, run):
        """Whether a moment came before its end."""
        if self.dice.random() < 0.25:
            moment = self.dice.uniform(0, self.start + self.among)
        elif run.comes_to_steps():
            moment = self.dice.uniform(0, self.among)
        else:
            return False
        if not run.lasts(moment):
            return False
        run.kill(self.dice)
        self.kills += 1
        return True

    def one_run(self, most):
        """From nothing to the end, with up to `most` kills in all."""
        self.runs += 1
        folder = self.folder()
        found = 0
        while True:
            if not found:
                for left in folder.glob("*"):  # a run that has saved nothing is begun anew
                    subprocess.run(["rm", "-rf", str(left)], check=True)
            run = Run(self.lockstep, folder, self.dice.choice(LAYOUTS), resumes=found > 0)
            if self.kills >= most or not self.killed(run):
                break
            told = self.check(run, found)
            self.in_saves += any(folder.glob("step-*.tmp-*"))
            found = self.newest(folder)
            assert found >= told - 2, f"step {told} was told, but the newest checkpoint is of step {found}"
        assert run.process.wait(timeout=300) == 0, run.path.read_text()
        assert self.check(run, found) == STEPS, run.path.read_text()
        assert self.newest(folder) == STEPS
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def main():
    most = int(os.environ.get("LOCKSTEP_KILLS", "10"))
    dice = random.Random(int(os.environ.get("LOCKSTEP_KILL_SEED", "1")))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        trials = Trials(str(pathlib.Path(sys.argv[1]).resolve()), scratch, dice)
        while trials.kills < most:
            trials.one_run(most)
    print(f"{trials.kills} kills in {trials.runs} runs, {trials.in_saves} of them left a save unfinished, every line as in "
          f"the undisturbed run; {(time.monotonic() - begun) / max(trials.kills, 1):.1f} s a kill")


if __name__ == "__main__":
    main()
