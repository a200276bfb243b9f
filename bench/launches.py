#!/usr/bin/env python3
"""What a step of a llama asks of a GPU, beside PyTorch's eager mode and FSDP2: launches, waits, bytes; without a GPU.

    PYTHON bench/launches.py BUILD [--hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 32000 --tokens 8192]
                             [--layers 1] [--only REGEX] [--names]

BUILD is a build of the preset `cuda` with the targets lockstep and rehearsal_fakes. Every contestant is the user's own
program, on LibTorch's own CUDA half over the libraries of tests/rehearsal, which write down what they are asked
(tests/rehearsal/events.h). Each runs with --layers layers and with one more: what the longer step has besides is a block's.
PYTHON is one that the wheel of torch in .deps was made for. All counts are exact, and none depends on the machine.

A call of cuBLAS counts as one launch, whatever kernels that library would choose; a copy within the device and a fill by the
runtime are counted beside launches. Contestants that train alike: parameters and both moments of AdamW in f32, products in
bf16, the gradient's norm clipped, one read of loss and norm a step. FSDP2 reduces gradients in f32, as Lockstep does.
Peaks are bytes that tensors asked the caching allocator for, without cuBLAS's workspace.
"""
import argparse
import collections
import ctypes
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS = 3  # of which the second is counted
NORM = re.compile(r"lockstep::cuda::.*\badd_squares<")  # of a gradient


# ---- PyTorch's side, in a process of its own

def model_of(torch, o, fused):
    """As torchtitan's llama, in plain modules; `fused` has one product for q, k and v and one for both halves of SwiGLU."""
    from torch import nn
    from torch.nn import functional as F
    dim = o.hidden // o.heads
    sizes = [o.heads * dim, o.kv_heads * dim, o.kv_heads * dim]

    def rotate(x, turns):
        return torch.view_as_real(torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * turns).flatten(3).type_as(x)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.RMSNorm(o.hidden, eps=1e-5), nn.RMSNorm(o.hidden, eps=1e-5)
            self.qkv = nn.ModuleList(nn.Linear(o.hidden, n, bias=False) for n in ([sum(sizes)] if fused else sizes))
            self.out = nn.Linear(o.hidden, o.hidden, bias=False)
            self.up = nn.ModuleList(nn.Linear(o.hidden, n, bias=False) for n in ([2 * o.ffn] if fused else [o.ffn] * 2))
            self.down = nn.Linear(o.ffn, o.hidden, bias=False)

        def forward(self, x, turns):
            y = self.attention_norm(x)
            q, k, v = self.qkv[0](y).split(sizes, -1) if fused else [product(y) for product in self.qkv]
            q, k, v = (part.unflatten(-1, (-1, dim)) for part in (q, k, v))
            q, k, v = (part.transpose(1, 2) for part in (rotate(q, turns), rotate(k, turns), v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            y = self.mlp_norm(x)
            gate, up = self.up[0](y).chunk(2, -1) if fused else [product(y) for product in self.up]
            return x + self.down(F.silu(gate) * up)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(o.vocab, o.hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(o.layers))
            self.norm, self.head = nn.RMSNorm(o.hidden, eps=1e-5), nn.Linear(o.hidden, o.vocab, bias=False)
            angles = torch.outer(torch.arange(o.tokens).float(), 1e4 ** (-torch.arange(0, dim, 2).float() / dim))
            self.turns = torch.polar(torch.ones_like(angles), angles)[:, None, :]

        def forward(self, tokens, labels):
            x = self.tokens(tokens)
            for block in self.blocks:
                x = block(x, self.turns)
            return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), labels.flatten())

    return Llama()


def hugging_face(torch, o):
    from transformers import LlamaConfig, LlamaForCausalLM, masking_utils
    look = masking_utils.find_packed_sequence_indices

    def find_none(position_ids):
        """What is read here decides about a mask, and kernels that do not run say that one is needed."""
        look(position_ids)

    masking_utils.find_packed_sequence_indices = find_none
    config = LlamaConfig(vocab_size=o.vocab, hidden_size=o.hidden, intermediate_size=o.ffn, num_hidden_layers=o.layers,
                         num_attention_heads=o.heads, num_key_value_heads=o.kv_heads, max_position_embeddings=o.tokens,
                         use_cache=False, attn_implementation="sdpa")
    model = LlamaForCausalLM(config)
    return model, lambda tokens, labels: model(input_ids=tokens, labels=labels).loss


def sharded(torch, o):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    torch.distributed.init_process_group("nccl")
    model = model_of(torch, o, fused=False)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model


