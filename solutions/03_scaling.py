# %% [markdown]
# # 03 Why the square root of d_k
#
# Attention scores are dot products, and a dot product is a sum of $d_k$ terms. Make the vectors wider and the sum
# spreads out further, although nothing about the data has changed. The softmax that follows reads only the *gaps*
# between scores; once the gaps are wide, one key takes all the weight and the softmax stops passing gradients.
# Dividing the scores by $\sqrt{d_k}$ (Vaswani et al. 2017, section 3.2.1, equation 1) takes the width out of the
# gaps.
#
# ```mermaid
# flowchart LR
#     W["wider vectors:<br/>d_k grows"] --> S["scores q . k spread<br/>as sqrt(d_k)"]
#     S -->|not scaled| G["gaps of 10, 30, 100"]
#     G --> P["softmax close to one-hot"]
#     P --> J["Jacobian close to 0:<br/>most queries stop learning"]
#     S -->|divided by sqrt d_k| N["gaps of about 1,<br/>for every width"]
#     N --> L["weights spread out,<br/>gradients pass"]
# ```
#
# You will measure each arrow, write the attention that every later lesson uses, and then look for the limits of the
# argument: where it stops being true, and what else people do.

# %%
import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from grader import check, hint, progress, solution

# %% demo
import matplotlib.pyplot as plt

plt.style.use("tableau-colorblind10")
torch.set_num_threads(1)  # the tensors below are tiny: a second thread costs more than it brings


# %%
def entropy(weights: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
    """Given: the entropy -sum_j w_j ln(w_j) in nats along the last axis, with 0 ln 0 = 0.

    0 when one weight is 1; ln(n), the largest value possible, when all n weights are equal.
    """
    return torch.special.entr(weights).sum(dim=-1)


# %% [markdown] claims="000.2.3-a"
# ## The idea by hand
#
# **One sum.** Let every component of $q$ and $k$ be $+1$ or $-1$, each with probability 1/2, all independent. Each
# has mean 0 and variance 1, and so has each product $q_i k_i$, which is again $+1$ or $-1$. With $d_k = 2$ the dot
# product is a sum of two such products:
#
# | $q_1 k_1$ | $q_2 k_2$ | $q \cdot k$ | squared |
# | ---: | ---: | ---: | ---: |
# | +1 | +1 | 2 | 4 |
# | +1 | -1 | 0 | 0 |
# | -1 | +1 | 0 | 0 |
# | -1 | -1 | -2 | 4 |
#
# The mean is 0 and the variance is $(4+0+0+4)/4 = 2 = d_k$.
#
# **In general.** Let the components of $q$ and $k$ have mean 0 and variance 1, all independent of each other. Then
# $E[q_i k_i] = E[q_i]\,E[k_i] = 0$ and $\mathrm{Var}(q_i k_i) = E[q_i^2]\,E[k_i^2] = 1$. Variances of independent
# terms add:
#
# $$\mathrm{Var}(q \cdot k) = \sum_{i=1}^{d_k} \mathrm{Var}(q_i k_i) = d_k, \qquad \mathrm{std}(q \cdot k) = \sqrt{d_k}.$$
#
# The distribution need not be Gaussian: mean 0, variance 1 and independence are all that was used. (It is the
# argument of footnote 4 in Vaswani et al. 2017.)
#
# **What the softmax makes of it.** Give one query two keys. The gap between the two scores has variance $2 d_k$, so a
# typical gap is $g = \sqrt{2 d_k}$. The larger weight is $p = 1/(1 + e^{-g})$, and its derivative with respect to its
# own score is $p(1-p)$. The three columns divide the scores by 1, by $\sqrt{d_k}$ and by $d_k$:
#
# | $d_k$ | not scaled: $g$, $p$, $p(1-p)$ | by $\sqrt{d_k}$: $g$, $p$, $p(1-p)$ | by $d_k$: $g$, $p$, $p(1-p)$ |
# | ---: | :--- | :--- | :--- |
# | 4 | 2.83, 0.944, 0.053 | 1.41, 0.804, 0.157 | 0.707, 0.670, 0.221 |
# | 64 | 11.3, 0.99999, 0.000012 | 1.41, 0.804, 0.157 | 0.177, 0.544, 0.248 |
# | 1024 | 45.3, 1 - 2e-20, 2e-20 | 1.41, 0.804, 0.157 | 0.044, 0.511, 0.250 |
#
# Only the middle column does not depend on the width. On the left the weights freeze; on the right they all become
# the same (1/2 each), so the attention turns into a plain average that hardly looks at its keys.

# %% [markdown]
# ## Measure the variance
#
# A derivation is worth a measurement. The first function draws random pairs and measures how far their dot products
# spread. It takes its random numbers from a `torch.Generator`, an explicit source of randomness: the same seed gives
# the same numbers, whatever the rest of the program draws.

# %% solve="dot_product_variance" points=2 difficulty=1 importance=3 minutes=5
def dot_product_variance(d_k: int, n: int, generator: torch.Generator) -> float:
    """Sample variance of n dot products of random vectors of width d_k.

    Draw n queries and n keys with independent components from the standard normal
    distribution N(0, 1), take the n dot products q_1 . k_1, ..., q_n . k_n (each query with
    its own key, and no key used twice), and return their sample variance. Nothing is scaled.

    d_k: width of the vectors, at least 1.
    n:   number of pairs, at least 1000; d_k * n is at most a few ten millions.
    generator: every random number comes from it, so that a generator with the same seed
         gives the same result. Advance it only by drawing: do not seed it again, so that
         a second call gives a new sample. The global random state is not used.

    Returns a Python float (a tensor with no dimensions is accepted too). In which order the
    numbers are drawn is up to you, and so is n or n - 1 in the denominator: n is large.
    """
    ### BEGIN SOLUTION
    q = torch.randn(n, d_k, generator=generator, device=generator.device)
    k = torch.randn(n, d_k, generator=generator, device=generator.device)
    return (q * k).sum(dim=-1).var().item()
    ### END SOLUTION


# %% check="dot_product_variance"
check(dot_product_variance)

# %% [markdown] hints="dot_product_variance"
# 1. Two tables of random numbers, `n` rows each: row i of the first meets row i of the second, and no other row. That gives `n` numbers, whose spread you want.
# 2. `torch.randn` takes `generator=`. Multiply the two tables element by element and sum along the last axis; `q @ k.T` would pair every query with every key.
# 3. `(q * k).sum(dim=-1)` holds the `n` dot products; `.var().item()` is their sample variance as a float.

# %% [markdown] claims="000.2.3-b 000.2.3-c 000.2.3-h"
# ### Experiment: how fast does it grow?
#
# Multiplying a random number by $c$ multiplies its variance by $c^2$. Predict the three lines on logarithmic axes,
# with the scores not scaled, divided by $\sqrt{d_k}$, and divided by $d_k$:
#
# - (a) Unscaled variance grows as $\sqrt{d_k}$, because the standard paper divides by $\sqrt{d_k}$.
# - (b) Unscaled variance grows as $d_k$; dividing by $\sqrt{d_k}$ keeps it at 1; dividing by $d_k$ makes it shrink as $1/d_k$.
# - (c) Unscaled variance grows as $d_k$; dividing by $\sqrt{d_k}$ halves the slope, so it still grows.

# %% demo
widths = [1, 4, 16, 64, 256, 1024]
generator = torch.Generator().manual_seed(0)
variances = torch.tensor([dot_product_variance(d, 10_000, generator) for d in widths])
d = torch.tensor(widths, dtype=torch.float32)

fig, ax = plt.subplots(figsize=(6.4, 3.8))
labels = {"raw": "not scaled", "sqrt": "divided by $\\sqrt{d_k}$", "d": "divided by $d_k$"}
for label, factor, marker in zip(labels.values(), [d**0, d**-0.5, d**-1], "os^"):
    (line,) = ax.plot(widths, variances * factor**2, marker, label=f"measured, {label}")
    ax.plot(widths, d * factor**2, color=line.get_color(), linewidth=1)
ax.set(xscale="log", yscale="log", xlabel="width $d_k$ (components)", ylabel="variance of the scores")
ax.set_title("How fast does the variance of the scores grow with the width?")
ax.legend()
plt.show()
print("measured variance / d_k:", ", ".join(f"{v / w:.3f}" for v, w in zip(variances.tolist(), widths)))

# %% [markdown]
# Points are measured with your function, lines are $d_k$, 1 and $1/d_k$; the printed quotients are all near 1.
# **(b)** is right. **(a)** mixes up variance and standard deviation: the *standard deviation* grows as $\sqrt{d_k}$,
# and that is the number to divide by. **(c)** forgets that the factor is squared: $(1/\sqrt{d_k})^2 \cdot d_k = 1$.
#
# What if the assumptions fail? If the components have means $\mu_q, \mu_k$, the scores have mean $d_k\,\mu_q\mu_k$.
# If $q$ and $k$ point the same way, say $q = k$, then $q \cdot k = \lVert q \rVert^2 \approx d_k$: the scores grow as
# $d_k$ itself, not as its root. Keep this in mind for the end of the lesson.

# %% [markdown] claims="000.2.2-j 000.2.6-ab 001.s4-f 002.s3-f 002.s7-f"
# ## Scaled dot-product attention
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}} + M\right) V$$
#
# **Which width?** $d_k$ is the length of the vectors that are multiplied, `q.shape[-1]`, the width of *one head*.
# With $d_{model} = 8$ and two heads, each head has $d_k = 4$, and its scores are divided by $\sqrt 4 = 2$, not by
# $\sqrt 8$ and not by anything that depends on the number of keys.
#
# **The mask.** $M$ is added before the softmax: 0 where the query may see the key, $-\infty$ where it may not, since
# $e^{-\infty} = 0$. In this course a mask is boolean and **True means "may see"**. ($M$ can also carry finite
# position biases: lesson 06.) A mask applied *after* the softmax would leave rows that no longer sum to 1.
#
# **A row with nothing visible** (a padding query, say) is $0/0$ by that formula: softmax of $(-\infty, -\infty)$
# computes $-\infty - (-\infty)$, which is NaN. The convention of this course, and of PyTorch's
# `F.scaled_dot_product_attention`: such a row attends to nothing, so its weights and its output are **zeros**, and no
# gradient is NaN or infinite. A safe way in three steps:
#
# 1. fill the hidden scores with the smallest *finite* number of their dtype, `torch.finfo(scores.dtype).min`;
# 2. take the softmax: beside any visible score, $e^{\text{min} - \ldots}$ is exactly 0, and a row without one comes out uniform, not NaN;
# 3. set the weights of the hidden keys to 0: that changes nothing but the uniform rows.
#
# By hand, scores $(2, 0)$ with the mask (True, False): $(2, \text{min}) \to (1, 0)$. With (False, False):
# $(\text{min}, \text{min}) \to (½, ½) \to (0, 0)$.
#
# A constant like -1e9 in step 1 does not fit into float16, whose largest number is 65504; PyTorch refuses it with an
# error.

