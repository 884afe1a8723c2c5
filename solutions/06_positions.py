# %% [markdown]
# # 06 Positions
#
# An RNN reads from left to right, so it knows what came first. Attention compares every position with every other
# one, all at once, and nothing in $\mathrm{softmax}(QK^\top/\sqrt{d_k})\,V$ mentions where a position stands. Shuffle the
# words and the same vectors come out, shuffled. "Dog bites man" and "man bites dog" then differ in the order of the
# output rows and in nothing else. This lesson measures what is lost, and gives the order back in four ways.
#
# ```mermaid
# flowchart LR
#     X["token vectors<br/>x (T, d_model)"] --> P(("+"))
#     S["sinusoidal or<br/>learned table"] --> P
#     P --> Q["queries, keys"]
#     P --> V["values"]
#     Q --> R["RoPE: turn q and k<br/>by their positions"]
#     R --> D["scores q . k"]
#     D --> A(("+"))
#     B["ALiBi: bias by distance"] --> A
#     A --> M["mask, softmax,<br/>average of the values"]
#     V --> M
# ```
#
# Tables are added at the input, RoPE acts on queries and keys, ALiBi on the scores. A model usually takes one of them.

# %%
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from grader import check, hint, progress, solution

# %% demo
import matplotlib.pyplot as plt

plt.style.use("tableau-colorblind10")
torch.set_num_threads(1)  # the tensors below are tiny: a second thread costs more than it brings

# %% [markdown] claims="002.s5-a 002.s5-b 000.2.5-j 000.2.5-k"
# ## The idea by hand: permuted is not the same
#
# "Attention does not know order: turn the sentence around and the result is the same." Try it. Let two tokens be the
# numbers $x = (0, 1)$, and let query, key and value all be the token itself, so that the score of $i$ and $j$ is
# $x_i x_j$:
#
# | | scores | weights | output |
# | :--- | :--- | :--- | ---: |
# | $x_0 = 0$ | 0, 0 | 0.5, 0.5 | 0.5 |
# | $x_1 = 1$ | 0, 1 | 0.269, 0.731 | 0.731 |
#
# Turned around, $x = (1, 0)$, the output is $(0.731, 0.5)$. That is *not the same* as $(0.5, 0.731)$: it is the old
# output, turned around as well. Write $P$ for any reordering of the rows. Two properties have to be kept apart:
#
# - **equivariant:** $f(Px) = P f(x)$. The outputs move with the inputs. Self-attention without a mask and without
#   positions is equivariant: a query's output is a sum over the *set* of keys, and a sum has no order.
# - **invariant:** $g(Px) = g(x)$. Nothing changes. A *pooled* output is invariant if $f$ is equivariant: the mean of
#   $(0.5, 0.731)$ and the mean of $(0.731, 0.5)$ are both 0.616.
#
# So the sentence at the top is true of a pooled output, say of a classifier that averages all positions, and false of
# the output itself. In general, with $Q = XW_q$ and so on, reordering $X$ to $PX$ gives scores $P S P^\top$, and
# $\mathrm{softmax}(P S P^\top)\,P V = P\,\mathrm{softmax}(S)\,P^\top P\,V = P\,(\mathrm{softmax}(S)\,V)$.
#
# **A causal mask breaks both.** Position 0 now sees only itself. For $x = (0, 1)$ the outputs are $(0, 0.731)$ with
# mean 0.366; for $x = (1, 0)$ they are $(1, 0.5)$ with mean 0.75. Neither turned around nor equal on average.

# %% [markdown]
# ## Measure it on any function
#
# Two numbers describe how a function treats a reordering. They work on a *black box*, a function of which you know
# nothing but its inputs and outputs: attention, an RNN, your whole model.
#
# Mind which way round a reordering goes. In this course `x[perm]` is the reordered input: its row $i$ is the old row
# `perm[i]`. For `perm = [2, 0, 1]` the rows $a, b, c$ become $c, a, b$.

# %% solve="permutation_gap" points=4 difficulty=2 importance=4 minutes=10
def permutation_gap(f, x: Float[Tensor, "T d"], perm: Int[Tensor, "T"]) -> tuple[float, float]:
    """How far f is from permutation equivariant, and its mean over the positions from permutation invariant.

    f:    a function (T, d) -> (T, d), a black box: call it with tensors of the shape and dtype of x.
          It is deterministic and does not modify its argument. Its output may require gradients.
    x:    (T, d), T at least 1.
    perm: (T,) int64, a reordering of 0 ... T-1. The reordered input has as row i the row perm[i] of x.

    Returns (equivariance_gap, invariance_gap), two Python floats (tensors with no dimensions are accepted):

        equivariance_gap: the largest absolute difference, over all entries, between the output of the reordered
                          input and the reordered output, f(x[perm]) and f(x)[perm].
        invariance_gap:   the largest absolute difference, over all features, between the mean over the positions
                          of f(x[perm]) and the mean over the positions of f(x).

    Both are 0 (up to rounding) for attention without mask and positions. x and perm are not modified; whether x requires
    gradients stays as it is too.
    """
    ### BEGIN SOLUTION
    before, after = f(x), f(x[perm])
    equivariance = (after - before[perm]).abs().max()
    invariance = (after.mean(dim=0) - before.mean(dim=0)).abs().max()
    return equivariance.item(), invariance.item()
    ### END SOLUTION


# %% check="permutation_gap"
check(permutation_gap)

# %% [markdown] hints="permutation_gap"
# 1. Two calls of `f` are enough: one with the rows as they are, one with them reordered. What should the second output look like, if outputs move with inputs? And what is left to compare once the positions are averaged away?
# 2. Index with a tensor: `x[perm]` reorders rows, and so does `before[perm]`. Pool with a mean over axis 0. Take absolute differences before the maximum, or a negative one is lost.
# 3. With `before, after = f(x), f(x[perm])`: `(after - before[perm]).abs().max().item()` and `(after.mean(dim=0) - before.mean(dim=0)).abs().max().item()`.

# %% [markdown]
# ### Experiment: which layers notice a reordering?
#
# Random weights, six positions, one random reordering, seven functions. For each one predict whether the two gaps
# are zero:
#
# - (a) All gaps of every attention are zero; only the RNN and the tables of positions notice.
# - (b) Attention: both zero. Causal attention and RNN: none zero. Attention with positions: none zero.
# - (c) As (b), but a causal mask leaves the pooled gap zero, because the mean forgets who stood where.

