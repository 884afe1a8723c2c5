"""Stand-ins: what represents, on this side of the wire, an object that lives on the other.

A stand-in knows whose it is and its key there, and asks the other side for everything else. A missing attribute is
missing: `hasattr` gives what it would give for the original. A class is made for each class of the other side, with
the special methods that it has, so that `len`, iteration, indexing and comparison work or fail as there.
"""

from __future__ import annotations

import copy
import inspect
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import nn

from grader.sandbox import wire
from grader.sandbox.wire import Json, WireError

KEY = "_across_the_wall"
"""Attribute that marks a stand-in (its `Handle`) and a tensor that both sides have (its key)."""

OPERATIONS: dict[str, Callable[..., Any]] = {
    "__len__": len, "__iter__": iter, "__next__": next, "__reversed__": reversed, "__contains__": operator.contains,
    "__getitem__": operator.getitem, "__setitem__": operator.setitem, "__delitem__": operator.delitem,
    "__bool__": bool, "__int__": int, "__float__": float, "__index__": operator.index, "__hash__": hash,
    "__eq__": operator.eq, "__ne__": operator.ne, "__lt__": operator.lt, "__le__": operator.le, "__gt__": operator.gt,
    "__ge__": operator.ge, "__add__": operator.add, "__sub__": operator.sub, "__mul__": operator.mul,
    "__matmul__": operator.matmul, "__truediv__": operator.truediv, "__neg__": operator.neg,
    "__str__": str, "__repr__": repr, "__copy__": copy.copy, "__deepcopy__": copy.deepcopy,
    "__enter__": lambda x: type(x).__enter__(x), "__exit__": lambda x, *a: type(x).__exit__(x, None, None, None),
}  # fmt: skip
"""Special methods that cross, and how they are carried out."""

_COMPARISONS = frozenset({"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"})


