# %% [markdown] claims="000.2.7-c 000.2.7-d 000.2.7-e 000.2.7-f"
# # 08 Prefill, decode and the KV cache
#
# A decoder writes one token at a time, and each token is one pass through the whole model. Done naively, the pass for
# token 1001 computes the keys and values of the first 1000 tokens again, although not one of them has changed. Keeping
# them is the KV cache: one idea that decides what a running language model costs in time and, even more, in memory.
#
# Generation has two stages. **Prefill** takes the whole prompt in one parallel pass; it leaves the keys and values of
# every layer behind and gives the distribution of the first new token. **Decode** then takes the token just chosen,
# one at a time, and reads what was left behind.
#
# ```mermaid
# flowchart LR
#     P["prompt: T tokens"] -->|"one parallel pass"| F["prefill"]
#     F -->|"K, V of T positions, every layer"| C[("KV cache")]
#     F -->|"logits of the last position"| S["choose a token"]
#     S -->|"one token"| D["decode step"]
#     C -->|"read all of it"| D
#     D -->|"append one position"| C
#     D -->|"logits"| S
# ```
#
# | | input of one pass | what it computes | reads from the cache | limited by |
# | --- | --- | --- | --- | --- |
# | training | a whole text, known | the loss of every position | nothing | arithmetic |
# | prefill | the prompt, known | K and V of every position, one distribution | nothing | arithmetic |
# | decode | the one newest token | Q, K, V of one position, one distribution | everything so far | memory traffic |
#
# You will write the cache, attention that uses it, the two stages, a generator on top, and the arithmetic that tells
# you what a given model's cache costs. At the end you work through a published model's card.

# %%
import time
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from grader import check, hint, progress, solution

# %% demo
import matplotlib.pyplot as plt

plt.style.use("tableau-colorblind10")
torch.set_num_threads(1)  # the tensors below are tiny: a second thread costs more than it brings


def milliseconds(run, repeats: int) -> float:
    """The shortest of several runs: the one least disturbed by other programs."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return 1000 * min(times)


# %% [markdown] claims="000.2.7-g 001.s6-f"
# ## The idea by hand
#
# One head, $d_k = d_v = 1$, and three tokens. The first two are already there:
#
# | position | key $k$ | value $v$ |
# | --- | --- | --- |
# | 0 | $0$ | $8$ |
# | 1 | $\ln 2$ | $4$ |
#
# Now the third token arrives. From its vector the layer computes **three** numbers, $q = 1$, $k = \ln 5$, $v = 0$. Key
# and value are appended to the table; the query reads the table once:
#
# $$\text{scores} = (0, \ln 2, \ln 5), \qquad e^{\text{scores}} = (1, 2, 5), \qquad
# \text{weights} = \tfrac{1}{8}(1, 2, 5), \qquad \text{out} = \tfrac{1}{8}(1 \cdot 8 + 2 \cdot 4 + 5 \cdot 0) = 2.$$
#
# Nothing about positions 0 and 1 was computed anew. Their *queries* are not needed either: a query serves only its own
# output row, and those two rows were finished earlier. This is why there is a "KV cache" and no "QKV cache".
#
# What is saved? Take a prompt of 3 tokens and 4 tokens to generate. Count the positions that go through the layers:
#
# | | pass 1 | pass 2 | pass 3 | pass 4 | together |
# | --- | --- | --- | --- | --- | --- |
# | without a cache | 3 | 4 | 5 | 6 | 18 |
# | with a cache | 3 | 1 | 1 | 1 | 6 |
#
# (The fourth new token is chosen from the fourth pass; it would only be fed in to choose a fifth.) With a prompt of
# $T$ tokens and $n$ new ones the counts are $nT + n(n-1)/2$ and $T + n - 1$. For $T = n = 1000$ that is 1 499 500
# against 1999, a factor of 750.
#
# ## The model of this lesson
#
# A decoder block does two kinds of things. Norms, projections, residual additions and the FFN treat each position by
# itself; only attention lets positions meet. So only attention needs to know about a cache. The model below is the
# pre-norm decoder of lesson 07 with learned positions, opened at exactly this seam: a block offers the part **before**
# attention (`qkv`) and the part **after** it (`finish`), and leaves the attention to you.
#
# | what a model offers | takes | gives |
# | --- | --- | --- |
# | `model.embed(ids, positions)` | two integer tensors; `ids` is `(B, T)`, `positions` is `(B, T)` or `(T,)` | `(B, T, d_model)`, token plus position embedding; a position outside `0 ... max_len - 1` raises `ValueError` |
# | `model.blocks` | | the blocks, first to last: a sequence that can be iterated, indexed and asked for its `len` |
# | `block.qkv(x)` | `(B, T, d_model)` | `q`, `k`, `v`, heads already split: `(B, H, T, d_k)` twice, `(B, H, T, d_v)` |
# | `block.finish(x, heads)` | the same `x`, and attention's output `(B, H, T, d_v)` | `(B, T, d_model)`, the input of the next block |
# | `model.unembed(x)` | `(..., d_model)` | logits `(..., V)`: final norm and projection to the vocabulary |
#
# Nothing else is promised. The checks bring models of their own, with other sizes, so use only what the table lists.

# %%
class Block(nn.Module):
    """A pre-norm decoder block without its attention: `qkv` is what stands before it, `finish` what comes after."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.RMSNorm(d_model), nn.RMSNorm(d_model)
        self.fused = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def qkv(self, x: Float[Tensor, "B T d_model"]) -> tuple[Tensor, Tensor, Tensor]:
        parts = self.fused(self.norm1(x)).chunk(3, dim=-1)  # three times (B, T, d_model)
        q, k, v = (part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in parts)
        return q, k, v  # each (B, H, T, d_k)

    def finish(self, x: Float[Tensor, "B T d_model"], heads: Float[Tensor, "B H T d_v"]) -> Tensor:
        u = x + self.out(heads.transpose(1, 2).flatten(2))  # merge the heads, project, add
        h = self.norm2(u)
        return u + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    """A decoder-only language model with learned positions, opened at its attention."""

    def __init__(self, vocab_size: int, d_model: int, n_heads: int, n_layers: int, d_ff: int, max_len: int) -> None:
        super().__init__()
        self.max_len = max_len
        self.token = nn.Embedding(vocab_size, d_model)
        self.position = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.norm = nn.RMSNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)

    def embed(self, ids: Int[Tensor, "B T"], positions: Int[Tensor, "*B T"]) -> Float[Tensor, "B T d_model"]:
        if positions.min() < 0 or positions.max() >= self.max_len:
            raise ValueError(
                f"positions {positions.min()} to {positions.max()} were asked for, but this model has 0 to {self.max_len - 1}"
            )
        return self.token(ids) + self.position(positions)

    def unembed(self, x: Float[Tensor, "*shape d_model"]) -> Float[Tensor, "*shape V"]:
        return self.head(self.norm(x))


def run_blocks(blocks: Any, x: Float[Tensor, "B T d_model"], causal: bool = True) -> Float[Tensor, "B T d_model"]:
    """A whole sequence through a stack of blocks, without any cache."""
    for block in blocks:
        q, k, v = block.qkv(x)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = block.finish(x, heads)
    return x


