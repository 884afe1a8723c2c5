# %% [markdown] claims="002.s1-b 002.s2-a 002.s3-b 001.s3-c 001.s3-d 002.s8-d 000.2.2-a"
# # 02 Queries, keys, values
#
# "The ladder did not reach the window because **it** was too short." To know what *it* is, you look back at
# *ladder*, not at *window*. A network that reads a sentence needs a way to look back, too: each position has to
# fetch information from other positions, and *which* positions must depend on what is written there. Attention is
# that operation. It consists of three matrix products that make queries, keys and values, one product for the
# scores, one softmax, and one product that collects the result. You will write all of it in this lesson.
#
# ```mermaid
# flowchart LR
#     X["x<br/>(T, d_model)"] -- "times Wq" --> Q["queries q<br/>(T, d_k)"]
#     X -- "times Wk" --> K["keys k<br/>(T, d_k)"]
#     X -- "times Wv" --> V["values v<br/>(T, d_v)"]
#     Q --> S["scores q kᵀ<br/>(T, T)"]
#     K --> S
#     S -- "softmax along the keys" --> A["weights<br/>(T, T)"]
#     A --> O["output<br/>(T, d_v)"]
#     V --> O
# ```
#
# | step | formula | shape | in words |
# | --- | --- | --- | --- |
# | input | $x$ | $(T, d_{model})$ | one vector for each of $T$ positions |
# | project | $q = xW_q,\; k = xW_k,\; v = xW_v$ | $(T, d_k),\,(T, d_k),\,(T, d_v)$ | three views of every position |
# | score | $S = q\,k^\top$ | $(T, T)$ | row: who asks, column: who is asked |
# | normalize | $A = \mathrm{softmax}(S)$ along each row | $(T, T)$ | each row becomes weights that sum to 1 |
# | collect | $A\,v$ | $(T, d_v)$ | each row is an average of values |
#
# That is the whole mechanism. The published formula (Vaswani et al. 2017, equation 1) divides the scores by
# $\sqrt{d_k}$ as well; lesson 03 shows why. Until then we work **unscaled**, and without masks (lesson 05).

# %%
import torch
from jaxtyping import Float
from torch import Tensor

from grader import check, hint, progress, solution

# %% demo
import matplotlib.pyplot as plt

plt.style.use("tableau-colorblind10")
torch.set_num_threads(1)  # the tensors below are tiny: a second thread costs more than it brings

# %% [markdown] claims="002.s3-e 000.2.2-l 002.s2-c"
# ## A sentence of three words, by hand
#
# Take the sentence *dogs chase cats* with vectors of width $d_{model} = 2$, one row a word, and three small
# matrices with $d_k = 2$ and $d_v = 3$:
#
# $$
# x = \begin{pmatrix} 1 & 0 \\ 0 & 1 \\ 1 & 1 \end{pmatrix}\quad
# W_q = \begin{pmatrix} 0 & 1 \\ 1 & 0 \end{pmatrix}\quad
# W_k = \begin{pmatrix} 0 & 1 \\ 1 & 2 \end{pmatrix}\quad
# W_v = \begin{pmatrix} 1 & 0 & 2 \\ 0 & 1 & 0 \end{pmatrix}
# $$
#
# **Project.** Row *dogs* is $(1, 0)$, so it picks the first row of each matrix; *chase* picks the second; *cats*
# adds both.
#
# | | $q = xW_q$ | $k = xW_k$ | $v = xW_v$ |
# | --- | --- | --- | --- |
# | dogs | (0, 1) | (0, 1) | (1, 0, 2) |
# | chase | (1, 0) | (1, 2) | (0, 1, 0) |
# | cats | (1, 1) | (1, 3) | (1, 1, 2) |
#
# **Score.** Entry $S_{ij}$ is the dot product of the query of word $i$ with the key of word $j$. The query of
# *dogs* is $(0, 1)$; it scores the three keys with $0\cdot 0 + 1\cdot 1 = 1$, then $2$, then $3$.
#
# | $S$ | key of dogs | key of chase | key of cats |
# | --- | --- | --- | --- |
# | query of dogs | 1 | 2 | 3 |
# | query of chase | 0 | 1 | 1 |
# | query of cats | 1 | 3 | 4 |
#
# **Normalize.** For *dogs*: $e^1 = 2.72$, $e^2 = 7.39$, $e^3 = 20.09$, together $30.19$. Divided by the sum:
# $0.09,\; 0.24,\; 0.67$. These are the weights of *dogs* on *dogs*, *chase* and *cats*. A word is always one of
# the words that it looks at.
#
# **Collect.** The output of *dogs* is the average of the three values with these weights:
#
# $$0.09\,(1, 0, 2) + 0.24\,(0, 1, 0) + 0.67\,(1, 1, 2) = (0.76,\; 0.91,\; 1.52)$$
#
# with the rounded weights; unrounded it is $(0.76, 0.91, 1.51)$. Do the row of *chase* yourself now, with pencil
# and paper: scores $(0, 1, 1)$. You will compare below.
#
# Two things to notice. $S_{12} = 2$ but $S_{21} = 0$: how much *dogs* looks at *chase* says nothing about how
# much *chase* looks at *dogs*. And the values have three numbers while queries and keys have two.

