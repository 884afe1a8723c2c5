"""The words in which a check fails: what was changed, what happened, what should have, with the evidence.

Every assertion raises `CheckFailed` with a message for the learner. `evidence` is the value that was judged: the judge
compares it with what the bank's mutants give on the same inputs, to name a likely slip.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from grader.report import Picture

RTOL, ATOL = 1e-7, 1e-9
"""Tolerances of values in float64."""

_SMALL = 12
_PICTURE = (12, 16)


class CheckFailed(AssertionError):
    """A property does not hold."""

    def __init__(self, message: str, *, evidence: Any = None, picture: Picture | None = None) -> None:
        super().__init__(message)
        self.evidence, self.picture = evidence, picture


def fail(message: str, *, evidence: Any = None, picture: Picture | None = None) -> None:
    """Fail the check with a message for the learner."""
    raise CheckFailed(message, evidence=evidence, picture=picture)


def require(condition: bool, message: str, *, evidence: Any = None) -> None:
    """Fail with `message` unless `condition` holds."""
    if not condition:
        raise CheckFailed(message, evidence=evidence)


# ------------------------------------------------------------------------------------------------ in words


def number(value: Any, digits: int = 4) -> str:
    """A number as a person writes it: 4 digits, no trailing zeros, no minus zero."""
    return f"{value + 0.0:.{digits}g}" if isinstance(value, float) else str(value)


def shape_of(value: Any) -> str:
    """(2, 3) for a tensor, otherwise what the thing is."""
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def show(value: Any, digits: int = 4) -> str:
    """A small tensor with its numbers, a large one by its shape."""
    if isinstance(value, float):
        return number(value, digits)
    if not isinstance(value, Tensor):
        return repr(value) if isinstance(value, bool | int | str | type(None)) else shape_of(value)
    if value.numel() > _SMALL:
        return f"shape {tuple(value.shape)}"

    def words(item: Any) -> str:
        if isinstance(item, list):
            return "[" + ", ".join(map(words, item)) + "]"
        return number(item, digits)

    return words(value.detach().tolist())


def contrast(got: Any, want: Any) -> str:
    """Two values side by side, with as many digits as it takes to tell them apart."""
    for digits in (4, 7, 10, 17):
        one, two = show(got, digits), show(want, digits)
        if one != two:
            break
    return f"{one}, expected {two}"


def given(**arguments: Any) -> str:
    """The arguments of a call in words: "with q = [[1, 0]], k of shape (2, 5, 7)"."""
    parts = [
        f"{name} of {show(value)}"
        if isinstance(value, Tensor) and value.numel() > _SMALL
        else f"{name} = {show(value)}"
        for name, value in arguments.items()
    ]
    return "with " + ", ".join(parts)


# ------------------------------------------------------------------------------------------------ values


def assert_tensor(got: Any, what: str = "the output") -> Tensor:
    """`got` is a tensor (of any kind), else a sentence that says what was returned."""
    if not isinstance(got, Tensor):
        hint = "; is the `return` missing?" if got is None else ""
        fail(f"{what} should be a tensor but is {shape_of(got)}{hint}", evidence=shape_of(got))
    return got


def assert_shape(got: Any, shape: Sequence[int], what: str = "the output", case: str = "") -> None:
    """`got` is a tensor of that shape."""
    got = assert_tensor(got, what)
    if tuple(got.shape) != tuple(shape):
        fail(
            f"the shape of {what} is {tuple(got.shape)}, expected {tuple(shape)}{_and(case)}",
            evidence=tuple(got.shape),
        )


def assert_dtype(got: Any, dtype: torch.dtype, what: str = "the output", case: str = "") -> None:
    """`got` is a tensor of that dtype."""
    got = assert_tensor(got, what)
    if got.dtype != dtype:
        names = (str(d).removeprefix("torch.") for d in (got.dtype, dtype))
        fail("the dtype of {} is {}, expected {}".format(what, *names) + _and(case), evidence=str(got.dtype))


def assert_close(
    got: Any,
    want: Any,
    what: str = "the output",
    *,
    case: str = "",
    rtol: float = RTOL,
    atol: float = ATOL,
    dtype: bool = True,
    axes: tuple[str, str] = ("row", "column"),
    hint: str = "",
) -> None:
    """`got` equals `want` within the tolerance: type, shape, dtype, then values; tuples and dicts item by item.

    Args:
        what: the name of the thing in the message.
        case: the input in words (`given(...)`), so that the message shows a counterexample.
        axes: what the last two axes count, for the picture.
        hint: where to look, appended to the message.
    """
    if isinstance(want, Mapping):
        require(isinstance(got, Mapping), f"{what} should be a dict but is {shape_of(got)}", evidence=shape_of(got))
        missing, extra = sorted(map(str, want.keys() - got.keys())), sorted(map(str, got.keys() - want.keys()))
        if missing or extra:
            fail(
                f"{what} lacks {missing or 'nothing'} and has {extra or 'nothing'} too much{_and(case)}",
                evidence=sorted(map(str, got)),
            )
        for key in want:
            assert_close(
                got[key],
                want[key],
                f"{what}[{key!r}]",
                case=case,
                rtol=rtol,
                atol=atol,
                dtype=dtype,
                axes=axes,
                hint=hint,
            )
        return
    if isinstance(want, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(want):
            size = f"{len(got)} items" if isinstance(got, tuple | list) else shape_of(got)
            fail(f"{what} should have {len(want)} items but is {size}{_and(case)}", evidence=size)
        for index, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_close(g, w, f"{what}[{index}]", case=case, rtol=rtol, atol=atol, dtype=dtype, axes=axes, hint=hint)
        return
    if not isinstance(want, Tensor):
        _assert_number(got, want, what, case, rtol, atol, hint)
        return
    assert_shape(got, want.shape, what, case)
    if dtype:
        assert_dtype(got, want.dtype, what, case)
    got_values, want_values = got.detach(), want.detach()
    if want_values.dtype in (torch.bool, torch.int64, torch.int32, torch.uint8):
        wrong = got_values != want_values.to(got_values.dtype)
    else:
        got_values, want_values = got_values.double(), want_values.double()
        wrong = ~torch.isclose(got_values, want_values, rtol=rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return
    if hint and torch.allclose(got_values.double(), want_values.double(), rtol=1e-3, atol=1e-3):
        hint = ""  # nearly right: a hint at the usual mistake would mislead
    fail(
        _difference(got_values, want_values, wrong, what) + _and(case) + (f"; {hint}" if hint else ""),
        evidence=got_values.clone(),
        picture=picture(wrong, axes),
    )


def _assert_number(got: Any, want: Any, what: str, case: str, rtol: float, atol: float, hint: str) -> None:
    value = got.item() if isinstance(got, Tensor) and got.numel() == 1 else got
    if isinstance(want, int | str | type(None)):
        same = (
            isinstance(value, int | str | type(None))
            and value == want
            and isinstance(value, bool) == isinstance(want, bool)
        )
    else:
        same = isinstance(value, int | float) and (
            abs(value - want) <= atol + rtol * abs(want) or (value != value and want != want)  # nan is like nan
        )
    if not same:
        kind = "" if type(value) is type(want) else f" (it is {shape_of(value)})"
        fail(
            f"{what}: {contrast(got, want)}{kind}{_and(case)}{f'; {hint}' if hint else ''}",
            evidence=value if isinstance(value, int | float | str | bool) else shape_of(value),
        )


def _and(case: str) -> str:
    return f", {case}" if case else ""


def _difference(got: Tensor, want: Tensor, wrong: Tensor, what: str) -> str:
    if want.numel() <= _SMALL:
        return f"{what}: {contrast(got, want)}"
    gap = (got.double() - want.double()).abs().nan_to_num(nan=float("inf")) * wrong
    place = [int(i) for i in torch.unravel_index(gap.argmax(), gap.shape)]
    at = f"[{', '.join(map(str, place))}]"
    count = f"{int(wrong.sum())} of {wrong.numel()} entries are wrong"
    return f"{what} at {at}: {contrast(got[tuple(place)].item(), want[tuple(place)].item())}; {count}"


def picture(wrong: Tensor, axes: tuple[str, str] = ("row", "column")) -> Picture | None:
    """The wrong cells over the last two axes (wrong anywhere in the leading ones); None where that says nothing."""
    if wrong.dim() < 2:
        return None
    flat = wrong.reshape(-1, *wrong.shape[-2:]).any(dim=0)
    if flat.shape[0] > _PICTURE[0] or flat.shape[1] > _PICTURE[1] or flat.all():
        return None
    return Picture(tuple(tuple(bool(c) for c in row) for row in flat.tolist()), axes[0], axes[1])


def assert_finite(got: Any, what: str = "the output", case: str = "") -> None:
    """No nan and no inf."""
    got = assert_tensor(got, what)
    bad = ~torch.isfinite(got.detach())
    if bad.any():
        kind = "nan" if torch.isnan(got.detach()).any() else "inf"
        fail(
            f"there is {kind} in {what} ({int(bad.sum())} of {bad.numel()} entries){_and(case)}",
            evidence=got.detach(),
            picture=picture(bad),
        )


# ------------------------------------------------------------------------------------------------ influence


def moved(before: Tensor, after: Tensor, *, atol: float = ATOL) -> Tensor:
    """Boolean, where `after` differs from `before` (nan differs)."""
    return ~torch.isclose(before.detach().double(), after.detach().double(), rtol=0.0, atol=atol)


def assert_same(
    before: Any, after: Any, change: str, what: str = "the output", *, hint: str = "", atol: float = ATOL
) -> None:
    """`change` must not move anything: "changed token 4, output 1 moved by 0.83; <hint>"."""
    before, after = assert_tensor(before, what), assert_tensor(after, what)
    assert_shape(after, before.shape, what, change)
    where = moved(before, after, atol=atol)
    if where.any():
        gap = (after.detach().double() - before.detach().double()).abs().nan_to_num(nan=float("inf")).max().item()
        fail(
            f"{change}, {what} moved by {number(gap)} but should stay the same{f'; {hint}' if hint else ''}",
            evidence=after.detach().clone(),
            picture=picture(where),
        )


def assert_moves(
    before: Any, after: Any, change: str, what: str = "the output", *, hint: str = "", atol: float = 1e-6
) -> None:
    """`change` must move `what` (somewhere, and not to nan): the twin of `assert_same`."""
    before, after = assert_tensor(before, what), assert_tensor(after, what)
    for value in (before, after):
        require(not value.isnan().any(), f"{change}, there is nan in {what}", evidence=value.detach())
    if not moved(before, after, atol=atol).any():
        fail(f"{change}, {what} did not move but should{f'; {hint}' if hint else ''}", evidence=after.detach().clone())


# ------------------------------------------------------------------------------------------------ gradients


def gradients(
    function: Callable[..., Any], arguments: Sequence[Any], wrt: Sequence[int], seed: int = 0, **options: Any
) -> list[Tensor]:
    """Gradients of a fixed random projection of the function's (first) output with respect to the arguments `wrt`.

    Raises:
        CheckFailed: when no gradient can flow to one of them.
    """
    leaves = [a.detach().clone().requires_grad_() if i in wrt else a for i, a in enumerate(arguments)]
    out = function(*leaves, **options)
    if not isinstance(out, tuple | list | Mapping):
        assert_tensor(out)
    outputs = [
        o for o in (out if isinstance(out, tuple | list) else [out]) if isinstance(o, Tensor) and o.is_floating_point()
    ]
    if not outputs or not any(o.requires_grad for o in outputs):
        fail(
            "no gradient flows from the output to the inputs: is it detached, or made of Python numbers?",
            evidence="no gradient",
        )
    generator = torch.Generator().manual_seed(seed)
    loss = torch.zeros((), dtype=torch.float64)
    for o in outputs:
        weights = torch.randn(o.shape, generator=generator, dtype=torch.float64)
        if o.requires_grad:
            loss = loss + (o.double() * weights).sum()
    found = torch.autograd.grad(loss, [leaves[i] for i in wrt], allow_unused=True)
    return [torch.zeros_like(leaves[i]) if g is None else g for i, g in zip(wrt, found, strict=True)]


def assert_same_gradients(
    student: Callable[..., Any],
    reference: Callable[..., Any],
    arguments: Sequence[Any],
    names: Sequence[str],
    wrt: Sequence[int] | None = None,
    *,
    case: str = "",
    rtol: float = RTOL,
    atol: float = ATOL,
    **options: Any,
) -> None:
    """The gradients with respect to the arguments `wrt` (all floating tensors by default) equal the reference's."""
    if wrt is None:
        wrt = [i for i, a in enumerate(arguments) if isinstance(a, Tensor) and a.is_floating_point()]
    got = gradients(student, arguments, wrt, **options)
    want = gradients(reference, arguments, wrt, **options)
    for index, g, w in zip(wrt, got, want, strict=True):
        of = "of the sum of all outputs times random weights"
        what = f"the gradient with respect to {names[index]}"
        assert_close(g, w, what, case=f"{case}, {of}" if case else of, rtol=rtol, atol=atol)