def full_logits(model: Any, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
    """The full forward pass: the logits of every position. Whatever a cache does, it must agree with this."""
    x = model.embed(ids, torch.arange(ids.shape[1], device=ids.device))
    return model.unembed(run_blocks(model.blocks, x))


# %% [markdown] claims="000.2.7-h 000.2.7-i 000.2.7-j"
# ## May the past be kept?
#
# A cached key is right only if it equals the key that a fresh computation would give. So the first question about any
# model is: **does the past change when something is appended?**
#
# For a causal decoder it does not, and the proof is short. Claim: in every layer the vector of position $j$ depends on
# tokens $0 \ldots j$ only. The embedding depends on token $j$ and on the number $j$. If the claim holds for the input
# of a block, then the block's $q_j, k_j, v_j$ depend on tokens $0 \ldots j$; attention at position $j$ mixes the values
# of positions $0 \ldots j$ only; residual and FFN look at position $j$ alone. So it holds for the block's output. A
# token appended later changes no earlier vector in any layer, hence no key and no value.
#
# The proof breaks at one word, *only*. In an encoder position $j$ also reads positions to its right; append a token and
# every output can move. A property like this need not be believed, it can be measured, without looking inside:
#
# $$\text{change} = \max_{b,\; t < T-1,\; i}
# \bigl|\, \text{encoder}(x)_{b,t,i} - \text{encoder}(x_{:,\,0 \ldots T-2})_{b,t,i} \,\bigr|$$

# %% solve="append_changes_the_past" points=3 difficulty=1 importance=4 minutes=10
def append_changes_the_past(encoder: Any, x: Float[Tensor, "B T d"]) -> Float[Tensor, ""]:
    """Measure how far the outputs of the earlier positions move when the last position is appended.

    Runs the encoder on x without its last position and on the whole x, and compares the outputs of the
    T - 1 positions that both runs have: the result is the largest absolute difference, over all rows of the
    batch, all these positions and all features.

    encoder: any function from (B, T, d) to (B, T, d_out), for every T >= 1; a black box.
    x:       (B, T, d) with T >= 1. The appended position is the last one, x[:, -1]; the others keep their
             places and their values. x is not modified.
    Returns a tensor with no dimensions (shape ()), in the dtype of the encoder's output: 0 (up to rounding) for
    a causal model, larger for one whose past depends on its future.
    T = 1: there is no past, the result is 0, and the encoder never gets a sequence of length 0.
    """
    ### BEGIN SOLUTION
    after = encoder(x)
    if x.shape[1] == 1:
        return after.new_zeros(())
    before = encoder(x[:, :-1])
    return (after[:, :-1] - before).abs().max()
    ### END SOLUTION


# %% check="append_changes_the_past"
check(append_changes_the_past)

# %% [markdown] hints="append_changes_the_past"
# 1. "Append" needs two runs: one before the last position exists and one after. Which outputs do both runs have?
# 2. Positions are the second dimension. Run the encoder on all positions but the last, run it on all, drop the last output of the second run, and take the largest absolute difference. Handle a single position first.
# 3. `before = encoder(x[:, :-1])`, `after = encoder(x)[:, :-1]`, then `.abs().max()` of their difference; for `x.shape[1] == 1` return `encoder(x).new_zeros(())`.

# %% [markdown]
# ### Experiment: in which layers is a cached key still right?
#
# Four blocks with random weights, once with causal attention and once with every position seeing every other. 12 tokens
# are run, then a 13th is appended. For each layer we ask how far the **keys** of the 12 old positions move: these are
# what a cache would have kept. What do you expect of the bidirectional stack?
#
# - (a) The old keys are wrong in every layer.
# - (b) They are right in the first layer and wrong in all others.
# - (c) They are right everywhere, because the old tokens have not changed.

# %% demo
torch.manual_seed(0)
stack = nn.ModuleList(Block(d_model=32, n_heads=4, d_ff=64) for _ in range(4)).double()
x = torch.randn(1, 13, 32, dtype=torch.float64)
change = {}
with torch.no_grad():
    for name, causal in (("causal", True), ("bidirectional", False)):
        change[name] = []
        for layer in range(4):
            def keys(x):  # the keys of this layer, (B, T, d_model)
                return stack[layer].qkv(run_blocks(stack[:layer], x, causal))[1].transpose(1, 2).flatten(2)

            change[name].append(append_changes_the_past(keys, x).item())

fig, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for shift, (name, values) in zip((-0.2, 0.2), change.items()):
    bars = ax.bar([layer + shift for layer in (1, 2, 3, 4)], values, width=0.36, label=name)
    ax.bar_label(bars, labels=["0" if value < 1e-12 else f"{value:.2f}" for value in values], padding=2)
ax.set(title="In which layers is a cached key still right?", xlabel="layer", xticks=[1, 2, 3, 4])
ax.set(ylabel="largest change of an old key", ylim=(0, 1.15 * max(change["bidirectional"])))
ax.legend(loc="upper left")
plt.show()

# %% [markdown]
# The bars show the largest change of an old key, layer by layer; a 0 means that it moved by rounding at most.
#
# - (a) is too pessimistic: the keys of the first layer are made from the token itself, before any attention, so they
#   stay right in both stacks.
# - (b) is what happens. The first attention lets the old positions read the new token, so from the second layer on
#   every old key is different. An encoder would have to recompute its old positions after each appended token, and then
#   there is nothing to cache.
# - (c) confuses the token with its representation. The tokens are the same; what the layers make of them is not.
#
# The causal stack has zeros in every layer, as the proof says. (The cross-attention of an encoder-decoder is a
# different matter: its keys and values come from a source text that is complete, so they are computed once and kept.)

# %% [markdown]
# ## A place to keep them
#
# The simplest cache is `torch.cat([old, new])`. It is right, and you may use it further below. But every step makes a
# new, longer tensor and copies all old positions into it: to store $n$ positions one by one it copies
# $0 + 1 + \dots + (n-1) = n(n-1)/2$ positions besides the new ones. Serving engines, the programs that answer many
# users with one model, reserve the storage once and only write the new positions:
#
# | | slot 0 | slot 1 | slot 2 | slot 3 | slot 4 | `length` |
# | --- | --- | --- | --- | --- | --- | --- |
# | new cache, `max_len=5` | - | - | - | - | - | 0 |
# | `append` of 3 positions (prefill) | k0 | k1 | k2 | - | - | 3 |
# | `append` of 1 position (decode) | k0 | k1 | k2 | k3 | - | 4 |
# | `append` of 2 positions | k0 | k1 | k2 | k3 | - | 4, `ValueError`: 4 + 2 > 5 |
#
# Two details decide whether such a cache can be trusted.
#
# *A refused append must change nothing.* If `append` first writes the keys and then finds that the values do not fit,
# the cache is left half written. Test everything, then write.
#
# *PyTorch broadcasts on assignment.* `storage[:, :, 3:4] = k` works without complaint when `k` has one row and the
# cache has eight: all eight sequences get the same key. That is never what was meant, so such a `k` is refused.
#
# One more operation is needed when several continuations share a beginning (four answers to one question, or beam
# search, which carries the few best continuations on side by side): `fork` gives a second cache with the same content.
# From then on each goes its own way.

# %% solve="KVCache" points=6 difficulty=3 importance=4 minutes=20
class KVCache:
    """Preallocated storage for the keys and values of one attention layer.

    KVCache(batch, n_heads, max_len, d_k, d_v=None, dtype=None, device=None)
        An empty cache for `batch` sequences, with room for `max_len` positions each. n_heads is the number of
        heads whose keys and values are stored. d_v=None means d_v = d_k; dtype=None means what
        torch.get_default_dtype() says when the cache is made. Reserve the storage here, once.

    length
        An int, the number of positions held now (the same for all rows): 0 at first. It counts what was appended,
        whatever the numbers are. Read only for the user; an attribute or a property, as you like.

    append(k, v) -> (keys, values)
        Adds T_new >= 0 positions behind those already held. k: (batch, n_heads, T_new, d_k) and
        v: (batch, n_heads, T_new, d_v). Returns everything held afterwards, oldest first, as
        (batch, n_heads, length, d_k) and (batch, n_heads, length, d_v), in the dtype of the cache; k and v of
        another floating dtype are converted. The results may be views of the storage; a later append must not
        change what an earlier one returned. Row b of the result depends on row b of the arguments only.
        The numbers are copied: what the caller does to k and v afterwards has no effect here. They are stored
        without their graph (the cache is for inference): the results do not require gradients.

    fork() -> KVCache
        A second cache with the same content, length and max_len. Appending to either leaves the other alone.

    Errors: ValueError if length + T_new > max_len, if k or v has another batch size, number of heads or width
    than the cache (nothing is broadcast), or if k and v differ in T_new. A refused append leaves the cache as it
    was: same length, same content, ready for a smaller append. Exactly max_len positions fit.
    """

    def __init__(
        self,
        batch: int,
        n_heads: int,
        max_len: int,
        d_k: int,
        d_v: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        ### BEGIN SOLUTION
        d_v = d_k if d_v is None else d_v
        self.max_len = max_len
        self.length = 0
        self.keys = torch.zeros(batch, n_heads, max_len, d_k, dtype=dtype, device=device)
        self.values = torch.zeros(batch, n_heads, max_len, d_v, dtype=dtype, device=device)
        ### END SOLUTION

    def append(
        self, k: Float[Tensor, "B H T_new d_k"], v: Float[Tensor, "B H T_new d_v"]
    ) -> tuple[Float[Tensor, "B H T d_k"], Float[Tensor, "B H T d_v"]]:
        ### BEGIN SOLUTION
        T_new = k.shape[2]
        for name, new, storage in (("k", k, self.keys), ("v", v, self.values)):
            B, H, _, d = storage.shape
            if new.shape != (B, H, T_new, d):
                raise ValueError(f"{name} has the shape {tuple(new.shape)}, expected {(B, H, T_new, d)}")
        end = self.length + T_new
        if end > self.max_len:
            raise ValueError(f"{self.length} positions held, {T_new} new ones, but max_len={self.max_len}")
        self.keys[:, :, self.length : end] = k.detach()
        self.values[:, :, self.length : end] = v.detach()
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]
        ### END SOLUTION

    def fork(self) -> "KVCache":
        ### BEGIN SOLUTION
        B, H, _, d_k = self.keys.shape
        twin = KVCache(B, H, self.max_len, d_k, self.values.shape[3], self.keys.dtype, self.keys.device)
        twin.append(self.keys[:, :, : self.length], self.values[:, :, : self.length])
        return twin
        ### END SOLUTION


# %% check="KVCache"
check(KVCache)

# %% [markdown] hints="KVCache"
# 1. Think of two shelves with `max_len` places in a row and a number that says how many are taken. Appending fills the next places and moves the number on; nothing already on the shelf is touched.
# 2. Make two tensors of zeros in the constructor. In `append` compare both shapes and the room that is left, and raise before you write anything; then assign to the slice from `length` to `length + T_new`, move `length`, and return the slice from the start. `fork` needs storage of its own.
# 3. `end = self.length + k.shape[2]`; `self.keys[:, :, self.length:end] = k.detach()`, the same for the values; `return self.keys[:, :, :end], self.values[:, :, :end]`. A twin is a new `KVCache` to which you append what you hold.

# %% [markdown]
# ### Does it pay to preallocate?
#
# A cell to run: the same 800 single positions, stored by `torch.cat` and by your cache. The printed times are of this
# machine; the copied positions follow from the formulas.

# %% demo
torch.manual_seed(0)
steps, new = 800, torch.randn(4, 8, 1, 64)
started = time.perf_counter()
grown = new[:, :, :0]
for _ in range(steps):
    grown = torch.cat([grown, new], dim=2)
middle = time.perf_counter()
store = KVCache(batch=4, n_heads=8, max_len=steps, d_k=64)
for _ in range(steps):
    store.append(new, new)
ended = time.perf_counter()
print(f"torch.cat, keys only:      {steps * (steps - 1) // 2:>9,} old positions copied, {middle - started:.2f} s")
print(f"KVCache, keys and values:  {0:>9,} old positions copied, {ended - middle:.2f} s")

# %% [markdown]
# What preallocation costs is room that may never be used: `max_len` places are taken from the first token on. Kwon et
# al. (2023) measured serving systems in which only 20.4 to 38.2 % of the reserved cache held actual tokens. Their
# answer, *paged attention*, cuts the storage into blocks of a few positions that are handed out when needed. A fork
# then shares the full blocks instead of copying them, and copies a block only when one side writes into it.

# %% [markdown]
# ## Attention that remembers
#
# Now the step of the hand example, for any number of new positions. Say 3 positions are in the cache and 2 arrive. The
# new queries are positions 3 and 4 of the sequence, the keys are positions 0 to 4:
#
# | | key 0 | key 1 | key 2 | key 3 (new) | key 4 (new) |
# | --- | --- | --- | --- | --- | --- |
# | query 3 (new query 0) | yes | yes | yes | yes | no |
# | query 4 (new query 1) | yes | yes | yes | yes | yes |
#
# New query $i$ sees key $j$ if $j \le i + (T - T_\text{new})$: the triangle is aligned to the **bottom right**, and the
# last new query sees every key. With one new token the mask is a single row of "yes". With an empty cache it is the
# usual square triangle. One formula covers decode, prefill and everything between.
#
# **Padding.** Prompts of a batch differ in length. To keep the newest token of all rows in the same column they are
# padded on the **left**:
#
# | row | column 0 | column 1 | column 2 | column 3: the first new token |
# | --- | --- | --- | --- | --- |
# | A | 7 | 3 | 9 | ? |
# | B | pad | pad | 5 | ? |
#
# Nothing may read a pad, neither now nor in any later step. So the caller says with `visible` which of the new
# positions are real, and **the cache must remember it**: a decode step hands in one new token and no word about the
# pads that still sit in front. The two pads of row B are also queries, and these see nothing at all. The output of such
# a query is zeros, the rule of this course: no nan, and finite gradients.
#
# **A cache that is a value.** `KVCache` changes in place; that is fast, and it needs care when two continuations share
# a beginning. The function below makes the other choice. It returns a *new* cache and leaves the old one as it was:
#
# ```
# out, prefix = attend_with_cache(q, k, v)
# out_a, a = attend_with_cache(q_a, k_a, v_a, prefix)     # two continuations
# out_b, b = attend_with_cache(q_b, k_b, v_b, prefix)     # of one prefix
# ```
#
# What the cache is made of is your decision; nobody but your function looks into it. `KVCache` will not do here: it
# changes in place and drops the graph, and this function must be differentiable. Use `torch.cat`. A serving engine,
# which needs no gradients, would use a store like `KVCache`.

# %% solve="attend_with_cache" points=9 difficulty=3 importance=5 minutes=25
def attend_with_cache(
    q: Float[Tensor, "B H T_new d_k"],
    k: Float[Tensor, "B H T_new d_k"],
    v: Float[Tensor, "B H T_new d_v"],
    cache: Any = None,
    visible: Bool[Tensor, "B T_new"] | None = None,
) -> tuple[Float[Tensor, "B H T_new d_v"], Any]:
    """Causal attention of T_new new positions over all earlier positions and themselves.

    q, k, v: queries, keys and values of the new positions, heads already split; T_new >= 1, and d_v may differ
             from d_k. The scores are divided by sqrt(d_k).
    cache:   None if nothing came before, else what an earlier call returned; it holds T_old positions. It is
             opaque: its form is up to you. The cache that is handed in is never changed, so it may be handed in
             again, and two different continuations of one prefix do not disturb each other. No state is kept
             anywhere else.
    visible: (B, T_new), False marks a new position that no query may see, now or in any later call (padding);
             the new cache remembers it. None means that all new positions are visible.

    With the keys of all T = T_old + T_new positions, old ones first, new query i (position T_old + i) sees key
    j if j <= T_old + i and j is visible: the triangle is aligned to the bottom right.
    A query that sees no key gives zeros, and all gradients stay finite.

    Returns (out, new_cache): out is (B, H, T_new, d_v) in the dtype of the inputs (float16 too), new_cache is for
    the next call. Every way of cutting a sequence into calls gives the same outputs as one call with all of it,
    and a row of the batch never affects another. The function is differentiable: gradients reach q, k and v of
    this call and, through the cache, those of the earlier calls. Scores around plus or minus a million give no
    inf or nan, and a key that is not seen has the weight 0 beside them. q, k, v and visible are not modified.
    """
    ### BEGIN SOLUTION
    if visible is None:
        visible = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool, device=k.device)
    if cache is not None:
        old_k, old_v, old_visible = cache
        k = torch.cat([old_k, k], dim=2)  # (B, H, T, d_k)
        v = torch.cat([old_v, v], dim=2)  # (B, H, T, d_v)
        visible = torch.cat([old_visible, visible], dim=1)  # (B, T)
    T_new, T = q.shape[2], k.shape[2]
    causal = torch.ones(T_new, T, dtype=torch.bool, device=q.device).tril(T - T_new)
    mask = causal & visible[:, None, None, :]  # (B, 1, T_new, T)
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # (B, H, T_new, T)
    nothing = ~mask.any(dim=-1, keepdim=True)  # rows that see no key
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(nothing, 0.0)
    weights = scores.softmax(dim=-1).masked_fill(nothing, 0.0)
    return weights @ v, (k, v, visible)
    ### END SOLUTION