# %% [markdown] claims="000.2.2-b 000.2.2-c 000.2.2-d 000.2.2-e 000.2.2-f 000.2.2-g 002.s3-a 002.s3-c 002.s3-d"
# ## Exercise: three projections of one sequence
#
# Every position gets three vectors, made from the same row of $x$ by three matrices. The names say how the
# vectors will be used. The **query** of position $i$ is compared with the **key** of every position $j$, and the
# result decides how much of the **value** of $j$ goes into the output of $i$. Nothing is split or taken apart:
# each of the three is a full linear map of the whole row. Queries and keys meet in a dot product, so they need
# the same width $d_k$. Values are only averaged, so their width $d_v$ is free. Many models choose $d_v = d_k$,
# and a drawing or a code example with equal widths makes it look like a rule. It is a choice.
#
# "The query is what the word looks for, the key is what it is, the value is what it has to say" is a good picture
# of the *computation*. It is not a statement about the *numbers*. Take any invertible matrix $R$ of size
# $d_k \times d_k$, replace $W_q$ by $W_q R$ and $W_k$ by $W_k R^{-\top}$: then
# $(x W_q R)(x W_k R^{-\top})^\top = x W_q R R^{-1} W_k^\top x^\top$, and every score is what it was. The same
# model can be written with countless different queries and keys, so no single coordinate of a query "is" the wish
# for a noun.
#
# A note on PyTorch: our matrices are stored as (inputs, outputs) and multiply from the right, `x @ W`. An
# `nn.Linear(d_model, d_k)` stores its weight as (outputs, inputs) and computes `x @ weight.T + bias`. It has a
# bias unless you say `bias=False`; what the bias does here comes up after the fourth exercise.

# %% solve="qkv_projection" points=2 difficulty=1 importance=5 minutes=5
def qkv_projection(
    x: Float[Tensor, "... T d_model"],
    Wq: Float[Tensor, "d_model d_k"],
    Wk: Float[Tensor, "d_model d_k"],
    Wv: Float[Tensor, "d_model d_v"],
) -> tuple[Float[Tensor, "... T d_k"], Float[Tensor, "... T d_k"], Float[Tensor, "... T d_v"]]:
    """Project a sequence to its queries, keys and values.

    Row t of each result is row t of x multiplied from the right by the matrix:
    q[t] = x[t] Wq, k[t] = x[t] Wk, v[t] = x[t] Wv. There is no bias.
    The matrices are stored as (inputs, outputs); nothing is transposed.

    x:  (..., T, d_model), with any number of leading dimensions (also none).
    Wq: (d_model, d_k), Wk: (d_model, d_k), Wv: (d_model, d_v); d_v may differ from d_k.
    Returns the tuple (q, k, v), in this order.
    """
    ### BEGIN SOLUTION
    return x @ Wq, x @ Wk, x @ Wv
    ### END SOLUTION


# %% check="qkv_projection"
check(qkv_projection)

# %% [markdown] hints="qkv_projection"
# 1. Every position is treated alike: the same three matrices are applied to each row of `x`, and no row looks at another.
# 2. A stack of rows times a matrix is one matrix product. `@` leaves the leading dimensions alone and works on the last two.
# 3. `x @ Wq` is the first of the three; return the three products as one tuple, without any transpose.

# %% [markdown]
# ## Exercise: softmax
#
# The scores can be any numbers. To average with them, they have to become weights: positive, with sum 1, and
# larger where the score is larger. Softmax does this with the exponential:
#
# $$\mathrm{softmax}(s)_j = \frac{e^{s_j}}{\sum_i e^{s_i}}$$
#
# By hand for $s = (0, 1, 1)$: $1,\; 2.72,\; 2.72$, sum $6.44$, so $(0.16,\; 0.42,\; 0.42)$. A difference of 1 in
# the score is a factor of $e = 2.72$ in the weight, whatever the other scores are.
#
# **Written as the formula says, it breaks.** The largest `float32` is about $e^{88.7}$, the largest `float16`
# about $e^{11.1}$. For $s = (1000, 1001)$ both exponentials are infinite and inf/inf is nan. For
# $s = (-1000, -1001)$ both are 0 and 0/0 is nan. The cure is a property of softmax: adding the same number $c$ to
# all scores changes nothing, because
#
# $$\frac{e^{s_j + c}}{\sum_i e^{s_i + c}} = \frac{e^c\, e^{s_j}}{e^c \sum_i e^{s_i}} = \frac{e^{s_j}}{\sum_i e^{s_i}}.$$
#
# Choose $c = -\max_i s_i$. Then the largest exponent is 0, so nothing overflows, and the sum is at least 1, so it
# is never 0. Both examples become easy: $(1000, 1001) \to (-1, 0) \to (0.27, 0.73)$, and
# $(-1000, -1001) \to (0, -1) \to (0.73, 0.27)$.
#
# The maximum must be the one of the *same slice*. Take the two rows $(0, 1)$ and $(1000, 1001)$, and subtract the
# overall maximum 1001: the first row becomes $(-1001, -1000)$, both exponentials are 0, and 0/0 is back.