# %% solve="scaled_dot_product_attention" points=6 difficulty=3 importance=5 minutes=20
def scaled_dot_product_attention(
    q: Float[Tensor, "... T_q d_k"],
    k: Float[Tensor, "... T_k d_k"],
    v: Float[Tensor, "... T_k d_v"],
    mask: Bool[Tensor, "... T_q T_k"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "... T_q d_v"]:
    """softmax(scale * q k^T) v, with a mask (Vaswani et al. 2017, equation 1).

    q: (..., T_q, d_k), k: (..., T_k, d_k), v: (..., T_k, d_v), every size at least 1, contiguous
    or not. The leading dimensions (none, a batch, batch and heads, ...) are the same for all three.
    T_q may differ from T_k, d_v from d_k.

    mask:  None: every query sees every key. Otherwise boolean, True = this query may see
           this key, of a shape that broadcasts to the scores (..., T_q, T_k), for
           example (T_q, T_k), (B, 1, 1, T_k) or (B, 1, T_q, T_k).
    scale: the scores are multiplied by it. None means 1 / sqrt(d_k); every other value,
           also 0, is used as it stands.

    The softmax runs along the keys, the last axis of the scores. A hidden key has a weight of
    exactly 0, so what k and v hold there (any finite numbers, within the sizes of scores below) does
    not matter to the row, and the visible weights of a row sum to 1. A row with nothing visible has
    weights and output 0, and all gradients stay finite, whichever rows are hidden.

    Returns the output only, (..., T_q, d_v), in the dtype and on the device of the inputs.
    Works in float16, bfloat16, float32 and float64, with and without a mask; float64 inputs keep
    the precision of float64 (torch.sqrt(torch.tensor(d_k)) is a float32 number). Scores of any
    size up to 5000 (in float16 and bfloat16 up to 100), positive or negative, give no inf or nan
    and keep hidden keys hidden. Inputs are not modified; nothing is random. Build it from products,
    a softmax and fills: F.scaled_dot_product_attention is what you write here, so an answer that
    calls it is not accepted. Compare with it afterwards.
    """
    ### BEGIN SOLUTION
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1])
    scores = (q * scale) @ k.transpose(-2, -1)  # (..., T_q, T_k)
    if mask is None:
        return scores.softmax(dim=-1) @ v
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)  # the second fill empties the rows that see nothing
    return weights @ v  # (..., T_q, d_v)
    ### END SOLUTION


