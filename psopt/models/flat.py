"""A model whose trainable parameters live in one contiguous vector.

The parameters of the module become views into ``FlatModel.parameters``, so that the parameter
server, the wire and the solvers see one flat vector while PyTorch sees its usual tensors. Nothing
is copied between the two.

What travels between coordinator and workers is ``FlatModel.vectors``: the parameters and, one
vector a dtype, the persistent buffers (BatchNorm statistics and their counters). Policy for
buffers, in one place:

- floating buffers are statistics: they are averaged (synchronous schemes) or moved towards the
  worker's values by the update's weight (asynchronous schemes);
- integer buffers are counters: a worker reports by how much it advanced them, and the server adds
  that once an update.

Tied parameters and shared buffers appear once. Frozen parameters (``requires_grad=False``),
non-persistent, boolean and complex buffers stay in the module, are the same on every rank when the
model is made (``signature`` covers them) and never travel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class FlatBuffers:
    """The persistent buffers of one dtype: a flat vector, and where each buffer lives in it."""

    flat: Tensor
    places: tuple[tuple[nn.Module, str, str], ...]  # owner, attribute, qualified name
    views: tuple[Tensor, ...]

    @property
    def counts(self) -> bool:
        """True when the group holds counters (integers), False when it holds statistics."""
        return not self.flat.is_floating_point()

    def gather(self) -> None:
        """Bring back buffers that the module replaced instead of changing in place."""
        for (owner, attribute, _), view in zip(self.places, self.views, strict=True):
            current = owner._buffers[attribute]
            if current is not view and current is not None:
                view.copy_(current.detach())
                owner._buffers[attribute] = view


class FlatModel:
    """``module`` with its trainable parameters in one flat vector on ``device``.

    Attributes:
        parameters: flat vector of all trainable parameters, shape (n,), in ``named_parameters``
        order.
        views: one view into ``parameters`` a parameter, with the parameter's shape.
        buffers: the persistent buffers, one group a dtype.

    Raises:
        ValueError: no trainable parameter, or trainable parameters of more than one dtype.
    """

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device)
        trainable = [(n, p) for n, p in self.module.named_parameters() if p.requires_grad]
        if not trainable:
            raise ValueError(
                "the model has no trainable parameter; check requires_grad in its factory"
            )
        dtypes = {p.dtype for _, p in trainable}
        if len(dtypes) > 1:
            raise ValueError(
                f"trainable parameters have several dtypes ({', '.join(sorted(map(str, dtypes)))}); "
                "a flat vector has one: convert the model with module.to(dtype)"
            )
        self.names = tuple(name for name, _ in trainable)
        self._parameters = tuple(p for _, p in trainable)
        self.parameters = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self.views = self.split(self.parameters)
        for parameter, view in zip(self._parameters, self.views, strict=True):
            parameter.data = view
        self.buffers = tuple(_group_buffers(self.module))
        firsts = {id(parameter): name for name, parameter in trainable}
        self._trained = {
            name: firsts[id(parameter)]
            for name, parameter in self.module.named_parameters(remove_duplicate=False)
            if id(parameter) in firsts
        }
        self._constants = self._digest_of_constants()

    @property
    def vectors(self) -> tuple[Tensor, ...]:
        """The parameters, then one vector a group of buffers: what travels and what is saved."""
        return (self.parameters, *(group.flat for group in self.buffers))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of elements of each parameter, in order."""
        return tuple(p.numel() for p in self._parameters)

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """Shape of each parameter by name, in order."""
        return {n: p.shape for n, p in zip(self.names, self._parameters, strict=True)}

    def split(self, flat: Tensor) -> tuple[Tensor, ...]:
        """Views into ``flat`` (n,), one a parameter, with the parameters' shapes."""
        pieces = torch.split(flat, list(self.sizes))
        return tuple(x.view(p.shape) for x, p in zip(pieces, self._parameters, strict=True))

    def widen(self, values: Tensor) -> Tensor:
        """Gives samples in the wider dtype of their own and the parameters'; labels as they are."""
        if not values.is_floating_point():
            return values
        return values.to(torch.promote_types(values.dtype, self.parameters.dtype))

    def gradient_graph(self, loss: Tensor) -> Tensor:
        """Gradient (n,) of ``loss``, itself differentiable, for ``product``."""
        gradients = torch.autograd.grad(
            loss, self._parameters, create_graph=True, materialize_grads=True
        )
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    def product(self, graph: Tensor, vector: Tensor) -> Tensor:
        """Hessian times ``vector`` (n,), exact, by a second backward pass (Pearlmutter, 1994)."""
        if not graph.requires_grad:  # a loss that is linear in the parameters
            return torch.zeros_like(vector)
        products = torch.autograd.grad(
            graph, self._parameters, vector, retain_graph=True, materialize_grads=True
        )
        return torch.cat([product.reshape(-1) for product in products])

    def gather_gradients(self, views: Sequence[Tensor]) -> None:
        """Move the gradients of the last backward pass into ``views`` (of a flat gradient vector).

        A parameter that took no part in the loss (``grad is None``) has gradient zero; a sparse
        gradient (``nn.Embedding(sparse=True)``) is made dense.
        """
        targets, sources = [], []
        for parameter, view in zip(self._parameters, views, strict=True):
            gradient = parameter.grad
            if gradient is None:
                view.zero_()
            elif gradient.is_sparse:
                view.copy_(gradient.to_dense())
            else:
                targets.append(view)
                sources.append(gradient)
            parameter.grad = None
        if targets:
            torch._foreach_copy_(targets, sources)

    def gather_buffers(self) -> None:
        """Make the buffer vectors current (for modules that replace a buffer)."""
        for group in self.buffers:
            group.gather()

    def named_parameters(self) -> dict[str, Tensor]:
        """Trainable parameters by name, as views."""
        return dict(zip(self.names, self.views, strict=True))

    def named_buffers(self) -> dict[str, Tensor]:
        """Persistent buffers and frozen parameters, by name."""
        held = {
            name: v for g in self.buffers for (_, _, name), v in zip(g.places, g.views, strict=True)
        }
        return {
            name: held.get(name, value)
            for name, value in self.module.state_dict().items()
            if name not in self._trained
        }

    def aliases(self) -> dict[str, str]:
        """Further names of tied parameters in the state_dict, with the name that each stands for."""
        return {name: first for name, first in self._trained.items() if name != first}

    def load_named(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
        """Set parameters and buffers by name, as a checkpoint holds them.

        Raises:
            ValueError: a name is missing or unknown, or a shape or a dtype differs; nothing is set
                then.
        """
        mine = self.check_named(parameters, buffers)
        with torch.no_grad():
            for name, value in {**parameters, **buffers}.items():
                mine[name].copy_(value)

    def check_named(
        self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """This model's tensors by name, when those of a checkpoint fit them.

        Raises:
            ValueError: a name is missing or unknown, or a shape or a dtype differs.
        """
        mine = {**self.named_parameters(), **self.named_buffers()}
        given = {**parameters, **buffers}
        if mine.keys() != given.keys():
            odd = ", ".join(sorted(mine.keys() ^ given.keys())[:5])
            raise ValueError(f"the checkpoint is of another model: names differ ({odd})")
        for name, value in given.items():
            if mine[name].shape != value.shape:
                raise ValueError(
                    f"the checkpoint is of another model: {name} has shape {tuple(value.shape)} "
                    f"there and {tuple(mine[name].shape)} here"
                )
            if mine[name].dtype != value.dtype:
                raise ValueError(
                    f"the checkpoint is of another model: {name} is {value.dtype} there and "
                    f"{mine[name].dtype} here"
                )
        return mine

    def signature(self) -> str:
        """Digest of names, shapes and dtypes, and of the values that never travel, as they were made."""
        digest = hashlib.sha256(self._constants)
        for name, view in (*self.named_parameters().items(), *self.named_buffers().items()):
            digest.update(f"{name} {tuple(view.shape)} {view.dtype};".encode())
        return digest.hexdigest()

    def sums(self) -> list[tuple[float, float]]:
        """Sum and absolute sum of each parameter: models that were made alike agree up to rounding."""
        return [
            (x.sum(dtype=torch.float64).item(), x.abs().sum(dtype=torch.float64).item())
            for x in self.views
        ]

    def _digest_of_constants(self) -> bytes:
        digest = hashlib.sha256()
        travelling = {id(view) for group in self.buffers for view in group.views}
        for name, value in (*self.module.named_parameters(), *self.module.named_buffers()):
            if not (value.requires_grad or id(value) in travelling):
                digest.update(f"{name} {tuple(value.shape)} {value.dtype};".encode())
                digest.update(_raw(value.detach()))
        return digest.digest()


def parameters_sha256(parameters: Tensor) -> str:
    """Sha-256 of the flat parameters as little-endian float32: the identity of a result."""
    return hashlib.sha256(_raw(parameters.detach().to("cpu", torch.float32))).hexdigest()


def _raw(tensor: Tensor) -> bytes:
    return tensor.to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _group_buffers(module: nn.Module) -> Iterable[FlatBuffers]:
    """Persistent buffers by dtype, each group moved into one vector.

    Booleans and complex numbers are constants (masks, rotations): neither statistics nor counters.
    """
    persistent = module.state_dict().keys()
    groups: dict[torch.dtype, list[tuple[nn.Module, str, str]]] = {}
    for prefix, owner in module.named_modules():
        for attribute, value in owner._buffers.items():
            name = f"{prefix}.{attribute}" if prefix else attribute
            if value is None or value.dtype == torch.bool or value.is_complex():
                continue
            if name in persistent:
                groups.setdefault(value.dtype, []).append((owner, attribute, name))
    for places in groups.values():
        values = [owner.get_buffer(attribute) for owner, attribute, _ in places]
        distinct = {id(value): value for value in values}
        flat = torch.cat([value.detach().reshape(-1) for value in distinct.values()])
        pieces = torch.split(flat, [value.numel() for value in distinct.values()])
        moved = {key: x.view(distinct[key].shape) for key, x in zip(distinct, pieces, strict=True)}
        views = tuple(moved[id(value)] for value in values)
        for (owner, attribute, _), view in zip(places, views, strict=True):
            owner._buffers[attribute] = view
        yield FlatBuffers(flat, tuple(places), views)


def sums_agree(theirs: list[tuple[float, float]], ours: list[tuple[float, float]]) -> bool:
    """Whether initial parameters are those of this rank, but for what another processor rounds."""
    return all(
        abs(their_sum - our_sum) <= 1e-6 * size
        for (their_sum, _), (our_sum, size) in zip(theirs, ours, strict=True)
    )