# %%
def attend(q, k, v, bias=None):
    """Given: attention of (..., T, d_k) vectors with a bias added to the scores; -inf hides a key."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return (scores if bias is None else scores + bias).softmax(dim=-1) @ v


def causal_bias(T):
    """Given: 0 where a query may see the key, -inf where the key lies in the future, (T, T)."""
    return torch.full((T, T), -torch.inf).triu(1)


# %% demo
generator = torch.Generator().manual_seed(0)
T, d = 6, 8
Wq, Wk, Wv, table = (torch.randn(n, d, generator=generator) for n in (d, d, d, T))
x, perm = torch.randn(T, d, generator=generator), torch.randperm(T, generator=generator)
with torch.random.fork_rng():
    torch.manual_seed(0)
    rnn = nn.RNN(d, d)
layers = {
    "attention": lambda x: attend(x @ Wq, x @ Wk, x @ Wv),
    "causal attention": lambda x: attend(x @ Wq, x @ Wk, x @ Wv, causal_bias(T)),
    "RNN": lambda x: rnn(x)[0],
    "attention of x + table": lambda x: attend((x + table) @ Wq, (x + table) @ Wk, (x + table) @ Wv),
    "feed-forward alone": lambda x: torch.relu(x @ Wq) @ Wk,
    "bag: the mean, everywhere": lambda x: x.mean(dim=0).expand(T, d),
    "adds a table, no attention": lambda x: x + table,
}
print(f"{'':28}equivariance gap   gap after pooling")
for name, f in layers.items():
    print(f"{name:28}{permutation_gap(f, x, perm)[0]:16.1e}{permutation_gap(f, x, perm)[1]:20.1e}")

# %% [markdown] claims="000.2.5-l 000.2.5-m"
# Numbers near 1e-7 are rounding in float32, where the order of a sum matters; read them as 0. **(b)** is right. **(a)**
# forgets the mask: the triangle decides who sees whom *by position*, so a causal mask is position information. **(c)**
# would need the outputs merely to change places, but under a causal mask they change value: the token that moved to
# the front now sees less. Hence "attention knows nothing of order" holds for an encoder without positions, and does
# not hold for a decoder.
#
# The last row is worth a look. Adding a table without any attention is *not* equivariant, and yet its mean does not
# notice a reordering: $\frac1T\sum_t (x_t + p_t)$ is the same in every order. Positions help a pooled output only if
# something *nonlinear* meets the sum $x_t + p_t$. (The other way round, a positive gap after pooling with equivariance
# gap 0, cannot happen: reordered rows have the same mean.)

# %% [markdown] claims="002.s5-e"
# ## Sine and cosine
#
# The table of Vaswani et al. (2017, section 3.5) is computed, not learned. Row $p$ holds the position $p$, features
# come in pairs, and pair $i$ turns with its own frequency $\omega_i$:
#
# $$\mathrm{PE}_{p,\,2i} = \sin(p\,\omega_i), \qquad \mathrm{PE}_{p,\,2i+1} = \cos(p\,\omega_i), \qquad
# \omega_i = 10000^{-2i/d_{model}}$$
#
# **By hand**, $d_{model} = 4$: $\omega_0 = 1$ and $\omega_1 = 10000^{-2/4} = 1/100$.
#
# | $p$ | $\sin p$ | $\cos p$ | $\sin (p/100)$ | $\cos (p/100)$ |
# | ---: | ---: | ---: | ---: | ---: |
# | 0 | 0 | 1 | 0 | 1 |
# | 1 | 0.8415 | 0.5403 | 0.0100 | 1.0000 |
# | 2 | 0.9093 | -0.4161 | 0.0200 | 0.9998 |
# | 100 | -0.5064 | 0.8623 | 0.8415 | 0.5403 |
#
# Think of a clock: the first pair is the second hand, the last one the hour hand. Fast hands tell neighbors apart,
# slow hands tell far positions apart. Sine and cosine of a pair share *one* frequency, $2i$ in both exponents: together
# they are one hand of the clock, a point on the unit circle.
#
# **Far positions need care.** float32 keeps about 7 digits. An angle near 100,000 is rounded by up to
# 0.004 (half the gap between neighboring float32 numbers there), and its sine is off by as much. Compute the angles in float64 and round at the end.

# %% solve="sinusoidal_encoding" points=4 difficulty=2 importance=4 minutes=10
def sinusoidal_encoding(T: int, d_model: int) -> Float[Tensor, "T d_model"]:
    """The table of sines and cosines for the positions 0 ... T-1 (Vaswani et al. 2017, section 3.5).

    Column 2i holds sin(p * w_i), column 2i+1 holds cos(p * w_i), with w_i = 10000 ** (-2i / d_model),
    i = 0 ... d_model/2 - 1: sine first, interleaved.

    T: number of positions, at least 1.
    d_model: even, at least 2. An odd d_model raises a ValueError whose message names it: every sine needs its cosine.
    Returns (T, d_model) in float32. Every entry is within 1e-6 of the exact value for T up to 100,000:
    compute the angles in float64.
    """
    ### BEGIN SOLUTION
    if d_model % 2:
        raise ValueError(f"d_model={d_model} is odd: sines and cosines come in pairs")
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model/2,)
    angles = torch.outer(torch.arange(T, dtype=torch.float64), frequencies)  # (T, d_model/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()
    ### END SOLUTION


# %% check="sinusoidal_encoding"
check(sinusoidal_encoding)

# %% [markdown] hints="sinusoidal_encoding"
# 1. Make one matrix of angles first: a row for each position, a column for each *pair*. Everything else is a sine, a cosine, and putting them beside each other.
# 2. The exponents are 0, 2, 4, ... divided by `d_model`: `torch.arange(0, d_model, 2, dtype=torch.float64)`. Write the sines into the columns `0::2` and the cosines into `1::2`, or stack the two along a new last axis and flatten it.
# 3. `angles = torch.outer(torch.arange(T, dtype=torch.float64), 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model))`, then `torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()`.

# %% demo
table = sinusoidal_encoding(128, 64)
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
image = left.imshow(table.T, aspect="auto", cmap="cividis")
left.set(xlabel="position p", ylabel="feature", title="What does the table look like?")
fig.colorbar(image, ax=left, label="value")
for p in (20, 50, 80):
    distance = torch.arange(128) - p
    right.plot(distance, table @ table[p], label=f"p = {p}", alpha=0.7)
right.set(xlabel="distance to p (positions)", ylabel="dot product", title="Does PE(p) . PE(r) depend on p?")
right.legend()
plt.tight_layout()
plt.show()

# %% [markdown]
# Left: the first features flicker, the last hardly move over 128 positions. Right: the three curves lie on each other.
# The dot product of two rows depends on their *distance* only:
# $\sum_i \left(\sin p\omega_i \sin r\omega_i + \cos p\omega_i \cos r\omega_i\right) = \sum_i \cos\big((p-r)\,\omega_i\big)$.
# It is largest at distance 0 and symmetric: the product alone does not tell before from after.

# %% [markdown]
# ## A step is a matrix
#
# Why sines? "For any fixed offset $k$, $PE_{pos+k}$ can be represented as a linear function of $PE_{pos}$" (Vaswani et
# al. 2017, section 3.5). Write that function down. For one pair with frequency $\omega$, a step of $\delta$ positions
# turns the hand by $b = \delta\omega$, and the addition theorems say
#
# $$\sin(a+b) = \sin a \cos b + \cos a \sin b, \qquad \cos(a+b) = \cos a\cos b - \sin a \sin b.$$
#
# As a row vector times a matrix:
#
# $$\begin{pmatrix} \sin(a+b) & \cos(a+b)\end{pmatrix} = \begin{pmatrix} \sin a & \cos a\end{pmatrix}
# \begin{pmatrix} \cos b & -\sin b \\ \sin b & \cos b \end{pmatrix}$$
#
# Column 0 makes the new sine, column 1 the new cosine. By hand, from $p=1$ to $p=2$ in the fast pair:
# $0.8415 \cdot 0.5403 + 0.5403 \cdot 0.8415 = 0.909$ and $-0.8415 \cdot 0.8415 + 0.5403\cdot 0.5403 = -0.416$, the
# row of $p = 2$ in the table above. The matrix does not know $p$: one fixed linear map, which a layer can learn,
# means "three to the left" *everywhere*.

# %% solve="shift_matrix" points=4 difficulty=3 importance=3 minutes=15
def shift_matrix(delta: int, d_model: int) -> Float[Tensor, "d_model d_model"]:
    """The matrix M with PE(p + delta) = PE(p) @ M for every position p, PE(p) a row of sinusoidal_encoding.

    delta: any integer of absolute value up to 100,000: positive, 0 (the identity) or negative (steps back).
    d_model: even, at least 2; an odd d_model raises a ValueError whose message names it.
    Returns (d_model, d_model) in float32, every entry within 1e-6 of the exact value, for large steps too: compute the
    angles in float64. M mixes only the two features of a pair, 2i and 2i+1: the exact value of all other entries is 0.
    Row vectors: PE(p) stands on the left.
    """
    ### BEGIN SOLUTION
    if d_model % 2:
        raise ValueError(f"d_model={d_model} is odd: sines and cosines come in pairs")
    even = torch.arange(0, d_model, 2)
    angles = delta * 10000.0 ** (-even.double() / d_model)
    M = torch.zeros(d_model, d_model, dtype=torch.float64)
    M[even, even] = M[even + 1, even + 1] = angles.cos()
    M[even + 1, even] = angles.sin()
    M[even, even + 1] = -angles.sin()
    return M.float()
    ### END SOLUTION


# %% check="shift_matrix"
check(shift_matrix)

# %% [markdown] hints="shift_matrix"
# 1. Solve one pair first: the 2 x 2 matrix above, with $b = \delta\,\omega_i$. The big matrix holds one such block for each pair along its diagonal, and zeros elsewhere.
# 2. With `even = torch.arange(0, d_model, 2)`, indexing with two tensors, `M[even, even + 1] = ...`, writes one entry into every block. Four such lines fill M; two of them hold the cosine.
# 3. The sine with its plus sign stands *below* the diagonal, `M[even + 1, even] = angles.sin()`, since the row is the old feature and the column the new one; `M[even, even + 1] = -angles.sin()`.

# %% demo
table = sinusoidal_encoding(60, 16)
for delta in (1, 7, -7):
    error = (table[10:50] @ shift_matrix(delta, 16) - table[10 + delta : 50 + delta]).abs().max()
    print(f"40 positions moved by {delta:2}: largest difference {error:.0e}")
twice = shift_matrix(3, 16) @ shift_matrix(4, 16) - shift_matrix(7, 16)
print(f"a step of 3, then one of 4, against one of 7: {twice.abs().max():.0e}")

# %% [markdown] claims="002.s5-f 002.s5-g"
# ## A learned table
#
# GPT, GPT-2 and BERT do something simpler: one vector of parameters for each position, added to the word embedding and
# trained together with it. Nobody says what the rows should be; gradient descent finds out. Three consequences:
#
# - **It ends.** A table of 1024 rows has nothing to say about position 1024 (the 1025th). Failing loudly is the only
#   honest behavior.
# - **It starts as noise.** Row 5 is not near row 6 before training has made it so. A start at zero would not be
#   fatal (each row gets its own gradient), but at zero an encoder begins as a bag of words. GPT (Radford et al. 2018)
#   draws from $\mathcal N(0, 0.02^2)$, and so do we.
# - **Rows that are never used are never trained.** Train on 100 positions of 1024, and the other 924 stay noise.
#
# While decoding token by token (lesson 08), the model gets one new token at a time. Its position is not 0 but the
# number of tokens before it: that is what `offset` is for.

# %% solve="LearnedPositions" points=5 difficulty=2 importance=4 minutes=10
class LearnedPositions(nn.Module):
    """A trained vector for each position 0 ... max_len-1, added to the input.

    LearnedPositions(max_len, d_model) has exactly one parameter, of shape (max_len, d_model): row p belongs to position
    p. It starts as independent draws from a normal distribution with mean 0 and standard deviation 0.02.
    Its name is up to you; there are no other parameters and no buffers.

    forward(x, offset=0): x is (..., T, d_model), T at least 1, in the dtype of the parameter. Returns a new tensor of
    the same shape, in which position t of x has got row offset + t added, the same in all leading dimensions. The rows
    are those that the parameter holds at this call. Gradients flow to the parameter and to x; x is not modified.
    If the last position is beyond the table (offset + T > max_len), or if offset is negative, it raises a ValueError
    whose message names offset, T and max_len as numbers. offset + T == max_len is allowed.
    """

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        self.table = nn.Parameter(torch.randn(max_len, d_model) * 0.02)
        ### END SOLUTION

    def forward(self, x: Float[Tensor, "... T d_model"], offset: int = 0) -> Float[Tensor, "... T d_model"]:
        ### BEGIN SOLUTION
        T, max_len = x.shape[-2], self.table.shape[0]
        if offset < 0 or offset + T > max_len:
            raise ValueError(f"offset={offset}, T={T} does not fit into a table of max_len={max_len} positions")
        return x + self.table[offset : offset + T]
        ### END SOLUTION


# %% check="LearnedPositions"
check(LearnedPositions)

# %% [markdown] hints="LearnedPositions"
# 1. One `nn.Parameter` is the whole module. `forward` cuts the rows that it needs out of it and adds them; what would the cut give, silently, if there are not enough rows?
# 2. T is the last but one size of x, `x.shape[-2]`. A slice past the end of a tensor does not raise: it comes back shorter, and one row would even broadcast. Compare `offset + T` with `max_len` first.
# 3. `self.table = nn.Parameter(torch.randn(max_len, d_model) * 0.02)`, and after the comparison `return x + self.table[offset : offset + x.shape[-2]]`.

# %% [markdown]
# ## RoPE: turn the queries and keys
#
# A table is added once, at the bottom, and every layer has to carry it along. Rotary position embedding (Su et al.
# 2021, *RoFormer*) is used by most open language models since Llama. It leaves $x$ alone and acts where positions are
# compared, on $q$ and $k$ in every layer. Take the pair of features $(2i, 2i+1)$ as a point in the plane and turn it
# by the angle $p\,\omega_i$:
#
# $$\begin{aligned} y_{2i} &= x_{2i} \cos (p\,\omega_i) - x_{2i+1} \sin (p\,\omega_i) \\
# y_{2i+1} &= x_{2i} \sin (p\,\omega_i) + x_{2i+1} \cos (p\,\omega_i) \end{aligned}
# \qquad\qquad \omega_i = \mathrm{base}^{-2i/d}$$
#
# **By hand**, $d = 2$, $\omega_0 = 1$: the point $(1, 0)$ at position 1 becomes $(\cos 1, \sin 1) = (0.540, 0.841)$, at
# position 2 it becomes $(-0.416, 0.909)$. Their dot product is $-0.225 + 0.765 = 0.540 = \cos 1$: what counts is the
# difference of the positions. In general, with $R_p$ the rotation by position $p$,
#
# $$(R_m q) \cdot (R_n k) = q^\top R_m^\top R_n\, k = q^\top R_{n-m}\, k .$$
#
# Turning changes no length, and position 0 changes nothing. The values $v$ are *not* turned: the output should say
# what was found, not where. Here $d$ is the width of one head, and `positions` is an argument, because a decoder
# with a cache turns a single new query by *its* position, and because each row of a padded batch may count from
# elsewhere. Positions need not be integers: "position interpolation" (Chen et al. 2023) stretches a context by
# feeding $p/2$ instead of $p$.

# %% solve="rope" points=6 difficulty=3 importance=5 minutes=20
def rope(x: Float[Tensor, "... T d"], positions: Tensor, base: float = 10000.0) -> Float[Tensor, "... T d"]:
    """Rotary position embedding (Su et al. 2021), interleaved pairs.

    Features 2i and 2i+1 of the vector at position p are turned by the angle p * base ** (-2i / d), i = 0 ... d/2 - 1:

        y[2i]   = x[2i] * cos(angle) - x[2i+1] * sin(angle)
        y[2i+1] = x[2i] * sin(angle) + x[2i+1] * cos(angle)

    x: (..., T, d), any leading dimensions (also none): queries or keys, d the width of a head.
       An odd d raises a ValueError whose message names it.
    positions: integers or floats (fractions too), any numbers, negative ones as well. Its shape has at least one
       dimension and broadcasts to x.shape[:-1] = (..., T): (T,) for the same positions everywhere, (B, 1, T) for x
       of shape (B, H, T, d).
    base: a positive number.

    Returns a new tensor with the shape, dtype and device of x; x and positions are not modified; gradients flow to x.
    Far positions count: compute the angles in float64, whatever x and positions are. For float32 x and positions
    up to 1,000,000, every entry is within 1e-5 times the largest entry of x. Works for float16 and bfloat16 x too.
    """
    ### BEGIN SOLUTION
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"d={d} is odd: rope turns pairs of features")
    frequencies = base ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)  # (d/2,)
    angles = positions.double().unsqueeze(-1) * frequencies  # (..., T, d/2)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
    ### END SOLUTION


# %% check="rope"
check(rope)

# %% [markdown] hints="rope"
# 1. It is the table of sines and cosines again, only that they are not added: each pair of features is *turned* by its angle. Angles have one column for each pair, so split x into two halves of that width too.
# 2. `x[..., 0::2]` and `x[..., 1::2]` are the first and the second members of all pairs. Angles are `positions.double().unsqueeze(-1) * frequencies`: the new last axis makes (T,) and (B, 1, T) both work. Cast cosine and sine, not the angles, to the dtype of x.
# 3. `torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)` puts the pairs back in interleaved order; a `torch.cat` would not.

# %% [markdown]
# ### Experiment: what does a score see?
#
# One random query and one random key, $d = 64$. Put the query at position $m$ and the key $n$ positions before it.
# Predict how the score changes:
#
# - (a) It depends on $m$ and on the distance: turned vectors are different vectors.
# - (b) It depends on the distance only, and falls steadily with it.
# - (c) It depends on the distance only, and wanders; with equal query and key it is highest at distance 0.

# %% demo
generator = torch.Generator().manual_seed(1)
q, k = torch.randn(2, 64, generator=generator)
distance = torch.arange(0, 200)
fig, ax = plt.subplots(figsize=(7, 3.8))
for m, style in [(200, "-"), (1000, "--"), (100_000, ":")]:
    at_m = rope(q[None], torch.tensor([m]))
    before = rope(k.expand(200, 64), m - distance)
    ax.plot(distance, (before @ at_m.T) / 8, style, label=f"random q and k, query at {m:,}")
same = rope(q.expand(200, 64), -distance) @ q
ax.plot(distance, same / 8, label="k = q, query at 0")
ax.set(xlabel="distance of the key (positions back)", ylabel="score / sqrt(64)", title="What does a RoPE score see?")
ax.legend()
plt.show()

# %% [markdown]
# **(c)**. The three lines of the random pair lie on each other, also at position 100,000 (thanks to float64 angles), so
# **(a)** is wrong: both vectors are turned, and the common part cancels. The line wanders, against **(b)**: a score is a
# sum of cosines of different frequencies with weights that depend on $q$ and $k$. For equal vectors all weights are
# positive, so the sum is largest at distance 0, where all cosines are 1. Su et al. (2021, section 3.4.3) bound how it
# decays; the bound says nothing about a particular pair, which a model may well use to look at one chosen distance.

# %% [markdown]
# ## Two layouts of the same rotation
#
# Weights in the wild come in two layouts. *Interleaved*: pairs are $(0,1), (2,3), \ldots$ (the paper, Meta's Llama
# code). *Half*: pairs are $(i,\; i + d/2)$ (GPT-NeoX, and Hugging Face's port of Llama, with its `rotate_half`). Both turn
# the same pairs; the features merely have other places. With $d = 6$:
#
# | | 0 | 1 | 2 | 3 | 4 | 5 |
# | :--- | :---: | :---: | :---: | :---: | :---: | :---: |
# | interleaved | a0 | b0 | a1 | b1 | a2 | b2 |
# | half | a0 | a1 | a2 | b0 | b1 | b2 |
#
# A model trained in one layout is silent nonsense in the other: every shape fits, every length is right, relative
# distances still work, and the scores are wrong. Scores do not change if *both* $q$ and $k$ are reordered alike, so it
# is enough to reorder the output features of $W_q$ and $W_k$ once, when loading. These two functions do it.

# %% solve="interleaved_to_half" points=2 difficulty=1 importance=3 minutes=5
def interleaved_to_half(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """Reorder the features (last axis) from interleaved pairs to halves: a0 b0 a1 b1 ... -> a0 a1 ... b0 b1 ...

    x: (..., d), any leading dimensions (also none), any dtype. An odd d raises a ValueError whose message names it.
    Returns a tensor of the same shape and dtype, every value as it was; x is not modified. Gradients flow to x.
    """
    ### BEGIN SOLUTION
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"d={d} is odd: the features come in pairs")
    return torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)
    ### END SOLUTION


# %% check="interleaved_to_half"
check(interleaved_to_half)

# %% [markdown] hints="interleaved_to_half"
# 1. Collect the first members of all pairs, then the second members.
# 2. Every second feature is a slice with step 2 along the last axis: `x[..., 0::2]`.
# 3. `torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)`, after the test for an odd d.

# %% solve="half_to_interleaved" points=2 difficulty=2 importance=3 minutes=5
def half_to_interleaved(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """The way back: a0 a1 ... b0 b1 ... -> a0 b0 a1 b1 ..., the inverse of interleaved_to_half.

    x: (..., d), any leading dimensions (also none), any dtype. An odd d raises a ValueError whose message names it.
    Returns a tensor of the same shape and dtype, every value as it was; x is not modified. Gradients flow to x.
    """
    ### BEGIN SOLUTION
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"d={d} is odd: the features come in pairs")
    return torch.stack((x[..., : d // 2], x[..., d // 2 :]), dim=-1).flatten(-2)
    ### END SOLUTION


# %% check="half_to_interleaved"
check(half_to_interleaved)

# %% [markdown] hints="half_to_interleaved"
# 1. Cut the features into two halves and deal them out in turn, like two stacks of cards.
# 2. Stacking the halves along a *new* last axis gives pairs; flattening the last two axes puts the pairs one after the other. For d = 4 the two directions are the same reordering: try your function on six features.
# 3. `torch.stack((x[..., : d // 2], x[..., d // 2 :]), dim=-1).flatten(-2)`.

# %% demo
def rope_half(x, positions, base=10000.0):
    """RoPE as rotate_half writes it: feature i is paired with feature i + d/2."""
    d = x.shape[-1]
    angles = positions[..., None].double() * base ** (-torch.arange(0, d, 2).double() / d)
    cos, sin = torch.cat((angles, angles), dim=-1).cos().to(x.dtype), torch.cat((angles, angles), dim=-1).sin().to(x.dtype)
    return x * cos + torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1) * sin


x, positions = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)), torch.arange(5)
there_and_back = half_to_interleaved(rope_half(interleaved_to_half(x), positions))
print(f"reordered, turned, put back, against rope: {(there_and_back - rope(x, positions)).abs().max():.0e}")
print(f"mixed up: rope_half on interleaved features: {(rope_half(x, positions) - rope(x, positions)).abs().max():.2f}")

# %% [markdown] claims="000.2.2-n"
# ## ALiBi: a bias on the scores
#
# The $M$ in $\mathrm{softmax}(QK^\top/\sqrt{d_k} + M)\,V$ is often introduced as a mask, 0 or $-\infty$. It can hold any
# finite number too, and a number that depends on the positions is a position encoding. Attention with linear biases
# (Press et al. 2022) subtracts a multiple of the distance:
#
# $$M_{h,i,j} = -m_h \cdot |\,p_i - j\,|, \qquad m_h = 2^{-8h/H}, \quad h = 1, \ldots, H .$$
#
# Each head has its own slope: with $H = 8$ they are 1/2, 1/4, ..., 1/256. A steep head looks at its neighbors, a flat
# one far back. Nothing is learned, and nothing is added to $x$.
#
# **By hand**, slope 1/2, three positions, all dot products equal. The last query has the biases $-1, -\tfrac12, 0$, so its
# weights are $e^{-1}, e^{-1/2}, 1$ over their sum: 0.186, 0.307, 0.507. Closer is heavier.
#
# **Heads that are not a power of two** (Press et al.'s rule): let $n$ be the largest power of two below $H$. Take the $n$
# slopes for $n$ heads; the missing $H - n$ are the 1st, 3rd, 5th, ... slope for $2n$ heads, in this order. For $H = 6$:
#
# | $n = 4$ | 4 slopes | from $2n = 8$: 1/2, 1/4, 1/8, 1/16, ... take every second |
# | :--- | :--- | :--- |
# | slopes | 1/4, 1/16, 1/64, 1/256 | 1/2, 1/8 |
#
# **Where does the query stand?** With a cache, one new query meets all $T_k$ keys. It is the *last* position, so row $i$ of
# $T_q$ rows stands at $p_i = T_k - T_q + i$: the rectangle is aligned at the bottom right, as the causal mask is. For
# $T_q = 1$, $T_k = 4$ and slope 1/2 the row is $(-1.5, -1, -0.5, 0)$.
#
# **Future keys.** A decoder hides them anyway. We let the bias fall with the distance on both sides, $-m_h|p_i - j|$, so
# that an encoder can use it too. A finite bias hides nothing: a decoder adds the causal mask as well.

# %% solve="alibi_bias" points=6 difficulty=3 importance=4 minutes=20
def alibi_bias(n_heads: int, T_q: int, T_k: int | None = None) -> Float[Tensor, "n_heads T_q T_k"]:
    """Attention with linear biases (Press et al. 2022): what is added to the scores (..., n_heads, T_q, T_k).

    bias[h, i, j] = -slope_h * |p_i - j|, where p_i = T_k - T_q + i is the position of query i: the last query stands
    at the last key (aligned to the bottom right). Future keys, j > p_i, get the same penalty for their distance; they
    are not hidden: that is the causal mask's job.

    Slopes, h = 0 ... n_heads-1:
      n_heads a power of two: slope_h = 2 ** (-8 * (h + 1) / n_heads).
      otherwise: with n the largest power of two below n_heads, first the n slopes for n heads, then of the slopes
      for 2n heads the 1st, 3rd, 5th, ... until there are n_heads. (6 heads: 1/4, 1/16, 1/64, 1/256, 1/2, 1/8.)

    n_heads: at least 1. T_q: at least 1. T_k: None means T_q; otherwise at least T_q.
    Returns (n_heads, T_q, T_k) in float32.
    """
    ### BEGIN SOLUTION
    def power_slopes(n):
        return [2.0 ** (-8 * (h + 1) / n) for h in range(n)]

    if T_k is None:
        T_k = T_q
    n = 2 ** int(math.log2(n_heads))
    slopes = power_slopes(n) + power_slopes(2 * n)[::2][: n_heads - n]
    distance = (torch.arange(T_k - T_q, T_k)[:, None] - torch.arange(T_k)).abs()  # (T_q, T_k)
    return -torch.tensor(slopes)[:, None, None] * distance
    ### END SOLUTION


# %% check="alibi_bias"
check(alibi_bias)

# %% [markdown] hints="alibi_bias"
# 1. Two independent pieces: a list of slopes, one for each head, and one table of distances for all heads. The bias is minus their outer product.
# 2. Query positions are `torch.arange(T_k - T_q, T_k)`, key positions `torch.arange(T_k)`; a column minus a row is a table. For the slopes write a small function for a power of two and use it twice: for n, and for 2n with a step of 2.
# 3. `slopes = power_slopes(n) + power_slopes(2 * n)[::2][: n_heads - n]` with `n = 2 ** int(math.log2(n_heads))`; then `-torch.tensor(slopes)[:, None, None] * distance.abs()`.

# %% demo
fig, axes = plt.subplots(1, 2, figsize=(10, 3.4))
bias = alibi_bias(8, 12) + causal_bias(12)
for ax, head in zip(axes, (0, 3)):
    weights = bias[head].softmax(dim=-1)
    image = ax.imshow(weights, cmap="viridis", vmin=0, vmax=0.5)
    ax.set(xticks=range(0, 12, 2), xlabel="key (position)", ylabel="query (position)")
    ax.set_title(f"Where does head {head + 1} of 8 look? Slope 1/{2 ** (head + 1)}", fontsize=11)
    fig.colorbar(image, ax=ax, label="weight, all dot products equal")
plt.tight_layout()
plt.show()
print("one decoded query, four keys, head 1 of 8:", alibi_bias(8, 1, 4)[0, 0].tolist())

# %% [markdown]
# Bright means heavy. With all dot products equal, the steep head on the left keeps to the last few keys. The flat head
# on the right spreads its weight over all that it may see.
#
# ## Experiment: dog bites man
#
# A task that is nothing but order. Eight tokens: one A, one B, six fillers, at random places. Question: *does A come
# before B?* Five small models answer it: one layer (attention or none), a feed-forward layer, the mean over the
# positions, one output. A coin gets 50 %. Predict:
#
# - (a) Only the models with a table of positions get above 50 %: without positions there is no order.
# - (b) The bag and the unmasked attention without positions stay at 50 %; *causal* attention without positions does not.
# - (c) All attention models get above 50 %: attention sees pairs of tokens, and the order of a pair is a fact about a pair.

# %% demo
def order_task(n, generator, T=8, V=8):
    """n rows with one A (0), one B (1) and fillers; the label says whether A comes first."""
    ids = torch.randint(2, V, (n, T), generator=generator)
    places = torch.rand(n, T, generator=generator).topk(2).indices  # two different places a row
    ids.scatter_(1, places, torch.tensor([0, 1]).expand(n, 2))
    return ids, (places[:, 0] < places[:, 1]).float()


class Reader(nn.Module):
    def __init__(self, causal=None, table=None, d=32):
        super().__init__()
        self.causal, self.table = causal, table  # causal=None: no attention at all
        self.embed, self.qkv = nn.Embedding(8, d), nn.Linear(d, 3 * d)
        self.ffn = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.answer = nn.Linear(d, 1)

    def forward(self, ids):
        x = self.embed(ids)
        if self.table is not None:
            x = x + self.table
        if self.causal is not None:
            x = x + attend(*self.qkv(x).chunk(3, dim=-1), causal_bias(ids.shape[1]) if self.causal else None)
        return self.answer((x + self.ffn(x)).mean(dim=1)).squeeze(-1)


# %% demo
def order_accuracy(seed, **options):
    """Train a Reader for 250 steps; percent right on 2000 new rows."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Reader(**options)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(250):
        ids, label = order_task(64, generator)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(ids), label).backward()
        optimizer.step()
    ids, label = order_task(2000, generator)
    return 100 * ((model(ids) > 0) == (label > 0)).float().mean().item()