# %% check="attend_with_cache"
check(attend_with_cache)

# %% [markdown] hints="attend_with_cache"
# 1. Put the old keys and values in front of the new ones; then it is ordinary attention with more keys than queries. What may row 0 of the new queries see, and what the last row?
# 2. Concatenate along the positions (`dim=2`) and do not write into the old tensors. The mask is a triangle whose diagonal is shifted by `T - T_new`, combined with the visibility of **all** T keys: so the visibility has to be kept in the cache too. A row without any key must not go through softmax as a row of -inf.
# 3. `torch.ones(T_new, T, dtype=torch.bool).tril(T - T_new) & visible[:, None, None, :]`; fill the scores with -inf where it is False; where a whole row is False fill the row with 0 before the softmax and its weights with 0 after; return `(k, v, visible)` as the new cache.

# %% [markdown]
# Try it: one sequence of 7 positions, cut in three ways, against PyTorch's attention on the whole.

# %% demo
torch.manual_seed(0)
q, k, v = (torch.randn(2, 3, 7, width, dtype=torch.float64) for width in (5, 5, 4))
whole = F.scaled_dot_product_attention(q, k, v, is_causal=True)
for sizes in ([7], [1] * 7, [3, 1, 2, 1]):
    cache, parts = None, []
    for chunk in zip(*(t.split(sizes, dim=2) for t in (q, k, v))):
        out, cache = attend_with_cache(*chunk, cache)
        parts.append(out)
    error = (torch.cat(parts, dim=2) - whole).abs().max()
    print(f"chunks {str(sizes):<24} largest difference from one call: {error:.1e}")

# %% [markdown]
# ## One decode step
#
# Now the whole model. A decode step takes the new token (or a few new tokens), sends it through every block, lets the
# block's attention read **its own** cache, and ends with the logits of the last position:
#
# ```mermaid
# flowchart LR
#     I["new ids (B, T_new)"] --> E["embed at positions seen, seen + 1, ..."]
#     E --> Q["block.qkv"]
#     Q --> A["attend_with_cache"]
#     L[("cache of this layer")] --> A
#     A --> Fi["block.finish"]
#     Fi -->|"next block"| Q
#     Fi -->|"after the last block, last position"| U["unembed: logits (B, V)"]
# ```
#
# Two things have to be carried from step to step: one attention cache for **each layer**, and the number of tokens
# already seen, because the new token must be embedded at its true position. The second is forgotten often. A model
# that embeds each new token at position 0 still produces text, just worse text.
#
# With padding the rows are at different positions. The position of a real token is the number of real tokens before it
# in its row; the columns do not matter:
#
# | row | `visible` | positions | tokens seen afterwards |
# | --- | --- | --- | --- |
# | A: `7 3 9` | yes yes yes | 0 1 2 | 3 |
# | B: `pad pad 5` | no no yes | any any **0** | 1 |
#
# The next tokens are embedded at position 3 in row A and at position 1 in row B.
#
# A remark on the last position: only its logits are needed to choose a token, and `unembed` is the largest matrix of
# many models. With a prompt of 1000 tokens, calling it on all positions gives the same and wastes 999 products.

