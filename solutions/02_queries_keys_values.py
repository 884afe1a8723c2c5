# %% [markdown]
# # 02 Queries, keys, values
# %%
import torch
from jaxtyping import Float
from torch import Tensor

from grader import check, hint, progress, solution

# %% demo
import matplotlib.pyplot as plt

plt.style.use("tableau-colorblind10")

# %% [markdown]
# ## Three projections of one sequence
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
# ## Softmax
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

# %% [markdown]
# ## Attention as two loops
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
    Gradients flow to q, k and v, so build the result from tensors (no .item()).
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

# %% [markdown]
# ## Attention as two matrix products
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
# ## Cross-attention
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

# %% [markdown]
# ## How symmetric are the scores?
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
