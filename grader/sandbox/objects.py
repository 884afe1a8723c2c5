"""Objects in use across the wall: ours by their keys, theirs by their stand-ins.

Each side numbers what it hands over. A key of ours is positive here and negative on the other side, and the other way
round. A stand-in lives as long as somebody here uses it; then the other side is told, and forgets the original.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

from grader.sandbox.standins import (
    Asker,
    RemoteObject,
    describe_class,
    key_of,
    name_of,
    signature_of,
    stand_in_class,
    stand_in_function,
)
from grader.sandbox.wire import Json, Uncrossable, WireError

MAX_OBJECTS = 20_000
_MAX_CLASSES = 1_000
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType)
INSIDES = (type, types.ModuleType, types.CodeType, types.FrameType, types.TracebackType)
"""Kinds of objects that lead to everything else in a process: they are neither handed over nor looked into."""


class Objects:
    """The objects of one conversation.

    Args:
        asker: the peer that stand-ins ask.
    """

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self._mine: dict[int, Any] = {}
        self._key_by_id: dict[int, int] = {}
        self._signatures: dict[int, Json] = {}
        self._described: set[int] = set()
        self._theirs: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._classes: dict[int, type] = {}
        self._dead: list[int] = []
        self._last_key = 0

    def __len__(self) -> int:
        return len(self._mine) + len(self._theirs)

    def new_key(self) -> int:
        """A number that nothing of ours had before."""
        self._last_key += 1
        return self._last_key

    # -------------------------------------------------------------------------------------------------- of ours

    def own(self, target: Any) -> int:
        """The key of an object of ours, which from now on is kept for the other side."""
        key = self._key_by_id.get(id(target))
        if key is None:
            if len(self._mine) >= MAX_OBJECTS:
                raise Uncrossable("too many objects are in use across the wall")
            key = self.new_key()
            self._mine[key] = target
            self._key_by_id[id(target)] = key
        return key

    def mine(self, key: int) -> Any:
        """The object of ours that has this key."""
        if key not in self._mine:
            raise WireError("an object that is not there")
        return self._mine[key]

    def forget(self, key: int) -> None:
        """The other side no longer uses what we call `key`."""
        target = self._mine.pop(key, None)
        if target is not None:
            self._key_by_id.pop(id(target), None)
        self._signatures.pop(key, None)

    def export(self, value: Any) -> Json:
        """The JSON of something that is neither data nor a module."""
        if isinstance(value, type):
            return ["C", *self.named_class(value)]
        if isinstance(value, FUNCTIONS):
            key = self.own(value)
            if not self.asker.trusted:  # a check's functions tell by their names and defaults what it looks for
                return ["F", key, "function", None]
            if key not in self._signatures:
                self._signatures[key] = signature_of(value) if isinstance(value, types.FunctionType) else None
            return ["F", key, name_of(value), self._signatures[key]]
        if isinstance(value, INSIDES):
            raise Uncrossable(f"a {type(value).__name__} cannot be handed over")
        return ["H", self.own(value), *self.named_class(type(value))]

    def named_class(self, cls: type) -> list[Json]:
        """A class's key, and its description the first time."""
        key = self.own(cls)
        if key in self._described:
            return [key, None]
        self._described.add(key)
        return [key, describe_class(cls, methods=not self.asker.trusted)]

    # -------------------------------------------------------------------------------------------------- of theirs

    def key_of(self, value: Any) -> int | None:
        """The (negative) key of a stand-in; None for everything else."""
        return key_of(value, self.asker)

    def theirs(self, key: int) -> Any:
        """The stand-in that has this (negative) key, if there is one."""
        return self._theirs.get(key)

    def import_(self, tag: str, rest: list[Json]) -> Any:
        """What `export` of the other side wrote."""
        key = rest[0]
        if tag == "O":
            return self.mine(key)
        if key <= 0:
            raise WireError("a reference with an odd key")
        found = self._theirs.get(-key)
        if found is not None:
            return found
        if tag == "F" and len(rest) == 3:
            return self.adopt(-key, stand_in_function(self.asker, -key, rest[1], rest[2]))
        if tag == "C" and len(rest) == 2:
            return self.adopt_class(-key, rest[1])
        if tag == "H" and len(rest) == 3 and type(rest[1]) is int:
            cls = self.adopt_class(-rest[1], rest[2])
            if not issubclass(cls, RemoteObject):
                raise WireError("an object of an odd class")
            return self.adopt(-key, RemoteObject.stand_in(cls, self.asker, -key))
        raise WireError("a value of an unknown kind")

    def adopt(self, key: int, stand_in: Any) -> Any:
        """Take in a stand-in."""
        if len(self._theirs) >= MAX_OBJECTS:
            raise WireError("too many objects")
        self._theirs[key] = stand_in
        if key in self._dead:
            self._dead.remove(key)
        self.watch(stand_in, key)
        return stand_in

    def adopt_class(self, key: int, description: Json) -> type:
        """The class that stands for one of theirs; made of its description the first time."""
        if key not in self._classes:
            if len(self._classes) > _MAX_CLASSES:
                raise WireError("too many classes")
            self._classes[key] = stand_in_class(self.asker, key, description)
        return self._classes[key]

    def watch(self, thing: Any, key: int) -> None:
        """See to it that the other side hears, with the next message, when a thing of theirs is gone."""
        weakref.finalize(thing, self._dead.append, key).atexit = False

    def gone(self) -> list[int]:
        """The keys of theirs that ended since the last call."""
        dead = self._dead[:]  # the list itself stays: finalizers hold it
        del self._dead[: len(dead)]
        return dead
