"""A guard around an answer: what a check computes its expected values from stays as it is, whatever the answer does.

Otherwise an answer could change its arguments to fit what it returns: zeros everywhere are an answer to zeros. Checks of
purity are about just that, and get the answer without a guard.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Call = Callable[..., Any]


def guarded(answer: Any, *, makes_objects: bool) -> Any:
    """The answer, called with copies of its tensors; parameters, which cannot be copies, are put back after each call.

    Args:
        makes_objects: it is a class, or stands for one. The calls of what it makes are guarded as well: of a module
            `module(...)`, of another object every method that is called from outside.
    """
    if not callable(answer) or isinstance(answer, nn.Module):
        return answer
    call = _careful(answer)
    if not makes_objects:
        return call

    @functools.wraps(answer, updated=())
    def make(*args: Any, **kwargs: Any) -> Any:
        made = call(*args, **kwargs)
        if isinstance(made, nn.Module):
            _watch(made)
            return made
        return _Watched(made)

    return make


def _careful(call: Call) -> Call:
    @functools.wraps(call, updated=())
    def careful(*args: Any, **kwargs: Any) -> Any:
        with _kept([*args, *kwargs.values()]):
            args, kwargs = _with_copies(args, kwargs)
            return call(*args, **kwargs)

    return careful


class _Watched:
    """An object of the answer's. Its methods are called through the guard; what they do among themselves is theirs."""

    def __init__(self, made: Any) -> None:
        self.__dict__["_made"] = made

    def __getattr__(self, name: str) -> Any:
        made = self.__dict__["_made"]
        value = getattr(made, name)
        if not callable(value):
            return value
        call = _careful(value)

        def method(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            return _Watched(result) if type(result) is type(made) else result

        return method

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_made"], name, value)


def _watch(module: nn.Module) -> None:
    """Guard the calls of a module, which may also change its own parameters."""
    entered: list[AbstractContextManager[None]] = []

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        entered.append(_kept([module, *args, *kwargs.values()]))
        entered[-1].__enter__()
        return _with_copies(args, kwargs)

    def after(*_: Any) -> None:
        entered.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(after, always_call=True)


# ------------------------------------------------------------------------------------------------------ tensors


@contextmanager
def _kept(values: Sequence[Any]) -> Iterator[None]:
    """At the end, what cannot be a copy holds what it held before: tensors with gradients, the parameters of modules."""
    before = [(tensor, tensor.detach().clone()) for tensor in _tensors(values)]
    try:
        yield
    finally:
        for tensor, content in before:
            if tensor.shape != content.shape or tensor.dtype != content.dtype:
                tensor.data = content
            elif not _same(tensor, content):
                tensor.data.copy_(content)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, nn.Module):
            yield from value.parameters()
        elif isinstance(value, Tensor) and value.requires_grad:
            yield value


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


def _with_copies(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with a copy in the place of each tensor; one that is given twice stays one tensor."""
    copies: dict[int, Any] = {}

    def copy(value: Any) -> Any:
        return copies.setdefault(id(value), _spare(value))

    return tuple(map(copy, args)), {name: copy(value) for name, value in kwargs.items()}


def _spare(argument: Any) -> Any:
    """A copy of a tensor with its strides; what overlaps itself cannot be written to anyway."""
    if not isinstance(argument, Tensor) or argument.requires_grad or argument.layout is not torch.strided:
        return argument
    if any(stride == 0 for stride, size in zip(argument.stride(), argument.shape, strict=True) if size > 1):
        return argument
    return torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype).copy_(argument)