# %% check="scaled_dot_product_attention"
check(scaled_dot_product_attention)

# %% [markdown] hints="scaled_dot_product_attention"
# 1. Four steps: score, scale, hide, average. Hiding happens before the softmax, so that the visible weights still sum to 1; ask of every step what it does to a row in which everything is hidden.
# 2. The scale defaults to one over the root of the last size of `q`; test `scale is None`, because 0 is a legal scale. `masked_fill` writes where its argument is True, and your mask is True where the key may be *seen*. Fill with `torch.finfo(scores.dtype).min` before the softmax, and with 0 after it.
# 3. `scores = (q * scale) @ k.transpose(-2, -1)`, then `scores.masked_fill(~mask, torch.finfo(scores.dtype).min)`, `softmax(dim=-1)`, `masked_fill(~mask, 0.0)` on the weights, and `@ v`.

# %% [markdown]
# Where you multiply by the scale is a choice with one practical side. $(s\,q) \cdot k$ and $s\,(q \cdot k)$ are the
# same number on paper. In float16 the unscaled dot product can pass 65504 and become infinite although the scaled
# score would have fitted; scaling `q` first avoids that, and also multiplies a smaller array ($T_q \times d_k$
# instead of $T_q \times T_k$) when $T_k > d_k$.
#
# A cell to try your function on: with the identity matrix as values, the output *is* the matrix of weights.

# %% demo
q = torch.tensor([[1.0, -1.0, 1.0, 1.0], [1.0, 1.0, 1.0, -1.0]])
k = torch.tensor([[1.0, -1.0, 1.0, 1.0], [1.0, 1.0, -1.0, 1.0]])
may_see = torch.tensor([[True, True], [False, False]])
identity = torch.eye(2)
print("scores / sqrt(4):  ", (q @ k.T / 2).tolist())
print("weights:           ", scaled_dot_product_attention(q, k, identity))
print("second row hidden: ", scaled_dot_product_attention(q, k, identity, may_see))
print("float16, masked:   ", scaled_dot_product_attention(q.half(), k.half(), identity.half(), may_see))

# %% [markdown] claims="002.s8-i 002.s8-j"
# ## What saturates?
#
# It is often said that the dot product "saturates" when the width grows. It does not: $q \cdot k$ is linear in $q$
# and has no ceiling. Its gradient with respect to $q$ is $k$, whatever the score. **The softmax saturates.** Write
# $p = \mathrm{softmax}(z)$; then
#
# $$J_{ij} = \frac{\partial p_i}{\partial z_j} = p_i\,(\delta_{ij} - p_j), \qquad J = \mathrm{diag}(p) - p\,p^\top .$$
#
# *Derivation.* From $\ln p_i = z_i - \ln \sum_m e^{z_m}$ follows
# $\partial \ln p_i / \partial z_j = \delta_{ij} - p_j$; multiply by $p_i$.
#
# *By hand.* For $p = (0.7, 0.2, 0.1)$:
#
# $$J = \begin{pmatrix} 0.7\cdot 0.3 & -0.7\cdot 0.2 & -0.7\cdot 0.1 \\ -0.2\cdot 0.7 & 0.2\cdot 0.8 & -0.2\cdot 0.1 \\ -0.1\cdot 0.7 & -0.1\cdot 0.2 & 0.1\cdot 0.9\end{pmatrix}
# = \begin{pmatrix} 0.21 & -0.14 & -0.07 \\ -0.14 & 0.16 & -0.02 \\ -0.07 & -0.02 & 0.09\end{pmatrix}$$
#
# Every row sums to 0: raising *all* scores by the same amount changes nothing. At $p = (1, 0, 0)$ every entry is 0:
# no score, raised a little, moves any weight, and nothing passes back to $q$ and $k$ of this row, however wrong the
# choice was.

# %% solve="softmax_jacobian" points=3 difficulty=2 importance=4 minutes=10
def softmax_jacobian(p: Float[Tensor, "... n"]) -> Float[Tensor, "... n n"]:
    """The Jacobian of the softmax, from its output.

    With p = softmax(z) along the last axis: J[..., i, j] = dp_i / dz_j = p_i * ((i == j) - p_j).

    p: (..., n), any leading dimensions (also none), every size at least 1, contiguous or not.
       Each slice along the last axis holds weights that sum to 1, exact zeros and ones included;
       this is not checked.
    Returns (..., n, n): one matrix for each slice, in the dtype and on the device of p.
    It is a closed formula of p: no autograd is needed, and p is not modified.
    """
    ### BEGIN SOLUTION
    return torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
    ### END SOLUTION


# %% check="softmax_jacobian"
check(softmax_jacobian)

# %% [markdown] hints="softmax_jacobian"
# 1. Two pieces: something that is only on the diagonal, minus something that is everywhere. Write both for the three-number example above, then for any number of leading dimensions.
# 2. `torch.diag_embed(p)` puts the last axis on the diagonal of a new matrix. The outer product of `p` with itself is a column times a row, by broadcasting.
# 3. The outer product is `p.unsqueeze(-1) * p.unsqueeze(-2)`, of shape (..., n, n); subtract it from `torch.diag_embed(p)`.

# %% [markdown]
# ### Experiment: which of the two stops passing gradients?
#
# Take one query and eight keys and make the query $c$ times longer. Every score, and every gap between scores, grows
# by the factor $c$. Watch two derivatives: of the scores with respect to the query, and of the weights with respect
# to the scores. Predict:
#
# - (a) Both shrink: large scores are saturated scores.
# - (b) Only the derivative of the softmax shrinks.
# - (c) Only the derivative of the dot product shrinks; the softmax is a smooth function and always passes something on.

