"""Random inputs for checks: seeded per run and per check, so that an answer cannot know them beforehand."""

from __future__ import annotations

import torch
from torch import Tensor


class Draw:
    """Draws tensors from one seeded generator. `draw(2, 5)` is standard normal in float64."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
        """Normal numbers with standard deviation `scale`."""
        return (torch.randn(*shape, generator=self._generator, dtype=torch.float64) * scale).to(dtype)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniform numbers in [low, high)."""
        return low + (high - low) * torch.rand(*shape, generator=self._generator, dtype=torch.float64)

    def integers(self, *shape: int, low: int = 0, high: int) -> Tensor:
        """Integers in [low, high)."""
        return torch.randint(low, high, shape, generator=self._generator)

    def permutation(self, n: int) -> Tensor:
        """A random order of range(n), never the identity for n > 1."""
        while True:
            order = torch.randperm(n, generator=self._generator)
            if n < 2 or not torch.equal(order, torch.arange(n)):
                return order

    def mask(self, *shape: int, visible: float = 0.6) -> Tensor:
        """A boolean mask whose rows (the last axis) each see at least one position and, where they can, miss one."""
        mask = torch.rand(*shape, generator=self._generator) < visible
        n = shape[-1]
        seen = torch.randint(0, n, (*shape[:-1], 1), generator=self._generator)
        mask.scatter_(-1, seen, True)
        if n > 1:
            mask.scatter_(-1, (seen + 1) % n, False)
        return mask

    def strided(self, *shape: int) -> Tensor:
        """A non-contiguous tensor of that shape: a transposed, step-2 view of a larger one."""
        base = self(*reversed([2 * size for size in shape]))
        view = base.permute(*reversed(range(len(shape))))
        return view[tuple(slice(None, None, 2) for _ in shape)]

    def generator(self) -> torch.Generator:
        """A fresh generator for an exercise that takes one, seeded from this one."""
        return torch.Generator().manual_seed(int(torch.randint(0, 2**31, (), generator=self._generator)))
