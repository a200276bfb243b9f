#!/usr/bin/env python3
"""`lockstep convert --check` finds nothing where transformers computes the same, and names the first layer that differs
where something is planted into transformers: two experts swapped, another base of rotary positions, a norm's epsilon.
LOCKSTEP_ALL_KINDS=1 checks every kind of model both ways."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers as t
import transformers_test as tiny

# Runs when Python starts; changes a model as it is loaded.
PLANTED = """
import builtins, math, os
real = builtins.__import__
def swap_experts(model):
    for weights in model.model.layers[1].mlp.experts.parameters():
        weights.data[[0, 1]] = weights.data[[1, 0]]
def turn_otherwise(model):
    model.model.rotary_emb.inv_freq.pow_(math.log(10100) / math.log(10000))
def add_to_variance(model):
    model.model.layers[1].input_layernorm.variance_epsilon = 2e-5
def die(model):
    os._exit(9)
def hooked(name, *rest, **named):
    if name == "transformers" and os.environ["PLANTED"] == "missing":
        raise ImportError("No module named 'transformers'")
    made = real(name, *rest, **named)
    if name == "transformers" and not hasattr(made, "planted"):
        made.planted = made.AutoModelForCausalLM.from_pretrained
        def load(*rest, **named):
            model = made.planted(*rest, **named)
            globals()[os.environ["PLANTED"]](model)
            return model
        made.AutoModelForCausalLM.from_pretrained = load
    return made
builtins.__import__ = hooked
"""


class Program:
    def __init__(self, lockstep, folder):
        self.lockstep, self.folder = lockstep, folder
        (folder / "sitecustomize.py").write_text(PLANTED)

    def run(self, *words, planted=None):
        environment = dict(os.environ)
        if planted:
            environment |= {"PLANTED": planted, "PYTHONPATH": f"{self.folder}:{environment['PYTHONPATH']}"}
        return subprocess.run([self.lockstep, "convert", *words], env=environment, capture_output=True, text=True)

    def passes(self, *words):
        """The greatest difference, in units of what is allowed."""
        ran = self.run(*words, "--check", "--json")
        assert ran.returncode == 0, ran
        check = json.loads(ran.stdout)["check"]
        assert check["first_different"] is None and check["tokens"] == tiny.POSITIONS, check
        return max(unit["difference"] / unit["bound"] for unit in check["units"])

    def differs(self, planted, where, *words):
        ran = self.run(*words, "--check", planted=planted)
        assert ran.returncode == 1 and f"first in {where}:" in ran.stdout and "DIFFERS" in ran.stdout, ran
        print(planted, ran.stdout[ran.stdout.index("checked") :], flush=True)


def same(program, folder, every):
    for name, model, keywords in tiny.models():
        start, back = folder / f"{name}-start", folder / f"{name}-back"
        tiny.randomised(model).save_pretrained(folder / name, **keywords)
        if every or name == "gemma2":
            print(f"{name:10} import {program.passes(folder / name, start):.3f} of the bound", flush=True)
        if every or name == "dots1":
            program.run(folder / name, start)
            words = ("--dtype", "bf16") if name == "dots1" else ()
            print(f"{name:10} export {program.passes(start, back, *words):.3f} of the bound", flush=True)


def faults(program, folder):
    for name, model, keywords in tiny.models():
        if name in ("mixtral", "llama"):
            tiny.randomised(model).save_pretrained(folder / f"faulty-{name}", **keywords)
    mixtral, llama = folder / "faulty-mixtral", folder / "faulty-llama"
    program.differs("swap_experts", "blocks.1", mixtral, folder / "swapped")
    assert (folder / "swapped/step-00000000").exists()  # to be looked at
    program.differs("turn_otherwise", "blocks.0", llama, folder / "turned")
    program.differs("add_to_variance", "blocks.1", llama, folder / "norms")

    ran = program.run(llama, folder / "unchecked", "--check", planted="die")
    assert ran.returncode == 3 and "is whole, and has not been checked" in ran.stderr, ran
    assert (folder / "unchecked/step-00000000").exists()
    ran = program.run(llama, folder / "nothing", "--check", planted="missing")
    assert ran.returncode == 3 and "pip install transformers" in ran.stderr, ran
    assert not (folder / "nothing").exists()


if __name__ == "__main__":
    torch.manual_seed(8)
    t.logging.set_verbosity_error()
    t.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        checked = Program(sys.argv[1], pathlib.Path(scratch))
        faults(checked, pathlib.Path(scratch))
        same(checked, pathlib.Path(scratch), os.environ.get("LOCKSTEP_ALL_KINDS"))