# %% demo
generator = torch.Generator().manual_seed(3)
query = torch.randn(16, generator=generator, dtype=torch.float64)
keys = torch.randn(8, 16, generator=generator, dtype=torch.float64)
factors = torch.logspace(-1, 1, 60, dtype=torch.float64)
of_scores, of_weights = [], []
for c in factors:
    of_scores.append(torch.autograd.functional.jacobian(keys.mv, c * query).norm())
    of_weights.append(softmax_jacobian((keys @ (c * query)).softmax(dim=-1)).norm())

fig, ax = plt.subplots(figsize=(6.4, 3.8))
ax.plot(factors, of_scores, label="d scores / d query")
ax.plot(factors, of_weights, "--", label="d weights / d scores (softmax)")
ax.set(xscale="log", yscale="log", ylim=(1e-8, 1e2), xlabel="length of the query, relative to the first draw (factor $c$)")
ax.set(ylabel="Frobenius norm of the derivative", title="Which one stops passing gradients?")
ax.legend(loc="lower left")
plt.show()
z = keys @ query
shift = softmax_jacobian((z + 1000).softmax(dim=-1)) - softmax_jacobian(z.softmax(dim=-1))
print(f"all scores raised by 1000: the softmax Jacobian changes by at most {shift.abs().max():.0e}")

# %% [markdown]
# The solid line is flat: the scores answer a change of the query equally well at every size. The dashed line falls
# without end once the query is long (a power would be a straight line on these axes; this one keeps bending down).
# **(b)** is right. **(a)** and the phrase "the dot product saturates" blame the wrong function. **(c)** has it the
# wrong way round: smooth is not enough, a flat place is smooth too.
#
# The printed line shows that it is not even the *size* of the scores: all of them 1000 higher gives the same Jacobian
# up to rounding. **Gaps** saturate a softmax, and width makes gaps.

# %% [markdown] claims="000.2.3-d 000.2.3-f"
# ## How concentrated are the weights?
#
# One number says how concentrated a row of weights is: its entropy $H = -\sum_j p_j \ln p_j$. For four keys:
#
# | weights | entropy in nats |
# | :--- | :--- |
# | (1/4, 1/4, 1/4, 1/4) | $\ln 4 = 1.386$, the largest possible |
# | (1/2, 1/2, 0, 0) | $\ln 2 = 0.693$ |
# | (1, 0, 0, 0) | 0 |
#
# $e^H$ reads as the number of keys that a query effectively uses: 4, 2 and 1 in these rows. The function `entropy` is
# given, at the top of the lesson. Sweep the width and compare the three scalings on the same random scores, so that
# nothing but the scaling differs.

# %% solve="saturation_sweep" points=4 difficulty=2 importance=3 minutes=15
def saturation_sweep(dims: list[int], n_keys: int, generator: torch.Generator) -> dict[str, list[float]]:
    """Mean entropy of the weights of random queries, for several widths and three scalings.

    For every width d_k in dims: draw 512 queries and n_keys keys with independent N(0, 1)
    components, and take the scores s = q . k of every query with every key. From these same
    scores make three sets of weights, softmax along the keys:

        "raw":  softmax(s)         "sqrt": softmax(s / sqrt(d_k))         "d": softmax(s / d_k)

    and for each set the entropy in nats of every query's weights, averaged over the queries.

    dims:   widths, each at least 1, in any order; a width may stand twice and is then drawn anew.
    n_keys: number of keys that each query sees, at least 1.
    generator: every random number comes from it, so that the same seed gives the same result; do
            not seed it again. The global random state is not used.

    Returns {"raw": [...], "sqrt": [...], "d": [...]}: in each list one Python float for each entry
    of dims, in the order of dims. All three agree (up to rounding) where d_k is 1. No value is nan
    for widths up to 1024, where weights underflow to 0. The order of drawing is up to you. One set of
    keys may serve all 512 queries of a width, or each query may have its own; more queries are
    welcome too.
    """
    ### BEGIN SOLUTION
    result = {"raw": [], "sqrt": [], "d": []}
    for d_k in dims:
        q = torch.randn(512, d_k, generator=generator, device=generator.device)
        k = torch.randn(n_keys, d_k, generator=generator, device=generator.device)
        scores = q @ k.T  # (512, n_keys)
        for name, divisor in [("raw", 1.0), ("sqrt", math.sqrt(d_k)), ("d", d_k)]:
            weights = (scores / divisor).softmax(dim=-1)
            result[name].append(entropy(weights).mean().item())
    return result
    ### END SOLUTION


# %% check="saturation_sweep"
check(saturation_sweep)

# %% [markdown] hints="saturation_sweep"
# 1. One width at a time: draw, score, and only then branch into three. The three branches share their scores and differ in one divisor.
# 2. The scores of all queries with all keys are one matrix product, (512, n_keys). Divide, softmax along the last axis, `entropy`, mean, and append the float to the list of that scaling.
# 3. Inside `for d_k in dims:` loop `for name, divisor in [("raw", 1.0), ("sqrt", math.sqrt(d_k)), ("d", d_k)]` and append `entropy((scores / divisor).softmax(dim=-1)).mean().item()` to `result[name]`.

# %% [markdown]
# ### Experiment: how many keys does a random query use?
#
# 64 keys, random queries, widths from 1 to 4096. Predict the three curves:
#
# - (a) All three fall with the width; dividing only delays it.
# - (b) Unscaled falls towards 0, divided by $\sqrt{d_k}$ stays level below the maximum, divided by $d_k$ climbs to the maximum $\ln 64$.
# - (c) Unscaled falls; both scalings stay at the maximum, where attention is healthiest.

# %% demo
dims = [1, 4, 16, 64, 256, 1024, 4096]
sweep = saturation_sweep(dims, 64, torch.Generator().manual_seed(0))

fig, ax = plt.subplots(figsize=(6.4, 3.8))
for name, marker in zip(labels, "os^"):
    ax.plot(dims, sweep[name], marker + "-", label=labels[name])
ax.axhline(math.log(64), color="gray", linestyle=":", label="all 64 keys equal: ln 64")
ax.set(xscale="log", ylim=(0, 4.4), xlabel="width $d_k$ (components)", ylabel="mean entropy of the weights (nats)")
ax.set_title("How many of 64 keys does a random query use?")
ax.legend(loc="center right")
plt.show()
for name in sweep:
    print(f"{name:>4}: effective keys e^H =", ", ".join(f"{math.exp(h):.1f}" for h in sweep[name]))