# ------------------------------------------------------------------------------------------------ purity, dtype


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def assert_pure(student: Callable[..., Any], arguments: Sequence[Any], names: Sequence[str], **options: Any) -> None:
    """The call leaves its tensor arguments as they were, and a second call gives the same as the first."""
    before = [_copy(argument) for argument in arguments]
    first = copy.copy(student(*arguments, **options))
    require(first is not None, "the output is None; is the `return` missing?", evidence="None")
    if isinstance(first, Tensor):
        first = first.detach().clone()
    for name, old, new in zip(names, before, arguments, strict=False):
        if isinstance(old, Tensor) and (
            old.shape != new.shape or not torch.equal(old.nan_to_num(), new.detach().nan_to_num())
        ):
            fail(
                f"the call changed its argument {name}: work on a new tensor, not in place",
                evidence=new.detach().clone(),
            )
    second = student(*arguments, **options)
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        assert_same(first, second, "called twice with the same arguments", atol=0.0)
    else:
        assert_close(second, first, "the result of a second call", rtol=0.0, atol=0.0)


def assert_float32(
    student: Callable[..., Any],
    reference: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    tolerance: float = 1e-5,
    **options: Any,
) -> None:
    """Inputs in float32 give a float32 result near the reference's (computed in float64)."""
    single = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in arguments]
    double = [a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in single]
    got, want = student(*single, **options), reference(*double, **options)
    several = isinstance(want, tuple) and isinstance(got, tuple) and len(got) == len(want)
    for index, (g, w) in enumerate(zip(got, want, strict=True) if several else [(got, want)]):
        what = f"output {index}" if several else "the output"
        if isinstance(w, Tensor):
            expected = torch.float32 if w.is_floating_point() else w.dtype
            assert_dtype(g, expected, what, "when the inputs are float32")
        assert_close(g, w, f"{what} in float32", rtol=tolerance, atol=tolerance, dtype=False)


