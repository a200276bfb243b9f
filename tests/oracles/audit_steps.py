"""One training step of real PyTorch in many layouts, each right or with a fault planted, written down by lockstep_audit."""

import contextlib
import dataclasses

import torch
import torch.distributed as dist
from audit_llama import IGNORED, Llama, batch, config, loss_sum
from lockstep_audit import Audit
from torch import nn

MICROBATCHES = 2


@dataclasses.dataclass
class Case:
    """`layout`: eager, ddp, fsdp2, tp, tpsp, 1f1b; `expect`: what the explanation that comes first must say, None of a right step."""

    layout: str
    fault: str = ""
    expect: str | None = None
    dtype: torch.dtype = torch.float32
    seed: int = 1

    def name(self):
        return "-".join(part for part in (self.layout, str(self.dtype)[6:], self.fault, str(self.seed)) if part)


FAULTS = [
    Case("ddp", "divided-once-more", "divided once too often by the data-parallel degree, 2"),
    Case("ddp", "microbatch-means", "mean of the means of microbatches"),
    Case("ddp", "rank-means", "mean of the means of data ranks"),
    Case("ddp", "sample-means", "mean of the means of samples"),
    Case("ddp", "no-sync", "only data rank 0, x 2: multiplied once too often by the data-parallel degree"),
    Case("ddp", "zeroed", "only the last microbatch of every data rank"),
    Case("ddp", "shifted-twice", "labels one token too far to the left"),
    Case("ddp", "not-shifted", "labels one token too far to the right"),
    Case("ddp", "clipped", "clipped to a norm of 0.5"),
    Case("ddp", "ascent", "sign turned"),
    Case("ddp", "all-tokens", "divided once too often by all tokens over those that count"),
    Case("ddp", "summed", "multiplied once too often by the labels that count"),
    Case("ddp", "lost-microbatch", "without the last microbatch of every data rank"),
    Case("ddp", "frozen-embedding", "model.embed_tokens.weight: gradient is zero"),
    Case("ddp", "doubled-norms", "weights of norms"),
    Case("ddp", "loss-of-means", "the mean of the means of microbatches"),
    Case("ddp", "loss-of-rank", "that of data rank 0 alone"),
    Case("ddp", "squared-norm", "the square of the norm"),
    Case("ddp", "transposed", "q_proj.weight: transposed"),
    Case("ddp", "heads", "q_proj.weight: heads in another order: 1 0 2 3 4 5 6 7"),
    Case("ddp", "swapped-tensors", "the gradient of model.layers.0.self_attn.v_proj.weight"),
    Case("ddp", "autocast-unsaid", "passes in bf16"),
    Case("fsdp2", "divided-once-more", "divided once too often by the data-parallel degree, 2"),
    Case("fsdp2", "zero-shard", "the piece of rank 1 is zero"),
    Case("fsdp2", "swapped-shards", "the piece of rank 0 is what rank 1 should have"),
    Case("fsdp2", "norm-of-rank", "that of the pieces of rank 0 alone"),
    Case("tpsp", "norms-not-summed", "not summed over the 2 sequence-parallel ranks"),
    Case("tp", "norms-doubled", "multiplied once too often by the tensor-parallel degree, 2"),
    Case("tp", "norm-counts-twice", "counted once by each"),
    Case("1f1b", "scaled-twice", "divided once too often by the microbatches of a data rank, 8"),
]  # fmt: skip