# %% [markdown]
# **(b)**. Unscaled, a query ends up with little more than one key, chosen by chance. Divided by $d_k$, the gaps
# shrink to nothing and every query averages all keys: uniform weights depend on neither $q$ nor $k$. So **(c)**
# mistakes the maximum for health. Divided by $\sqrt{d_k}$ the curve is level, because the distribution of the scaled
# scores is nearly the same at every width; **(a)** would need a divisor that grows more slowly than $\sqrt{d_k}$.

# %% [markdown] claims="000.2.3-g"
# ### Experiment: what reaches the query?
#
# A saturated softmax passes nothing back, but unscaled scores also have a larger gradient of their own
# ($\partial s_j / \partial q = k_j$, not $k_j/\sqrt{d_k}$). Which wins? For each of 256 queries, measure the size of
# $\partial p / \partial q = J K / \text{divisor}$. Predict for the unscaled scores:
#
# - (a) It shrinks for every query, and so does the mean.
# - (b) The two effects cancel: gradients keep their size.
# - (c) Most queries get almost nothing, a few get very large gradients, and the mean hides it.

# %% demo
fig, ax = plt.subplots(figsize=(6.4, 4))
for (name, label), marker in zip(labels.items(), "os^"):
    generator, spread, mean = torch.Generator().manual_seed(0), [], []
    for d_k in widths:
        q, k = torch.randn(256, d_k, generator=generator), torch.randn(64, d_k, generator=generator)
        divisor = {"raw": 1.0, "sqrt": math.sqrt(d_k), "d": d_k}[name]
        gradients = softmax_jacobian((q @ k.T / divisor).softmax(dim=-1)) @ k / divisor  # (256, 64, d_k)
        sizes = gradients.flatten(1).norm(dim=-1)
        spread.append(sizes.quantile(torch.tensor([0.1, 0.5, 0.9])))
        mean.append(sizes.mean())
    low, median, high = torch.stack(spread).T
    (line,) = ax.plot(widths, median, marker + "-", label=f"{label}: median")
    ax.fill_between(widths, low.clamp(min=1e-12), high, color=line.get_color(), alpha=0.25, linewidth=0)
    if name == "raw":
        ax.plot(widths, mean, ":", color=line.get_color(), label="not scaled: mean")
ax.set(xscale="log", yscale="log", ylim=(1e-7, 1e2), xlabel="width $d_k$ (components)")
ax.set(ylabel="Frobenius norm of d weights / d query", title="What reaches the query, at random initialization?")
ax.legend(loc="lower left", fontsize=9)
plt.show()

# %% [markdown]
# Bands hold the middle 80 % of the queries. **(c)**: unscaled, the band opens over many powers of ten. The median
# query gets almost no gradient while the largest tenth gets more than at any other scaling, and the dotted mean does
# not fall at all. So "the gradients vanish" (**a**) is too simple: *part* of them vanish, the rest are jolts, and an
# average over queries (**b**) shows neither. Divided by $\sqrt{d_k}$, median and band are one level line. Divided by
# $d_k$, all queries are treated alike, but the gradient fades as $1/\sqrt{d_k}$; unlike the unscaled case, a larger
# learning rate can make up for that.

# %% [markdown] claims="000.2.3-i 000.2.3-j"
# ## Normalize instead: QK norm
#
# The root of $d_k$ corrects for the width *at initialization*. Nothing keeps the queries and keys at that size during
# training. Query-key normalization (Henry et al. 2020) makes both unit vectors, so that the score is a cosine,
# between -1 and 1, whatever the weights do:
#
# $$s_{ij} = \frac{1}{\tau}\,\cos(q_i, k_j) = \frac{1}{\tau}\,\frac{q_i}{\lVert q_i \rVert} \cdot \frac{k_j}{\lVert k_j \rVert}$$
#
# The temperature $\tau$ replaces $\sqrt{d_k}$ and is learned. (Henry et al. multiply by a learned $g$, which is
# $1/\tau$ here; Swin Transformer V2, Liu et al. 2022, divides by $\tau$ as we do.)
#
# **Why $\tau$ is needed, by hand.** Take 10 keys and $\tau = 1$. The best that a query can do is cosine 1 with one
# key and -1 with the nine others. That key gets $e^{1}/(e^{1} + 9e^{-1}) = 2.718/(2.718 + 3.311) = 0.451$. With
# $\tau = 1$, no query can put half of its weight on one of ten keys. With $\tau = 0.1$ the same query gets
# $1/(1 + 9e^{-20})$, practically 1.
#
# **Relatives.** Many recent models apply LayerNorm or RMSNorm to each head's $q$ and $k$ and keep the division by
# $\sqrt{d_k}$ (Dehghani et al. 2023 did so after large vision models had diverged with attention weights that were
# almost one-hot). RMSNorm without a gain is $\sqrt{d_k}\;q/\lVert q\rVert$, so its score is
# $\sqrt{d_k}\sqrt{d_k}\cos/\sqrt{d_k} = \sqrt{d_k}\cos$: the formula above with $\tau = 1/\sqrt{d_k}$.

# %% solve="qk_norm_attention" points=4 difficulty=2 importance=3 minutes=10
def qk_norm_attention(
    q: Float[Tensor, "... T_q d_k"],
    k: Float[Tensor, "... T_k d_k"],
    v: Float[Tensor, "... T_k d_v"],
    tau: float | Tensor,
) -> Float[Tensor, "... T_q d_v"]:
    """Attention by cosine similarity over a temperature (Henry et al. 2020; tau is their 1 / g).

    Every query and every key is divided by its own Euclidean length, x / max(||x||, 1e-12) with
    the norm along the last axis, so that a zero vector stays zero. Then
    scores[..., i, j] = cos(q_i, k_j) / tau, with no further division by sqrt(d_k) and no mask.
    The softmax runs along the keys, the last axis. v is not normalized.

    q: (..., T_q, d_k), k: (..., T_k, d_k), v: (..., T_k, d_v), with the same leading dimensions
       (also none), every size at least 1, contiguous or not. T_q may differ from T_k, d_v from d_k.
    tau: positive: a Python number, or a tensor of the dtype of q, either with no dimensions or, for
       inputs (..., H, T, d), with a temperature of its own for each head, of shape (H, 1, 1). A
       tensor may be a parameter: gradients flow to it, as to q, k and v (which gradient a zero
       vector gets is open).

    Multiplying a query or a key by a positive number does not change the result.
    Returns the output only, (..., T_q, d_v), in the dtype and on the device of the inputs
    (float32 or float64). Inputs are not modified.
    """
    ### BEGIN SOLUTION
    cosines = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)  # (..., T_q, T_k)
    return (cosines / tau).softmax(dim=-1) @ v
    ### END SOLUTION


