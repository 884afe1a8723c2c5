"""An answer behind the wall behaves as the same answer in this process: values, gradients, modules, callbacks."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from grader.lesson import Cell
from grader.sandbox.remote import RemoteSubmission, Sandbox, sandbox_available
from grader.submission import LOCATION, AnswerError, Forbidden, Missing, Overwritten, Submission

pytestmark = pytest.mark.skipif(not sandbox_available(), reason=sandbox_available().reason)

ANSWER = '''
import collections, torch
import torch.nn.functional as F
from torch import nn

def attention(q, k, v, mask=None, scale=None):
    """Scaled."""
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ v, weights

def identity(x): return x
def add_in_place(x): return x.add_(1)
kept = []
def keep(x): kept.append(x.detach())
def views(x): return x[1:], x.unsqueeze(0), x.t().expand(2, *x.t().shape)
def turned_in_place(x): x.t_(); return x[0]
def keep_and_return(x): kept.append(x); return x
def fill_kept(value): [x.fill_(value) for x in kept]
def kept_sum(): return sum(float(x.sum()) for x in kept)
def drop(): kept.clear()
def add_to_its_result(f, x): return f(x).add_(1)
class Shelf:
    def __init__(self, zeros): self.row = zeros.clone()
    def view(self): return self.row[:]
    def part(self): return self.row[:2]
    def write(self, value): self.row.fill_(value)
    def write_end(self, value): self.row[2:] = value
def fill(x): x[...] = 7
def resize(x): x.resize_(1)
def divide(a, b): return a / b
def refuse(d, h):
    if d % h:
        raise ValueError(f"{d} is not divisible by {h}")
class Full(RuntimeError): pass
def overflow(): raise Full("the cache is full")
def append(items, item): items.append(item); return items
def clear(d): d.clear(); d["new"] = torch.ones(2)
def detached(x): return x.detach()
def strides(x): return (tuple(x.shape), x.stride(), x.storage_offset() >= 0)
def same(a, b): return a is b
def shares(a, b): return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
def kinds(*values): return [type(v).__name__ for v in values]
def several():
    top = torch.tensor([3.0, 4.0]).max(0)
    return {"t": (1, 2.5, None, True), "s": {1, 2}, "z": torch.Size([2]), "y": torch.float16, "i": slice(1, None),
        "e": ..., "big": 10 ** 60, "inf": float("inf"), "c": 2j, "m": top, "b": b"x", "r": range(3)}
Pair = collections.namedtuple("Pair", "first second")
def pair(): return Pair(1, torch.ones(2))
def state():
    dtypes = str(torch.get_default_dtype()), str(torch.ones(1).dtype)
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *dtypes)
def sample(n, generator=None): return torch.randn(n, generator=generator)
def library_softmax(x): return F.softmax(x, -1)
def swallow(x):
    try: return F.softmax(x, -1)
    except Exception: return x.exp() / x.exp().sum(-1, keepdim=True)
def by_hand(x): return helper(x) / helper(x).sum(-1, keepdim=True)
def helper(x): return x.exp()
def apply_twice(f, x): return f(f(x)) * 2
def call_or_zero(f):
    try: return f()
    except KeyError as error: return error.args[0]
def dependencies(f, x):
    base = f(x)
    rows = []
    for s in range(len(x)):
        moved = x.clone(); moved[s] += 1
        rows.append((f(moved) != base).any(-1))
    return torch.stack(rows, 1)
def total(chunks): return sum(c.sum() for c in chunks)
def count(n):
    for i in range(n):
        yield i, torch.tensor(float(i))
def block(x, norm, layer): return x + layer(norm(x))
def use(model, x): return model(x).sum() + model.blocks[0].weight.sum() + model.n_heads
def train(model, x, steps=3):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimiser.step()
    return loss.item()
def train_with(model, optimiser, x):
    optimiser.zero_grad()
    model(x).pow(2).mean().backward()
    optimiser.step()
def descend(parameters, rate):
    with torch.no_grad():
        for p in parameters:
            p -= rate * p.grad
def make_weights(): return [torch.ones(2, requires_grad=True)]
def array_twice(a): a *= 2; return a + 1

class Cache:
    kind = "plain"
    def __init__(self): self.k = None
    def append(self, k):
        self.k = k if self.k is None else torch.cat([self.k, k])
        return self
    def __len__(self): return 0 if self.k is None else len(self.k)
    def __getitem__(self, index): return self.k[index]
    @property
    def length(self): return len(self)

def step(cache, k):
    fresh = Cache()
    fresh.k = k if cache is None else torch.cat([cache.k, k])
    return fresh.k.sum(0), fresh

class Heads(nn.Module):
    def __init__(self, d_model, n_heads, bias=False):
        super().__init__()
        self.n_heads = n_heads
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.blocks = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(2)])
        self.tied = self.W_q
        self.norm = nn.LayerNorm(d_model)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(1))
        self.scale = nn.Parameter(torch.ones(1))
    def forward(self, x, mask=None):
        self.calls += 1
        for layer in self.blocks:
            x = torch.tanh(layer(x))
        return self.drop(self.norm(self.W_q(x))) * self.scale
    def project(self, x): return self.W_q(x)
'''


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


CELLS = [Cell("code", ANSWER, "given", "", 1)]


@pytest.fixture(scope="module")
def boxed(sandbox: Sandbox) -> Iterator[RemoteSubmission]:
    with sandbox.submission(CELLS) as submission:
        yield submission


@pytest.fixture(scope="module")
def local() -> Submission:
    return Submission(CELLS)


@pytest.fixture(params=["none", "sandbox"])
def answer(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """The same assertions hold in this process and behind the wall."""
    name = "local" if request.param == "none" else "boxed"
    submission = request.getfixturevalue(name)
    return lambda wanted: submission.answer(wanted)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestValues:
    def test_plain_values_keep_type_and_value(self, answer: Callable[[str], Any]) -> None:
        got = answer("several")()
        assert got["t"] == (1, 2.5, None, True) and got["t"][3] is True and type(got["t"]) is tuple
        assert got["s"] == {1, 2} and type(got["z"]) is torch.Size and got["y"] is torch.float16
        assert got["i"] == slice(1, None) and got["e"] is ... and got["big"] == 10**60 and got["inf"] == float("inf")
        assert (
            got["c"] == 2j and got["m"].values == 4 and got["m"][1] == 1 and got["b"] == b"x" and got["r"] == range(3)
        )
        pair: Any = answer("pair")()
        assert issubclass(type(pair), tuple) and pair.first == 1 and torch.equal(pair.second, torch.ones(2))

    def test_arguments_keep_their_kinds(self, answer: Callable[[str], Any]) -> None:
        values = [
            True,
            1,
            1.5,
            "x",
            (1,),
            [1],
            {1: 2},
            {1},
            None,
            torch.ones(1),
            nn.Parameter(torch.ones(1)),
            np.ones(2),
        ]
        assert answer("kinds")(*values, np.float64(1)) == [type(v).__name__ for v in values] + ["float64"]

    @pytest.mark.parametrize(
        "tensor",
        [
            draw(3, 4).T, draw(6, 8)[::2, 1::3], draw(1, 4).expand(3, 4), draw(5).as_strided((3, 3), (1, 1)),
            draw(0, 3),
            draw(), draw(3).to(torch.bfloat16), draw(3) > 0, draw(3).to(torch.complex64).conj(),
            draw(2, 3, 4, 5).permute(3, 1, 0, 2), draw(1000, 100)[::500, ::50],
        ],
    )  # fmt: skip
    def test_any_layout_arrives_and_returns(self, answer: Callable[[str], Any], tensor: Tensor) -> None:
        assert answer("strides")(tensor) == (tuple(tensor.shape), tensor.stride(), True)
        back = answer("kinds")(tensor), answer("identity")((tensor,))[0]
        assert back[0] == ["Tensor"] and back[1] is tensor

    def test_same_and_shared_arguments(self, answer: Callable[[str], Any]) -> None:
        x = draw(4, 3)
        assert answer("same")(x, x) and not answer("same")(x, x.clone())
        assert answer("shares")(x[:2], x[2:]) and not answer("shares")(x, x.clone())

    def test_a_returned_argument_is_the_callers(self, answer: Callable[[str], Any]) -> None:
        x, items = draw(3), [1]
        assert answer("identity")(x) is x and answer("append")(items, 2) is items and items == [1, 2]

    def test_changes_of_arguments_are_seen(self, answer: Callable[[str], Any]) -> None:
        x = torch.zeros(2, 3)
        assert answer("add_in_place")(x) is x and x.eq(1).all()
        part = torch.zeros(4, 4)
        answer("fill")(part[::2, 1])
        assert part.sum() == 14 and part[::2, 1].eq(7).all()
        table: dict[str, Any] = {"old": 1}
        answer("clear")(table)
        assert list(table) == ["new"] and torch.equal(table["new"], torch.ones(2))
        array = np.ones(3)
        assert np.array_equal(answer("array_twice")(array), np.full(3, 3.0)) and np.array_equal(array, np.full(3, 2.0))

    def test_numpy_scalars(self, answer: Callable[[str], Any]) -> None:
        got = answer("identity")(np.float32(1.5))
        assert type(got) is np.float32 and got == 1.5

    def test_signature_and_name(self, answer: Callable[[str], Any]) -> None:
        assert list(inspect.signature(answer("attention")).parameters) == ["q", "k", "v", "mask", "scale"]
        assert inspect.signature(answer("attention")).parameters["q"].default is inspect.Parameter.empty
        assert answer("attention").__name__ == "attention" and inspect.isfunction(answer("attention"))


class TestErrors:
    def test_kind_message_and_line(self, boxed: RemoteSubmission) -> None:
        with pytest.raises(ValueError, match="7 is not divisible by 2") as caught:
            boxed.answer("refuse")(7, 2)
        assert getattr(caught.value, LOCATION).text.startswith("raise ValueError")
        with pytest.raises(ZeroDivisionError):
            boxed.answer("divide")(1, 0)
        with pytest.raises(RuntimeError, match="the cache is full"):
            boxed.answer("overflow")()
        with pytest.raises(TypeError):
            boxed.answer("divide")(1)
        with pytest.raises(RuntimeError):
            boxed.answer("divide")(torch.ones(2), torch.ones(3))

    def test_missing(self, answer: Callable[[str], Any]) -> None:
        with pytest.raises(Missing):
            answer("nothing")
        with pytest.raises(AnswerError):
            answer("nothing")

    def test_missing_attributes_are_missing(self, answer: Callable[[str], Any]) -> None:
        cache, heads = answer("Cache")(), answer("Heads")(4, 2)
        for thing in (cache, heads, answer("attention"), answer("Cache"), heads.W_q):
            assert not hasattr(thing, "no_such_thing") and getattr(thing, "no_such_thing", 5) == 5
        with pytest.raises(AttributeError):
            _ = cache.no_such_thing
        with pytest.raises(TypeError):
            cache()

    def test_a_callbacks_exception_goes_through_as_itself(self, answer: Callable[[str], Any]) -> None:
        class Own(Exception):
            pass

        error = Own("mine")

        def fail() -> None:
            raise error

        with pytest.raises(Own) as caught:
            answer("call_or_zero")(fail)
        assert caught.value is error

        def lack() -> None:
            raise KeyError("key")

        assert answer("call_or_zero")(lack) == "key"


class TestState:
    def test_grad_mode_inference_mode_and_default_dtype(self, answer: Callable[[str], Any]) -> None:
        assert answer("state")() == (True, False, "torch.float32", "torch.float32")
        with torch.no_grad():
            assert answer("state")()[0] is False
        with torch.inference_mode():
            assert answer("state")()[1] is True
            assert answer("attention")(draw(2, 3), draw(2, 3), draw(2, 3))[0].is_inference()
        torch.set_default_dtype(torch.float64)
        try:
            assert answer("state")()[2:] == ("torch.float64", "torch.float64")
        finally:
            torch.set_default_dtype(torch.float32)
        assert answer("state")()[2] == "torch.float32"

    def test_global_seed(self, boxed: RemoteSubmission, local: Submission) -> None:
        for seed in (1, 2, 1):
            torch.manual_seed(seed)
            want = local.answer("sample")(3)
            torch.manual_seed(seed)
            assert torch.equal(boxed.answer("sample")(3), want)
        assert not torch.equal(boxed.answer("sample")(3), boxed.answer("sample")(3))

    def test_an_answer_cannot_choose_the_judges_random_numbers(self, sandbox: Sandbox) -> None:
        source = "import torch\ndef seed():\n    torch.manual_seed(0)\n    return torch.rand(2)\n"
        with sandbox.submission([Cell("code", source, "given")]) as submission:
            torch.manual_seed(123)
            submission.answer("seed")()
            mine = torch.rand(4)
        torch.manual_seed(0)
        assert not torch.equal(mine, torch.rand(4)) and not torch.equal(mine, torch.rand(4))

    def test_a_generator_advances(self, answer: Callable[[str], Any]) -> None:
        mine, other = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
        first, second = answer("sample")(3, mine), answer("sample")(3, generator=mine)
        assert torch.equal(first, torch.randn(3, generator=other)) and torch.equal(
            second, torch.randn(3, generator=other)
        )
        assert torch.equal(mine.get_state(), other.get_state())


class TestGradients:
    def test_equal_to_those_in_process(self, boxed: RemoteSubmission, local: Submission) -> None:
        found = []
        for submission in (boxed, local):
            q, k, v = (draw(2, 3, t, d, seed=d).requires_grad_() for t, d in ((5, 7), (11, 7), (11, 13)))
            mask = draw(5, 11, seed=9) > -1
            out, weights = submission.answer("attention")(q, k, v, mask=mask)
            assert out.requires_grad and not out.is_leaf
            first = torch.autograd.grad((out.sin() * weights.sum()).sum(), [q, k, v], retain_graph=True)
            second = torch.autograd.grad(weights.pow(2).sum(), [q, k, v], allow_unused=True)
            found.append((*first, *second[:2]))
            assert second[2] is None
        assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(*found, strict=True))

    def test_gradcheck_and_second_derivatives(self, answer: Callable[[str], Any]) -> None:
        q, k, v = (draw(2, 3, seed=s).requires_grad_() for s in range(3))
        assert torch.autograd.gradcheck(lambda *a: answer("attention")(*a)[0], (q, k, v))
        assert torch.autograd.gradgradcheck(lambda *a: answer("attention")(*a)[0], (q, k, v))

    def test_through_non_leaves_and_backward(self, answer: Callable[[str], Any]) -> None:
        w = draw(3, 3).requires_grad_()
        x = draw(2, 3)
        (answer("attention")(x @ w, x, x)[0].sum() + answer("attention")(x @ w, x @ w, x)[1][0, 0]).backward()
        got, w.grad = w.grad, None

        def plain(q: Tensor, k: Tensor) -> Tensor:
            return (q @ k.T * 3**-0.5).softmax(-1)

        ((plain(x @ w, x) @ x).sum() + plain(x @ w, x @ w)[0, 0]).backward()
        assert got is not None and w.grad is not None and torch.allclose(got, w.grad)

    def test_no_gradient_where_there_is_none(self, answer: Callable[[str], Any]) -> None:
        x = draw(3).requires_grad_()
        assert not answer("detached")(x).requires_grad
        assert not answer("attention")(draw(2, 3), draw(2, 3), draw(2, 3))[0].requires_grad
        with torch.no_grad():
            assert not answer("attention")(x[None], x[None], x[None])[0].requires_grad

    def test_through_a_cache(self, answer: Callable[[str], Any]) -> None:
        a, b = draw(2, 3).requires_grad_(), draw(1, 3, seed=1).requires_grad_()
        _, cache = answer("step")(None, a * 2)
        out, _ = answer("step")(cache, b)
        ga, gb = torch.autograd.grad(out.pow(2).sum(), [a, b])
        want = (2 * a).sum(0) + b[0]
        assert torch.allclose(ga, (4 * want).expand(2, 3)) and torch.allclose(gb, (2 * want)[None])

    def test_through_callbacks_and_what_they_close_over(self, answer: Callable[[str], Any]) -> None:
        x, w = draw(2, 3).requires_grad_(), draw(3, 3, seed=1).requires_grad_()
        out = answer("apply_twice")(lambda t: torch.tanh(t @ w), x)
        got = torch.autograd.grad(out.pow(2).sum(), [x, w], create_graph=True)
        want = torch.autograd.grad((torch.tanh(torch.tanh(x @ w) @ w) * 2).pow(2).sum(), [x, w], create_graph=True)
        assert all(torch.allclose(g, e) for g, e in zip(got, want, strict=True))
        again = [torch.autograd.grad(g[0].sum(), x)[0] for g in (got, want)]
        assert torch.allclose(again[0], again[1])

    def test_weights_that_the_answer_makes(self, answer: Callable[[str], Any]) -> None:
        weights = answer("make_weights")()
        assert weights[0].is_leaf and weights[0].requires_grad
        answer("attention")(weights[0][None], weights[0][None], draw(1, 2).float())[0].sum().backward()
        assert weights[0].grad is not None

    def test_a_step_of_descent_on_arguments(self, answer: Callable[[str], Any]) -> None:
        weights = [torch.ones(2, requires_grad=True)]
        (weights[0] * 3).sum().backward()
        answer("descend")(weights, 0.1)
        assert torch.allclose(weights[0], torch.full((2,), 0.7))


class TestObjects:
    def test_attributes_methods_and_special_methods(self, answer: Callable[[str], Any]) -> None:
        cls: Any = answer("Cache")
        cache = cls()
        assert type(cache) is cls and cls.kind == "plain" and len(cache) == 0
        assert cache.append(torch.ones(2, 3)) is cache and cache.length == 2 and torch.equal(cache[1], torch.ones(3))
        cache.note = "x"
        assert cache.note == "x" and hasattr(cache, "append")
        fork = copy.deepcopy(cache)
        fork.append(torch.ones(1, 3))
        assert (len(cache), len(fork)) == (2, 3)
        with pytest.raises(IndexError):
            cache[9]

    def test_generators(self, answer: Callable[[str], Any]) -> None:
        assert [(i, float(t)) for i, t in answer("count")(3)] == [(0, 0.0), (1, 1.0), (2, 2.0)]
        assert answer("total")(torch.full((2,), float(i)) for i in range(4)) == 12
        assert answer("total")(iter([torch.ones(2)])) == 2

    def test_callbacks(self, answer: Callable[[str], Any]) -> None:
        x = draw(4, 3)
        lower = answer("dependencies")(lambda t: t.cumsum(0), x)
        assert torch.equal(lower, torch.ones(4, 4).tril().bool())
        assert answer("dependencies")(answer("identity"), x).equal(torch.eye(4).bool())
        assert torch.allclose(answer("apply_twice")(torch.tanh, x), torch.tanh(torch.tanh(x)) * 2)


class TestMemory:
    """What crosses is copied, but its memory is kept in step."""

    def test_an_answer_that_keeps_a_tensor_sees_what_the_caller_writes(self, answer: Callable[[str], Any]) -> None:
        answer("drop")()
        x, columns = torch.ones(2, 3), torch.ones(3, 4)
        answer("keep")(x)
        answer("keep")(columns[:, ::2])
        assert answer("kept_sum")() == 12
        x.fill_(2.0)
        columns[:, 0] = 3.0
        assert answer("kept_sum")() == 12 + 9 + 3
        x.numpy()[...] = 0
        assert answer("kept_sum")() == 12

    def test_a_write_into_what_a_callback_returned_is_a_write(self, answer: Callable[[str], Any]) -> None:
        stored = torch.ones(3)
        out = answer("add_to_its_result")(lambda x: stored, torch.zeros(3))
        assert out.tolist() == stored.tolist() == [2.0] * 3

    def test_a_gradient_that_needs_what_was_overwritten_is_an_error(self, answer: Callable[[str], Any]) -> None:
        x = torch.ones(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="inplace"):
            answer("add_to_its_result")(torch.exp, x).sum().backward()

    def test_what_the_caller_writes_into_a_result_reaches_its_owner(self, answer: Callable[[str], Any]) -> None:
        shelf = answer("Shelf")(torch.zeros(4))
        part = shelf.part()
        part.fill_(5.0)
        assert shelf.view().tolist() == [5.0, 5.0, 0.0, 0.0]

    def test_an_earlier_result_that_is_overwritten_fits_nothing_any_more(
        self, boxed: RemoteSubmission, local: Submission
    ) -> None:
        for submission, left in ((local, [9.0] * 2), (boxed, [math.nan] * 2)):
            shelf = submission.answer("Shelf")(torch.zeros(4))
            part = shelf.part()
            shelf.write_end(7.0)
            assert part.tolist() == [0.0] * 2, "what was written lies beside it"
            shelf.write(9.0)
            assert part.tolist() == pytest.approx(left, nan_ok=True)
        shelf = boxed.answer("Shelf")(torch.zeros(4, dtype=torch.int64))
        part = shelf.part()
        with pytest.raises(Overwritten, match="earlier call had returned"):
            shelf.write(9)
        del part
        shelf.write(8)
        assert shelf.view().tolist() == [8] * 4

    def test_a_view_of_an_argument_is_one_for_the_caller(self, answer: Callable[[str], Any]) -> None:
        whole = torch.arange(24.0).reshape(4, 6)
        for x in (whole, whole[1:, ::2], whole.mT, whole[:, 2], torch.arange(3)):
            for view in answer("views")(x):
                assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            want = [view.tolist() for view in (x[1:], x.unsqueeze(0), x.t().expand(2, *x.t().shape))]
            assert [view.tolist() for view in answer("views")(x)] == want
        x = whole[:3, :3].clone()
        assert answer("turned_in_place")(x).tolist() == whole[:3, :3].T[0].tolist()
        assert x.tolist() == whole[:3, :3].T.tolist()

    def test_an_argument_that_came_back_as_the_result_is_one_of_them(
        self, boxed: RemoteSubmission, local: Submission
    ) -> None:
        for submission, left in ((local, 5.0), (boxed, math.nan)):
            submission.answer("drop")()
            x, other = torch.ones(3), torch.ones(3)
            submission.answer("keep")(other)
            assert submission.answer("keep_and_return")(x) is x
            submission.answer("fill_kept")(5.0)
            assert other.tolist() == [5.0] * 3, "nothing of it was returned"
            assert x.tolist() == pytest.approx([left] * 3, nan_ok=True)

    def test_notes_end_with_the_memory(self, boxed: RemoteSubmission) -> None:
        peer, held = boxed._peer, []
        assert peer is not None
        for number in range(50):
            held = [boxed.answer("attention")(draw(2, 3), draw(2, 3), draw(2, 3))[0] for _ in range(2)]
            if number == 10:
                before = len(peer.ledger)
        assert len(held) == 2 and len(peer.ledger) <= before + 4


class TestModules:
    def pair(self, boxed: RemoteSubmission, local: Submission, dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
        one, other = boxed.answer("Heads")(6, 2).to(dtype).eval(), local.answer("Heads")(6, 2).to(dtype).eval()
        other.load_state_dict(one.state_dict())
        return one, other

    def test_is_a_module_with_the_same_parts(self, answer: Callable[[str], Any]) -> None:
        cls: Any = answer("Heads")
        heads = cls(d_model=6, n_heads=3, bias=True)
        assert issubclass(cls, nn.Module) and isinstance(heads, cls) and isinstance(heads, nn.Module)
        assert isinstance(heads.W_q, nn.Linear) and isinstance(heads.blocks, nn.ModuleList) and len(heads.blocks) == 2
        assert heads.n_heads == 3 and heads.W_q.in_features == 6 and heads.tied is heads.W_q
        assert sum(p.numel() for p in heads.parameters()) == 3 * 42 + 12 + 1
        assert "calls" in dict(heads.named_buffers()) and "blocks.1.bias" in heads.state_dict()
        assert "Linear(in_features=6" in repr(heads)

    def test_forward_loading_and_in_place_changes(self, boxed: RemoteSubmission, local: Submission) -> None:
        one, other = self.pair(boxed, local)
        x = draw(4, 6)
        assert torch.allclose(one(x), other(x)) and one.calls == 1
        for module in (one, other):
            with torch.no_grad():
                module.W_q.weight.copy_(torch.eye(6))
                module.blocks[0].weight *= 2
            module.blocks[1].bias.data.fill_(0.5)
            module.scale = nn.Parameter(torch.full((1,), 3.0, dtype=torch.float64))
        assert torch.allclose(one(x), other(x)) and torch.allclose(one.project(x), x)
        state = {k: torch.randn_like(v) for k, v in other.state_dict().items()}
        one.load_state_dict(state), other.load_state_dict(state)
        assert torch.allclose(one(x), other(x))
        assert torch.allclose(copy.deepcopy(one)(x), other(x))
        one.n_heads = 7
        assert one.n_heads == 7

    def test_gradients_of_parameters(self, boxed: RemoteSubmission, local: Submission) -> None:
        one, other = self.pair(boxed, local)
        x, y = draw(4, 6).requires_grad_(), draw(4, 6).requires_grad_()
        for module, at in ((one, x), (other, y)):
            module(at).pow(2).sum().backward()
            module.project(at).sum().backward()
        assert x.grad is not None and y.grad is not None and torch.allclose(x.grad, y.grad)
        for (name, p), q in zip(one.named_parameters(), other.parameters(), strict=True):
            assert p.grad is not None and torch.allclose(p.grad, q.grad), name
        one.zero_grad()
        assert one.W_q.weight.grad is None

    def test_modes_and_dropout(self, boxed: RemoteSubmission, local: Submission) -> None:
        one, other = self.pair(boxed, local)
        one.train(), other.train()
        torch.manual_seed(3)
        got = one(draw(4, 6))
        torch.manual_seed(3)
        assert torch.allclose(got, other(draw(4, 6))) and (got == 0).any()
        one.float()
        assert one(draw(4, 6).float()).dtype == torch.float32

    def test_an_optimiser_of_the_check_trains_it(self, boxed: RemoteSubmission, local: Submission) -> None:
        one, other = self.pair(boxed, local)
        x = draw(4, 6)
        for module in (one, other):
            optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
            for _ in range(3):
                optimiser.zero_grad()
                module(x).pow(2).sum().backward()
                optimiser.step()
        assert torch.allclose(one(x), other(x))

    def test_a_module_of_the_check_as_argument(self, boxed: RemoteSubmission, local: Submission) -> None:
        outcomes = []
        for submission in (boxed, local):
            torch.manual_seed(0)
            model = local.answer("Heads")(6, 2).double().eval()
            x = draw(4, 6).requires_grad_()
            out = submission.answer("use")(model, x)
            out.backward()
            loss = submission.answer("train")(model, x.detach())
            submission.answer("train_with")(model, torch.optim.SGD(model.parameters(), lr=0.1), x.detach())
            block = submission.answer("block")(x, nn.LayerNorm(6).double(), model.W_q)
            outcomes.append([out, x.grad, loss, block, *model.state_dict().values(), model.W_q.weight.grad])
        for got, want in zip(*outcomes, strict=True):
            assert torch.allclose(torch.as_tensor(got), torch.as_tensor(want))

    def test_its_own_module_as_argument(self, boxed: RemoteSubmission, local: Submission) -> None:
        one, other = self.pair(boxed, local)
        x = draw(4, 6)
        assert boxed.answer("train")(one, x) == pytest.approx(local.answer("train")(other, x))
        assert torch.allclose(one(x), other(x)) and torch.allclose(one.blocks[0].weight, other.blocks[0].weight)

    def test_nothing_accumulates(self, boxed: RemoteSubmission) -> None:
        heads, x = boxed.answer("Heads")(6, 2).eval(), draw(2, 6).float()
        peer = boxed._peer
        assert peer is not None
        for _ in range(3):
            heads(x).sum().backward()
        before = peer.in_use
        for _ in range(20):
            heads(x.requires_grad_()).sum().backward()
            boxed.answer("Cache")().append(x.detach())
        assert peer.in_use <= before + 8


class TestSubmission:
    def test_forbidding(self, answer: Callable[[str], Any], boxed: RemoteSubmission, local: Submission) -> None:
        for submission in (boxed, local):
            with submission.forbidding(["_softmax"]):
                with pytest.raises(Forbidden, match="softmax"):
                    submission.answer("library_softmax")(torch.ones(3))
                assert torch.allclose(submission.answer("by_hand")(torch.ones(4)), torch.full((4,), 0.25))
            assert torch.allclose(submission.answer("library_softmax")(torch.ones(4)), torch.full((4,), 0.25))

    def test_swap(self, sandbox: Sandbox) -> None:
        for submission in (sandbox.submission(CELLS), Submission(CELLS)):
            assert isinstance(submission, RemoteSubmission | Submission)
            former = submission.swap({"helper": lambda x: x})
            assert torch.allclose(submission.answer("by_hand")(torch.tensor([1.0, 3.0])), torch.tensor([0.25, 0.75]))
            submission.swap(former)
            assert torch.allclose(submission.answer("by_hand")(torch.ones(4)), torch.full((4,), 0.25))
            assert "helper" in submission.uses("by_hand")
            submission.close()

    def test_printed_text_is_shown(self, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
        cells = [Cell("code", "def say(): print('hello', 'there')", "given")]
        with sandbox.submission(cells) as submission:
            submission.answer("say")()
        assert "hello there" in capsys.readouterr().out