# %% solve="softmax" points=4 difficulty=2 importance=5 minutes=10
def softmax(x: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*shape"]:
    """Turn the numbers along one dimension into positive weights that sum to 1.

    Along `dim`: softmax(x)_j = exp(x_j) / sum_i exp(x_i). Every slice along `dim` is
    normalized on its own, and no other slice changes its result.

    x:   floating point, any shape. The result has the shape, dtype and device of x.
    dim: any dimension of x, counted from the front (0, 1, ...) or the back (-1, -2, ...).

    Stable, slice by slice: large entries (1000, -1000, also in different slices of one
    tensor) give neither inf nor nan. An entry of -inf gets the weight 0 as long as its
    slice holds a finite number. (Slices of -inf only, and +inf or nan as input, are not
    part of this exercise.) x is not modified.

    Write it with elementary operations; torch.softmax is the answer, not the exercise.
    """
    ### BEGIN SOLUTION
    shifted = x - x.amax(dim=dim, keepdim=True)  # the largest entry of each slice becomes 0
    powers = shifted.exp()
    return powers / powers.sum(dim=dim, keepdim=True)
    ### END SOLUTION


# %% check="softmax"
check(softmax)

# %% [markdown] hints="softmax"
# 1. Adding the same number to all entries of a slice leaves its softmax unchanged. Which number makes `exp` safe from overflow and leaves at least one term that is not 0?
# 2. Subtract the largest entry of each slice, then `exp`, then divide by the sum. Maximum and sum run along `dim` only and must keep that dimension, so that they line up with `x` again.
# 3. Start with `shifted = x - x.amax(dim=dim, keepdim=True)`, then `powers = shifted.exp()`; the sum needs the same `dim` and `keepdim`.

# %% [markdown] claims="002.s3-i"
# ## Exercise: attention as two loops
#
# Before it is made fast, write attention so that every line can be compared with the definition. For query $i$:
#
# $$s_{ij} = q_i \cdot k_j, \qquad w_{ij} = \frac{e^{s_{ij}}}{\sum_{l} e^{s_{il}}}, \qquad \mathrm{out}_i = \sum_j w_{ij}\, v_j .$$
#
# One loop over the queries $i$, and in it one over the keys $j$. The number of queries $T_q$ need not be the
# number of keys $T_k$: the loops do not care. But there must be exactly one value for each key.
#
# Slow code that is obviously right is worth having. It is the specification that the fast version is compared
# with.

# %% solve="attention_loop" points=4 difficulty=2 importance=4 minutes=15
def attention_loop(
    q: Float[Tensor, "T_q d_k"],
    k: Float[Tensor, "T_k d_k"],
    v: Float[Tensor, "T_k d_v"],
) -> Float[Tensor, "T_q d_v"]:
    """Attention as its definition says it: a loop over the queries and one over the keys.

    For query i:   s_ij = q[i] . k[j]                the score of every key j (unscaled)
                   w_ij = softmax over j of s_ij     the weights of query i sum to 1
                   out[i] = sum over j of w_ij v[j]  a weighted average of the values

    q: (T_q, d_k), k: (T_k, d_k), v: (T_k, d_v), one sequence without leading dimensions;
    T_q and T_k are at least 1 and may differ, and so may d_k and d_v.
    Returns (T_q, d_v), in the dtype of the inputs. There is no division by sqrt(d_k).
    Large scores (1000) give no inf or nan, as your softmax is stable. Gradients flow to
    q, k and v, so build the result from tensors (no .item()).
    """
    ### BEGIN SOLUTION
    rows = []
    for query in q:
        scores = torch.stack([query @ key for key in k])  # (T_k,)
        weights = softmax(scores, dim=0)  # (T_k,)
        rows.append(sum(weight * value for weight, value in zip(weights, v)))  # (d_v,)
    return torch.stack(rows)
    ### END SOLUTION


# %% check="attention_loop"
check(attention_loop)

# %% [markdown] hints="attention_loop"
# 1. Each output row belongs to one query. Finish one query completely - scores, weights, average - before you turn to the next.
# 2. Inside the loop over queries collect `query @ key` for every key, put the numbers into one tensor with `torch.stack`, take `softmax` of it, and add up weight times value over the keys.
# 3. `for query in q:` then `scores = torch.stack([query @ key for key in k])`, `weights = softmax(scores, dim=0)`; append `sum(w * value for w, value in zip(weights, v))` to a list and stack the list at the end.

# %% [markdown] claims="000.2.2-k 000.2.6-ae 001.s4-e 002.s7-i 002.s7-j"
# ## Exercise: attention as two matrix products
#
# Both loops are matrix products in disguise. All scores: $s_{ij} = \sum_c q_{ic}\, k_{jc}$ is entry $(i, j)$ of
# $q\,k^\top$. All averages: $\mathrm{out}_{ic} = \sum_j w_{ij}\, v_{jc}$ is entry $(i, c)$ of $w\,v$. Between
# them stands the softmax, one row at a time:
#
# $$\mathrm{attention}(q, k, v) = \mathrm{softmax}(q\,k^\top)\, v$$
#
# In the scores the last two axes are (query position, key position). A query distributes one unit of attention
# over the keys, so the softmax runs along the **last** axis, `dim=-1`, and each row sums to 1. The other axis has
# the same length in self-attention, the result has the same shape, and it is wrong.
#
# A batch adds an axis in front, several heads add another: $(B, H, T, d_k)$. `@` multiplies the last two axes and
# repeats this for all leading ones, so one formula serves them all, as long as you count axes from the back.

# %% solve="attention" points=6 difficulty=2 importance=5 minutes=10
def attention(
    q: Float[Tensor, "... T_q d_k"],
    k: Float[Tensor, "... T_k d_k"],
    v: Float[Tensor, "... T_k d_v"],
) -> Float[Tensor, "... T_q d_v"]:
    """Unscaled dot-product attention, softmax(q k^T) v, for any leading dimensions.

    q: (..., T_q, d_k), k: (..., T_k, d_k), v: (..., T_k, d_v). The leading dimensions
    (none, a batch, batch and heads, ...) are the same for all three, and every index of
    them is a computation of its own. T_q may differ from T_k, and d_v from d_k.

    The scores have the shape (..., T_q, T_k). The softmax runs along the keys, the last
    axis, so that the weights of every query sum to 1.
    Returns the output only, (..., T_q, d_v), in the dtype of the inputs. There is no
    mask and no division by sqrt(d_k). Scores as large as 1000 give no inf or nan.
    """
    ### BEGIN SOLUTION
    scores = q @ k.transpose(-2, -1)  # (..., T_q, T_k)
    weights = softmax(scores, dim=-1)  # (..., T_q, T_k)
    return weights @ v  # (..., T_q, d_v)
    ### END SOLUTION


# %% check="attention"
check(attention)

# %% [markdown] hints="attention"
# 1. All scores at once are one matrix: row i belongs to query i, column j to key j. All weighted averages at once are one more matrix product.
# 2. To pair every query with every key, swap the last two axes of `k` before the product. Take the softmax along the axis that counts the keys, then multiply by `v`.
# 3. `scores = q @ k.transpose(-2, -1)`; the axis of the softmax is `-1`; `.T` would be wrong as soon as there are leading dimensions.

# %% [markdown]
# Now compare the sentence worked by hand with your functions, and the loops with the products. One trick is worth
# keeping: if the values are the rows of the identity matrix, the output *is* the weights.

# %% demo
import time

x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # dogs, chase, cats
Wq = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
Wk = torch.tensor([[0.0, 1.0], [1.0, 2.0]])
Wv = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
q, k, v = qkv_projection(x, Wq, Wk, Wv)
print("scores", q @ k.T, sep="\n")
print("weights", attention(q, k, torch.eye(3)).round(decimals=2), sep="\n")
print("outputs", attention(q, k, v).round(decimals=2), sep="\n")

generator = torch.Generator().manual_seed(0)
q, k, v = (torch.randn(60, 16, generator=generator) for _ in range(3))
seconds = {}
for name, function in (("loops", attention_loop), ("products", attention)):
    start = time.perf_counter()
    result = function(q, k, v)
    seconds[name] = time.perf_counter() - start
difference = (result - attention_loop(q, k, v)).abs().max()
ratio = seconds["loops"] / seconds["products"]
print(f"60 positions: largest difference {difference:.1e}, the loops took {ratio:.0f} times as long")

# %% [markdown]
# ## What follows from the formula
#
# Five facts about attention can be proved in a line each. They are worth knowing by heart, because each of them
# is a test.
#
# 1. **Equal values pass through.** If all $v_j = c$, then $\sum_j w_{ij} c = c$, because the weights sum to 1.
# 2. **Keys and values are a set.** Reorder the pairs $(k_j, v_j)$, and the sum over $j$ has the same terms: the
#    output does not change. Reorder the queries, and the outputs are reordered in the same way. Nothing in the
#    formula knows about positions (lesson 06).
# 3. **Outputs stay between the values.** The weights are never negative and sum to 1, so in every coordinate the
#    output lies between the smallest and the largest value. Attention selects and mixes; it cannot go beyond what
#    the values offer.
# 4. **A bias in the keys does nothing.** $q_i \cdot (k_j + b) = q_i \cdot k_j + q_i \cdot b$: the same number is
#    added to the whole row of scores, and softmax does not see it. (Namazifar et al. 2023 study all three
#    biases.)
# 5. **A bias in the values goes straight through**, by fact 1: $\sum_j w_{ij}(v_j + b) = \mathrm{out}_i + b$.

# %% demo
generator = torch.Generator().manual_seed(1)
q, k, v = (
    torch.randn(rows, width, generator=generator, dtype=torch.float64)
    for rows, width in ((5, 7), (11, 7), (11, 13))
)
output = attention(q, k, v)
order = torch.randperm(11, generator=generator)
key_bias = torch.randn(7, generator=generator, dtype=torch.float64)
value_bias = torch.randn(13, generator=generator, dtype=torch.float64)


def largest(difference):
    return f"{difference.abs().max():.1e}"


print("1. equal values come out unchanged, gap   ", largest(attention(q, k, torch.ones_like(v)) - 1))
print("2. keys and values reordered together, gap", largest(attention(q, k[order], v[order]) - output))
print("   keys reordered alone, gap              ", largest(attention(q, k[order], v) - output))
inside = (output >= v.min(dim=0).values) & (output <= v.max(dim=0).values)
print("3. all outputs between the values         ", bool(inside.all()))
print("4. a bias added to every key, gap         ", largest(attention(q, k + key_bias, v) - output))
shifted = attention(q, k, v + value_bias)
print("5. a bias added to every value, gap       ", largest(shifted - value_bias - output))

# %% [markdown] claims="000.2.2-h 002.s6-i"
# ## Exercise: cross-attention
#
# Nothing in `attention` asks where queries, keys and values come from. When all three are made from one sequence,
# it is called **self-attention**. When one sequence reads another, it is **cross-attention**:
#
# | | queries from | keys and values from | scores |
# | --- | --- | --- | --- |
# | self-attention | $x$ | $x$ | $(T, T)$ |
# | cross-attention | $x$: for instance the decoder's state | `memory`: for instance the encoder's output | $(T_q, T_k)$ |
#
# A translation model has two parts: an encoder reads the source sentence, a decoder writes the target sentence. The
# decoder has written $T_q$ words, and each of these positions looks through the $T_k$ positions of the source sentence. There is one output row for each *query*. The two
# sequences may have different lengths and even different widths, as $W_q$ is applied to one and $W_k$, $W_v$ to
# the other. A key and its value must come from the same position of the same sequence: the key is what makes the
# value findable.
#
# By hand: $x$ is the single row $(1, 0)$, the memory has the rows $(1, 0)$ and $(0, 1)$, all three matrices are
# the identity. Scores: $(1, 0)$. Weights: $(e, 1)/(e + 1) = (0.73, 0.27)$. Output:
# $0.73\,(1, 0) + 0.27\,(0, 1) = (0.73, 0.27)$, one row, although the memory has two.

# %% solve="cross_attention" points=4 difficulty=2 importance=4 minutes=5
def cross_attention(
    x: Float[Tensor, "... T_q d_model"],
    memory: Float[Tensor, "... T_k d_memory"],
    Wq: Float[Tensor, "d_model d_k"],
    Wk: Float[Tensor, "d_memory d_k"],
    Wv: Float[Tensor, "d_memory d_v"],
) -> Float[Tensor, "... T_q d_v"]:
    """Let one sequence read another: queries from x, keys and values from memory.

    The output is attention(x Wq, memory Wk, memory Wv), unscaled and without a mask:
    every position of x sees every position of memory, and no position of x sees another
    position of x.

    x: (..., T_q, d_model), memory: (..., T_k, d_memory), with the same leading dimensions
    (also none). T_q may differ from T_k, d_model from d_memory, and d_k from d_v.
    Wq: (d_model, d_k), Wk: (d_memory, d_k), Wv: (d_memory, d_v).
    Returns (..., T_q, d_v). With memory = x this is self-attention.
    """
    ### BEGIN SOLUTION
    return attention(x @ Wq, memory @ Wk, memory @ Wv)
    ### END SOLUTION


# %% check="cross_attention"
check(cross_attention)

# %% [markdown] hints="cross_attention"
# 1. Who asks, and who is read? The output has one row for each position that asks.
# 2. Only the queries are made from `x`. Keys and values belong together, row by row, so both are made from `memory`. The rest is the function that you already have.
# 3. `attention(x @ Wq, ...)` with two more arguments, each a product of `memory` and a matrix.

# %% [markdown] claims="002.s3-j"
# ## Exercise: how symmetric are the scores?
#
# One often reads that attention measures how *similar* two words are. Put both projections into the score of $i$
# for $j$:
#
# $$S_{ij} = (x_i W_q)(x_j W_k)^\top = x_i\, \underbrace{W_q W_k^\top}_{M}\, x_j^\top$$
#
# This is a **bilinear form** with the learned matrix $M$, of size $d_{model} \times d_{model}$ and rank at most
# $d_k$. Luong et al. (2015, section 3.1) called such a score "general", beside the plain dot product. A
# similarity would be symmetric, and nothing would be more similar to a word than itself. $S$ promises neither:
#
# - $S_{ij} = S_{ji}$ for all inputs only if $M = M^\top$. Training has no reason to make $M$ symmetric.
# - In *dogs chase cats*, $S_{12} = 2$ and $S_{21} = 0$; and *chase* scores *cats* no lower than itself.
#
# This matters for what attention can express. A pronoun has to find its noun, but the noun does not have to find
# its pronoun. And the words whose vectors are most similar to *it* are typically other pronouns, not the noun
# that *it* stands for. If a trained model looks from *it* to *ladder*, that is because $W_q$ and $W_k$ (and the
# layers below, which wrote context into $x$) were trained so that the score comes out high. The reverse
# conclusion does not hold either: a high weight alone does not prove that the model "understood" the reference
# (Jain and Wallace 2019, and the answer by Wiegreffe and Pinter 2019, discuss what weights can and cannot
# explain).
#
# To speak about it with numbers, measure how far $S$ is from its transpose:
#
# $$\mathrm{asymmetry} = \frac{\lVert S - S^\top \rVert_F}{\lVert S \rVert_F}, \qquad \lVert A \rVert_F = \sqrt{\sum_{ij} A_{ij}^2}.$$
#
# The scale: since $\lVert S - S^\top \rVert_F^2 = 2\lVert S \rVert_F^2 - 2\sum_{ij} S_{ij} S_{ji}$, it is 0 when
# $S_{ji} = S_{ij}$, $\sqrt 2 = 1.41$ when the two directions are uncorrelated, and 2 when $S_{ji} = -S_{ij}$. By
# hand for *dogs chase cats*: the differences off the diagonal are $2, 2, -2$ and their negatives, so
# $\lVert S - S^\top\rVert_F^2 = 6\cdot 4 = 24$; $\lVert S \rVert_F^2 = 1+4+9+0+1+1+1+9+16 = 42$; and
# $\sqrt{24/42} = 0.76$.

# %% solve="score_asymmetry" points=3 difficulty=2 importance=3 minutes=10
def score_asymmetry(
    x: Float[Tensor, "T d_model"],
    Wq: Float[Tensor, "d_model d_k"],
    Wk: Float[Tensor, "d_model d_k"],
) -> Float[Tensor, ""]:
    """Measure how far the self-attention scores of x are from a symmetric matrix.

    With the scores S = (x Wq)(x Wk)^T, of shape (T, T), before any softmax and unscaled,

        asymmetry = ||S - S^T||_F / ||S||_F,     ||A||_F = sqrt(sum of all A_ij squared).

    0 if "i scores j" always equals "j scores i"; sqrt(2) if the two directions are
    unrelated; 2, the largest value possible, if they are always opposite. It does not
    change when all scores are multiplied by the same number (other than 0).
    If S is zero everywhere, it is symmetric and the result is 0.0, not nan.

    x: (T, d_model), one sequence without leading dimensions; Wq, Wk: (d_model, d_k).
    Returns a tensor with no dimensions (shape ()), in the dtype of x.
    """
    ### BEGIN SOLUTION
    scores = (x @ Wq) @ (x @ Wk).T  # (T, T)
    size = scores.norm()
    gap = (scores - scores.T).norm()
    return gap / size if size > 0 else torch.zeros_like(size)
    ### END SOLUTION


# %% check="score_asymmetry"
check(score_asymmetry)

# %% [markdown] hints="score_asymmetry"
# 1. A matrix is symmetric when it equals its transpose. Compare the two, relative to the size of the matrix.
# 2. Make `S` from the queries and keys of the same `x`. The Frobenius norm of a matrix is the plain norm of all its entries: `S.norm()`. The quotient of two norms is 0/0 for `S = 0`: treat that case first.
# 3. `S = (x @ Wq) @ (x @ Wk).T`, then `(S - S.T).norm() / S.norm()`, and `torch.zeros_like(S.norm())` when the norm of `S` is 0.

# %% [markdown]
# ## Experiment 1: a real sentence
#
# We want to see weights on real words, without a trained model. Counting is enough. The reference manual that
# comes with every Python (`pydoc_data.topics`) is our text. For its 600 most frequent words (and punctuation
# marks), count how often word $b$ stands right after word $a$, and compare with what chance would give:
# $P_{ab} = \log\frac{\text{count} + 1}{\text{expected} + 1}$. The matrix $P$ is not symmetric: *of the* is
# common, *the of* is not. Its singular value decomposition $P = U \Sigma V^\top$, cut off after 64 terms, gives
# the two projections:
#
# $$W_q = U\sqrt{\Sigma}, \quad W_k = V\sqrt{\Sigma} \quad\text{so that}\quad W_q W_k^\top \approx P .$$
#
# A word enters as a one-hot row of $x$, and the score of word $a$ for word $b$ is about $P_{ab}$. Nothing is
# trained, and nobody chose what to see; but these are counts of neighbors, not a language model. (Levy and
# Goldberg 2014 show that word2vec factors a matrix of this kind, also into two different sets of vectors.)
#
# **Question: in "the function returns the value of the first argument", which word does each word look at?** We
# draw it twice: once with $W_k$ as above, and once with $W_q$ in both places. Predict both pictures:
#
# - (a) each word looks mostly at itself, since nothing matches a word better than itself;
# - (b) each word looks at the words that tend to follow it;
# - (c) the weights are almost even, because nothing was trained.

# %% demo
import re
from collections import Counter
from pydoc_data.topics import topics

words = re.findall(r"[a-z]+|[.;:]", " ".join(topics.values()).lower())
vocabulary = [word for word, _ in Counter(words).most_common(600)]
number = {word: n for n, word in enumerate(vocabulary)}

counts = torch.zeros(600, 600, dtype=torch.float64)
for (first, second), count in Counter(zip(words, words[1:])).items():
    if first in number and second in number:
        counts[number[first], number[second]] = count
expected = counts.sum(dim=1, keepdim=True) * counts.sum(dim=0) / counts.sum()
U, sigma, Vt = torch.linalg.svd(((counts + 1) / (expected + 1)).log())
W_first = U[:, :64] * sigma[:64].sqrt()  # (600, 64)
W_second = Vt[:64].T * sigma[:64].sqrt()  # (600, 64)
print(f"{len(words):,} words of text, {int(counts.sum()):,} pairs counted")

# %% demo
sentence = "the function returns the value of the first argument".split()
one_hot = torch.eye(600, dtype=torch.float64)[[number[word] for word in sentence]]  # (9, 600)
eye = torch.eye(len(sentence), dtype=torch.float64)

figure, axes = plt.subplots(1, 2, figsize=(11.5, 5.4), sharey=True, layout="constrained")
choices = (("queries and keys: two matrices", W_second), ("one matrix for both", W_first))
for ax, (name, Wk) in zip(axes, choices):
    q, k, _ = qkv_projection(one_hot, W_first, Wk, Wk)
    weights = attention(q, k, eye)  # values = identity: the output is the weights
    image = ax.imshow(weights, cmap="viridis", vmin=0, vmax=1)
    for i, j in (weights > 0.2).nonzero().tolist():
        ax.text(j, i, f"{weights[i, j]:.2f}", ha="center", va="center", fontsize=8,
                color="black" if weights[i, j] > 0.6 else "white")
    ax.set_title(f"{name}\nasymmetry {score_asymmetry(one_hot, W_first, Wk):.2f}", fontsize=11)
    ax.set_xticks(range(len(sentence)), sentence, rotation=60, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(sentence)), sentence)
    ax.set_xlabel("key: the word that is looked at (position in the sentence)")
