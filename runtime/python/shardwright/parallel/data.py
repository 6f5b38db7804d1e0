"""Data sets and the iterators over their micro-batches."""
from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from . import device_mesh as _mesh

input_dtype: torch.dtype | None = None   # what `to_device` makes of floating inputs by default (set by pretrain for low precision)


class SyntheticDataset(Dataset):
    """Samples drawn from their index: `make(generator)` returns one sample (tensors without batch dimension, in a tuple or dict)."""

    def __init__(self, make, length=1024, seed=0):
        self.make, self.length, self.seed = make, length, seed

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return self.make(torch.Generator().manual_seed(self.seed * 1_000_003 + index))


class MicroBatches:
    """An endless iterator of this data-parallel rank's micro-batches, from sample `start` on (counted over all dp ranks). Every rank of
    a pipeline may read: the order is the same. `single` keeps the data set's order, `cyclic` shuffles every epoch by the seed."""

    def __init__(self, dataset, micro_batch_size, dataloader_type="cyclic", seed=0, start=0, workers=0):
        if len(dataset) < 1:
            raise ValueError("the data set is empty")
        self.dataset, self.size, self.kind, self.seed, self.start, self.at = dataset, micro_batch_size, dataloader_type, seed, start, 0
        self._epoch, self._order = -1, None
        self._loader = iter(DataLoader(dataset, batch_sampler=self._batches(), num_workers=workers)) if workers else None

    def __iter__(self):
        return self

    def _index(self, position):
        epoch, offset = divmod(position, len(self.dataset))
        if self.kind == "single":
            return offset
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = torch.randperm(len(self.dataset), generator=torch.Generator().manual_seed(self.seed + epoch)).tolist()
        return self._order[offset]

    def _batches(self):
        m = _mesh.mesh()
        while True:
            first = self.start + (self.at * m.dp + m.dp_rank) * self.size
            self.at += 1
            yield [self._index(first + i) for i in range(self.size)]

    def __next__(self):
        if self._loader is not None:
            return next(self._loader)
        return default_collate([self.dataset[i] for i in next(self._batches())])


def to_device(batch, device=None, dtype=None):
    """Tensors of a (nested) batch on the mesh's device; floating ones in `dtype` when given."""
    device, dtype = device or _mesh.mesh().device, dtype or input_dtype
    if isinstance(batch, torch.Tensor):
        return batch.to(device, dtype if dtype and batch.is_floating_point() else None)
    if isinstance(batch, dict):
        return {k: to_device(v, device, dtype) for k, v in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(v, device, dtype) for v in batch)
    return batch
