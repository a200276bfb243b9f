#!/usr/bin/env python3
"""Writes tests/golden/pipelining/*.csv: orders of torch.distributed.pipelining, for tests/pipeline/csv_test.cc.

Needs torch 2.13.0; run once by hand. No process group and no model: a schedule asks its stages only for numbers.

Schedules with several stages per rank write their own files. Those with one stage have no writer, and the order they
keep for drawing is not the one they run, so theirs is noted down while they run a step on a stage that does nothing;
the order for drawing is kept once, as `1f1b_drawn`.
"""

import csv
import pathlib
import types

import torch
from torch.distributed.pipelining import schedules

VERSION = "2.13.0"
FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "pipelining"


class Stage(types.SimpleNamespace):
    """Stage `index` of `total` on `ranks` ranks; notes what it is told to compute."""

    def __init__(self, index, total, ranks):
        super().__init__(stage_index=index, num_stages=total, group_size=ranks, group_rank=index % ranks, submod=None)
        self.is_first, self.is_last, self.has_backward = index == 0, index == total - 1, True
        self.noted = []

    def forward_one_chunk(self, microbatch, *_, **__):
        self.noted.append(f"{self.stage_index}F{microbatch}")

    def backward_one_chunk(self, microbatch, *_, **__):
        self.noted.append(f"{self.stage_index}B{microbatch}")

    def nothing(self, *_):
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = nothing
    perform_reduce_grad = clear_runtime_states = nothing


def write_rows(name, rows):
    with open(FOLDER / f"{name}.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)


def single(kind, name, ranks, microbatches):
    rows = []
    for index in range(ranks):
        stage = Stage(index, ranks, ranks)
        schedule = kind(stage, microbatches)
        schedule._initialize_stage = stage.nothing
        schedule._step_microbatches([()] * microbatches)
        rows.append(stage.noted)
    write_rows(f"{name}_p{ranks}_v1_m{microbatches}", rows)
    return schedule


def multi(kind, name, ranks, chunks, microbatches):
    stages = [Stage(chunk * ranks, chunks * ranks, ranks) for chunk in range(chunks)]
    schedule = kind(stages, microbatches)
    schedule._dump_csv(FOLDER / f"{name}_p{ranks}_v{chunks}_m{microbatches}.csv", format="compute_only")
    return schedule


def main():
    assert torch.__version__.split("+")[0] == VERSION, torch.__version__
    FOLDER.mkdir(exist_ok=True)
    single(schedules.ScheduleGPipe, "gpipe", 4, 8)
    single(schedules.Schedule1F1B, "1f1b", 2, 4)
    drawn = single(schedules.Schedule1F1B, "1f1b", 4, 8).pipeline_order
    write_rows("1f1b_drawn_p4_v1_m8", [[op for op in row if op.is_compute_op] for row in drawn.values()])
    for shape in (4, 1, 8), (4, 2, 3), (4, 2, 8), (4, 2, 10), (2, 3, 4):
        multi(schedules.ScheduleInterleaved1F1B, "interleaved", *shape)
    for shape in (4, 1, 8), (4, 2, 3), (4, 2, 8), (4, 2, 10):
        multi(schedules.ScheduleInterleavedZeroBubble, "interleaved-zb", *shape)
    for shape in (2, 2, 4), (4, 2, 4), (4, 2, 8):
        multi(schedules.ScheduleZBVZeroBubble, "zbv", *shape)
    for shape in (4, 2, 8), (4, 2, 10):
        multi(schedules.ScheduleDualPipeV, "dualpipe-v", *shape)
    multi(schedules.ScheduleLoopedBFS, "looped-bfs", 2, 2, 3)._dump_csv(
        FOLDER / "looped-bfs_comms_p2_v2_m3.csv", format="compute_comms"
    )


if __name__ == "__main__":
    main()