# %% demo
table = sinusoidal_encoding(8, 32)
readers = {
    "bag of words": {},
    "attention": {"causal": False},
    "causal attention": {"causal": True},
    "bag + sinusoidal table": {"table": table},
    "attention + sinusoidal table": {"causal": False, "table": table},
}
accuracy = torch.tensor([[order_accuracy(seed, **options) for seed in (0, 1)] for options in readers.values()])

# %% demo
fig, ax = plt.subplots(figsize=(7.5, 3.2))
ax.barh(list(readers), accuracy.mean(dim=1), color="C0", alpha=0.6, label="mean of two seeds")
for seed, marker in enumerate("ox"):
    ax.plot(accuracy[:, seed], list(readers), marker, color="black", label=f"seed {seed}")
ax.axvline(50, color="gray", linestyle=":", label="a coin")
ax.set(xlim=(0, 105), xlabel="answers right on new rows (%)", title="Who can tell whether A comes before B?")
ax.invert_yaxis()
ax.legend(loc="center right", bbox_to_anchor=(1.36, 0.5))
plt.show()
print({name: [round(a, 1) for a in row] for name, row in zip(readers, accuracy.tolist())})

# %% [markdown] claims="000.2.5-n 002.s5-c"
# **(b)**. The bag and the unmasked attention answer as a coin does: every row contains one A and one B, and a pooled
# equivariant model sees nothing else. **(c)** confuses a pair with an ordered pair: the score of A and B is the same
# wherever they stand. **(a)** overlooks the mask, as "therefore every position must be *given* its position" does.
# Causal attention without any encoding answers well, for B can find A among its keys only if A came earlier.
# (The bag with a table does well too: here the feed-forward layer is the nonlinear part that meets $x_t + p_t$.)
#
# How does a causal model know a position? Let attention be uniform and mark the first token. Position $t$ sees $t+1$
# keys, so the mark arrives with the weight $1/(t+1)$: 1, 1/2, 1/3, ... The later layers can read it off. Haviv et al.
# (2022) trained language models without any positions: they come close to models with positions, and a probe can
# read the position from their inner layers. Close, not equal: $1/(t+1)$ hardly tells position 100 from 101, and "three
# tokens back" is hard to say with it. Explicit positions remain the usual way to model relative distance. The next
# experiment has such a model as a fifth line.