# %% solve="decode_step" points=8 difficulty=3 importance=5 minutes=20
def decode_step(
    model: Any,
    ids: Int[Tensor, "B T_new"],
    cache: Any,
    visible: Bool[Tensor, "B T_new"] | None = None,
) -> tuple[Float[Tensor, "B V"], Any]:
    """Send new tokens through the model, reading the cache, and return the logits that follow the last of them.

    model:   offers embed, blocks, unembed as in the table of this lesson (and nothing else that you may use).
    ids:     (B, T_new), the new tokens of every row, T_new >= 1; T_new = 1 in plain decoding, more when a prompt
             is taken in chunks.
    cache:   None if nothing came before, else what decode_step or prefill returned for the same model and
             batch. It is opaque: its form is up to you. It is never changed, so that several continuations can
             start from one cache; no state is kept anywhere else.
    visible: (B, T_new), False marks padding; None means that all new tokens are real.

    Only the new tokens go through the model: embed and the blocks see T_new positions of each row, not more.
    A real token is embedded at the position that equals the number of real tokens before it in its row, in the
    earlier calls and in this one. Padding is embedded at some legal position; which one makes no difference,
    since no query sees it. In every block the new tokens attend, causally, to all earlier real tokens and to
    themselves, as attend_with_cache does.

    Returns (logits, new_cache). logits: (B, V), those of the last new position only (whether unembed also sees
    the others is up to you); for a row whose last new position is padding they are arbitrary. Without padding
    they equal full_logits(model, all tokens so far)[:, -1], however the tokens were cut into calls. A position
    that the model does not have raises the ValueError of model.embed.
    Gradient mode and the mode of the model (train, eval) are the caller's business: after the call they are what
    they were before. Whether the call itself records gradients is up to you.
    """
    ### BEGIN SOLUTION
    if visible is None:
        visible = torch.ones_like(ids, dtype=torch.bool)
    if cache is None:
        seen, layers = torch.zeros_like(ids[:, :1]), [None] * len(model.blocks)
    else:
        seen, layers = cache  # (B, 1) real tokens so far; one attention cache for each block
    counts = seen + visible.cumsum(dim=1)  # (B, T_new) real tokens up to and including this one
    x = model.embed(ids, (counts - 1).clamp(min=0))  # (B, T_new, d_model)
    new_layers = []
    for block, layer in zip(model.blocks, layers):
        q, k, v = block.qkv(x)
        heads, layer = attend_with_cache(q, k, v, layer, visible)
        x = block.finish(x, heads)
        new_layers.append(layer)
    return model.unembed(x[:, -1]), (counts[:, -1:], new_layers)
    ### END SOLUTION


# %% check="decode_step"
check(decode_step)

# %% [markdown] hints="decode_step"
# 1. It is `run_blocks` with two changes: the attention is the one that remembers, with a cache for each block, and the positions go on where the last call stopped.
# 2. Let your cache be a pair: the number of real tokens seen so far in each row, `(B, 1)`, and a list with one attention cache per block. Build a new list; do not assign into the old one. A running count of `visible` along the row, plus what was seen, minus 1, is the position of each real token.
# 3. `counts = seen + visible.cumsum(dim=1)`, `x = model.embed(ids, (counts - 1).clamp(min=0))`; in the loop `heads, layer = attend_with_cache(q, k, v, layer, visible)` between `block.qkv(x)` and `block.finish(x, heads)`; return `model.unembed(x[:, -1])` and `(counts[:, -1:], new_layers)`.

# %% [markdown]
# ## Prefill
#
# The name sounds like a second algorithm, and in a serving engine it often runs on other kernels or even on other
# machines. What it computes is a decode step from an empty cache with many tokens at once. All prompt tokens are known,
# so they go through each layer in parallel, as in training.
#
# What is left to do is to read off which tokens are padding. We define it so that it stays right later on: **padding
# is the run of `pad_id` at the left end of a row.** A `pad_id` after the first other token is a token like any other.
# This matters: many models use one id for "end of text" and for padding, so a generated token may well have that id.

# %% solve="prefill" points=4 difficulty=2 importance=4 minutes=10
def prefill(model: Any, ids: Int[Tensor, "B T"], pad_id: int | None = None) -> tuple[Float[Tensor, "B V"], Any]:
    """Take a whole prompt in one pass: the logits of the first new token, and the cache for decode_step.

    model:  as for decode_step.
    ids:    (B, T) with T >= 1, one prompt a row, shorter ones padded on the left.
    pad_id: None if there is no padding. Otherwise the padding of a row is its leading run of pad_id: the tokens
            equal to pad_id before the first token that is not. A later pad_id is an ordinary token.

    Returns (logits, cache): logits (B, V) of the last position, and a cache that your decode_step takes. All
    positions go through the model in parallel: model.embed is called once, with all T columns, also those that
    are padding in every row. A padded row gives the same logits (up to rounding), here and in all later decode
    steps, as its tokens without padding in a batch of their own: padding is seen by nobody and does not count as
    a position. Whether the call records gradients is up to you, as in decode_step.
    ValueError if T is 0 or a row consists of padding only: there is nothing to continue.
    """
    ### BEGIN SOLUTION
    visible = torch.ones_like(ids, dtype=torch.bool)
    if pad_id is not None:
        visible = (ids != pad_id).cumsum(dim=1) > 0  # True from the first real token on
    if not visible.any(dim=1).all():
        raise ValueError("every prompt needs at least one token that is not padding")
    return decode_step(model, ids, None, visible)
    ### END SOLUTION


# %% check="prefill"
check(prefill)

# %% [markdown] hints="prefill"
# 1. You have already written the pass through the model. What does it look like when nothing came before?
# 2. Only `visible` is missing: True from the first token that is not `pad_id` to the end of the row. A running count of the real tokens is 0 exactly in the leading run.
# 3. `visible = (ids != pad_id).cumsum(dim=1) > 0`; raise a ValueError unless every row has a True; then `decode_step(model, ids, None, visible)`.

# %% [markdown]
# A padded batch against separate runs, through prefill and three decode steps:

# %% demo
torch.manual_seed(0)
model = Decoder(vocab_size=50, d_model=32, n_heads=4, n_layers=3, d_ff=64, max_len=64).double()
prompts, pad = [[7, 3, 9, 4, 11], [5, 8]], 0
batch = torch.tensor([[pad] * (5 - len(p)) + p for p in prompts])
print("batch:", batch.tolist())
with torch.no_grad():
    alone = [prefill(model, torch.tensor([p])) for p in prompts]
    together = prefill(model, batch, pad_id=pad)
    for step in range(4):
        gap = max((together[0][row] - alone[row][0][0]).abs().max() for row in (0, 1))
        print(f"{'prefill' if step == 0 else f'decode {step}'}: largest difference of logits {gap:.1e}")
        token = together[0].argmax(dim=-1)  # (B,)
        alone = [decode_step(model, token[row : row + 1, None], alone[row][1]) for row in (0, 1)]
        together = decode_step(model, token[:, None], together[1])

# %% [markdown] claims="001.s4-q 002.s6-e 002.s6-f 000.2.7-l 000.2.7-m 001.s4-r 001.s10-f"
# ## Generating
#
# The model maps the tokens so far to a distribution over the next one. A *decoding strategy* chooses a token from it:
# here the most probable one (greedy); others draw at random. The chosen token is appended to the input, and the loop
# goes round again.
#
# Is it a contradiction that training handles all positions in parallel and generation goes one by one? No. In training
# the whole text is known, so the input of every position is known before anything is computed; the causal mask only
# keeps each position from reading its answer. In generation the input of the next step **is** the output of this one.
# No hardware removes this dependence, and a high training *throughput* (tokens per second, all sequences together) says
# nothing about the *latency* of one answer (the time until it is there).
# (Speculative decoding lets a small model guess several tokens, which the large one then verifies in one parallel
# pass. A verification is a small prefill: your `decode_step` with `T_new > 1`, except that it would return the logits
# of all new positions.)
#
# Two conditions at the border of the model:
#
# - $n$ new tokens need the prompt and $n - 1$ more positions, since the last new token is never fed in.
# - What if the positions run out? Without a cache one can crop the input to the last `max_len` tokens. With a cache
#   and learned positions one cannot: cropping renumbers every position, so every cached key is wrong. Here `generate`
#   does not crop; it lets the model's `ValueError` through.
#
# Other position schemes (lesson 06) put the position into attention instead of the embedding. With RoPE a key is rotated
# once, at its own position, and stored rotated. Scores depend on distances only, so the oldest entries may be dropped
# and no key is rotated again. With ALiBi the plain key is stored, and each step adds its bias to the scores. Either way,
# dropping is not the same as a run on the cropped text: from the second layer on, the keys that stay have read the
# dropped tokens.

# %% solve="generate" points=7 difficulty=3 importance=4 minutes=20
def generate(
    model: Any,
    ids: Int[Tensor, "B T"],
    n: int,
    use_cache: bool = True,
    pad_id: int | None = None,
    eos_id: int | None = None,
) -> Int[Tensor, "B T_plus_n"]:
    """Continue every prompt by n tokens, greedily.

    model, ids, pad_id: as for prefill. ids is int64 and is not modified.
    n:         the number of new tokens, >= 0. n = 0 returns the prompt and does not use the model at all.
    use_cache: True: one prefill of the prompt, then each new token but the last goes through the model once, so
               that T + n - 1 positions are fed to the model for each row. False: every step sends the whole
               sequence so far through the model anew, T + (T+1) + ... + (T+n-1) positions. The tokens are the
               same. Either way the model may rest once every row is finished.
    eos_id:    None, or the token that ends a text. A row that has generated eos_id is finished: all its later
               tokens are eos_id (not pad_id). Other rows go on undisturbed. An eos_id in the prompt finishes
               nothing.

    The next token is the index of the largest logit. Returns (B, T + n): the rows of ids as they came, padding
    included, followed by the new tokens; dtype int64.
    Gradients are off while the model runs; gradient mode afterwards is what it was before. train() and eval()
    are the caller's business: the mode of the model is not touched. There is no cropping: a position that the
    model does not have raises ValueError; n = max_len - T + 1 is the most that fits without padding.
    """
    ### BEGIN SOLUTION
    finished = torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)
    cache = None
    with torch.no_grad():
        for step in range(n):
            if step == 0 or not use_cache:
                logits, cache = prefill(model, ids, pad_id)
            else:
                logits, cache = decode_step(model, ids[:, -1:], cache)
            token = logits.argmax(dim=-1)  # (B,)
            if eos_id is not None:
                token = token.masked_fill(finished, eos_id)
                finished = finished | (token == eos_id)
            ids = torch.cat([ids, token[:, None]], dim=1)
    return ids
    ### END SOLUTION