# %% check="qk_norm_attention"
check(qk_norm_attention)

# %% [markdown] hints="qk_norm_attention"
# 1. The directions of `q` and `k` decide, their lengths must not. Once both are unit vectors, their dot product is a cosine; the temperature alone says how sharp the softmax is.
# 2. `F.normalize` divides by the Euclidean length along one axis and treats zero vectors as asked; which axis holds one vector? A smaller `tau` gives larger scores, so divide.
# 3. `cosines = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)`, then the softmax of `cosines / tau` along the last axis, times `v`.

# %% [markdown]
# ### Experiment: does pre-norm do the same job?
#
# A pre-norm block normalizes the *input* of the attention: $q = \mathrm{LN}(x) W_q$, $k = \mathrm{LN}(x) W_k$.
# Suppose training makes both matrices $c$ times larger. Predict what happens to the entropy:
#
# - (a) Nothing in either model: LayerNorm already keeps everything at unit size.
# - (b) With pre-norm and $\sqrt{d_k}$ it falls, with QK norm it does not move.
# - (c) It falls in both, only later with QK norm.

# %% demo
generator = torch.Generator().manual_seed(0)
T, d_model, d_k = 64, 128, 64
x = F.layer_norm(torch.randn(T, d_model, generator=generator), (d_model,))
Wq = torch.randn(d_model, d_k, generator=generator) / math.sqrt(d_model)
Wk = torch.randn(d_model, d_k, generator=generator) / math.sqrt(d_model)
factors = [1, 1.5, 2, 3, 4, 6, 8]
identity = torch.eye(T)  # as values: the output is the matrix of weights
plain = [entropy(scaled_dot_product_attention(x @ Wq * c, x @ Wk * c, identity)).mean() for c in factors]
normed = [entropy(qk_norm_attention(x @ Wq * c, x @ Wk * c, identity, tau=1 / math.sqrt(d_k))).mean() for c in factors]

fig, ax = plt.subplots(figsize=(6.4, 3.8))
ax.plot(factors, plain, "o-", label="LayerNorm on x, scores / $\\sqrt{d_k}$")
ax.plot(factors, normed, "s-", label="LayerNorm on x, QK norm with $\\tau = 1/\\sqrt{d_k}$")
ax.axhline(math.log(T), color="gray", linestyle=":", label="uniform weights: ln 64")
ax.set(ylim=(0, 4.4), xlabel="growth of $W_q$ and $W_k$ (factor $c$)", ylabel="mean entropy of the weights (nats)")
ax.set_title("Does normalizing the input keep the softmax from saturating?")
ax.legend(loc="center right")
plt.show()

# %% [markdown]
# **(b)**. LayerNorm stands *before* $W_q$ and $W_k$; the scores are proportional to $c^2$, and the constant
# $\sqrt{d_k}$ knows nothing of it. So **(a)** confuses two places: pre-norm controls the input of the projections,
# the scale and QK norm act on their outputs. **(c)** would be true of a division by any constant; QK norm divides by
# the lengths themselves. The price: with lengths gone, a query can say "I am sure" only through the shared $\tau$.

# %% [markdown]
# ## Does it matter in training?
#
# A task that is nothing but attention: a sequence holds 12 different symbols, each with a random label from 8; given
# one of the symbols, answer its label. The model has to learn that a query must match the key of *its own* symbol.
# Symbols are fixed random vectors, so the queries and keys start with unit variance, and only $W_q$, $W_k$ and the
# table of values are trained, with plain gradient descent and $d_k = 256$.