axes[0].set_ylabel("query: the word that looks (position)")
figure.colorbar(image, ax=axes, label="weight (each row sums to 1)", shrink=0.8)
figure.suptitle("Which word does each word look at?", fontsize=13)
plt.show()

# %% [markdown] claims="002.s3-h"
# **What it shows.** Each row is one word's distribution over all nine words, itself included; bright cells are
# large weights. Prediction (b) describes the left picture: *function* looks at *returns*, *value* at *of*,
# *first* at *argument*, and *of* shares its attention among the three *the*. No word puts much weight on itself
# there. Prediction (a) describes the right picture: with one matrix the score is $q_i \cdot q_j$, a similarity,
# and the bright cells are those of a word with itself or its own repetitions. Prediction (c) fits only the dim
# rows: a word whose scores differ little spreads its attention. The structure came from the counts, and a trained
# model gets it from gradients instead.
#
# Look at the three rows *the*: they are equal, and so are the three columns. Only the last *the* stands before
# *first*, but all three look at *first* equally. Attention without position information cannot tell them apart
# (fact 2 above; lesson 06).

# %% [markdown]
# ## Experiment 2: where can an output be?
#
# Three keys point in three directions of the plane, and their three values are the corners of a triangle. We send
# 3000 random queries of different lengths and draw every output.
#
# **Question: where can the output of attention be?** Predict:
#
# - (a) anywhere in the plane, if the query is long enough;
# - (b) anywhere in the triangle, and long queries come close to its corners;
# - (c) only near the center, as averages do.