def contest(o):
    """STEPS steps of one of PyTorch's; its peak of the second goes to the standard output."""
    import torch
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    torch.backends.cuda.enable_cudnn_sdp(False)  # nothing stands in for cuDNN; flash attention remains
    event = ctypes.CDLL("libcudart.so.13").rehearsal_event
    mark = lambda name: event(b"mark", ctypes.c_long(0), name.encode())
    requested = lambda which: torch.cuda.memory_stats()[f"requested_bytes.all.{which}"]
    one = torch.zeros(1, 1, device="cuda")
    one @ one  # cuBLAS keeps the workspace that it takes here
    before = requested("current") - one.element_size()
    peaks = []
    is_sharded = o.contest == "fsdp2"
    torch.set_default_dtype(torch.float32 if is_sharded else torch.bfloat16)
    with torch.device("cuda"):
        if o.contest == "hf":
            model, loss_of = hugging_face(torch, o)
        else:
            model = loss_of = sharded(torch, o) if is_sharded else model_of(torch, o, fused=o.contest == "fused")
    narrow = list(model.parameters())
    masters = narrow if is_sharded else [p.detach().float() for p in narrow]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=True)
    batch = torch.zeros(2, 1, o.tokens, dtype=torch.long).pin_memory()
    for _ in range(STEPS):
        mark("step")
        torch.cuda.reset_peak_memory_stats()
        tokens, labels = batch.to("cuda", non_blocking=True)
        loss = loss_of(tokens, labels)
        loss.backward()
        mark("update")
        if not is_sharded:
            for master, own in zip(masters, narrow):
                master.grad, own.grad = own.grad.float(), None
        norm = torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if not is_sharded:
            torch._foreach_copy_([p.detach() for p in narrow], masters)
        mark("read")
        torch.stack([loss.detach().float(), norm.full_tensor() if is_sharded else norm]).tolist()
        peaks.append(requested("peak") - before)
    torch.cuda.synchronize()
    print(json.dumps({"peak": peaks[1]}), flush=True)
    os._exit(0)  # Python 3.11 may abort where threads of autograd outlive it


# ---- counting