# %% demo
def train(scale, init=1.0, lr=0.3, d_k=256, steps=200, seed=0):
    """Learn to look up labels. Returns the losses, and all symbols' (queries, keys) before and after."""
    g = torch.Generator().manual_seed(seed)
    symbols = torch.randn(24, 32, generator=g)  # 24 symbols, each a fixed vector of d_model = 32
    Wq, Wk = (torch.randn(32, d_k, generator=g) / math.sqrt(32) * init for _ in range(2))
    values = torch.eye(8)  # what each label adds to the logits
    start = symbols @ Wq, symbols @ Wk
    optimizer = torch.optim.SGD([p.requires_grad_() for p in (Wq, Wk, values)], lr=lr)
    losses = []
    for _ in range(steps):
        ids = torch.rand(32, 24, generator=g).argsort(dim=-1)[:, :12]  # 32 sequences of 12 different symbols
        tags = torch.randint(8, (32, 12), generator=g)
        q, k = (symbols @ Wq)[ids[:, :1]], (symbols @ Wk)[ids]  # we ask for the first symbol
        logits = scaled_dot_product_attention(q, k, values[tags], scale=scale)  # (32, 1, 8)
        loss = F.cross_entropy(logits[:, 0], tags[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses), start, ((symbols @ Wq).detach(), (symbols @ Wk).detach())

# %% [markdown] claims="000.2.3-k 002.s8-k"
# ### Experiment: can it be trained without the scaling?
#
# Note first that the scale can be hidden in the weights:
# $s\,(x W_q)\cdot(y W_k) = (x\,\sqrt{s} W_q)\cdot(y\,\sqrt{s} W_k)$. So every function that the scaled model can
# compute, the unscaled one can compute too. The fourth entry of `settings` makes use of this: it does not scale, and
# starts both matrices $d_k^{1/4} = 4$ times smaller. Predict the loss curves:
#
# - (a) Without scaling it cannot learn: the softmax is saturated and the gradients are gone.
# - (b) All four are equal, because the weights can absorb the scale.
# - (c) Without scaling it learns, but late; with smaller starting weights and no scaling it learns as well as with.

# %% demo
settings = {
    "not scaled": (1.0, 1.0),
    "divided by $\\sqrt{d_k}$": (256**-0.5, 1.0),
    "divided by $d_k$": (1 / 256, 1.0),
    "not scaled, smaller start": (1.0, 256**-0.25),  # W_q and W_k each divided by d_k^(1/4)
}
fig, ax = plt.subplots(figsize=(6.4, 4.4))
for n, ((label, (scale, init)), style) in enumerate(zip(settings.items(), ["-", "--", "-.", ":"])):
    for seed in range(3):
        smooth = train(scale, init, seed=seed)[0].unfold(0, 20, 1).mean(dim=-1)  # mean of 20 steps
        ax.plot(range(20, 201), smooth, style, color=f"C{n}", label=label if seed == 0 else None)
ax.axhline(math.log(8), color="gray", linewidth=0.8, label="guessing: ln 8")
ax.set(ylim=(0, 2.9), xlabel="training step", ylabel="loss (nats), three seeds each")
ax.set_title("Can it be trained without the scaling?")
ax.legend(loc="upper right", fontsize=8, ncols=2)
plt.show()

# %% demo
print("loss at the end (mean of the last 20 of 200 steps; guessing costs 2.08)\n")
rates = [0.1, 1.0, 10.0]
print("learning rate".ljust(26), *(f"{lr:>6}" for lr in rates))
for label, (scale, init) in settings.items():
    ends = [train(scale, init, lr)[0][-20:].mean() for lr in rates]
    name = label.replace("$", "").replace("\\sqrt{d_k}", "sqrt(d_k)")
    print(name.ljust(26), *(f"{end:6.2f}" for end in ends))

# %% [markdown]
# Each line is one seed. **(c)** is nearest. Unscaled training is late and depends on the luck of the draw, but the
# loss does fall, so **(a)** and "it cannot be trained otherwise" are too strong: the plot of the gradients showed
# that a few queries still get some, and large ones; they are what it learns from. T5 (Raffel et al. 2020; see its
# released code) has no $\sqrt{d_k}$ in its attention; it puts the whole factor into the start of $W_q$. **(b)** mixes
# up *what can be computed* with *what gradient descent finds*: equal functions, different step sizes. Shrinking the
# weights by $\sqrt{s}$ each makes the same first guess, but a step of the same learning rate moves the scores
# further, and the table shows the price: the unscaled model with the small start breaks down at learning rates that
# the scaled model takes.
#
# The row "divided by $d_k$" is the mirror image: it looks hopeless at small learning rates and fine at large ones,
# since its gradients are merely small.
#
# So is the root "an engineering detail, but critical"? It is a choice of units: it makes one learning rate and one
# initialization good for every width. That is worth a lot in practice, and it is not a law.

# %% [markdown] claims="000.2.3-e"
# ## Is the assumption true?
#
# The derivation needs independent queries and keys. At initialization that is roughly so. (Roughly: `nn.Linear`
# starts its weights with variance $1/(3\,d_{in})$, so that unit inputs give $\mathrm{Var}(q_i) = 1/3$ and scores of
# variance $d_k/9$: the default scale leaves them with variance 1/9, not 1.) Training exists to make some queries
# match some keys. Take the model that was just trained with $\sqrt{d_k}$ and look at all 24 × 24 scores
# $q \cdot k / \sqrt{d_k}$. Predict, after training:
#
# - (a) They stay as they were, near N(0, 1): the scaling guarantees unit variance.
# - (b) All scores grow by a common factor.
# - (c) Matching pairs move far away from the rest; $q$ and $k$ of one symbol are now dependent.

# %% demo
_, before, after = train(256**-0.5)
match = torch.eye(24, dtype=torch.bool)
fig, axes = plt.subplots(2, 1, figsize=(6.4, 4.6), sharex=True)
grid, bins = torch.linspace(-4, 4, 100), torch.arange(-7, 14.1, 0.75).tolist()
for ax, (q, k), moment in zip(axes, (before, after), ("before", "after")):
    scores = q @ k.T / math.sqrt(256)
    ax.hist(scores[~match].tolist(), bins, density=True, label="query and key of different symbols", color="C0")
    ax.hist(scores[match].tolist(), bins, density=True, label="of the same symbol", color="C1", alpha=0.7)
    ax.plot(grid, torch.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi), "k--", linewidth=1, label="N(0, 1)")
    ax.set(ylabel=f"density, {moment}")
    print(f"{moment} training: variance of all scores {scores.var():.2f}; for matching pairs,", end=" ")
    print(f"mean score {scores[match].mean():+.2f}, mean of q_i k_i {(q * k).mean():+.3f}")
axes[0].set_title("Are trained queries and keys still independent?")
axes[0].legend(fontsize=8)
axes[1].set_xlabel("score $q \\cdot k / \\sqrt{d_k}$ (no unit)")
plt.show()

# %% [markdown]
# **(c)**. Before training, both groups follow N(0, 1). Afterwards the matching pairs stand apart, the variance of all
# scores is no longer 1, and $q_i k_i$ has a mean that is not 0: independence and zero mean are gone, because they had
# to go. The scaling guarantees nothing about a trained model (**a**), and a common factor (**b**) would have kept the
# two groups on top of each other.
#
# This is the honest reach of the argument: **it sets the scale at the start**. Once $q$ and $k$ are aligned, their
# dot product grows as $d_k$ times the mean of $q_i k_i$. That is why maximal update parametrization (muP: Yang et al.
# 2021, "Tensor Programs V", definition 4.1) divides by $d_k$: it asks that the *trained* scores keep their size as
# the width grows, so that hyperparameters carry over from small models to large ones.

# %% [markdown] claims="001.s9-c"
# ## What goes wrong
#
# A forgotten or wrong scale is hard to see: shapes are right, rows sum to 1, and a small model trains anyway.
#
# | slip | symptom | what hides it |
# | :--- | :--- | :--- |
# | no scale | low entropy, slow start | small $d_k$; a test of shapes |
# | root of $d_{model}$ or of $T_k$ | flat weights; a result that depends on the number of keys | one head; $T_k = d_k$ in the test |
# | scale applied to `q` *and* to the scores | nearly uniform weights | $d_k = 1$ |
# | scale applied after the softmax | rows sum to $1/\sqrt{d_k}$ | a normalization right after it |
# | `scale or default` | `scale=0` silently becomes the default | nobody tests 0 |
#
# **Bug hunt.** The function below computes attention weights of random queries. Its output has the right shape,
# hidden keys get nothing, empty rows are zeros. Yet the entropy table says that something is off. Find it, mend it in
# this cell, and run the last line without its `#`.

# %% demo
def hurried_attention(q, k, v, mask=None, scale=None):
    """softmax(scale * q k^T) v; scale defaults to 1 / sqrt(d_k)."""
    if scale is None:
        scale = q.shape[-1] ** -0.5
    scores = q @ k.transpose(-2, -1) / scale
    if mask is None:
        return scores.softmax(dim=-1) @ v
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1).masked_fill(~mask, 0.0) @ v