# %% demo
generator = torch.Generator().manual_seed(2)
angles = torch.tensor([90.0, 210.0, 330.0]).deg2rad()
keys = torch.stack([angles.cos(), angles.sin()], dim=1)  # (3, 2)
values = torch.tensor([[0.5, 2.0], [-1.5, -1.0], [2.5, -0.5]])  # (3, 2)
lengths = 10 ** torch.empty(3000).uniform_(-2, 1.5, generator=generator)  # 0.01 to 32
directions = torch.empty(3000).uniform_(0, 2 * torch.pi, generator=generator)
queries = lengths[:, None] * torch.stack([directions.cos(), directions.sin()], dim=1)
outputs = attention(queries, keys, values)  # (3000, 2)

figure, ax = plt.subplots(figsize=(6.8, 4.8), layout="constrained")
ax.fill(*values.T, facecolor="none", edgecolor="gray", linewidth=1)
dots = ax.scatter(*outputs.T, c=lengths.log10(), cmap="viridis", s=5)
ax.scatter(*values.T, marker="^", s=90, color="black", label="the three values", zorder=3)
bar = figure.colorbar(dots, label="length of the query", ticks=[-2, -1, 0, 1])
bar.ax.set_yticklabels(["0.01", "0.1", "1", "10"])
ax.set(xlabel="first coordinate", ylabel="second coordinate")
ax.set_title("Where can the output of attention be?")
ax.legend(loc="upper right")
plt.show()