def events_of(folder):
    """Of the first rank: [(kind, bytes, name)]."""
    ranks = []
    for path in sorted(pathlib.Path(folder).iterdir(), key=lambda p: int(p.name)):
        with open(path, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t", 2) for line in file]
        ranks.append([(kind, int(size), name) for kind, size, name in lines])
    return max(ranks, key=len)


def steps_of_ours(events):
    """Marks of steps: batches come by pinned memory, the norm is read behind its kernels, updates follow."""
    marked, inside = [], "update"
    for kind, size, name in events:
        if kind == "copy" and name == "pinned to device" and inside != "step":
            marked.append(("mark", 0, "step"))
            inside = "step"
        elif inside == "step" and kind == "launch" and NORM.search(name):
            marked.append(("mark", 0, "update"))
            inside = "update"
        marked.append((kind, size, name))
    return marked


def second_step(events):
    """{"step": its events up to the norm, "update": the norm and the update, "read": what reads loss and norm}."""
    starts = [i for i, event in enumerate(events) if event[0] == "mark" and event[2] == "step"]
    assert len(starts) == STEPS
    found, place = collections.defaultdict(list), None
    for kind, size, name in events[starts[1]:starts[2]]:
        if kind == "mark":
            place = name
        else:
            found[place].append((kind, size, name))
    return found


def short(name):
    """A kernel's name with the functor in it, without types of arguments."""
    outer = re.sub(r"^void |\(anonymous namespace\)::|at::native::|pytorch_flash::", "", name).split("<")[0].split("(")[0]
    functors = re.findall(r"\w*(?:[Ff]unctor\w*|_kernel_cuda|_cuda_kernel|silu\w*_kernel|OpaqueType)\b", name)
    inner = [f for f in functors if f not in (outer, "BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor")]
    types = "bf16" if "BFloat16" in name.split("const")[0] else ""
    return " ".join(filter(None, (outer, inner[0] if inner else "", types)))


def wire(events):
    """Bytes that a rank sends, by kind, if rings move them."""
    sent = collections.Counter()
    for kind, size, name in events:
        if kind == "collective":
            what, members = name.split(" of ")
            sent[what] += (2 if what == "all_reduce" else 1) * size * (int(members) - 1) // int(members)
    return sent


def counted(events):
    of = collections.Counter()
    for kind, size, name in events:
        of[kind] += 1
        if kind == "copy" and name == "device to device":
            of["within"] += 1
            of["within bytes"] += size
    names = collections.Counter(short(name) for kind, _, name in events if kind in ("launch", "product"))
    return {"launches": of["launch"] + of["product"], "products": of["product"], "copies": of["within"],
            "copied bytes": of["within bytes"], "memsets": of["memset"], "waits": of["wait"],
            "collectives": of["collective"], "names": names, "wire": wire(events)}


# ---- contestants

def environment(build, folder):
    fakes = build / "tests" / "rehearsal" / "fakes"
    libraries = ["libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2"]
    return {**os.environ, "LD_PRELOAD": ":".join(str(fakes / name) for name in libraries), "REHEARSAL_EVENTS": folder,
            "LD_LIBRARY_PATH": f"{fakes}:{ROOT / '.deps' / 'stand-ins'}", "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{next((ROOT / '.deps').glob('torch-*'))}:{ROOT / '.deps' / 'python'}"}


def shape(o):
    return [f"--{key.replace('_', '-')}={getattr(o, key)}" for key in ("hidden", "heads", "kv_heads", "ffn", "vocab", "tokens")]


def run_theirs(o, name, layers, folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = 2 if name == "fsdp2" else 1
    ranks = []
    for rank in range(world):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        words = [sys.executable, "-B", __file__, str(o.build), *shape(o), f"--layers={layers}", f"--contest={name}"]
        ranks.append(subprocess.Popen(words, env={**environment(o.build, folder), **{k: str(v) for k, v in place.items()}},
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    told = [rank.communicate(timeout=900) for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit("\n".join(f"{out}{error}" for out, error in told))
    return events_of(folder), json.loads(told[0][0])["peak"]


def run_ours(o, name, layers, folder):
    dp, zero = (2, 3) if name.endswith("zero3") else (1, 0)
    with tempfile.TemporaryDirectory(prefix="lockstep-launches-") as work:
        run = os.path.join(work, "run.toml")
        with open(run, "w", encoding="utf-8") as file:
            file.write(f"""[model]
name = "launches"
layers = {layers}
hidden = {o.hidden}
heads = {o.heads}
kv_heads = {o.kv_heads}
ffn = {o.ffn}
vocab = {o.vocab}
max_positions = {o.tokens}
[layout]
dp = {dp}
zero = {zero}
[batch]
seq = {o.tokens}
global_batch = {dp}
[train]
steps = {STEPS}
dtype = "bf16"
lr = 1e-4
clip = 1.0
[device]
kind = "cuda"
""")
        told = subprocess.run([o.build / "lockstep", "train", run, "--mock-data", "--metrics", work], check=False,
                              env=environment(o.build, folder), capture_output=True, text=True)
        if told.returncode != 0:
            sys.exit(told.stdout + told.stderr)
        with open(os.path.join(work, "metrics.jsonl"), encoding="utf-8") as file:
            peak = [line["peak_bytes"] for line in map(json.loads, file) if line["event"] == "step"][1]
    return steps_of_ours(events_of(folder)), peak


CONTESTANTS = {"lockstep": run_ours, "eager": run_theirs, "fused": run_theirs, "hf": run_theirs,
               "lockstep zero3": run_ours, "fsdp2": run_theirs}


def measure(o, name):
    def run(layers):
        with tempfile.TemporaryDirectory(prefix="lockstep-events-") as folder:
            events, peak = CONTESTANTS[name](o, name, layers, folder)
        parts = second_step(events)
        return counted(parts["step"]), counted(parts["step"] + parts["update"] + parts["read"]), peak

    (less, _, _), (more, whole, peak) = run(o.layers), run(o.layers + 1)
    block = {key: more[key] - less[key] for key in more}
    return {"block": block, "step": whole, "waits before the norm": more["waits"], "peak": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    for key, value in {"hidden": 4096, "heads": 32, "kv-heads": 8, "ffn": 14336, "vocab": 32000, "tokens": 8192}.items():
        parser.add_argument(f"--{key}", type=int, default=value)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--names", action="store_true", help="kernels of a block by name")
    parser.add_argument("--contest", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.contest:
        return contest(o)
    print(f"{'':15}  block, both passes:                      step of {o.layers + 1} layers:")
    print(f"{'':15} launches products  copies     MiB memsets  launches waits before norm  peak MiB  wire MiB")
    for name in CONTESTANTS:
        if not re.search(o.only, name):
            continue
        got = measure(o, name)
        block, step = got["block"], got["step"]
        print(f"{name:15} {block['launches']:8} {block['products']:8} {block['copies']:7} {block['copied bytes'] / 2**20:7.0f} "
              f"{block['memsets']:7} {step['launches']:9} {step['waits']:5} {got['waits before the norm']:11} "
              f"{got['peak'] / 2**20:9.1f} {sum(step['wire'].values()) / 2**20:9.1f}", flush=True)
        if step["wire"]:
            kinds = ", ".join(f"{kind} {size / 2**20:.1f} MiB" for kind, size in step["wire"].items())
            print(f"{'':15} {step['collectives']} collectives, {block['collectives']} of a block's passes: {kinds}")
        if o.names:
            for kernel, count in sorted(block["names"].items(), key=lambda pair: -pair[1]):
                print(f"{'':15} {count:4} {kernel}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