# %% check="generate"
check(generate)

# %% [markdown] hints="generate"
# 1. Each round: get logits, choose a token, append it. Only the way to the logits differs: the first round is always a prefill; later rounds are either another prefill of everything or a decode step with one token.
# 2. Loop over `range(n)` under `torch.no_grad()`. The token is `argmax` over the last axis, `(B,)`; append it as a column with `torch.cat`, which makes a new tensor. Keep a boolean per row for "finished", fill the token of finished rows with `eos_id` before you append, then update the booleans.
# 3. `if step == 0 or not use_cache: logits, cache = prefill(model, ids, pad_id)`, else `decode_step(model, ids[:, -1:], cache)`; then `token.masked_fill(finished, eos_id)` and `finished | (token == eos_id)` when there is an `eos_id`.

# %% demo
torch.manual_seed(1)
model = Decoder(vocab_size=50, d_model=32, n_heads=4, n_layers=3, d_ff=64, max_len=64).double()
ids = torch.randint(1, 50, (2, 6))
with_cache, without = (generate(model, ids, 12, use_cache) for use_cache in (True, False))
print("prompts     ", ids.tolist())
print("with cache  ", with_cache[:, 6:].tolist())
print("without     ", without[:, 6:].tolist())
print("token for token equal:", torch.equal(with_cache, without))

# %% [markdown]
# "Token for token equal" is a promise about mathematics, not about bits. The two ways add the same numbers in a
# different order, so the logits differ by rounding (here, in float64, by about 1e-15). Greedy decoding turns that into a
# different token when the two largest logits are closer than the rounding. In float64 this practically never happens,
# in bfloat16 with its 8 significant bits it does, and from that token on the texts go apart. That is no fault of the
# cache; compare logits, not only texts, when you test one.

# %% [markdown] claims="001.s6-g"
# ### Experiment: what does one more token cost?
#
# A small model (4 layers, width 128), one sequence. For contexts from 64 to 2048 tokens we time one new token: with the
# cache by a decode step, without it by running everything again. What do you expect?
#
# - (a) With the cache the time does not depend on the context at all; without it, it grows in proportion.
# - (b) Both grow, and the cache saves a constant factor.
# - (c) Without the cache the time grows in proportion to the context and later faster; with the cache it starts almost
#   flat and then grows too.

# %% demo
torch.manual_seed(0)
small = Decoder(vocab_size=100, d_model=128, n_heads=4, n_layers=4, d_ff=384, max_len=2100)


contexts = [64, 128, 256, 512, 1024, 2048]
cached, uncached = [], []
with torch.no_grad():
    for T in contexts:
        ids = torch.randint(0, 100, (1, T + 1))
        _, cache = prefill(small, ids[:, :T])
        cached.append(milliseconds(lambda: decode_step(small, ids[:, T:], cache), repeats=20))
        uncached.append(milliseconds(lambda: prefill(small, ids), repeats=3 if T < 1000 else 2))

# %% demo
fig, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
ax.loglog(contexts, uncached, "s-", label="without cache: everything again")
ax.loglog(contexts, cached, "o-", label="with cache: one decode step")
ax.set(title="What does one more token cost?", xlabel="context (tokens)", ylabel="time for one token (ms)")
ax.set_xticks(contexts, [str(T) for T in contexts])
ax.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
ax.minorticks_off()
ax.grid(alpha=0.3)
ax.legend()
plt.show()
print("context   without   with cache   ratio")
for T, slow, fast in zip(contexts, uncached, cached):
    print(f"{T:>7}   {slow:>6.1f} ms   {fast:>7.2f} ms   {slow / fast:>5.0f}")

# %% [markdown]
# Both axes are logarithmic, so a straight line is a power of the context and its slope is the exponent. The upper line
# is at least proportional to the context and bends upwards where the $T^2$ part of attention takes over. The lower line
# is nearly flat at the left, where fixed costs and the projections of the one token dominate, and rises at the right.
#
# - (a) is the common belief, and half of it is wrong: the cache removes the repeated projections, **not** the reading.
#   The new query still meets every key. The attention of a decode step costs $4\,H\,d_k\,T$ FLOPs a layer, and as much
#   memory traffic as the cache has bytes. Your functional cache also copies all old positions at each step, which
#   `KVCache` avoids.
# - (b) would show as two parallel lines. The gap widens instead: see the ratios.
# - (c) is right. A decode step is linear in the context with a small slope; a pass without the cache is quadratic.

# %% [markdown]
# ## What the cache weighs
#
# From here on the letters are those of model cards: $n_\text{heads}$ and $d_\text{head}$ are the $H$ and $d_k = d_v$ of the
# code above, and $n_\text{kv\_heads}$ counts the heads whose keys and values are stored. In the model of this lesson these
# are all heads; the next section stores fewer. For every sequence, layer, position and stored head the cache keeps one
# key and one value:
#
# $$\text{bytes} = 2 \cdot L \cdot B \cdot T \cdot n_\text{kv\_heads} \cdot d_\text{head} \cdot \text{bytes per element}$$
#
# By hand: 2 layers, 1 sequence of 3 tokens, 2 heads of width 4, in 16 bits (2 bytes):
# $2 \cdot 2 \cdot 1 \cdot 3 \cdot 2 \cdot 4 \cdot 2 = 192$ bytes. Linear in everything: no $T^2$ (that is the score
# matrix, which is not kept), no $d_\text{ff}$, no vocabulary.
#
# Units: 1 KiB is 1024 bytes, 1 MiB 1024 KiB, 1 GiB 1024 MiB; 1 GB is $10^9$ bytes, so 1 GiB = 1.074 GB.

# %% solve="cache_bytes" points=2 difficulty=1 importance=5 minutes=5
def cache_bytes(L: int, B: int, T: int, n_kv_heads: int, d_head: int, bytes_per_element: int) -> int:
    """The exact size of a KV cache in bytes, as an int.

    L layers; B sequences of T positions each; n_kv_heads key/value heads (not query heads) of width d_head, the
    same for keys and values; bytes_per_element is 4 for float32, 2 for float16 and bfloat16, 1 for 8-bit numbers.
    Counts the keys and the values and nothing else. Any argument may be 0. Exact for integers of any size.
    """
    ### BEGIN SOLUTION
    return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element
    ### END SOLUTION


# %% check="cache_bytes"
check(cache_bytes)

# %% [markdown] hints="cache_bytes"
# 1. How many numbers does one position of one sequence leave behind in one layer?
# 2. A key and a value for every stored head, each of width `d_head`; then multiply by layers, sequences, positions and the size of a number.
# 3. A product of 2 and all six arguments, in plain integers.

# %% [markdown] claims="000.2.4-j 001.s7-b 001.s7-c"
# ## Fewer keys than queries: MHA, GQA, MQA
#
# In the formula one factor can be made smaller without making the model narrower: the number of *stored* heads.
#
# - **Multi-head attention (MHA)**: every query head has its own keys and values, $n_\text{kv\_heads} = n_\text{heads}$.
# - **Multi-query attention (MQA)**: all query heads read one key head and one value head (Shazeer 2019).
# - **Grouped-query attention (GQA)**: groups of query heads share one (Ainslie et al. 2023); the middle way, and the usual
#   choice today.
#
# ```mermaid
# flowchart TB
#     subgraph MQA
#         c0["q0"] --> C0["kv0"]
#         c1["q1"] --> C0
#         c2["q2"] --> C0
#         c3["q3"] --> C0
#     end
#     subgraph GQA
#         b0["q0"] --> B0["kv0"]
#         b1["q1"] --> B0
#         b2["q2"] --> B1["kv1"]
#         b3["q3"] --> B1
#     end
#     subgraph MHA
#         a0["q0"] --> A0["kv0"]
#         a1["q1"] --> A1["kv1"]
#         a2["q2"] --> A2["kv2"]
#         a3["q3"] --> A3["kv3"]
#     end
# ```
#
# The queries are as many as before, and so are the score matrices and the FLOPs for scores and weighted sums. Smaller
# are the cache, the traffic for reading it, and the two projections that make keys and values.

# %% [markdown] claims="001.s9-d"
# **Expanding the heads.** To compute with PyTorch, the few heads are often expanded to as many as there are queries.
# Query head $h$ reads key head $\lfloor h / n \rfloor$ with $n = n_\text{heads} / n_\text{kv\_heads}$. Two functions give
# the right shape, and one of them the wrong pairing:

# %% demo
kv = torch.arange(2).view(1, 2, 1, 1)  # two key heads that carry their own number, (B, n_kv_heads, T, d)
print("query head              ", list(range(6)))
print("repeat_interleave reads ", kv.repeat_interleave(3, dim=1).flatten().tolist(), "  groups of neighbors: right")
print("repeat reads            ", kv.repeat(1, 3, 1, 1).flatten().tolist(), "  a different pairing: wrong")

# %% [markdown]
# The wrong one raises nothing, and a model trained from scratch with it learns as well as any: the pairing is a
# convention. It shows when published weights are loaded, and it cannot show with one key head or with as many key
# heads as queries, where both functions agree. Expand when reading; **store** the few heads, or nothing is saved. The
# same with numbers: 6 query heads read 2 stored ones. PyTorch's `enable_gqa=True` pairs the heads in the same way, and
# the stored tensors have the size that the formula says.

# %% demo
torch.manual_seed(0)
q, k, v = (torch.randn(1, heads, 5, 16) for heads in (6, 2, 2))
keys, values = KVCache(batch=1, n_heads=2, max_len=5, d_k=16).append(k, v)
expanded = (stored.repeat_interleave(3, dim=1) for stored in (keys, values))
out = F.scaled_dot_product_attention(q, *expanded, is_causal=True)
built_in = F.scaled_dot_product_attention(q, keys, values, is_causal=True, enable_gqa=True)
print(f"largest difference from enable_gqa=True: {(out - built_in).abs().max():.1e}")
held = sum(stored.numel() * stored.element_size() for stored in (keys, values))
print(f"bytes held: {held}, by the formula: {cache_bytes(L=1, B=1, T=5, n_kv_heads=2, d_head=16, bytes_per_element=4)}")

# %% [markdown]
# ### Experiment: when does the cache outgrow the model?
#
# Take the shape of a model with about 8 billion parameters: 32 layers, 32 query heads of width 128, 16-bit numbers. Its
# weights take about 16 GB. Imagine it with 32 key/value heads (MHA), with 8 (GQA) and with 1 (MQA), serving one sequence.
# At which context does the MHA cache weigh as much as the weights?
#
# - (a) At a few hundred tokens.
# - (b) At some ten thousands.
# - (c) Never within 131 072 tokens; it is a cache, after all.

# %% demo
contexts = [2**p for p in range(9, 18)]  # 512 ... 131072
weights = 16.06e9  # bytes: 8.03 billion parameters in 16 bits
fig, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for name, n_kv_heads, style in (("MHA, 32 KV heads", 32, "C0o-"), ("GQA, 8 KV heads", 8, "C1s-"), ("MQA, 1 KV head", 1, "C3^-")):
    gigabytes = [cache_bytes(32, 1, T, n_kv_heads, 128, 2) / 1e9 for T in contexts]
    ax.loglog(contexts, gigabytes, style, label=name)
    print(f"{name:<17} {cache_bytes(32, 1, 1, n_kv_heads, 128, 2) // 1024:>4} KiB a token, {gigabytes[-1]:6.2f} GB at 131072")
    print(f"{'':<17} as heavy as the weights at {weights / cache_bytes(32, 1, 1, n_kv_heads, 128, 2):>10,.0f} tokens")
ax.axhline(weights / 1e9, color="black", linestyle="--", linewidth=1)
ax.text(contexts[0], weights / 1e9 * 1.15, "the weights, 16 GB", va="bottom")
ax.set_xticks(contexts[::2], [f"{T:,}" for T in contexts[::2]])
ax.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
ax.set(title="When does the cache of one sequence outgrow the model?", xlabel="context (tokens)", ylabel="cache (GB)")
ax.minorticks_off()
ax.grid(alpha=0.3)
ax.legend()
plt.show()

# %% [markdown]
# Three parallel lines: every variant grows in proportion to the context, and the number of stored heads shifts the line.
# The dashed line is the weights, which do not depend on the context.
#
# - (a) is too early for one sequence. For a batch of 64 it is about right, because each sequence has its own cache while
#   the weights are shared.
# - (b) is right for MHA. The factor between the lines is exactly the ratio of stored heads, 4 from MHA to GQA and 8 from
#   there to MQA.
# - (c) underestimates it. At 131 072 tokens the MHA cache is four times the model, the GQA cache about its equal; only
#   MQA stays far below.
#
# When serving, the weights are a fixed cost and the cache decides how many sequences fit beside them.

# %% [markdown]
# ## What a decode step computes
#
# Count the multiply-adds of one new token, 2 FLOPs each. A matrix of $m \times n$ applied to one vector costs $2mn$.
#
# | part, for each layer | FLOPs |
# | --- | --- |
# | query projection | $2 \cdot d_\text{model} \cdot n_\text{heads} d_\text{head}$ |
# | key and value projections | $2 \cdot 2 \cdot d_\text{model} \cdot n_\text{kv\_heads} d_\text{head}$ |
# | scores: one query a head against $t + 1$ keys | $2 \cdot n_\text{heads} d_\text{head} \cdot (t + 1)$ |
# | weighted sum of $t + 1$ values | $2 \cdot n_\text{heads} d_\text{head} \cdot (t + 1)$ |
# | output projection | $2 \cdot n_\text{heads} d_\text{head} \cdot d_\text{model}$ |
# | gated FFN, three matrices | $3 \cdot 2 \cdot d_\text{model} \cdot d_\text{ff}$ |
#
# and once at the end $2 \cdot d_\text{model} \cdot V$ for the logits. Here $t$ is the number of positions in the cache
# **before** the step; the new token sees them and itself. Norms, softmax, activations and additions are left out, as
# usual: they are a small part.
#
# By hand: $d_\text{model} = 4$, 2 query heads and 1 key/value head of width 2, $d_\text{ff} = 8$, one layer, $V = 10$, $t = 3$:
# query $2 \cdot 4 \cdot 4 = 32$, key and value $2 \cdot 2 \cdot 4 \cdot 2 = 32$, scores and sum $2 \cdot 2 \cdot 4 \cdot 4 = 64$, output
# $2 \cdot 4 \cdot 4 = 32$, FFN $3 \cdot 2 \cdot 4 \cdot 8 = 192$, logits $2 \cdot 4 \cdot 10 = 80$. Together 432.

# %% solve="decode_flops" points=4 difficulty=2 importance=4 minutes=15
def decode_flops(
    t: int,
    L: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ff: int,
    vocab_size: int,
    B: int = 1,
) -> int:
    """The FLOPs of one decode step: one new token in each of B sequences with t cached positions each. Exact int.

    A multiply-add counts 2. t is the number of positions in the cache before the step (t = 0: the very first
    token); the new token attends to t + 1 positions, the cached ones and itself.
    Counted in each of the L layers: the projections to n_heads queries, n_kv_heads keys and n_kv_heads values
    of width d_head (from d_model); the scores and the weighted sum of all n_heads query heads (sharing keys
    saves nothing here); the output projection from n_heads * d_head to d_model; a gated FFN of three
    d_model x d_ff matrices. Counted once: the projection of the new position to vocab_size logits.
    d_model need not be n_heads * d_head. Not counted: embedding lookup, norms, softmax, scaling, activations,
    gating product, residual additions, biases.
    """
    ### BEGIN SOLUTION
    queries = 2 * d_model * n_heads * d_head
    keys_and_values = 2 * 2 * d_model * n_kv_heads * d_head
    attention = 2 * 2 * n_heads * d_head * (t + 1)
    output = 2 * n_heads * d_head * d_model
    ffn = 3 * 2 * d_model * d_ff
    logits = 2 * d_model * vocab_size
    return B * (L * (queries + keys_and_values + attention + output + ffn) + logits)
    ### END SOLUTION


# %% check="decode_flops"
check(decode_flops)

# %% [markdown] hints="decode_flops"
# 1. Each matrix of the model meets one vector per sequence, so each weight costs one multiply-add. Only attention depends on `t`.
# 2. Write one line for each row of the table, add the rows of a layer, multiply by `L`, add the logits once, multiply by `B`. Which of the rows depend on the number of key/value heads?
# 3. Queries and output: `2 * d_model * n_heads * d_head` each; keys and values together: `4 * d_model * n_kv_heads * d_head`; attention: `4 * n_heads * d_head * (t + 1)`; FFN: `6 * d_model * d_ff`; logits: `2 * d_model * vocab_size`.

# %% [markdown] claims="000.2.8-k 000.2.8-l"
# ## A model's card worked through
#
# Published figures (Llama 3: Grattafiori et al. 2024, Table 3, and the released configuration for the vocabulary; GPT-3:
# Brown et al. 2020, Table 2.1 and the vocabulary of GPT-2; Mistral: Jiang et al. 2023, Table 1). GPT-3's numbers are
# not from a released configuration, and its FFN has two matrices, so only its cache is computed here.
#
# | | Llama 3 8B | Llama 3 70B | Mistral 7B | GPT-3 175B |
# | --- | --- | --- | --- | --- |
# | layers $L$ | 32 | 80 | 32 | 96 |
# | $d_\text{model}$ | 4096 | 8192 | 4096 | 12288 |
# | query heads | 32 | 64 | 32 | 96 |
# | key/value heads | 8 | 8 | 8 | 96 |
# | $d_\text{head}$ | 128 | 128 | 128 | 128 |
# | $d_\text{ff}$ | 14336 | 28672 | 14336 | 49152 |
# | vocabulary | 128256 | 128256 | 32000 | 50257 |
#
# Three quantities are easily mixed up, so keep them apart, and say for each statement whether you mean training,
# prefill or decode:
#
# - **parameters**: fixed, independent of batch and context; read once for every decode step, but for the input embedding,
#   of which each new token reads one row;
# - **KV cache**: grows with batch times context; kept between steps;
# - **score matrix**: $T \times T$ for each head in a prefill (never stored by fused kernels, which compute scores, softmax and
#   weighted sum in one go), one row in a decode step.
#
# For the first column, by hand: one token leaves $2 \cdot 32 \cdot 8 \cdot 128 = 65\,536$ numbers, in 16 bits 131 072 bytes =
# 128 KiB. A context of 8192 tokens is exactly 1 GiB, and one of 131 072 tokens is 16 GiB, somewhat more than the model
# (16.06 GB = 15.0 GiB).
#
# A query of Mistral 7B sees the last 4096 positions only, so its cache may drop older ones. The table computes it as if
# without this window; the last printed line counts it.

