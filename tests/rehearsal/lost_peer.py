#!/usr/bin/env python3
"""Trains processes in rehearsal, and loses one of them: lost_peer.py RUN.SH SCRATCH.

The survivors must end in time, with the exit code of a job that others ended, and name the rank that is lost: where it
is killed, where it is stopped, which its heartbeat shows, and where it lives on but comes to no operation any more. They
wait for it in NCCL at that time."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

RANKS, VICTIM, WORLD_FAILED = 4, 3, 4
LAYOUT = ["layout.dp=2", "layout.pp=2", "layout.zero=2"]
DEADLINE = 8  # seconds, of an operation; a rank without a heartbeat is given up after half of it


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(run, scratch, rank, port, more):
    environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), REHEARSAL_WIRES=str(scratch / "wires"), **more)
    settings = [*LAYOUT, "device.kind=cuda", "train.steps=100000", f"train.op_deadline={DEADLINE}"]
    command = [run, "train", "examples/tiny.toml", "--mock-data", "--every", "1", *(x for s in settings for x in ("--set", s))]
    with open(scratch / f"{rank}.log", "w") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def wait_for(what, seconds, why):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise SystemExit(f"lost_peer: {why} within {seconds} s")
        time.sleep(0.02)


def lose(run, scratch, how, within, signs):
    """`how`: a signal, or the number of the operation that the victim does not come to."""
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "wires").mkdir(parents=True)
    port = free_port()
    stalls = not isinstance(how, signal.Signals)
    ranks = [start(run, scratch, rank, port, {"REHEARSAL_STALL": str(how)} if stalls and rank == VICTIM else {}) for rank in range(RANKS)]
    try:
        wait_for(lambda: "\n      2 " in (scratch / "0.log").read_text(), 60, "two steps were not trained")
        begin = time.monotonic()
        if not stalls:
            ranks[VICTIM].send_signal(how)
        survivors = [rank for rank in range(RANKS) if rank != VICTIM]
        wait_for(lambda: all(ranks[r].poll() is not None for r in survivors), within, f"survivors did not end after {how!r}")
        seconds = time.monotonic() - begin
        for r in survivors:
            text = (scratch / f"{r}.log").read_text()
            if ranks[r].returncode != WORLD_FAILED or not any(sign in text for sign in signs):
                raise SystemExit(f"lost_peer: rank {r} ended with {ranks[r].returncode} after {how!r}:\n{text[-3000:]}")
        print(f"{how!r}: {len(survivors)} survivors name rank {VICTIM} and ended within {seconds:.1f} s")
    finally:
        for one in ranks:
            one.kill()
            one.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def main():
    run, scratch = sys.argv[1], pathlib.Path(sys.argv[2])
    silent = [f"rank {VICTIM} shows no sign of life"]
    lose(run, scratch, signal.SIGKILL, 5, silent)
    lose(run, scratch, signal.SIGSTOP, DEADLINE, silent)
    lose(run, scratch, 120, 2 * DEADLINE, [f"rank {VICTIM} is at", f"rank {VICTIM}, which"])


if __name__ == "__main__":
    main()
