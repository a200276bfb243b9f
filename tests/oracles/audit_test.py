#!/usr/bin/env python3
"""Steps of real PyTorch on Gloo, written down by tools/lockstep_audit.py: right ones pass `lockstep audit`, and planted faults are
found and explained. LOCKSTEP_ALL_AUDITS=1: every fault, and many seeds of every layout."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist
import torch.multiprocessing
from audit_steps import FAULTS, Case, write

LAYOUTS = ("ddp", "fsdp2", "tp", "tpsp", "1f1b")
ALL = os.environ.get("LOCKSTEP_ALL_AUDITS") == "1"
FEW = ("microbatch-means", "no-sync", "clipped", "zero-shard", "swapped-shards", "norms-not-summed", "scaled-twice", "heads")


def cases():
    made = [Case(layout) for layout in LAYOUTS]
    made += [Case("fsdp2", dtype=torch.bfloat16)]
    made += [case for case in FAULTS if ALL or case.fault in FEW]
    if ALL:
        made += [Case(layout, dtype=dtype, seed=seed) for seed in range(2, 32) for layout in LAYOUTS
                 for dtype in (torch.float32, torch.bfloat16)]  # fmt: skip
    return made


def run(rank, folder, world):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    for case in cases():
        write(case, f"{folder}/{case.name()}", rank, world)
        dist.barrier()
    dist.destroy_process_group()


def audited(lockstep, dump):
    done = subprocess.run([lockstep, "audit", dump, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{dump}: exit {done.returncode}\n{done.stderr}")
    verdict = json.loads(done.stdout)
    assert (done.returncode == 0) == verdict["same_training"], dump
    return verdict


def first_words(verdict):
    """The explanation that comes first: of gradients, else of what was said."""
    found = verdict["explained_by"] or [one for check in verdict["said"] for one in check["explained_by"]]
    return found[0]["what"] if found else "nothing"


def check(lockstep, case, folder):
    verdict = audited(lockstep, f"{folder}/{case.name()}")
    worst = max(tensor["ratio"] if isinstance(tensor["ratio"], (int, float)) else float("inf") for tensor in verdict["tensors"])
    if case.expect is None:
        print(f"{case.name():40} {'same' if verdict['same_training'] else 'OTHER'}, worst {worst:.2f} of its bound", flush=True)
        return verdict["same_training"]
    words = first_words(verdict)
    good = not verdict["same_training"] and case.expect in words
    print(f"{case.name():40} {'ok   ' if good else 'WRONG'} {words}", flush=True)
    return good


def damages():
    """(what, a change of a rank's JSON, words of the refusal)."""

    def piece(change):
        return lambda json_: change(json_["pieces"][-1])

    yield "offset", piece(lambda p: p.update(offset=[1, 0])), "is not inside of"
    yield "extent", piece(lambda p: p.update(extent=[1, 1])), "its extent [1, 1]"
    yield "shape", piece(lambda p: p.update(shape=[8, 8])), "in the model of its config"
    yield "range", piece(lambda p: p.update(range=[0, 1 << 60])), "is not inside of"
    yield "kind", piece(lambda p: p.update(kind="moment")), "not weight or gradient"
    yield "key", piece(lambda p: p.update(key="../../etc/passwd")), "there is no tensor"
    yield "name", piece(lambda p: p.update(tensor="w")), "no gradient of"
    yield "doubled", lambda j: j["pieces"].append(dict(j["pieces"][-1], tensor="w")), "which the model has not"
    yield "missing", lambda j: j["pieces"].pop(), "elements of gradients"
    yield "shares", piece(lambda p: p.update(shares=3)), "1 of 3 shares"
    yield "rank", lambda j: j.update(rank=1), "of another rank"
    yield "data", lambda j: j.update(data=[4, 2]), "must be a rank and how many"
    yield "ranks", lambda j: j.update(data=[0, 2]), "samples of 1 of 2 data ranks"
    yield "batch", lambda j: j["batches"][0].update(key="batch/9"), "there is no tensor"
    yield "said", lambda j: j["said"].update(perplexity=1.0), "nothing is known of"


def check_damaged(lockstep, folder):
    failed = 0
    path = pathlib.Path(folder, "rank-0.json")
    whole = path.read_text()
    for what, change, words in damages():
        changed = json.loads(whole)
        change(changed)
        path.write_text(json.dumps(changed))
        done = subprocess.run([lockstep, "audit", folder], capture_output=True, text=True, check=False)
        if done.returncode not in (2, 3) or words not in " ".join(done.stderr.split()):
            failed += 1
            print(f"damaged {what}: exit {done.returncode}, not `{words}`:\n{done.stderr}")
    path.write_text(whole[: len(whole) // 2])
    done = subprocess.run([lockstep, "audit", folder], capture_output=True, text=True, check=False)
    failed += done.returncode not in (2, 3)
    path.unlink()
    done = subprocess.run([lockstep, "audit", folder], capture_output=True, text=True, check=False)
    failed += done.returncode not in (2, 3)
    return failed


def main(lockstep):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, (folder, 2), nprocs=2)
        for case in cases():
            failed += not check(lockstep, case, folder)
        torch.set_num_threads(1)
        for case in (Case("eager"), Case("eager", dtype=torch.bfloat16)):
            write(case, f"{folder}/{case.name()}")
            failed += not check(lockstep, case, folder)
        failed += check_damaged(lockstep, f"{folder}/{Case('eager').name()}")
    if failed:
        sys.exit(f"{failed} audits went wrong")


if __name__ == "__main__":
    main(sys.argv[1])