# %% [markdown]
# **What it shows.** Prediction (b). Every output lies inside the triangle: a weighted average cannot leave the
# convex hull of the values, so (a) is impossible for any query. Dark points are short queries: their scores are
# all close to 0, the weights close to $1/3$, and the output is near the mean of the values; (c) describes only
# them. Bright points are long queries. Multiplying $q$ by a factor multiplies all its scores, softmax becomes
# almost one-hot, and the output sits on a corner, or on an edge when two keys tie. So the *direction* of a query
# decides whom it looks at, and its *length* decides how exclusively. The next lesson is about what happens when
# these lengths get out of hand.

# %% [markdown]
# ## Experiment 3: can one matrix do both jobs?
#
# Eight tokens stand in a circle. Each token must put its attention on its successor, and on nothing else. The
# input is eight random vectors of width 16; $W_q$ and $W_k$ (16 by 16) are trained with Adam to raise the weight
# on the successor. The loss is the average of $-\ln w_{i,\mathrm{next}(i)}$; even weights would give
# $\ln 8 = 2.08$. The second model has to use one matrix, $W_k = W_q$.
#
# **Question: can one matrix for queries and keys learn a one-way relation?** Predict:
#
# - (a) yes, equally well: 16 by 16 numbers are plenty for eight tokens;
# - (b) yes, but it takes longer;
# - (c) no, it gets stuck far above zero.