generator = torch.Generator().manual_seed(0)
print("entropy of the weights over 64 keys (uniform: 4.16)\n d_k   hurried   PyTorch")
for d_k in [1, 4, 16, 64]:
    q, k = torch.randn(256, d_k, generator=generator), torch.randn(64, d_k, generator=generator)
    H = [entropy(f(q, k, torch.eye(64))).mean() for f in (hurried_attention, F.scaled_dot_product_attention)]
    print(f"{d_k:4}   {H[0]:7.2f}   {H[1]:7.2f}")
# check(hurried_attention, "scaled_dot_product_attention")

# %% [markdown]
# <details><summary>Answer</summary>
#
# `scale` is already the reciprocal, $1/\sqrt{d_k}$, and the scores are *divided* by it: they are multiplied by
# $\sqrt{d_k}$, twice the damage of forgetting the scale. At $d_k = 1$ the two agree, as the first row of the table
# shows, and a test with tiny vectors sees little. The line should read
#
# ```python
# scores = q @ k.transpose(-2, -1) * scale
# ```
#
# A name helps: call a number that you multiply by `scale`, and one that you divide by `temperature` or `divisor`, and
# never let one variable be either.
#
# </details>

# %% [markdown]
# ## Interview questions
#
# The first is answered in writing, and a person reads it. For the other two, say your answer aloud before you open
# the model answer.

# %% [markdown] essay="why_sqrt" points=3
# **Why does attention divide by $\sqrt{d_k}$?** Answer as in an interview, in about 90 seconds (150 to 200 words).
# Say what grows and under which assumptions, what saturates and what that does to gradients, why the root and not
# $d_k$, and one limit of the argument.
#
# ### BEGIN SOLUTION
# A score is a sum of d_k products. If the components of q and k are independent with mean 0 and variance 1, each
# product has mean 0 and variance 1, and the variances add: Var(q . k) = d_k. The scores, and the gaps between them,
# have a standard deviation of sqrt(d_k).
#
# The dot product itself does not saturate, it is linear. The softmax does: with gaps far above 1 it is close to
# one-hot, and its Jacobian diag(p) - p p^T is close to 0. Most queries then pass no gradient back to W_q and W_k, a
# few pass very large ones, and which key wins is decided by chance.
#
# Dividing by the standard deviation, sqrt(d_k), brings the variance to 1 at every width. Dividing by d_k would leave
# a variance of 1/d_k: at large widths the weights start almost uniform and the gradients start small.
#
# Limits (any one): it is an argument about initialization; trained queries and keys are not independent, and for
# aligned ones the dot product grows as d_k (hence 1/d_k in muP). The scale can be folded into the initial weights, as
# T5 does, so models can be trained without it. It does not bound the scores in training; QK norm does.
#
# Marking: 1 point for the variance with its assumptions; 1 for the softmax, not the dot product, saturating, and the
# effect on gradients; 1 for root against d_k together with one limit.
# ### END SOLUTION

# %% [markdown]
# **T5 does not divide by $\sqrt{d_k}$. Is the scaling superfluous, then?**
#
# <details><summary>Model answer</summary>
#
# No, T5 has it in another place. The score is bilinear in $W_q$ and $W_k$, so a constant factor can be moved into the
# weights: T5 draws $W_q$ with a standard deviation of $1/\sqrt{d_{model}\,d_k}$ instead of $1/\sqrt{d_{model}}$, and
# its initial scores have the same unit variance. The function at the start is the same; the training is not. With the
# factor inside the weights, a gradient step of given size changes the scores more, so the good learning rate is a
# different one (an optimizer such as Adam or Adafactor, which rescales each parameter's step, softens this). What
# cannot be left out is *some* control of the initial scale: by a constant, by the initialization, or by a
# normalization.
#
# </details>

# %% [markdown]
# **We use pre-norm and divide by $\sqrt{d_k}$. In a long training run the attention becomes one-hot and the loss
# diverges. Why, and what would you try?**
#
# <details><summary>Model answer</summary>
#
# Both measures act at fixed places: pre-norm sets the size of the *input* of $W_q$ and $W_k$, and $\sqrt{d_k}$ is a
# constant. If the two matrices grow by $c$, the scores grow by $c^2$. Nothing in the block bounds that, and a
# saturated softmax passes too little gradient to undo it. First measure it: log the largest score and the entropy of
# the weights, per layer and head. Then: QK norm (L2 norm with a learned temperature, or LayerNorm/RMSNorm on each
# head's $q$ and $k$), which makes the scores independent of the lengths of $q$ and $k$ (Dehghani et al. 2023 report
# this very failure and this cure); a lower learning rate or a longer warm-up; weight decay on $W_q$ and $W_k$;
# capping the scores, for example by $c \tanh(s/c)$. Computing the softmax in float32 cures overflow but not
# saturation: the gaps are the same.
#
# </details>

# %% [markdown]
# ## Summary
#
# | object | shape | remember |
# | :--- | :--- | :--- |
# | `q`, `k`, `v` | (..., T_q, d_k), (..., T_k, d_k), (..., T_k, d_v) | d_k is the width of one head |
# | scores | (..., T_q, T_k) | variance $d_k$ raw, 1 over $\sqrt{d_k}$, $1/d_k$ over $d_k$ (at initialization) |
# | mask | broadcasts to (..., T_q, T_k) | True = may see; hidden before the softmax; an empty row gives zeros |
# | weights `p` | (..., T_q, T_k) | softmax along the last axis |
# | Jacobian of the softmax | (..., n, n) | $\mathrm{diag}(p) - p\,p^\top$; zero when one-hot; rows sum to 0 |
# | output | (..., T_q, d_v) | dtype of the inputs |
#
# - Width spreads the scores; wide gaps saturate the softmax, not the dot product.
# - Unscaled: most queries get no gradient, a few get very large ones. Over $d_k$: all get a small one. Over $\sqrt{d_k}$: the same at every width.
# - It is an argument about initialization. Training makes $q$ and $k$ dependent, and pre-norm does not bound the scores; QK norm does.
# - Training without the scale is possible (smaller start, other learning rate). The scale makes one setting good for every width.
#
# References: Vaswani et al. 2017, *Attention Is All You Need*; Henry et al. 2020, *Query-Key Normalization for
# Transformers*; Raffel et al. 2020, *Exploring the Limits of Transfer Learning* (T5); Yang et al. 2021, *Tensor
# Programs V*; Liu et al. 2022, *Swin Transformer V2*; Dehghani et al. 2023, *Scaling Vision Transformers to 22
# Billion Parameters*.