# %% [markdown] claims="002.s5-d"
# ## Experiment: longer than in training
#
# It used to be said that there are two mainstream encodings, sinusoidal and learned. That was about right in 2018. RoPE (2021)
# is the usual one in large language models now, ALiBi (2021, published 2022) was used by BLOOM and MPT, T5 (2020) has
# learned biases by distance, and some models leave out positions in some layers. Compare four and none.
#
# The task is *recall*: three of four tokens are noise, the others are letters; at every position, name the most recent
# letter. Train one causal layer on 32 positions, then test on 256. Predict for positions 32 to 255:
#
# - (a) Sinusoidal extends, for its formula goes on forever; only the learned table fails.
# - (b) Both tables fail at once; RoPE holds on for a while and then fails; ALiBi goes on.
# - (c) RoPE and ALiBi go on, because both are relative.

# %% demo
LETTERS, NOISE = 10, 10


def recall_task(n, T, generator):
    """Letters 0 ... 9 and noise (10); the target is the most recent letter. Position 0 is a letter."""
    letters = torch.randint(0, LETTERS, (n, T), generator=generator)
    noise = torch.rand(n, T, generator=generator) < 0.75
    noise[:, 0] = False
    last = torch.where(noise, 0, torch.arange(T)).cummax(dim=1).values
    return torch.where(noise, NOISE, letters), letters.gather(1, last)


