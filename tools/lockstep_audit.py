"""Writes down one training step of PyTorch, for `lockstep audit` to say whether it is right. Needs torch and safetensors alone.

    from lockstep_audit import Audit

    audit = Audit("dump", model, config)      # before the step: the model as it trains, and its config.json
    audit.batch(ids, labels)                  # each microbatch of this rank
    audit.result(loss_sum=..., tokens=..., grad_norm=...)  # after the last backward; before clipping and the optimizer

Every rank writes what it holds, in pieces; there is no collective in here, and no rank holds more than it did. The format is
docs/formats/audit.md of Lockstep.
"""

import hashlib
import json
import os

import safetensors.torch
import torch
import torch.distributed as dist

try:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard
except ImportError:  # a torch without DTensor
    DTensor = None

SCHEMA = "lockstep.audit/1"
WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


def clean(name):
    """A parameter's name without what torch.compile, checkpointing, FSDP and DDP put into it."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


def chunk(length, parts, index):
    """Offset and extent of a part as torch.chunk cuts: the last may be shorter, or empty."""
    size = -(-length // parts)
    begin = min(length, size * index)
    return begin, min(length, begin + size) - begin


def cut_order(mesh_shape, placements):
    """Mesh dimensions in the order in which they cut. A _StridedShard cuts behind those to its right whose sizes multiply to
    its split_factor: FSDP2 over tensor parallelism cuts what tensor ranks left."""
    order = [m for m, p in enumerate(placements) if isinstance(p, (Shard, _StridedShard))]
    for mesh_dim in reversed(list(order)):
        placement = placements[mesh_dim]
        if not isinstance(placement, _StridedShard):
            continue
        left, at = placement.split_factor, order.index(mesh_dim)
        order.pop(at)
        while left > 1:
            if at >= len(order):
                raise ValueError(f"the dimensions to the right of {placement} do not make its split factor")
            if placements[order[at]].dim == placement.dim:
                left //= mesh_shape[order[at]]
            at += 1
        order.insert(at, mesh_dim)
    return order


def locate(shape, mesh_shape, coordinate, placements):
    """Offset and extent of what the rank at this coordinate holds of a DTensor."""
    offset, extent = [0] * len(shape), list(shape)
    for mesh_dim in cut_order(mesh_shape, placements):
        dim = placements[mesh_dim].dim
        begin, extent[dim] = chunk(extent[dim], mesh_shape[mesh_dim], coordinate[mesh_dim])
        offset[dim] += begin
    return offset, extent


def piece_of(tensor):
    """What this rank holds of a tensor, and the tensor that it holds. A gradient is asked for its own placements: they differ
    from its parameter's (under sequence parallelism a norm's is Partial)."""
    if DTensor is None or not isinstance(tensor, DTensor):
        return {"shape": list(tensor.shape), "offset": [0] * tensor.ndim, "extent": list(tensor.shape)}, tensor
    mesh, local = tensor.device_mesh, tensor.to_local()
    coordinate = mesh.get_coordinate()
    offset, extent = locate(tensor.shape, mesh.shape, coordinate, tensor.placements)
    if list(local.shape) != extent:
        raise ValueError(f"{tensor.placements} of {tuple(tensor.shape)}: {list(local.shape)} is held, {extent} was computed")
    piece = {"shape": list(tensor.shape), "offset": offset, "extent": extent}
    partial = [m for m, p in enumerate(tensor.placements) if isinstance(p, Partial)]
    for mesh_dim in partial:
        if tensor.placements[mesh_dim].reduce_op != "sum":
            raise ValueError(f"a gradient that is {tensor.placements[mesh_dim]}; only sums are known")
    if partial:
        piece["shares"] = torch.Size([mesh.shape[m] for m in partial]).numel()
    piece["copy"] = [coordinate[m] for m, p in enumerate(tensor.placements) if isinstance(p, Replicate) and mesh.shape[m] > 1]
    return piece, local


def digest(tensor):
    data = tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def config_of(config):
    """That of config.json, from a transformers config, a dict or a file."""
    if isinstance(config, dict):
        return config
    if hasattr(config, "to_dict"):
        return config.to_dict()
    path = os.path.join(config, "config.json") if os.path.isdir(config) else config
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def type_name(dtype):
    return {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]


class Audit:
    """One step of one rank. `model` is a module, or the list of a pipeline rank's parts.

    config    of transformers, its to_dict(), or the path of a config.json
    data      (rank, ranks) among those that have samples of their own; found by itself for one process, DDP, FSDP2 and
              pure tensor parallelism, otherwise asked for
    compute   torch.bfloat16 where passes run in it although parameters are wider: autocast, MixedPrecisionPolicy
    rename    from the name of a parameter to its Hugging Face name
    layout    degrees beyond the data ranks: {"tp": 2, "sp": True, "pp": 2}
    weights   path of the Hugging Face directory that the step begins with; then no weights are written
    """

    def __init__(self, folder, model, config, *, data=None, compute=None, rename=None, layout=None, weights=None, framework=None):
        self.distributed = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if self.distributed else 0
        self.world = dist.get_world_size() if self.distributed else 1
        self.models = list(model) if isinstance(model, (list, tuple)) else [model]
        self.rename = rename or (lambda name: name)
        self.folder, self.config, self.weights = folder, config_of(config), weights
        self.framework = framework or f"torch {torch.__version__}"
        self.data = tuple(data) if data is not None else self._find_data()
        self.layout = dict(layout or {})
        self.compute = compute
        self.tensors, self.pieces, self.batches, self.done = {}, [], [], False
        self.params = {}
        for module in self.models:
            for name, parameter in module.named_parameters():
                self.params[self.rename(clean(name))] = parameter
        os.makedirs(folder, exist_ok=True)
        if weights is None:
            for name, parameter in self.params.items():
                self.add("weight", name, parameter.detach())

    def _find_data(self):
        if self.world == 1:
            return 0, 1
        module = self.models[0]
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            return dist.get_rank(module.process_group), dist.get_world_size(module.process_group)
        meshes = {p.device_mesh for p in module.parameters() if DTensor is not None and isinstance(p, DTensor)}
        sharded_data = hasattr(module, "set_requires_gradient_sync")
        if len(self.models) == 1 and len(meshes) == 1 and next(iter(meshes)).ndim == 1:
            mesh = next(iter(meshes))
            if mesh.size() == self.world:
                return (self.rank, self.world) if sharded_data else (0, 1)
        raise ValueError("give Audit data=(rank, ranks): this rank's place among those that have samples of their own")

    def add(self, kind, name, tensor, place=None, hash_only=False):
        """A piece of a tensor: where a DTensor's placements say, or where `place` does: {"shape", "offset", "extent"} of a box,
        {"shape", "range"} of the elements [begin, end) in row-major order. Several pieces of one tensor are allowed."""
        piece, local = piece_of(tensor) if place is None else (dict(place), tensor)
        if local.numel() == 0:
            return
        local = local.detach()
        piece.update(tensor=name, kind=kind)
        if kind == "gradient":
            piece["hash"] = digest(local)
        first = not any(piece.get("copy", ())) and not hash_only
        if first:
            piece["key"] = f"{kind}/{len(self.pieces)}"
            self.tensors[piece["key"]] = local.contiguous().clone().cpu()  # the optimizer writes in place
        elif kind == "weight":
            return
        self.pieces.append(piece)

    def batch(self, ids, labels, *, shifted=True, microbatches=1, positions=None, mask=None):
        """One microbatch of this rank, [samples, tokens]; `microbatches` equal ones for a pipeline's schedule. `shifted`: labels[i]
        is what follows ids[i]; False, as transformers takes them: labels[i] is ids[i] or -100."""
        for rows in zip(*(part.chunk(microbatches) for part in (ids, labels))):
            key = f"batch/{len(self.batches)}"
            self.tensors[key + "/tokens"] = rows[0].detach().to(torch.int64).contiguous().clone().cpu()
            self.tensors[key + "/labels"] = rows[1].detach().to(torch.int64).contiguous().clone().cpu()
            self.batches.append({"key": key, "shifted": shifted})
        for what, tensor in (("positions", positions), ("mask", mask)):
            if tensor is None:
                continue
            first = len(self.batches) - microbatches
            for index, rows in enumerate(tensor.expand_as(ids).chunk(microbatches)):
                key = f"batch/{first + index}/{what}"
                self.tensors[key] = rows.detach().to(torch.int64).contiguous().clone().cpu()

    def result(self, *, loss_sum=None, tokens=None, loss=None, grad_norm=None, gradients=None):
        """What the step found, of all ranks together: the sum of token losses and how many tokens took part, or their mean `loss`;
        the norm before clipping. `gradients`: by Hugging Face name, where they are not in the parameters."""
        if self.done:
            raise RuntimeError("this audit has its step already; make another Audit for another step")
        self.done = True
        if gradients is None:
            gradients = {name: p.grad for name, p in self.params.items()}
        lacking = [name for name, grad in gradients.items() if grad is None]
        if lacking:
            raise ValueError(f"no gradient of {lacking[0]} and {len(lacking) - 1} others; call result() behind the last backward, "
                             "before zero_grad()")
        ddp = isinstance(self.models[0], torch.nn.parallel.DistributedDataParallel)
        for name, grad in gradients.items():
            self.add("gradient", name, grad, hash_only=ddp and self.data[0] > 0)
        self.write(loss_sum=loss_sum, tokens=tokens, loss=loss, grad_norm=grad_norm)

    def write(self, **said):
        """The files of this rank; called by result(). Pieces that were given to add() by hand are in them."""
        said = {key: float(value) for key, value in said.items() if value is not None}
        if "tokens" in said:
            said["tokens"] = int(said["tokens"])
        path = os.path.join(self.folder, f"rank-{self.rank}")
        safetensors.torch.save_file(self.tensors, path + ".safetensors")
        with open(path + ".json", "w", encoding="utf-8") as file:
            json.dump({"rank": self.rank, "data": list(self.data), "batches": self.batches, "pieces": self.pieces, "said": said}, file)
        if self.rank != 0:
            return
        dtype = self.compute or next(iter(self.params.values())).dtype
        about = {"schema": SCHEMA, "framework": self.framework, "ranks": self.world, "layout": self.layout, "compute": type_name(dtype),
                 "weights": self.weights, "config": self.config}
        with open(os.path.join(self.folder, "audit.json"), "w", encoding="utf-8") as file:
            json.dump(about, file, indent=1, default=str)


def trainer_callback(folder, *, step=1):
    """For transformers: Trainer(..., callbacks=[lockstep_audit.trainer_callback("dump")]). Step number `step`, from 1. Clipping comes
    before callbacks, so max_grad_norm must be 0."""
    from transformers import TrainerCallback
    import transformers

    class Hook(TrainerCallback):
        audit = None

        def on_train_begin(self, args, state, control, model=None, **rest):
            if args.max_grad_norm:
                raise ValueError(f"max_grad_norm is {args.max_grad_norm}: gradients are clipped before a callback sees them; "
                                 "train the audited step with max_grad_norm=0")
            self.model = model
            model.register_forward_pre_hook(self.record, with_kwargs=True)

        def on_step_begin(self, args, state, control, **rest):
            if state.global_step + 1 != step:
                return
            data = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
            compute = torch.bfloat16 if args.bf16 else None
            self.audit = Audit(folder, self.model, self.model.config, data=data, compute=compute,
                               framework=f"transformers {transformers.__version__}, torch {torch.__version__}")

        def record(self, module, args, kwargs):
            if self.audit is None or self.audit.done or not module.training:
                return
            self.audit.batch(kwargs["input_ids"], kwargs["labels"], shifted=False, mask=kwargs.get("attention_mask"),
                             positions=kwargs.get("position_ids"))

        def on_pre_optimizer_step(self, args, state, control, **rest):
            if self.audit is not None and not self.audit.done:
                self.audit.result()

    return Hook()