def load_weights(module: nn.Module, state: Mapping[str, Tensor], *, optional: Collection[str] = ()) -> nn.Module:
    """The module in float64 with copies of these weights; a sentence where it has no place for one of them.

    It is loaded by PyTorch's own `load_state_dict`: the module is the learner's, and may have another one.

    Args:
        optional: names that the module need not have, because they are another one's.
    """
    module = module.double()
    places = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    names = ", ".join(sorted(places)) or "no weights"
    for name, tensor in state.items():
        if name in places:
            words = f"{name} has shape {places[name]}, expected {tuple(tensor.shape)}"
            require(places[name] == tuple(tensor.shape), words, evidence=(name, places[name]))
        else:
            require(name in optional, f"the module has no {name}; it has {names}", evidence=names)
    nn.Module.load_state_dict(module, {name: tensor.clone() for name, tensor in state.items()}, strict=False)
    return module


@contextmanager
def raises(*kinds: type[BaseException], when: str, mentions: Sequence[Any] = ()) -> Iterator[None]:
    """The block must raise one of `kinds` (an empty stub's never counts); `when` is the case in words."""
    names = " or ".join(kind.__name__ for kind in kinds)
    try:
        yield
    except NotImplementedError:
        raise
    except kinds as error:
        for word in mentions:
            require(
                re.search(rf"(?<!\d){re.escape(str(word))}(?!\d)", str(error)) is not None,
                f"{when}, the message of the {type(error).__name__} should name {word}",
                evidence=str(error),
            )
        return
    except Exception as error:
        fail(f"{when}, it raised {type(error).__name__}; expected {names}", evidence=type(error).__name__)
    fail(f"{when}, nothing was raised; expected {names}", evidence="nothing raised")