# %% demo
cards = {
    "Llama 3 8B": dict(L=32, d_model=4096, n_heads=32, n_kv_heads=8, d_head=128, d_ff=14336, vocab_size=128256),
    "Llama 3 70B": dict(L=80, d_model=8192, n_heads=64, n_kv_heads=8, d_head=128, d_ff=28672, vocab_size=128256),
    "Mistral 7B": dict(L=32, d_model=4096, n_heads=32, n_kv_heads=8, d_head=128, d_ff=14336, vocab_size=32000),
    "GPT-3 175B": dict(L=96, d_model=12288, n_heads=96, n_kv_heads=96, d_head=128, d_ff=49152, vocab_size=50257),
}
print(f"{'':<12} {'cache a token':>14} {'at 8192 tokens':>15} {'FLOPs, t = 0':>14} {'t = 8192':>16} {'t = 131072':>16}")
for name, card in cards.items():
    shape = dict(L=card["L"], n_kv_heads=card["n_kv_heads"], d_head=card["d_head"], bytes_per_element=2)
    token, full = (cache_bytes(B=1, T=T, **shape) for T in (1, 8192))
    line = f"{name:<12} {token / 2**10:>10,.0f} KiB {full / 2**30:>11.2f} GiB"
    if name != "GPT-3 175B":
        first, *later = (decode_flops(t, **card) for t in (0, 8192, 131072))
        line += f" {first / 1e9:>12.1f} G" + "".join(f" {f / 1e9:>6.1f} G {f / first - 1:>+6.0%}" for f in later)
    print(line)
card = cards["Mistral 7B"]
most = cache_bytes(card["L"], 1, 4096, card["n_kv_heads"], card["d_head"], 2), decode_flops(4095, **card)
print(f"Mistral 7B with its window: never more than {most[0] / 2**30:.2f} GiB and {most[1] / 1e9:.1f} G FLOPs a step")

# %% [markdown]
# GPT-3 would need 4608 KiB = 4.5 MiB for each token: no sharing of heads, and 96 layers. The 70B model of 2024, with
# $80/32$ as many layers as its small sister and the same 8 key/value heads, needs only 2.5 times the cache of the 8B
# model. The percentages are what attention to the cached positions adds to the FLOPs of the first token. Up to 8192
# tokens the weights still dominate, at 2 FLOPs each; at 131 072 tokens attention is most of the work.

# %% [markdown]
# ## Why decode waits for memory
#
# A processor needs operands. Let $P$ be its peak rate in FLOP/s and $\beta$ its bandwidth, the bytes of memory that it
# reads in a second. A task with $f$ FLOPs that reads $m$ bytes takes at least $\max(f/P,\; m/\beta)$ seconds (the
# *roofline* model; Williams, Waterman and Patterson 2009). The ratio $f/m$, the **arithmetic intensity**, decides which of
# the two it is: below $P/\beta$ the task is *memory bound*. The data sheet of NVIDIA's A100 with 80 GB (its SXM module,
# the faster of the two forms in which it is sold) gives 312 TFLOP/s in bfloat16 and 2039 GB/s, so $P/\beta = 153$
# FLOP/byte.
#
# - **Weights, decode.** Every weight is read (2 bytes) and used for one multiply-add (2 FLOPs) for each sequence: the
#   intensity is $B$ FLOP/byte. With one sequence, 153 times too little.
# - **Cache, decode.** One position of one layer is read as $2\,n_\text{kv\_heads}\,d_\text{head}$ numbers of 2 bytes and
#   used for $4\,n_\text{heads}\,d_\text{head}$ FLOPs: the intensity is $n_\text{heads} / n_\text{kv\_heads}$. It is 1 for
#   MHA and 4 for the 8B model, **for any batch**, because no two sequences share a cache.
# - **Prefill.** A prompt of $T$ tokens uses each weight $T$ times per read: the intensity is about $T$. From some hundred
#   tokens on it is compute bound.
#
# Batching therefore repairs the first kind of waiting and not the second. On a CPU the numbers are smaller, but the
# effect is the same; measure it.
#
# ### Experiment: what do more rows cost?
#
# A matrix of 4096 × 4096 (64 MiB in float32, more than most caches of a processor) is multiplied with 1, 2, 4, ... 64
# rows: the weights of one layer at work for that many sequences. How much longer do 16 rows take than one?
#
# - (a) About 16 times: it is 16 times the arithmetic.
# - (b) Hardly longer than one row.
# - (c) Longer, but far less than 16 times.

# %% demo
torch.manual_seed(0)
W = torch.randn(4096, 4096)
rows = [1, 2, 4, 8, 16, 32, 64]
inputs = [torch.randn(n, 4096) for n in rows]
times = [milliseconds(lambda: x @ W, repeats=9) for x in inputs]
rates = [2 * n * 4096**2 / (1e6 * ms) for n, ms in zip(rows, times)]

fig, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
left.loglog(rows, times, "o-", label="measured")
left.loglog(rows, [times[0] * n for n in rows], "k--", linewidth=1, label="if each row cost\nas much as the first")
left.set(xlabel="rows (sequences in the batch)", ylabel="time for all rows (ms)")
left.set_yticks([1, 3, 10, 30, 100, 300], ["1", "3", "10", "30", "100", "300"])
left.legend()
right.semilogx(rows, rates, "s-", color="C1")
right.set(xlabel="rows (sequences in the batch)", ylabel="arithmetic done (GFLOP/s)", ylim=(0, 1.1 * max(rates)))
for ax in (left, right):
    ax.set_xticks(rows, [str(n) for n in rows])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
fig.suptitle("What do more rows cost when the matrix must be read anyway?")
plt.show()
print(f"16 rows took {times[4] / times[0]:.1f} times as long as 1 row; 64 rows {times[6] / times[0]:.1f} times.")
print(f"One row: {4 * 4096**2 / (1e6 * times[0]):.0f} GB/s of weights read, {rates[0]:.0f} GFLOP/s done; best rate {max(rates):.0f} GFLOP/s.")

# %% [markdown]
# The dashed line is proportional cost. The measured line bends away below it, and the right panel says the same the other
# way round: with one row the processor does a small part of the arithmetic that it is capable of, because it waits for
# the matrix. The first few rows may lie on the dashed line: for very few rows a CPU library may process each row
# separately and read the matrix each time. Look at 16 and 64.
#
# - (a) would put the points on the dashed line.
# - (b) is the picture on a processor with much arithmetic for its memory, a GPU above all.
# - (c) is what most CPUs show: they have less arithmetic for each byte, so they become compute bound after a few rows.
#   The printed factors say where your machine stands.
#
# ### Experiment: what does a decode step of the 8B model wait for?
#
# Now the same on paper for Llama 3 8B on the A100 of the data sheet: 8.03 billion parameters in 16 bits (all but the
# input embedding are read in each step), 8192 tokens of context in each sequence. Three lower bounds for one step,
# against the batch: reading the weights, reading the caches, doing the arithmetic. Which one is the highest at a batch
# of 32?
#
# - (a) The arithmetic: the batch has made the step compute bound.
# - (b) Still the weights.
# - (c) The caches.

# %% demo
card, P, bandwidth, T = cards["Llama 3 8B"], 312e12, 2039e9, 8192
one_cache = cache_bytes(card["L"], 1, T, card["n_kv_heads"], card["d_head"], 2)
read = 2 * (8.03e9 - card["vocab_size"] * card["d_model"])  # bytes of weights in a step
fits = int((80e9 - 2 * 8.03e9) / one_cache)
batches = [1, 2, 4, 8, 16, 32, fits]
bounds = {
    "reading the weights": [1e3 * read / bandwidth for B in batches],
    "reading the caches": [1e3 * B * one_cache / bandwidth for B in batches],
    "the arithmetic": [1e3 * decode_flops(T, **card, B=B) / P for B in batches],
}
fig, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for (name, values), style in zip(bounds.items(), ("C0s-", "C1o--", "C3^:")):
    ax.loglog(batches, values, style, label=name)
ax.axvspan(fits, 128, color="0.85", zorder=0)
ax.text(87, 0.3, "80 GB are full", rotation=90, ha="center", va="center")
ax.set(title="What does one decode step wait for?", xlabel="batch (sequences of 8192 tokens)", xlim=(0.9, 128))
ax.set_ylabel("lower bound (ms)")
ax.set_xticks(batches, [str(B) for B in batches])
ax.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
ax.minorticks_off()
ax.grid(alpha=0.3)
ax.legend(loc="upper left")
plt.show()
print(f"batch 1: at least {bounds['reading the weights'][0]:.1f} ms a token for the weights, {bounds['the arithmetic'][0]:.2f} ms of arithmetic")
print(f"weights and caches take equal time at a batch of {read / one_cache:.0f}; memory is full at {fits}")

