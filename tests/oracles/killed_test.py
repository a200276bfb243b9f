#!/usr/bin/env python3
"""Runs of four processes that save after every step are killed at random moments and resumed.

Whatever moment it was, what is resumed from is a whole checkpoint, and every line of every run (the bits of its
loss and gradient norm, and a digest of its state) is that of the run that nobody killed. 10 trials;
LOCKSTEP_KILLS=200 makes more of them, LOCKSTEP_KILL_SEED=2 others.

    killed_test.py LOCKSTEP
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

STEPS = 12
RUN = ["train", str(pathlib.Path(__file__).resolve().parents[2] / "examples/tiny.toml"), "--mock-data", "--oracle",
       "--set", f"train.steps={STEPS}", "--processes"]
# One class of layouts, so that all have the same bits; four processes each.
LAYOUTS = [["layout.dp=2", "layout.pp=2", "layout.zero=1", "layout.reduce=step"],
           ["layout.dp=2", "layout.pp=2", "layout.zero=3", "layout.reduce=step"]]


def settings(layout):
    return [word for setting in layout for word in ("--set", setting)]


def step_lines(text):
    """Whole lines alone: a killed process may have written half of one."""
    return [line for line in text.splitlines(keepends=True) if line.startswith("step ") and line.endswith("\n")]


class Trial:
    def __init__(self, lockstep, folder, dice, whole):
        self.lockstep, self.folder, self.dice, self.whole = lockstep, pathlib.Path(folder), dice, whole
        self.kills = 0

    def checkpoints(self):
        done = subprocess.run([self.lockstep, "checkpoint", "ls", str(self.folder), "--json"], capture_output=True, text=True)
        return [c for c in json.loads(done.stdout)["checkpoints"] if c["whole"]] if done.returncode == 0 else []

    def start(self):
        words = [self.lockstep] + RUN + settings(self.dice.choice(LAYOUTS)) + ["--save", str(self.folder), "--save-interval", "1"]
        found = self.checkpoints()
        if found:
            words.append("--resume")
            newest = found[0]["path"]
            verified = subprocess.run([self.lockstep, "checkpoint", "verify", newest], capture_output=True, text=True)
            assert verified.returncode == 0, f"{newest} is listed as whole:\n{verified.stdout}{verified.stderr}"
        else:
            for left in self.folder.glob("*"):  # a run that has saved nothing is begun anew
                subprocess.run(["rm", "-rf", str(left)], check=True)
        self.out = open(self.folder.with_suffix(".out"), "w+")
        return subprocess.Popen(words, stdout=self.out, stderr=subprocess.STDOUT, start_new_session=True), found

    def members(self, group):
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if os.getpgid(int(entry)) == group:
                        found.append(int(entry))
                except ProcessLookupError:
                    pass
        return found

    def kill(self, process):
        """All at once, as a machine goes down; or one of them, and the others have to notice."""
        if self.dice.random() < 0.5:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            ranks = [pid for pid in self.members(process.pid) if pid != process.pid] or [process.pid]
            try:
                os.kill(self.dice.choice(ranks), signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.kills += 1

    def check(self, found):
        self.out.seek(0)
        text = self.out.read()
        lines = step_lines(text)
        for line in lines:
            assert line in self.whole, f"resumed from {found[:1]}, this line is none of the undisturbed run:\n{line}\n{text}"
        return lines

    def run(self, longest):
        """How long an undisturbed run took; None: it was killed."""
        begun = time.monotonic()
        process, found = self.start()
        moment = self.dice.uniform(0, longest)
        try:
            process.wait(timeout=moment)
        except subprocess.TimeoutExpired:
            self.kill(process)
            try:
                process.wait(timeout=120)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            for left in self.members(process.pid):
                try:
                    os.kill(left, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.check(found)
            process, found = self.start()
            process.wait(timeout=300)
        took = None if self.kills else time.monotonic() - begun
        lines = self.check(found)
        if not (found and found[0]["step"] == STEPS):
            assert lines and lines[-1] == self.whole[-1], f"it did not come to its end, exit code {process.returncode}"
        assert process.returncode == 0, process.returncode
        assert self.checkpoints()[0]["step"] == STEPS
        return took


def main():
    lockstep = str(pathlib.Path(sys.argv[1]).resolve())
    trials = int(os.environ.get("LOCKSTEP_KILLS", "10"))
    dice = random.Random(int(os.environ.get("LOCKSTEP_KILL_SEED", "1")))
    begun = time.monotonic()
    whole = subprocess.run([lockstep] + RUN + settings(LAYOUTS[0]), capture_output=True, text=True, check=True).stdout
    longest = 1.2 * (time.monotonic() - begun)
    whole = step_lines(whole)
    assert len(whole) == STEPS, whole
    kills = runs = 0
    with tempfile.TemporaryDirectory() as folder:
        while kills < trials:  # a run that ends before its moment has come is none
            runs += 1
            trial = Trial(lockstep, f"{folder}/{runs}", dice, whole)
            trial.folder.mkdir()
            longest = trial.run(longest) or longest
            kills += trial.kills
            subprocess.run(["rm", "-rf", str(trial.folder)], check=True)
    print(f"{kills} kills in {runs} runs, every line as in the undisturbed run")


if __name__ == "__main__":
    main()
