"""What the units of a model of transformers give, for `lockstep convert --check`: each line of standard input is a
request, each of standard output its answer, both JSON. Words: a name for messages, the program that asks."""

import ctypes
import importlib.util
import json
import os
import pathlib
import sys


def load(_, program):
    # What the environment offers comes first, then where tools/setup puts packages; torch's Python half is there without
    # CUDA's libraries.
    for folder in pathlib.Path(program).resolve().parents:
        sys.path += [str(folder / ".deps/python"), *map(str, folder.glob(".deps/torch-*"))]
        found = importlib.util.find_spec("torch")
        if found and str(found.origin).startswith(str(folder / ".deps")):
            for library in sorted(folder.glob(".deps/stand-ins/*.so*")):
                ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
            break
    import transformers  # the quicker one to be missing
    import torch

    return torch, transformers


def outputs(torch, transformers, path, tokens):
    """Of the embedding, of every block, and the logits: [tokens, columns] of f32 each."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    ).eval()
    blocks = next(part for part in model.base_model.children() if isinstance(part, torch.nn.ModuleList))
    made = []

    def keep(output):
        made.append((output[0] if isinstance(output, tuple) else output)[0].clone())

    blocks[0].register_forward_pre_hook(lambda _, given: keep(given))
    for block in blocks:
        block.register_forward_hook(lambda _, given, output: keep(output))
    with torch.no_grad():
        keep(model(torch.tensor([tokens]), use_cache=False).logits)
    return made


def answers(torch, transformers):
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    yield {"versions": versions}
    made = []
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "outputs" in request:
            made = outputs(torch, transformers, **request["outputs"])
            yield {"units": len(made), "versions": versions}
        else:
            yield {"f32": made[request["unit"]].contiguous().numpy().astype("<f4").tobytes().hex()}


def main():
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print is no answer
    try:
        for answer in answers(*load(*sys.argv[1:])):
            print(json.dumps(answer), file=told, flush=True)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=told, flush=True)
    except Exception as error:  # what the packages raise is of no narrower type
        print(json.dumps({"error": str(error)}), file=told, flush=True)


main()