# %% [markdown]
# The weights are a flat line, since the whole batch shares one read. Caches and arithmetic both grow in proportion to
# the batch, so their order never changes. The shaded batches do not fit into the memory.
#
# - (a) never happens here: per sequence the caches cost far more time than the arithmetic, at every batch.
# - (b) holds for small batches only.
# - (c) is right: beyond the first printed batch the caches are the largest item, until the memory is full. This is why
#   models store few key/value heads, and why caches are stored in fewer bits: 8 instead of 16 halve the line of the
#   caches and double the sequences that fit, at the price of rounding every key and value.
#
# Three terms of serving follow from the two stages. *Time to first token* is the prefill and the wait before it, *time
# per output token* the decode step. *Continuous batching* (Yu et al. 2022) lets a waiting request take the place of a
# finished one after any step, so that the batch stays large. *Prefix caching* keeps the keys and values of a beginning
# that many requests share; it is right because a key depends only on the tokens up to its own.

# %% [markdown] claims="001.s10-g"
# ## What goes wrong
#
# A cached model that is wrong rarely crashes; it writes slightly worse text. The test that finds almost everything
# costs ten lines: **cached equals full**, for several ways of cutting, in float64, with positions and with padding.
#
# | symptom | likely cause |
# | --- | --- |
# | prefill right, the first decode step wrong | the causal mask is aligned top left, the position starts at 0 again, or stored keys are rotated (RoPE) a second time |
# | one token at a time right, chunks wrong | no mask within the chunk, or a mask aligned top left |
# | right alone, wrong in a padded batch | pads visible, visibility not kept in the cache, or positions that count pads |
# | the second prompt depends on the first | a cache kept in the module, in a global or in a default argument |
# | right alone, wrong after a fork | two continuations write into one storage |
# | error, or silently equal rows, when the batch changes | broadcasting on assignment: compare the cache's shapes |
# | wrong with published weights only | heads expanded in the wrong order |
#
# ### Bug hunt
#
# A colleague wants PyTorch's fused attention (one call) instead of your matrix products. The prefill agrees to the last
# digit. Then the decode steps go wrong. Run the cell, explain the numbers, and mend the function. `check(fused_attend,
# "attend_with_cache")` judges it.

# %% demo
def fused_attend(q, k, v, cache=None, visible=None):
    """attend_with_cache by way of PyTorch's fused attention."""
    if visible is None:
        visible = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool, device=k.device)
    if cache is not None:
        k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        visible = torch.cat([cache[2], visible], dim=1)
    causal = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    mask = causal & visible[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), (k, v, visible)


torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 8, 4, dtype=torch.float64) for _ in range(3))
whole = F.scaled_dot_product_attention(q, k, v, is_causal=True)
out, cache = fused_attend(q[:, :, :5], k[:, :, :5], v[:, :, :5])
print(f"prefill of 5: error {(out - whole[:, :, :5]).abs().max():.1e}")
for t in (5, 6, 7):
    out, cache = fused_attend(*(x[:, :, t : t + 1] for x in (q, k, v)), cache)
    print(f"decode {t}:     error {(out - whole[:, :, t : t + 1]).abs().max():.1e}, first head {out[0, 0, 0, :2].tolist()}")

# %% [markdown]
# <details><summary>What is wrong, and how to mend it</summary>
#
# The three decode steps give **the same** output: it is the value of position 0. `tril()` puts the diagonal into the top
# left corner. For a square mask that is right, so the prefill agrees. With one query and 6 keys the mask is
# `yes no no no no no`: the new token sees the very first position only.
#
# The mend is `tril(k.shape[2] - q.shape[2])`, the bottom right. The flag `is_causal=True` of
# `F.scaled_dot_product_attention` is aligned top left as well (its documentation says so), so it must not be used when
# there are fewer queries than keys. Leaving the mask away in decode steps is right for one token and wrong for a chunk.
#
# Rows that see nothing need a look too: current versions of PyTorch return zeros for them when the mask is boolean.
#
# </details>

# %% [markdown]
# ## Interview questions
#
# Answer aloud first, in 90 seconds, then compare.
#
# **1. You double the number of query heads at constant $d_\text{model}$. What happens to the KV cache under MHA, and under
# GQA with a fixed number of key/value heads?**
#
# <details><summary>A good answer</summary>
#
# Under MHA with $d_\text{head} = d_\text{model} / n_\text{heads}$ nothing: twice the heads, half the width,
# $n_\text{heads} d_\text{head} = d_\text{model}$ as before. Under GQA with fixed $n_\text{kv\_heads}$ the width of each stored
# head halves, so the cache halves. With $d_\text{head}$ held fixed instead, MHA doubles and GQA stays. The cache
# depends on $n_\text{kv\_heads} \cdot d_\text{head}$, so ask which of them is held fixed.
#
# </details>
#
# **2. Can you keep a KV cache for BERT while a user types? What could you keep, and what would you have to change?**
#
# <details><summary>A good answer</summary>
#
# Not usefully: in a bidirectional encoder each new token changes every representation from the first attention on, so
# all cached keys beyond the first layer are stale. Only the first layer's keys and values survive an append. To cache,
# the past must not depend on the future: make it causal, or causal between chunks (each chunk reads itself in both
# directions and earlier chunks only). In an encoder-decoder the cross-attention's keys and values can be kept,
# because the source is complete before decoding starts.
#
# </details>
#
# **3. Training reads a million tokens per second, yet one answer arrives at fifty tokens per second. Is something broken?**
#
# <details><summary>A good answer</summary>
#
# No. Training and prefill know all inputs beforehand, so all positions and many sequences share each read of the
# weights: they are limited by arithmetic. In decode the next input is the last output: one position per sequence and
# step, and every step reads all weights and the whole cache of each sequence. The 50 tokens per second are the latency
# of one sequence; with a batch of 60 the same machine produces up to 60 times as many in total. So ask which number is
# meant: training or prefill throughput, decode latency, or decode throughput.
#
# </details>

# %% [markdown] essay="why_decode_is_memory_bound" points=3
# **4. Why is decode memory bound, and what helps?** In 90 seconds or about ten sentences. Say what is read and what is
# computed in one decode step, name the arithmetic intensity of the weights and of the cache, compare with prefill, and
# name two measures, each with what it improves and what it costs. One point for what is read and computed, one for the
# intensities and the comparison, one for the two measures with their price. (Double-click this cell to write.)
#
# ### BEGIN SOLUTION
# One decode step computes one new position for each sequence. It reads all weights once and the whole KV cache of every
# sequence. A weight of 2 bytes is used for one multiply-add, 2 FLOPs, per sequence: the intensity of the weights is B
# FLOP/byte. A cached position is read once and used by the query heads that share it: in 16 bits the intensity is
# n_heads / n_kv_heads, whatever the batch, since sequences do not share caches. A current GPU needs more than a hundred
# FLOP per byte to be busy, so it waits for memory. Prefill sends T positions through each weight that it reads; its
# intensity is about T, so it is compute bound from some hundred tokens on. (1 point for what is read and computed, 1
# point for both intensities or an equivalent argument with the comparison to prefill.)
#
# What helps (1 point for two of them with their price): batching raises the intensity of the weights, but costs
# latency for each sequence and cache memory, and does nothing for the cache's own intensity; GQA or MQA store and
# read fewer heads, at some cost in quality and decided at training time; quantized weights or cache mean fewer bytes,
# at some loss of precision; a sliding window bounds the cache, and forgets; speculative decoding checks several
# guessed tokens per read of the weights, at the cost of extra arithmetic and a second model; paged storage and
# shared prefixes let more sequences fit.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# | thing | shape or formula |
# | --- | --- |
# | new queries, keys, values | `(B, H, T_new, d_k)`, `(B, H, T_new, d_k)`, `(B, H, T_new, d_v)` |
# | cache of one layer | keys `(B, n_kv_heads, T, d_k)`, values `(B, n_kv_heads, T, d_v)`, visibility `(B, T)` |
# | mask | `(T_new, T)`, new query $i$ sees key $j \le i + T - T_\text{new}$: bottom right; and no pads |
# | position of a new token | the number of real tokens before it in its row |
# | prefill | `(B, T)` ids to `(B, V)` logits and a cache: a decode step from an empty cache |
# | decode step | `(B, 1)` ids and a cache to `(B, V)` logits and a longer cache |
# | cache | $2 \cdot L \cdot B \cdot T \cdot n_\text{kv\_heads} \cdot d_\text{head} \cdot$ bytes per element |
# | FLOPs of a step | about 2 per weight, plus $4\,L\,n_\text{heads}\,d_\text{head}\,(t + 1)$ |
# | intensity in decode, 16 bits | weights: $B$; cache: $n_\text{heads} / n_\text{kv\_heads}$ FLOP/byte |
#
# - A cache is right only where the past does not depend on the future: causal models yes, encoders no.
# - It removes repeated projections, not the reading: a decode step still grows with the context.
# - Prefill is limited by arithmetic, decode by memory. Say which one you mean.
# - Test: cached equals full, for every way of cutting.

# %% demo
progress()
