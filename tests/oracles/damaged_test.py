#!/usr/bin/env python3
"""Damages the newest checkpoint of a run, each time in another place, and resumes.

    damaged_test.py LOCKSTEP [COUNT]

A damage is a flipped bit in the payload, in the header or in the manifest, a file cut short, or a file that is missing.
`checkpoint verify` must refuse every one; `train --resume` must go on from the checkpoint before, with the bits of the
undisturbed run, and delete nothing: what was damaged is there as it was, under another name. LOCKSTEP_DAMAGE_SEED=2 tries
other places.
"""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

KINDS = ["payload", "header", "manifest", "truncation", "missing"]
TINY = str(pathlib.Path(__file__).resolve().parents[2] / "examples/tiny.toml")
NEWEST, BEFORE = "step-00000003", "step-00000002"


def run(lockstep, *words):
    return subprocess.run([lockstep, *words], capture_output=True, text=True, check=False, timeout=120)


def train(lockstep, folder, *more):
    return run(lockstep, "train", TINY, "--mock-data", "--oracle", "--set", "layout.dp=2", "--set", "layout.zero=1",
               "--set", "batch.seq=16", "--save", str(folder), "--save-interval", "1", "--keep", "0", *more)


def steps(text):
    return re.findall(r"^step \d+ loss .*$", text, re.M)


def flip(path, rng, first, last):
    data = bytearray(path.read_bytes())
    data[rng.randrange(first, last)] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def damage(newest, kind, rng):
    ranks = sorted(newest.glob("rank-*.safetensors"))
    path = rng.choice(ranks)
    header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    size = path.stat().st_size
    if kind == "payload":
        flip(path, rng, header, size)
    elif kind == "header":
        flip(path, rng, 0, header)
    elif kind == "manifest":
        path = newest / "MANIFEST.json"
        flip(path, rng, 0, path.stat().st_size)
    else:
        path = rng.choice([*ranks, newest / "MANIFEST.json"])
        if kind == "truncation":
            os.truncate(path, rng.randrange(path.stat().st_size))
        else:
            path.unlink()
    return path.name


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.relative_to(folder).parts[0].startswith("step-")}


def try_one(lockstep, whole, folder, undisturbed, kind, rng):
    shutil.copytree(whole, folder)
    where = damage(folder / NEWEST, kind, rng)
    before = contents(folder)
    verified = run(lockstep, "checkpoint", "verify", str(folder / NEWEST))
    if verified.returncode in (0, 70) or verified.returncode < 0:
        return f"{where}: verify ends with {verified.returncode}"
    resumed = train(lockstep, folder, "--set", "train.steps=4", "--resume")
    if resumed.returncode != 0:
        return f"{where}: resume ends with {resumed.returncode}: {resumed.stderr.strip()}"
    if steps(resumed.stdout) != undisturbed[2:4]:
        return f"{where}: after the resume\n{resumed.stdout}"
    after = contents(folder)
    for name, data in before.items():
        kept = name.replace(NEWEST, NEWEST + ".damaged") if name.startswith(NEWEST + "/") else name
        if after.get(kept) != data:
            return f"{where}: {kept} is lost or changed"
    return None


def main():
    lockstep = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2].isdigit() else 10
    seed = os.environ.get("LOCKSTEP_DAMAGE_SEED", "1")
    work, failed = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-damaged-")), 0
    undisturbed = steps(train(lockstep, work / "all", "--set", "train.steps=4").stdout)
    whole = work / "whole"
    assert len(undisturbed) == 4 and train(lockstep, whole, "--set", "train.steps=3").returncode == 0
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        trouble = try_one(lockstep, whole, work / "tried", undisturbed, kind, random.Random(f"{seed} {number}"))
        shutil.rmtree(work / "tried")
        if trouble:
            failed += 1
            print(f"{kind} {number} of seed {seed}: {trouble}", flush=True)
    shutil.rmtree(work)
    print(f"{count - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