class Asker(Protocol):
    """What a stand-in needs of its peer."""

    trusted: bool

    def ask(self, operation: str, key: int, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Have the other side do something with its object `key`."""


class Handle:
    """Marks a stand-in: whose it is, and its key there."""

    __slots__ = ("__weakref__", "key", "peer")

    def __init__(self, peer: Asker, key: int) -> None:
        self.peer, self.key = peer, key


def key_of(value: Any, peer: Asker) -> int | None:
    """The (negative) key of a stand-in of this peer; None for everything else."""
    if not isinstance(value, types.FunctionType | _RemoteClass) and not isinstance(type(value), _RemoteClass):
        return None
    handle = value.__dict__.get(KEY)
    return handle.key if isinstance(handle, Handle) and handle.peer is peer else None


def stand_in_function(peer: Asker, key: int, name: Json, signature: Json) -> Callable[..., Any]:
    if not isinstance(name, str):
        raise WireError("a function without a name")
    handle = Handle(peer, key)

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return handle.peer.ask("call", -handle.key, args, kwargs)

    stand_in.__name__ = stand_in.__qualname__ = wire.clean_text(name[:200])
    stand_in.__doc__ = None
    stand_in.__module__ = "__answer__"
    stand_in.__dict__[KEY] = handle
    _sign(stand_in, signature)
    return stand_in


def _sign(stand_in: Any, signature: Json) -> None:
    if signature is None:
        return
    parameters = []
    one = inspect.Parameter
    order = (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.VAR_POSITIONAL, one.KEYWORD_ONLY, one.VAR_KEYWORD)
    try:
        for name, kind, default in signature:
            shown = inspect.Parameter.empty if default is None else _Default(str(default)[:100])
            parameters.append(inspect.Parameter(str(name), order[kind], default=shown))
        stand_in.__signature__ = inspect.Signature(parameters)
    except (TypeError, ValueError, IndexError):
        raise WireError("an odd signature") from None


class _Default(str):
    """The text of a default value in a stand-in's signature."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature_of(value: Any) -> Json:
    """Names, kinds and defaults (as text) of a callable's parameters; None where Python knows none."""
    try:
        parameters = inspect.signature(value).parameters.values()
        empty = inspect.Parameter.empty
        return [[p.name, int(p.kind), None if p.default is empty else repr(p.default)[:100]] for p in parameters]
    except Exception:
        return None


class _RemoteClass(type):
    """The class of stand-in classes: calling one makes an object on the other side."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        handle = cls.__dict__[KEY]
        return handle.peer.ask("call", -handle.key, args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        handle = cls.__dict__.get(KEY)
        if handle is None or name.startswith("__"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        return handle.peer.ask("get", -handle.key, (name,))


class RemoteObject(metaclass=_RemoteClass):
    """An object that lives on the other side."""

    @staticmethod
    def stand_in(cls: type, peer: Asker, key: int) -> Any:
        made: Any = object.__new__(cls)
        object.__setattr__(made, KEY, Handle(peer, key))
        return made

    def __getattr__(self, name: str) -> Any:
        return _get_attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        handle = self.__dict__[KEY]
        handle.peer.ask("set", -handle.key, (name, value))

    def __delattr__(self, name: str) -> None:
        handle = self.__dict__[KEY]
        handle.peer.ask("delete", -handle.key, (name,))

    def __copy__(self) -> Any:
        handle = self.__dict__[KEY]
        return handle.peer.ask("__copy__", -handle.key)

    def __deepcopy__(self, _memo: Any) -> Any:
        handle = self.__dict__[KEY]
        return handle.peer.ask("__deepcopy__", -handle.key)


class RemoteModule(nn.Module, metaclass=_RemoteClass):
    """A module that lives on the other side, with its parameters, buffers and parts in step with it."""

    @staticmethod
    def stand_in(cls: Any, peer: Asker, key: int) -> Any:
        made = object.__new__(cls)
        nn.Module.__init__(made)
        object.__setattr__(made, KEY, Handle(peer, key))
        return made

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        handle = self.__dict__[KEY]
        return handle.peer.ask("call", -handle.key, args, kwargs)

    def extra_repr(self) -> str:
        handle = self.__dict__[KEY]
        return str(handle.peer.ask("method", -handle.key, ("extra_repr",)))

    def __getattr__(self, name: str) -> Any:
        for part in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(part)
            if found is not None and name in found:
                return found[name]
        return _get_attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        local = name in self._parameters or name in self._buffers or name in self._modules
        if local or name.startswith("_") or name == "training" or isinstance(value, nn.Parameter | nn.Module):
            nn.Module.__setattr__(self, name, value)
        else:
            handle = self.__dict__[KEY]
            handle.peer.ask("set", -handle.key, (name, value))

    def __delattr__(self, name: str) -> None:
        if name in self._parameters or name in self._buffers or name in self._modules:
            nn.Module.__delattr__(self, name)
        else:
            handle = self.__dict__[KEY]
            handle.peer.ask("delete", -handle.key, (name,))

    def __deepcopy__(self, _memo: Any) -> Any:
        handle = self.__dict__[KEY]
        return handle.peer.ask("__deepcopy__", -handle.key)


def _get_attribute(stand_in: Any, name: str) -> Any:
    handle = stand_in.__dict__.get(KEY)
    if handle is None or name.startswith("__"):
        raise AttributeError(f"{type(stand_in).__name__!r} object has no attribute {name!r}")
    return handle.peer.ask("get", -handle.key, (name,))


def describe_class(cls: type, *, methods: bool) -> Json:
    """Name and special methods; of a module class the nearest class of `torch.nn` and the methods that it overrides.

    Args:
        methods: also name the public methods of another class. They are called in one message then instead of two; but
            an object that hides one by an attribute of its own is not seen to.
    """
    special = [
        name
        for name in [*OPERATIONS, "__call__"]
        if getattr(cls, name, None) is not None and getattr(cls, name) is not getattr(object, name, None)
    ]
    if not issubclass(cls, nn.Module):
        public = {name for c in cls.__mro__ for name, value in vars(c).items() if isinstance(value, types.FunctionType)}
        named = sorted(name for name in public if methods and not name.startswith("_"))
        return [name_of(cls), special, None, named, signature_of(cls)]
    base = next(c for c in cls.__mro__ if _torch_class(c.__name__) is c)
    own = [c for c in cls.__mro__[: cls.__mro__.index(base)] if c is not RemoteModule]
    names = {name for c in own for name in vars(c) if not name.startswith("_") and hasattr(nn.Module, name)}
    return [name_of(cls), [], base.__name__, sorted(names - {"forward", "training"}), signature_of(cls)]


def _torch_class(name: str) -> type | None:
    if name == "Module":
        return nn.Module
    found = getattr(nn, name, None)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def name_of(value: Any) -> str:
    name = getattr(value, "__name__", "")
    return name[:200] if isinstance(name, str) else ""


def stand_in_class(peer: Asker, key: int, description: Json) -> type:
    if not (isinstance(description, list) and len(description) == 5):
        raise WireError("a class without a description")
    name, special, base, methods, signature = description
    if not (isinstance(name, str) and isinstance(special, list) and isinstance(methods, list)):
        raise WireError("an odd class")
    body: dict[str, Any] = {KEY: Handle(peer, key), "__module__": "__answer__", "__doc__": None}
    for method in special:
        if method not in OPERATIONS and method != "__call__":
            raise WireError("an unknown special method")
        if method not in ("__copy__", "__deepcopy__"):
            body[method] = _special("call" if method == "__call__" else method)
    if "__eq__" in body and "__hash__" not in body:
        body["__hash__"] = None
    for method in methods:
        known = peer.trusted if base is None else hasattr(nn.Module, str(method))
        if not (isinstance(method, str) and known and not method.startswith("_")):
            raise WireError("an unknown method")
        body[method] = _method(method)
    bases: tuple[type, ...] = (RemoteObject,)
    if base is not None:
        torch_class = _torch_class(base) if isinstance(base, str) else None
        if torch_class is None:
            raise WireError("a module of an unknown class")
        bases = (RemoteModule,) if torch_class is nn.Module else (RemoteModule, torch_class)
    try:
        cls = _RemoteClass(wire.clean_text(name[:200]).replace("\0", ""), bases, body)
    except (TypeError, ValueError):
        raise WireError("an odd class") from None
    _sign(cls, signature)
    return cls


def _special(operation: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        handle = self.__dict__[KEY]
        if operation == "__exit__":
            args = ()
        if operation in _COMPARISONS and not handle.peer.trusted and key_of(args[0], handle.peer) is None:
            return NotImplemented  # no answer says that its object equals what a check expects
        return handle.peer.ask(operation, -handle.key, args, kwargs)

    return method


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        handle = self.__dict__[KEY]
        return handle.peer.ask("method", -handle.key, (name, *args), kwargs)

    method.__name__ = name
    return method