# %% demo
n = 8
successor = (torch.arange(n) + 1) % n
predecessor = (torch.arange(n) - 1) % n


def train(x, Wq, Wk, steps=100):
    """Train Wq and Wk (one matrix if they are the same tensor); return the losses and the final weights."""
    optimizer = torch.optim.Adam({Wq, Wk}, lr=0.02)
    losses = []
    for _ in range(steps):
        weights = attention(x @ Wq, x @ Wk, torch.eye(n))
        loss = -weights[range(n), successor].log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, weights.detach()

# %% demo
generator = torch.Generator().manual_seed(3)
x = torch.randn(n, 16, generator=generator)
first, second = (0.1 * torch.randn(16, 16, generator=generator) for _ in range(2))

figure, ax = plt.subplots(figsize=(6.8, 4.2), layout="constrained")
for name, style in (("two matrices", "-"), ("one matrix", "--")):
    Wq = first.clone().requires_grad_()
    Wk = second.clone().requires_grad_() if name == "two matrices" else Wq
    losses, weights = train(x, Wq, Wk)
    ax.plot(losses, style, label=name)
    print(f"{name}: loss {losses[-1]:.3f}, asymmetry {score_asymmetry(x, Wq, Wk).item():.2f}")
    for whom, where in (("itself", range(n)), ("the next", successor), ("the previous", predecessor)):
        print(f"    mean weight on {whom}: {weights[range(n), where].mean():.2f}")
ax.axhline(torch.tensor(3.0).log(), color="gray", linestyle=":", label="ln 3: one matrix cannot go below")
ax.set(xlabel="training step", ylabel="loss (nats)", ylim=(0, None))
ax.set_title("Can one matrix learn a one-way relation?")
ax.legend()
plt.show()

# %% [markdown]
# **What it shows.** Prediction (c). The solid curve of two matrices goes to zero, and the scores are far from
# symmetric afterwards. The dashed curve of one matrix stays high, and (b) would be wrong after a million steps as
# well. Here is the proof that it can never get below $\ln 3$. With one matrix, $S$ is symmetric, and
# $S_{ii} + S_{jj} - 2 S_{ij} = \lVert q_i - q_j \rVert^2 \ge 0$. Keep only three terms of the denominator (the
# token itself, its successor, its predecessor), and
#
# $$-\ln w_{i,i+1} \;\ge\; \ln\left(1 + e^{S_{ii} - S_{i,i+1}} + e^{S_{i,i-1} - S_{i,i+1}}\right).$$
#
# Averaged around the circle, the first exponent is at least 0 (by the inequality) and the second is exactly 0 (by
# symmetry: every neighboring pair is counted once each way). The right side is convex and rises with both
# exponents, so by Jensen's inequality the average loss is at least $\ln(1 + 1 + 1)$. The number of parameters in
# (a) does not help: the *form* is wrong. The printed weights tell what the model settles for: mostly itself, and
# both neighbors equally.
#
# This does not mean that no model can share the matrix. The Reformer (Kitaev et al. 2020, section 2) does; it
# keeps a token from looking at itself as long as there is anything else to see, and its mask and its positions
# tell before from after. It means that a plain similarity cannot say "you, but not the other way round".

# %% [markdown] claims="002.s3-g 001.s9-b"
# ## What goes wrong: the bug hunt
#
# This function was written after a well-known pattern, `softmax(scores)`. It passed a test on a single sentence,
# and the shapes are right everywhere. The demo uses fact 1: if all values are 1, every output must be 1.

# %% demo
import warnings

from torch.nn import functional as F


def buggy_attention(q, k, v):
    scores = q @ k.transpose(-2, -1)
    weights = F.softmax(scores)
    return weights @ v


generator = torch.Generator().manual_seed(4)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for leading in ((), (1,), (3,), (2, 3)):
        q = torch.randn(*leading, 5, 7, generator=generator)
        k = torch.randn(*leading, 11, 7, generator=generator)
        output = buggy_attention(q, k, torch.ones(*leading, 11, 2))
        low, high = output.min(), output.max()
        print(f"q of shape {tuple(q.shape)!s:13} outputs from {low:5.2f} to {high:5.2f}, should be 1")
print("PyTorch says:", caught[0].message)

# %% [markdown]
# Find the error and explain each of the four lines. Then mend the function in the cell below and let the check of
# `attention` judge it.

# %% demo
# Copy buggy_attention here, mend it, and take away the "#" in front of the last line.

