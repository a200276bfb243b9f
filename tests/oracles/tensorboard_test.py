#!/usr/bin/env python3
"""TensorBoard reads what `lockstep train --metrics` writes, and sees what metrics.jsonl says."""

import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TAGS = {
    ("step", "loss"): "train/loss",
    ("step", "grad_norm"): "train/grad_norm",
    ("step", "lr"): "train/lr",
    ("step", "noise_scale"): "train/noise_scale",
    ("step", "tokens_per_second"): "speed/tokens_per_second",
    ("step", "seconds"): "speed/seconds",
    ("step", "peak_bytes"): "memory/peak_bytes",
    ("step", "sent_bytes"): "traffic/sent_bytes",
    ("eval", "loss"): "eval/loss",
    ("eval", "perplexity"): "eval/perplexity",
}


def train(lockstep, *words):
    source = pathlib.Path(__file__).parents[2]
    subprocess.run([lockstep, "train", source / "examples/tiny.toml", "--mock-data", *words], check=True, stdout=subprocess.DEVNULL)


def as_float(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def check(directory, steps):
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "step"] == list(range(1, steps + 1)), "each step once"
    told = {}
    for line in lines:
        for key, value in line.items():
            if (line["event"], key) in TAGS:
                told.setdefault(TAGS[line["event"], key], []).append((line["step"], as_float(value)))
    board = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    board.Reload()
    assert sorted(board.Tags()["scalars"]) == sorted(TAGS.values()) == sorted(told), board.Tags()["scalars"]
    for tag, expected in told.items():
        shown = [(event.step, event.value) for event in board.Scalars(tag)]
        assert shown == expected, f"{tag}: {shown} is not {expected}"
    for line in lines:
        if line["event"] == "eval":
            assert math.isclose(line["perplexity"], math.exp(line["loss"]), rel_tol=1e-12)
    return len(told)


if __name__ == "__main__":
    settings = ["--set", "train.eval_interval=4", "--set", "train.noise_scale=5"]
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder) / "run"
        run = ["--save", directory, "--save-interval", "5", *settings]
        train(sys.argv[1], *run, "--set", "train.steps=12")
        check(directory, 12)
        # As after a crash: the newest checkpoint is lost, and the steps behind the one before are made again.
        shutil.rmtree(directory / "step-00000012")
        train(sys.argv[1], *run, "--resume", "--set", "train.steps=14", "--set", "layout.dp=2")
        print(f"{check(directory, 14)} curves as in metrics.jsonl, over a resumed run too")