def split(model, mesh, sequence):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                                   parallelize_module)  # fmt: skip

    tokens = Shard(1) if sequence else Replicate()
    plan = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=tokens),
            "lm_head": ColwiseParallel(input_layouts=tokens, output_layouts=Replicate())}  # fmt: skip
    if sequence:
        plan["model.norm"] = SequenceParallel()
    parallelize_module(model, mesh, plan)
    for layer in model.model.layers.values():
        plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
        plan |= {"mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel()}
        plan |= {name: RowwiseParallel(output_layouts=tokens) for name in ("self_attn.o_proj", "mlp.down_proj")}
        if sequence:
            plan |= {name: SequenceParallel() for name in ("input_layernorm", "post_attention_layernorm")}
            for name in ("self_attn", "mlp"):
                plan[name] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        parallelize_module(layer, mesh, plan)


def prepared(case, model, world):
    """The model as it trains, ranks that have samples of their own, and the layout's degrees."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if case.layout == "ddp":
        return nn.parallel.DistributedDataParallel(model), world, {}
    if case.layout == "fsdp2":
        mesh = init_device_mesh("cpu", (world,))
        for layer in model.model.layers.values():
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh), world, {}
    if case.layout in ("tp", "tpsp"):
        split(model, init_device_mesh("cpu", (world,)), case.layout == "tpsp")
        return model, 1, {"tp": world, "sp": case.layout == "tpsp"}
    return model, 1, {}


def moved(labels, by):
    """Labels that stand `by` tokens too far to the left."""
    out = torch.full_like(labels, IGNORED)
    if by > 0:
        out[:, :-by] = labels[:, by:]
    else:
        out[:, -by:] = labels[:, :by]
    return out


def scaled(case, loss, labels, tokens, dp, rank_tokens):
    """The loss of a microbatch as it is differentiated; DDP and FSDP2 average over ranks."""
    fault, live = case.fault, int((labels != IGNORED).sum())
    if fault == "divided-once-more":
        return loss / tokens
    if fault == "microbatch-means":
        return loss / max(live, 1) / MICROBATCHES
    if fault == "rank-means":
        return loss / rank_tokens
    if fault == "summed":
        return loss * dp
    if fault == "all-tokens":
        return loss * dp / batch(case.seed)[0].numel()
    if fault == "ascent":
        return -loss * dp / tokens
    return loss * dp / tokens


def passes(case, model, wrapped, dp, audit):
    """Forward and backward of all microbatches of this rank; the sum of losses and labels that count, of all ranks."""
    ids, labels = batch(case.seed)
    tokens = int((labels != IGNORED).sum())
    own = dist.get_rank() if dist.is_initialized() and dp > 1 else 0
    rows = len(ids) // dp
    rank_tokens = int((labels[own * rows : (own + 1) * rows] != IGNORED).sum())
    total, per = torch.zeros(()), rows // MICROBATCHES
    for k in range(MICROBATCHES):
        at = slice(own * rows + k * per, own * rows + (k + 1) * per)
        x, y = ids[at], labels[at]
        audit.batch(x, y)
        last = k == MICROBATCHES - 1
        if case.fault == "lost-microbatch" and last:
            break
        skips = not last and case.fault != "lost-microbatch" or case.fault == "no-sync"
        if case.layout == "fsdp2":
            model.set_requires_gradient_sync(last)
        narrow = torch.autocast("cpu", torch.bfloat16) if case.fault == "autocast-unsaid" else contextlib.nullcontext()
        with wrapped.no_sync() if case.layout == "ddp" and skips else contextlib.nullcontext(), narrow:
            seen = {"shifted-twice": moved(y, 1), "not-shifted": moved(y, -1)}.get(case.fault, y)
            logits = wrapped(x)
            if case.fault == "sample-means":
                loss = sum(loss_sum(logits[i : i + 1], seen[i : i + 1]) / max(1, int((seen[i] != IGNORED).sum())) for i in range(len(x)))
                (loss * dp / len(ids)).backward()
            else:
                loss = loss_sum(logits, seen)
                count = int((moved(labels, {"shifted-twice": 1, "not-shifted": -1}.get(case.fault, 0)) != IGNORED).sum()) \
                    if "shifted" in case.fault else tokens  # fmt: skip
                scaled(case, loss, y, count, dp, rank_tokens).backward()
            total += loss_sum(logits.detach(), y)
        if case.fault == "zeroed" and not last:
            model.zero_grad()
    if dp > 1:
        dist.all_reduce(total)
    return float(total), tokens


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def spoil(case, model):
    """Faults that are made of gradients; the gradients of those that hold other tensors than the model's."""
    grads = {name: p.grad for name, p in model.named_parameters()}
    rank = dist.get_rank() if dist.is_initialized() else 0
    q, k, v = (grads[f"model.layers.0.self_attn.{name}_proj.weight"] for name in "qkv")
    norms = [grad for name, grad in grads.items() if "norm" in name]
    if case.fault == "clipped":
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    elif case.fault in ("doubled-norms", "norms-doubled"):
        for grad in norms:
            grad.mul_(2)
    elif case.fault == "frozen-embedding":
        grads["model.embed_tokens.weight"].zero_()
    elif case.fault == "transposed":
        q.copy_(q.t().clone())
    elif case.fault == "heads":
        q.copy_(torch.cat([q[8:16], q[:8], q[16:]]))
    elif case.fault == "swapped-tensors":
        k.copy_(v)
    elif case.fault == "zero-shard" and rank == 1:
        local(q).zero_()
    elif case.fault == "swapped-shards":
        mine = local(q)
        other = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(other, mine)
        mine.copy_(other[1 - rank])
    elif case.fault == "norms-not-summed":
        return {name: local(grad) if "norm" in name else grad for name, grad in grads.items()}
    return None


def norm_of(case, model):
    """The gradient norm as a trainer reports it."""
    squares = 0.0
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        whole = grad.full_tensor() if hasattr(grad, "full_tensor") else grad
        part = float(whole.double().norm() ** 2)
        if case.fault == "norm-of-rank":
            part = float(local(grad).double().norm() ** 2)
        if case.fault == "norm-counts-twice" and not hasattr(parameter, "placements"):
            part *= 2
        squares += part
    return squares if case.fault == "squared-norm" else squares**0.5


def pipelined(case, folder, rank, world):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    layers = 2 * world
    model = Llama(layers).to(case.dtype)
    for i in range(layers):
        if i // 2 != rank:
            del model.model.layers[str(i)]
    if rank > 0:
        model.model.embed_tokens = None
    if rank < world - 1:
        model.model.norm = model.lm_head = None
    ids, labels = batch(case.seed)
    tokens = int((labels != IGNORED).sum())
    audit = Audit(folder, [model], config(layers), data=(0, 1), layout={"pp": world})
    stage = PipelineStage(model, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=lambda out, y: loss_sum(out, y) / tokens,
                            scale_grads=case.fault == "scaled-twice")  # fmt: skip
    losses = []
    if rank == 0:
        audit.batch(ids, labels, microbatches=8)
        schedule.step(ids)
    elif rank == world - 1:
        schedule.step(target=labels, losses=losses)
    else:
        schedule.step()
    audit.result(loss_sum=float(sum(losses)) * tokens if losses else None)


def write(case, folder, rank=0, world=1):
    """All ranks of the world call it for a case; alone for eager ones."""
    if case.layout == "1f1b":
        return pipelined(case, folder, rank, world)
    model = Llama().to(case.dtype)
    wrapped, dp, layout = prepared(case, model, world)
    audit = Audit(folder, wrapped, config(), layout=layout)
    total, tokens = passes(case, model, wrapped, dp, audit)
    grads = spoil(case, model)
    if case.fault == "loss-of-means":
        ids, labels = batch(case.seed)
        with torch.no_grad():
            means = [loss_sum(model(ids[i : i + 2]), labels[i : i + 2]) / (labels[i : i + 2] != IGNORED).sum() for i in range(0, 8, 2)]
        said = {"loss": float(sum(means)) / len(means)}
    elif case.fault == "loss-of-rank":
        ids, labels = (part[:4] for part in batch(case.seed))
        with torch.no_grad():
            said = {"loss": float(loss_sum(model(ids), labels) / (labels != IGNORED).sum())}
    elif grads is not None or case.fault in ("lost-microbatch", "no-sync", "autocast-unsaid"):
        said = {}
    else:
        said = {"loss_sum": total, "tokens": tokens, "grad_norm": norm_of(case, model)}
    return audit.result(gradients=grads, **said)