# check(buggy_attention, "attention")

# %% [markdown]
# <details><summary>The answer</summary>
#
# `F.softmax(scores)` has no `dim`. PyTorch then guesses: dimension 0 for tensors with 0, 1 or 3 dimensions,
# dimension 1 for all others (`_get_softmax_dim` in `torch/nn/functional.py`), with a warning that is shown once
# and soon forgotten.
#
# | scores | guessed `dim` | what is normalized |
# | --- | --- | --- |
# | $(T_q, T_k)$ | 1 | the keys: right, by luck |
# | $(1, T_q, T_k)$ | 0 | a batch of one: every weight is 1, and the output is the *sum* of the values |
# | $(B, T_q, T_k)$ | 0 | the sentences of a batch compete with each other |
# | $(B, H, T_q, T_k)$ | 1 | the heads of a layer compete with each other |
#
# The example for one sentence works, the shapes are right in all four cases, and a model with this error even
# trains to some extent. What you compute for one sentence then depends on the other sentences in the batch. The
# line must read `weights = F.softmax(scores, dim=-1)`. `torch.softmax(scores)` and `scores.softmax()` refuse to
# guess and raise a `TypeError`, which is the better behavior.
#
# Two tests find it: row sums of the weights (or a constant $v$), and "another sentence in the batch must not
# change this one".
#
# </details>

# %% [markdown] claims="002.s2-b"
# ## Interview questions
#
# Answer aloud or in writing before you unfold.
#
# **1. "Attention scores measure how similar two tokens are." Do you agree?**
#
# <details><summary>A model answer</summary>
#
# Not in general. The score of $i$ for $j$ is $x_i W_q W_k^\top x_j^\top$, a bilinear form with a learned matrix.
# It is a similarity only if $W_q W_k^\top$ is symmetric and positive semidefinite, for instance with $W_q = W_k$.
# Otherwise the score of $i$ for $j$ and that of $j$ for $i$ are unrelated, a token need not score itself highest,
# and two equal vectors may score each other low. That is a strength: relations in language are mostly one-way,
# such as pronoun to noun. Softmax adds a second asymmetry: even for a symmetric $S$ the weights are not
# symmetric, because each row is normalized on its own.
#
# </details>
#
# **2. "The new representation of a word is the weighted average of all the other words." Correct this sentence.**
#
# <details><summary>A model answer</summary>
#
# Three corrections. It is an average of *values*, $x_j W_v$, linear projections, not of the words' own vectors.
# It runs over all *visible* positions, and the word itself is one of them: without a mask it is never left out,
# and with a causal mask a position still sees itself. And it is not the final representation: in a Transformer
# block the heads' outputs go through the output matrix $W_O$, are added to the word's own vector (the residual),
# and pass a feed-forward layer at each position; and then the next layer starts from there. "Weighted average"
# describes one step, the core of one head. What is right about the sentence: the weights are the softmax of the
# scores, they sum to 1, and they are computed anew for each input.
#
# </details>
#
# **3. In writing: the analogy.** This one is graded by a person.

# %% [markdown] essay="roles_are_an_analogy" points=3
# A colleague explains attention like this: "The query says what the token is looking for, the key says what the
# token is, the value says what it contains. So somewhere in the query there is a number for 'I need a noun', and
# we can read it off." Which part of this is right, which part is not, and why? Give one argument from the formula
# for the part that is wrong. (5 to 8 sentences.)
#
# ### BEGIN SOLUTION
# Right: the roles describe how the three vectors are used. The query of one position is compared with the keys of
# all positions; the weights that result decide how much of each value is collected. All three are linear
# projections of the same vector (in self-attention), so the token is not split into three parts. Wrong: that
# single coordinates have a meaning that can be read off. The queries and keys enter only through their dot
# products. For any invertible R, replacing Wq by Wq R and Wk by Wk R^(-T) changes every query and every key, but
# no score, no weight and no output; so a coordinate of q is not determined by what the model does. What is
# determined is the bilinear form Wq Wk^T (of rank at most d_k). Training shapes this form to lower the loss, and
# nothing assigns a role to a direction. Whether some direction goes together with "noun" is an empirical question
# (probing, interventions), to be tested and not assumed. In deeper layers x is already a mixture of the context,
# which makes the reading "what the token is" still looser.
#
# Points: 1 for the roles as a description of the computation; 1 for saying that no coordinate carries a readable
# label; 1 for an argument from the formula (the change of basis R, or that only Wq Wk^T matters).
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# | what | formula | shape |
# | --- | --- | --- |
# | queries, keys, values | $xW_q,\; xW_k,\; xW_v$ | $(\dots, T, d_k),\; (\dots, T, d_k),\; (\dots, T, d_v)$ |
# | scores | $q\,k^\top$ | $(\dots, T_q, T_k)$: row = query, column = key |
# | weights | softmax along the last axis | $(\dots, T_q, T_k)$, each row sums to 1 |
# | output | weights times $v$ | $(\dots, T_q, d_v)$: one row for each query |
# | cross-attention | $q$ from $x$; $k$, $v$ from memory | $(\dots, T_q, d_v)$ |
# | asymmetry | $\lVert S - S^\top\rVert_F / \lVert S\rVert_F$ | one number from 0 to 2 |
#
# - Softmax subtracts the maximum of each slice; always write its `dim`.
# - $d_k$ is shared by queries and keys; $d_v$ is free; $T_q$ and $T_k$ may differ; there is one value for each
#   key.
# - Equal values pass through; keys and values may be reordered together; outputs stay inside the hull of the
#   values.
# - A score is a learned bilinear form $x_i W_q W_k^\top x_j^\top$, not a similarity. The roles are an analogy.
# - Still missing: the scale $1/\sqrt{d_k}$ (03), many heads (04), masks (05), positions (06).
#
# `progress()` shows where you stand.