# %% demo
class Recaller(nn.Module):
    def __init__(self, scheme, d=64, n_heads=8):
        super().__init__()
        self.scheme, self.n_heads = scheme, n_heads
        self.embed, self.qkv = nn.Embedding(LETTERS + 1, d), nn.Linear(d, 3 * d)
        self.out, self.head = nn.Linear(d, d), nn.Linear(d, LETTERS)
        self.learned = LearnedPositions(256, d)

    def forward(self, ids):
        T, x = ids.shape[1], self.embed(ids)
        if self.scheme == "sinusoidal":
            x = x + sinusoidal_encoding(T, x.shape[-1])
        elif self.scheme == "learned":
            x = self.learned(x)
        q, k, v = (part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        if self.scheme == "RoPE":
            q, k = rope(q, torch.arange(T)), rope(k, torch.arange(T))
        bias = causal_bias(T) + (alibi_bias(self.n_heads, T) if self.scheme == "ALiBi" else 0)
        return self.head(x + self.out(attend(q, k, v, bias).transpose(1, 2).flatten(2)))


# %% demo
def recall_accuracy(scheme, steps=300):
    """Train on 32 positions; percent right at each of 256 positions."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Recaller(scheme)
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        ids, target = recall_task(32, 32, generator)
        optimizer.zero_grad()
        F.cross_entropy(model(ids).flatten(0, 1), target.flatten()).backward()
        optimizer.step()
    ids, target = recall_task(48, 256, generator)
    with torch.no_grad():
        return 100 * (model(ids).argmax(dim=-1) == target).double().mean(dim=0)


schemes = ["sinusoidal", "learned", "RoPE", "ALiBi", "none"]
curves = {scheme: recall_accuracy(scheme) for scheme in schemes}

# %% demo
fig, ax = plt.subplots(figsize=(8, 4))
for (scheme, curve), style in zip(curves.items(), ["-", "--", "-.", "-", ":"]):
    ax.plot(torch.arange(4, 256, 8), curve.unflatten(0, (32, 8)).mean(dim=1), style, label=scheme)
ax.axvline(32, color="gray", linewidth=1)
ax.text(34, 3, "longer than in training")
ax.set(xlabel="position (tokens; mean over 8)", ylabel="answers right (%)", ylim=(0, 104))
ax.set_title("Which scheme works on sequences longer than in training?")
ax.legend(loc="center right")
plt.show()
print(f"{'answers right (%)':20}{'0-31':>8}{'32-47':>8}{'48-255':>8}")
for scheme, curve in curves.items():
    print(f"{scheme:20}{curve[:32].mean():8.0f}{curve[32:48].mean():8.0f}{curve[48:].mean():8.0f}")

# %% [markdown]
# **(b)** describes the plot. Within 32 positions all four schemes solve the task, and the model without positions
# does not: it knows that letters differ from noise, but hardly which letter is the latest.
#
# - *Learned:* rows 32 to 255 of the table were never trained; they are the noise they started as. A table of 32
#   rows would have raised an error, which is better.
# - *Sinusoidal:* against **(a)**, the formula goes on, but the model was never trained on the vectors that it gives.
# - *RoPE:* against **(c)**, scores depend on distances only, but distances above 31 were never seen in training. As long as
#   most keys are near it works; then far keys, turned by new angles, can win the softmax. Remedies stretch the
#   positions or raise the base (Chen et al. 2023; NTK-aware scaling; YaRN, Peng et al. 2023), mostly with some more training.
# - *ALiBi:* far keys only ever get less. That is why it extends, and it is what this task needs. Ask for a letter 100
#   positions back and the bias is in the way: extending is not the same as using a long context.
#
# One layer, one toy task, one seed: take the order of the curves from it, not their heights. Press et al. (2022, figure 1) show
# the same picture for language models.

# %% [markdown]
# ## What goes wrong
#
# **Bug hunt.** This version was put together from two code bases. Position 0 changes nothing, shapes fit, and a model
# trains with it, but not well. The table prints the score of one query and one key, always three positions apart: it should be the
# same number in every row. Find the mistake, mend it, and run the last line without its `#`.

# %% demo
def hurried_rope(x, positions, base=10000.0):
    """Turn pairs of features by their position."""
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"d={d} is odd")
    frequencies = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = (positions.double().unsqueeze(-1) * frequencies).repeat_interleave(2, dim=-1)
    turned = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)
    return x * angles.cos().to(x.dtype) + turned * angles.sin().to(x.dtype)


q, k = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(0))
print(f"query at   key at   score, hurried   score, rope   length of the query, hurried (before: {q.norm():.3f})")
for m in (3, 4, 10, 100):
    at, before = torch.tensor([m]), torch.tensor([m - 3])
    scores = [(f(q, at) * f(k, before)).sum().item() for f in (hurried_rope, rope)]
    print(f"{m:8}{m - 3:9}{scores[0]:17.3f}{scores[1]:14.3f}{hurried_rope(q, at).norm().item():19.3f}")
# check(hurried_rope, "rope")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The angles are laid out for interleaved pairs ($\theta_0\theta_0\theta_1\theta_1\ldots$, from `repeat_interleave`), the partner is that of the half layout
# (feature $i$ with $i + d/2$, from `rotate_half`). The two members of a pair are turned by different angles, so nothing is a rotation
# any more: lengths change, and the score depends on where the pair stands. With $d = 2$ the layouts coincide and nobody would
# notice. Interleaved throughout, the partner line reads
#
# ```python
# turned = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
# ```
#
# Two tests find it at once: the length must not change, and equal distances must give equal scores. Neither finds a
# *consistent* half layout, which is right by both and still does not fit weights trained with the other. Only values do.
#
# </details>
#
# Other mistakes from real code, each of which passes a test of shapes:
#
# - a table added along the batch axis (`pe[: x.size(0)]` for `x` of shape (B, T, d));
# - every decoded token at position 0, because the offset is forgotten;
# - a cached key turned again at every step (turn a key once, when it is made);
# - `alibi_bias(n_heads, 1)` for a decoded query: one zero, that is, no ALiBi at all.

# %% [markdown]
# ## Interview questions
#
# The first is answered in writing, and a person reads it. For the other two, say your answer aloud before you open
# the model answer.

# %% [markdown] essay="order_blind" points=3
# **"Attention does not know order: reverse the sentence and the result is the same." What is right and what is wrong in
# this?** Answer as in an interview, in about 90 seconds (150 to 200 words). Say what exactly stays the same, for which
# attention, what a decoder changes, and why position encodings are used all the same.
#
# ### BEGIN SOLUTION
# Self-attention without a mask and without positions is permutation equivariant: f(Px) = P f(x). Reverse the input and the
# outputs are the same vectors in reversed order. They are not the same matrix. Each output is a sum over the set of
# keys, weighted by scores that depend on contents only. If the outputs are pooled by a mean, the result is invariant: there
# the sentence is true, and "dog bites man" cannot be told from "man bites dog".
#
# A causal mask breaks both. Who is visible depends on position, so a decoder without any encoding can tell order: a token
# sees only what came before it, and an average over t+1 keys carries t. Models trained without encodings do learn
# positions in this way.
#
# Encodings are still used: an encoder needs them for any order at all, and a decoder gets precise relative distances
# ("the token before", "three back"), which a mask alone gives only weakly. The usual ones: tables added to the input
# (sinusoidal, learned), rotations of q and k (RoPE), biases on the scores (ALiBi, T5).
#
# Marking: 1 point for equivariant against invariant (permuted, not equal; equal only after pooling); 1 for the causal
# mask as a source of order; 1 for why encodings are used all the same, with two kinds named.
# ### END SOLUTION

# %% [markdown]
# **Why does RoPE turn queries and keys, but not values? And what is in a KV cache, turned keys or plain ones?**
#
# <details><summary>Model answer</summary>
#
# The rotation is to make the *score* relative: $(R_m q)\cdot(R_n k) = q^\top R_{n-m} k$; the absolute parts cancel in a product of
# two turned vectors. A value appears in no such product. A turned value would carry its absolute angle $n$ into the
# output, and nothing cancels it there. Usually the cache holds turned keys: the angle of a key depends on its own position only, so it is turned
# once, when it is made, and never again. (With a table at the input nothing special happens: positions are inside $x$.)
# Turned keys have a cost: if positions change afterwards, say because old tokens are dropped and the rest moves up, or because the
# base is changed for a longer context, they must be turned by the difference or computed anew. Caches that do such things keep the
# plain keys and turn them at every use.
#
# </details>

# %% [markdown]
# **A model was trained with 2048 positions. A customer wants 8192. What happens with a learned table, sinusoidal, RoPE and ALiBi, and
# what would you do?**
#
# <details><summary>Model answer</summary>
#
# *Learned:* there are no rows beyond 2048; new ones must be trained (started, for example, from interpolated old ones). *Sinusoidal:* it runs,
# on vectors that the model has never seen; quality falls soon after 2048. *RoPE:* it runs as well and fails as well, for the slow
# pairs reach angles that never occurred in training. Feed positions scaled by 1/4 (position interpolation) or raise the base, so that all angles stay in the known
# range, then train on long texts for a short while; measure, for the scaling costs resolution at short distances.
# *ALiBi:* it runs and the perplexity stays about level, but far tokens carry little weight, so test whether the model *uses* them.
# In every case measure by position and with a retrieval task ("find the fact at position 6000"): average perplexity is mostly decided
# by near tokens and hides a failure.
#
# </details>

# %% [markdown]
# ## Summary
#
# | scheme | acts on | shape | parameters | beyond training |
# | :--- | :--- | :--- | :--- | :--- |
# | sinusoidal | input, once | (T, d_model) | none | runs, fails |
# | learned | input, once | (max_len, d_model) | max_len · d_model | does not exist: raise |
# | RoPE | q and k, every layer | angles (..., T, d/2) | none | runs, fails later; scale positions or base |
# | ALiBi | scores, every layer | (H, T_q, T_k) | none | runs; far tokens fade |
# | none, causal | | | none | order, but weak distances |
#
# - Equivariant: outputs move with inputs. Invariant: nothing changes. Attention without mask and positions is equivariant; its mean is invariant.
# - A causal mask breaks both, and is position information by itself.
# - $PE(p+\delta) = PE(p)\,M_\delta$; $(R_m q) \cdot (R_n k)$ depends on $n - m$ only; ALiBi is $-m_h \cdot$ distance.
# - Interleaved and half layout are one rotation with reordered features; mixed, they are neither.
# - Angles in float64; offsets in decoding; rectangles aligned at the bottom right.
#
# References: Vaswani et al. 2017, *Attention Is All You Need*; Devlin et al. 2019, *BERT*; Radford et al. 2018 (GPT); Raffel et al. 2020 (T5);
# Su et al. 2021, *RoFormer*; Press et al. 2022, *Train Short, Test Long*; Haviv et al. 2022, *Transformer Language Models without Positional
# Encodings Still Learn Positional Information*; Chen et al. 2023, *Extending Context Window of Large Language Models via Positional
# Interpolation*; Peng et al. 2023, *YaRN*.
