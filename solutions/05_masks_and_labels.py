# %% [markdown] claims="001.s5-b 000.2.5-e 001.s9-e 000.2.5-i"
# # 05 Masks and labels
#
# A language model is trained on whole sentences, so the answer to every question stands in its own input, one
# place further on. One matrix of booleans keeps the model from reading it. If that matrix is wrong, nothing
# crashes: the loss gets *better*, and the model is worthless. Padding, packed documents and prompts bring
# three more masks, each with a job of its own. In this lesson you write all of them, and at the end the test
# that finds out whether any model looks ahead.
#
# ```mermaid
# flowchart LR
#     ids["ids (B, T+1)"] --> shift["shift_labels"]
#     shift --> inputs["inputs (B, T)"]
#     shift --> targets["targets (B, T)"]
#     inputs --> att["attention scores (B, H, T, T)"]
#     causal["causal mask: hides the future"] --> att
#     pad["padding mask: hides filler"] --> att
#     doc["document mask: hides other documents"] --> att
#     att --> logits["logits (B, T, V)"]
#     logits --> loss["cross-entropy: one number"]
#     targets --> loss
#     lm["loss mask: chooses the positions that count"] --> loss
# ```
#
# | mask | the question it answers | acts on | shape |
# | --- | --- | --- | --- |
# | causal | may query `i` see key `j`, or is `j` still to come? | scores, before the softmax | `(T_q, T_k)` |
# | padding | is key `j` a real token or filler? | scores, before the softmax | `(B, 1, 1, T)` |
# | document | do `i` and `j` belong to the same document? | scores, before the softmax | `(B, T, T)` |
# | loss | is the prediction at position `t` graded? | the loss, after the logits | `(B, T)` |
#
# The first three decide **who may read whom**. The fourth decides **whose answer is graded**. None of them
# can replace another.
#
# One convention for the whole course: a mask is boolean, and **True = this query may see this key**.
# %%
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from grader import check, hint, progress, solution

# %% demo
import matplotlib.pyplot as plt

plt.style.use("tableau-colorblind10")
torch.set_num_threads(1)  # the tensors below are tiny: a second thread costs more than it brings

# %% [markdown] claims="001.s4-g 000.2.2-m"
# ## One row by hand: mask first, softmax second
#
# Query 1 of a sequence with three tokens has the scores $(0, \ln 3, \ln 4)$ for the keys 0, 1, 2. Key 2 lies
# in the future. The exponentials of the scores are $1, 3, 4$.
#
# | | key 0 | key 1 | key 2 | sum |
# | --- | --- | --- | --- | --- |
# | no mask | 1/8 | 3/8 | 4/8 | 1 |
# | **mask, then softmax**: score 2 becomes $-\infty$, its exponential 0 | **1/4** | **3/4** | **0** | **1** |
# | softmax, then weights of the future set to 0 | 1/8 | 3/8 | 0 | 1/2 |
#
# The last line is wrong twice. Its weights sum to 1/2. And it still reads the future: if the score of key 2
# rises from $\ln 4$ to $\ln 12$, the other two weights fall from 1/8 and 3/8 to 1/16 and 3/16, because key 2
# stands in the denominator. So the mask acts on the scores, before the softmax that runs along the last axis,
# the keys.
#
# Papers write this as a sum, $\mathrm{softmax}(QK^\top/\sqrt{d_k} + M)\,V$. $M$ holds 0 where the key is
# visible and $-\infty$ where it is hidden, and it does not matter *why* the key is hidden. A causal mask and
# a padding mask both fit into $M$:
#
# $$M_\text{causal} = \begin{pmatrix} 0 & -\infty & -\infty \\ 0 & 0 & -\infty \\ 0 & 0 & 0\end{pmatrix} \qquad
# M_\text{pad} = \begin{pmatrix} 0 & 0 & -\infty \\ 0 & 0 & -\infty \\ 0 & 0 & -\infty\end{pmatrix} \text{ (key 2 is filler)}$$
#
# We keep the booleans as long as possible. They combine with `&`, they cannot overflow, and they say what
# they mean.

# %% [markdown] claims="000.2.5-a 000.2.5-b 000.2.6-ad 001.s5-a 002.s7-r 002.s6-d"
# ## The causal mask
#
# To predict the token *after* position $t$, the model may read positions $0, \dots, t$. Position $t$ itself
# is included: it is known, it is the last word read so far. "Each position sees only what is to its left" is
# therefore one position short. For $T = 4$, with 1 for True:
#
# ```
#           key 0  key 1  key 2  key 3
# query 0     1      0      0      0
# query 1     1      1      0      0
# query 2     1      1      1      0
# query 3     1      1      1      1
# ```
#
# The visible part is the lower triangle *with* the diagonal. The hidden part is the **strict** upper
# triangle, which PyTorch calls `triu(1)`; the scores there become $-\infty$ and the weights exactly 0.
#
# The mask need not be square. When a model generates with a cache (lesson 08), it asks with few queries about
# many keys. The two sequences then *end* together: the last query is the newest token, and it sees every key.
# Two queries, five keys:
#
# ```
#           key 0  key 1  key 2  key 3  key 4
# query 0     1      1      1      1      0         query 0 stands at position 3 = 0 + (5 - 2)
# query 1     1      1      1      1      1         query 1 stands at position 4
# ```
#
# The triangle is aligned to the **bottom right** corner. Aligned to the top left, the newest token would see
# two keys out of five.
# %% solve="causal_mask" points=2 difficulty=2 importance=5 minutes=10
def causal_mask(T_q: int, T_k: int | None = None) -> Bool[Tensor, "T_q T_k"]:
    """Say for each query which keys it may see so that it never looks ahead.

    mask[i, j] is True exactly when j <= i + (T_k - T_q): queries and keys end at the same
    position, so the last query (i = T_q - 1) sees every key. With T_q = T_k this is the
    lower triangle with the diagonal. A single query (T_q = 1) sees all keys.

    T_q: number of queries, at least 1.
    T_k: number of keys, at least 1; None means T_k = T_q. If T_k < T_q, the same formula
         holds: the first T_q - T_k queries see nothing (their rows are all False).
    Returns a torch.bool tensor of shape (T_q, T_k), True = may see.
    """
    ### BEGIN SOLUTION
    T_k = T_q if T_k is None else T_k
    return torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)
    ### END SOLUTION


# %% check="causal_mask"
check(causal_mask)

# %% [markdown] hints="causal_mask"
# 1. Which positions may this row see? Give each query its position in the sequence of the keys first: the last query stands at the last key.
# 2. A triangle of booleans: either compare a row of key numbers with a column of query positions, or start from all True and keep a lower triangle. The triangle must move to the right by the number of keys that come before the first query.
# 3. `torch.ones(T_q, T_k, dtype=torch.bool).tril(diagonal)` keeps the entries with `j - i <= diagonal`; find the `diagonal` for which the last row is complete.

# %% [markdown] claims="000.2.5-e"
# ## The padding mask
#
# A batch is a rectangle, sentences are not. Short ones are filled up with a pad token, here the id 0:
#
# ```
# ids = [[7, 4, 9, 2],        padding_mask = [[True, True, True,  True ],
#        [5, 8, 0, 0]]                        [True, True, False, False]]
# ```
#
# The filler has an embedding, keys and values like any other token. If queries may see it, the result for a
# sentence depends on how long its neighbor in the batch is. The padding mask hides filler **as key**. It is
# the same for all heads and all queries, so it has the shape `(B, 1, 1, T)`: the two ones stretch over the
# heads and the queries when it meets scores of shape `(B, H, T, T)`.
#
# It is not a causal mask. It depends on the data, the causal mask does not; it knows no direction, so an
# encoder needs it as well.
# %% solve="padding_mask" points=2 difficulty=1 importance=4 minutes=5
def padding_mask(ids: Int[Tensor, "B T"], pad_id: int = 0) -> Bool[Tensor, "B 1 1 T"]:
    """Say which keys are real tokens and which are filler.

    mask[b, 0, 0, j] is True exactly when ids[b, j] != pad_id. Every occurrence of pad_id is
    filler, at the end, at the start or in the middle of a row.

    ids:    (B, T) integer token ids, not modified.
    pad_id: any integer, also negative.
    Returns a torch.bool tensor of shape (B, 1, 1, T) on the device of ids, True = may see;
    it broadcasts over heads and queries against scores (B, H, T_q, T).
    """
    ### BEGIN SOLUTION
    return (ids != pad_id)[:, None, None, :]  # (B, 1, 1, T)
    ### END SOLUTION


# %% check="padding_mask"
check(padding_mask)

# %% [markdown] hints="padding_mask"
# 1. Ask of each id only whether it is the pad id. Nothing else in the row matters, and no direction is involved.
# 2. A comparison with `pad_id` gives a boolean tensor `(B, T)`. Then insert two axes of length 1 between the batch and the keys.
# 3. `(ids != pad_id)` followed by an index such as `[:, None, None, :]`.

# %% [markdown] claims="000.2.5-f 000.2.5-g 001.s8-b"
# ## The document mask
#
# Padding wastes computation. Pretraining therefore *packs* several documents into one row, end to end, and
# notes for every position which document it belongs to:
#
# ```
# tokens       the  cat  sat  </s>  rain  fell  </s>
# segment_ids   1    1    1    1     2     2     2
# ```
#
# Now somebody has to decide whether the border stops attention. With the causal mask alone, "rain" reads "the
# cat sat": a later document reads an earlier one that has nothing to do with it. To block it, a query sees a
# key if both have the same segment id **and** the key is not in the future:
#
# ```
#             the  cat  sat  </s>  rain  fell  </s>
# the          1    0    0    0     0     0     0
# cat          1    1    0    0     0     0     0
# sat          1    1    1    0     0     0     0
# </s>         1    1    1    1     0     0     0
# rain         0    0    0    0     1     0     0
# fell         0    0    0    0     1     1     0
# </s>         0    0    0    0     1     1     1
# ```
#
# The end token belongs to the document that it ends. The result is block diagonal, and inside each block it
# is a causal mask.
#
# One trap is the shape. `document_mask` gives `(B, T, T)`, the scores are `(B, H, T, T)`. Broadcasting lines
# shapes up from the *right*, so it puts the batch of the mask on the heads of the scores. With `B != H` that
# raises an error. With `B == H` it runs, and head `h` gets the mask of sentence `h`. Write
# `document_mask(...)[:, None]`, shape `(B, 1, T, T)`.
# %% solve="document_mask" points=3 difficulty=2 importance=3 minutes=10
def document_mask(segment_ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T T"]:
    """Keep packed documents apart: same document, and not in the future.

    mask[b, i, j] is True exactly when segment_ids[b, i] == segment_ids[b, j] and j <= i.

    segment_ids: (B, T) integers, not modified. Only equality counts: the ids need not start
        at 0 or 1, need not grow along the row, and may be negative. Equal ids belong to one
        document even if another document stands between them. Rows of the batch are
        unrelated, also where they use the same ids.
    Returns a torch.bool tensor of shape (B, T, T) on the device of segment_ids, True = may
    see. Every position sees itself, so no row is empty.
    """
    ### BEGIN SOLUTION
    T = segment_ids.shape[-1]
    same_document = segment_ids[:, :, None] == segment_ids[:, None, :]  # (B, T, T)
    return same_document & causal_mask(T).to(segment_ids.device)
    ### END SOLUTION


# %% check="document_mask"
check(document_mask)

# %% [markdown] hints="document_mask"
# 1. Two conditions must hold at once. One compares two positions' documents, the other two positions' order.
# 2. Compare every position with every other by giving `segment_ids` an extra axis at two different places; combine the result with a causal mask by `&`.
# 3. `segment_ids[:, :, None] == segment_ids[:, None, :]` has the shape `(B, T, T)`; `& causal_mask(T)` adds the order (and broadcasts over the batch).

# %% [markdown]
# ## Causal and padding together
#
# A decoder on a padded batch needs both: `j` not in the future **and** `j` not filler. "And" means `&`: a key
# is visible if *no* mask objects. Worked for one row of ids `[0, 0, 6, 3]`, padded at the start:
#
# ```
#  causal        padding (every row the same)     combined
#  1 0 0 0          0 0 1 1                        0 0 0 0     query 0: a pad, sees nothing at all
#  1 1 0 0    &     0 0 1 1           =            0 0 0 0     query 1: a pad, sees nothing at all
#  1 1 1 0          0 0 1 1                        0 0 1 0     query 2
#  1 1 1 1          0 0 1 1                        0 0 1 1     query 3
# ```
#
# Two rows are empty. That is correct: there is nothing these queries could read. What attention should *do*
# with an empty row is the subject of `safe_attention` below. With padding at the end, `[6, 3, 0, 0]`, no row
# is empty: the queries at the pads see the real tokens before them. Nobody uses their outputs, so this does
# no harm, and the loss mask takes them out of the loss.
# %% solve="combined_mask" points=3 difficulty=2 importance=5 minutes=5
def combined_mask(ids: Int[Tensor, "B T"], pad_id: int = 0) -> Bool[Tensor, "B 1 T T"]:
    """Causal and padding mask in one: what a decoder needs for a padded batch.

    mask[b, 0, i, j] is True exactly when j <= i and ids[b, j] != pad_id.

    A pad as *key* is hidden from every query, also from itself. A pad as *query* gets no
    special treatment: its row shows the real tokens up to it. So with padding at the start
    of a row (or a row of pads only) some rows are all False; they stay so.

    ids:    (B, T) integer token ids, not modified. pad_id: any integer.
    Returns a torch.bool tensor of shape (B, 1, T, T) on the device of ids, True = may see.
    """
    ### BEGIN SOLUTION
    T = ids.shape[-1]
    return padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)  # (B, 1, 1, T) & (T, T)
    ### END SOLUTION


# %% check="combined_mask"
check(combined_mask)

# %% [markdown] hints="combined_mask"
# 1. A key is visible only if neither mask objects. You have written both masks already.
# 2. `(B, 1, 1, T)` and `(T, T)` broadcast to `(B, 1, T, T)`. The operation between two booleans that must both hold is `&`.
# 3. `padding_mask(ids, pad_id) & causal_mask(ids.shape[1])`; do not forget to hand on `pad_id`.

# %% [markdown]
# ## Experiment: the four masks side by side
#
# The next cell draws your four masks for rows of eight tokens. The padded row starts with two pads, the
# packed row holds three documents. A query with an empty row has nothing to average. Before you run it:
# **which of the four masks leaves some query with nothing to see?**
#
# - (a) None. Every position sees at least itself.
# - (b) The padding mask, in the rows of the pads.
# - (c) Only the combined mask.
# %% demo
ids = torch.tensor([[0, 0, 6, 3, 8, 2, 9, 4]])
segments = torch.tensor([[1, 1, 1, 2, 2, 3, 3, 3]])
four_masks = {
    "causal": causal_mask(8),
    "padding\n(keys 0 and 1 are pads)": padding_mask(ids)[0, 0].expand(8, 8),
    "document\n(lengths 3, 2, 3)": document_mask(segments)[0],
    "causal & padding": combined_mask(ids)[0, 0],
}
fig, axes = plt.subplots(1, 4, figsize=(12, 3.9), layout="constrained")
for ax, (name, mask) in zip(axes, four_masks.items()):
    ax.imshow(mask.float(), cmap="cividis", vmin=0, vmax=1)
    for row in (~mask.any(dim=-1)).nonzero().flatten().tolist():
        ax.text(3.5, row, "nothing visible", color="white", ha="center", va="center", fontsize=9)
    ax.set(title=name, xlabel="key (position)", xticks=range(8), yticks=range(8))
    ax.set_xticks([i - 0.5 for i in range(9)], minor=True)
    ax.set_yticks([i - 0.5 for i in range(9)], minor=True)
    ax.grid(which="minor", color="gray", linewidth=0.5)
    ax.tick_params(which="minor", length=0)
axes[0].set_ylabel("query (position)")
fig.suptitle("Which mask leaves a query with nothing to see?   (yellow: visible, blue: hidden)")
plt.show()

# %% [markdown]
# The plot shows one square for each pair of query (row) and key (column). Only the last panel has empty rows,
# so **(c)** is right for these data.
#
# - (a) holds for the causal and the document mask, whose diagonals are complete. It fails as soon as a
#   position may not see *itself*: a pad is hidden as a key.
# - (b) fails because a padding mask hides columns, not rows. The pad's row still shows all real tokens. (A
#   sentence of pads only would empty every row.)
# - (c) The two conditions are harmless alone and empty a row together: the pads are first in line, so nothing
#   real lies behind them.

# %% [markdown] claims="001.s5-d 001.s5-e 001.s5-f 002.s7-h"
# ## Attention that survives an empty row
#
# Take a row whose keys are all hidden, with $-\infty$ in each place. The softmax first subtracts the largest
# score: $-\infty - (-\infty)$ is not a number. The row becomes NaN, and one NaN in a batch reaches every
# weight of the model at the next update.
#
# The usual cure is a large finite number, `masked_fill(mask == 0, -1e9)`. By hand, for four hidden keys: all
# scores are equal to $-10^9$, all exponentials after the subtraction are $e^0 = 1$, all weights are $1/4$. No
# NaN, and the query now averages four values that it was forbidden to see. The symptom has gone, the leak is
# new. In half precision $-10^9$ does not even exist: the largest float16 is 65504.
#
# So we define what we want:
#
# > **A query that sees nothing gets zeros: its weights are 0, its output is 0, and it sends a gradient of 0 to everybody.**
#
# Empty rows occur in practice: padding at the start, a sentence without tokens, a document mask combined with
# padding. Some libraries repair such rows and some do not, as the experiment after the exercise shows. Decide
# yourself, in one place.
# %% solve="safe_attention" points=6 difficulty=3 importance=5 minutes=20
def safe_attention(
    q: Float[Tensor, "*batch T_q d_k"],
    k: Float[Tensor, "*batch T_k d_k"],
    v: Float[Tensor, "*batch T_k d_v"],
    mask: Bool[Tensor, "*#batch #T_q #T_k"],
) -> Float[Tensor, "*batch T_q d_v"]:
    """Scaled dot-product attention in which a query that sees nothing gets zeros.

    scores = q k^T / sqrt(d_k); a hidden key (mask False) gets a weight of exactly 0; the
    softmax runs over the visible keys of each query; out = weights v.

    q: (..., T_q, d_k), k: (..., T_k, d_k), v: (..., T_k, d_v), with the same leading
    dimensions (also none) and finite entries. T_q may differ from T_k, and d_v from d_k.
    mask: torch.bool, broadcastable to (..., T_q, T_k), True = may see; (T_q, T_k),
    (B, 1, 1, T_k) and (B, 1, T_q, T_k) are typical. It can be any pattern, not only causal.

    - A row of the mask without any True gives an output row of exact zeros.
    - The gradients of q, k and v are finite for every mask. An empty row contributes 0 to
      them, and a hidden key and its value get 0 from that query.
    - It does not matter how large or small the scores are: hidden scores of 1e6 get no
      weight, and a row whose visible scores are all near -1e6 still has weights that sum to 1.
    - float16 works as long as the products q . k fit into it: no number that float16 cannot
      hold (such as -1e9) is needed.

    Returns (..., T_q, d_v) in the dtype of the inputs, which are not modified. torch.softmax
    is fine. Do not rely on F.scaled_dot_product_attention: what it gives for an empty row is
    up to its version and backend.
    """
    ### BEGIN SOLUTION
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., T_q, T_k)
    sees_something = mask.any(dim=-1, keepdim=True)  # (..., T_q, 1)
    hidden = ~mask & sees_something  # an empty row keeps its finite scores for now
    weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
    weights = weights.masked_fill(~sees_something, 0.0)  # and here it becomes zeros
    return weights @ v  # (..., T_q, d_v)
    ### END SOLUTION


# %% check="safe_attention"
check(safe_attention)

# %% [markdown] hints="safe_attention"
# 1. Only rows without any True are special. Find them first, keep every infinity out of them, and set what comes out of them to zero. All other rows are an ordinary masked softmax.
# 2. `mask.any(dim=-1, keepdim=True)` says which rows see something. Fill `-inf` only at hidden places *of such rows*, take the softmax, then overwrite the weights of the other rows with 0 by `masked_fill`: it passes no gradient to what it overwrites.
# 3. With `sees = mask.any(dim=-1, keepdim=True)`: `scores.masked_fill(~mask & sees, -math.inf).softmax(dim=-1)`, then `.masked_fill(~sees, 0.0)`, then `@ v`.

# %% [markdown] claims="002.s7-h 001.s5-d"
# ## Experiment: three fills on an empty row, in two precisions
#
# All four keys are hidden. We fill their scores with `-1e9`, with the smallest finite number of the dtype
# (`torch.finfo(dtype).min`) and with `-inf`, and compare with your `safe_attention`. The values are an
# identity matrix, so that the output *is* the row of weights. What will the weights be?
#
# - (a) Zero for every fill. All keys are hidden, after all.
# - (b) Finite fills give 1/4 to each forbidden key, `-inf` gives NaN.
# - (c) As (b) in float32, but in float16 one of the fills does not run.
# %% demo
def row_of_weights(fill, dtype):
    """The weights of one query whose four keys are all hidden; None if the fill raises."""
    q, k = torch.ones(1, 3, dtype=dtype), torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    mask = torch.zeros(1, 4, dtype=torch.bool)
    if fill == "safe_attention":
        return safe_attention(q, k, torch.eye(4, dtype=dtype), mask)[0]
    value = torch.finfo(dtype).min if fill == "finfo.min" else float(fill)
    try:
        return (q @ k.T).masked_fill(~mask, value).softmax(dim=-1)[0]
    except RuntimeError as error:
        print(f"{dtype}, {fill}: {error}")

# %% demo
fills = ["-1e9", "finfo.min", "-inf", "safe_attention"]
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for ax, dtype in zip(axes, (torch.float32, torch.float16)):
    rows = [row_of_weights(fill, dtype) for fill in fills]
    numbers = torch.stack([torch.full((4,), math.nan) if row is None else row.float() for row in rows])
    ax.imshow(numbers, cmap=plt.get_cmap("cividis").with_extremes(bad="lightgray"), vmin=0, vmax=0.5, aspect="auto")
    for i, row in enumerate(rows):
        for j in range(4):
            text, color = ("raises", "black") if row is None else (f"{row[j].item():.2g}", "black" if row[j].isnan() else "white")
            ax.text(j, i, text, ha="center", va="center", color=color)
    ax.set(title=str(dtype), xlabel="key (position), all hidden", xticks=range(4), yticks=range(4), yticklabels=fills)
axes[0].set_ylabel("what fills the hidden scores")
fig.suptitle("What weights does a query get that may see nothing?")
plt.show()

# %% [markdown] claims="002.s7-h 001.s5-d"
# Each line of squares is one row of weights: the number is the weight, and light gray marks what is no
# number.
#
# - (a) Only `safe_attention` gives zeros. A finite fill makes the scores *equal*, not the weights zero.
# - (b) is what happens in float32. The uniform row looks healthy. It is the more dangerous of the two, since
#   NaN at least is noticed.
# - (c) is right about float16: `-1e9` cannot be written into a float16 tensor, and PyTorch raises the error
#   printed above the plot. Early code used `-10000` instead (the first release of BERT did). It fits into
#   float16, and it is no longer small enough: filled in next to a visible score of $-10000$, a hidden key
#   gets the same weight as the visible one.
#
# The rule to remember: `-inf` at hidden places of rows that see something, zeros for rows that see nothing,
# and no constant to tune.

# %% [markdown] claims="001.s5-e"
# ### Does the library repair the row?
#
# The next cell gives PyTorch three queries of which the first sees nothing. It prints the first output row of
# `F.scaled_dot_product_attention` and of `nn.MultiheadAttention`, the latter with and without its option to
# return weights. (The second of these takes masks the other way round: that is the next exercise, here
# `~mask` does it.)
# %% demo
torch.manual_seed(0)
x = torch.randn(1, 3, 4)
mask = torch.ones(3, 3, dtype=torch.bool).tril(-1)  # strictly lower: query 0 sees nothing
module = nn.MultiheadAttention(4, 1, bias=False, batch_first=True)
with torch.no_grad():
    rows = {
        "F.scaled_dot_product_attention": F.scaled_dot_product_attention(x, x, x, attn_mask=mask)[0, 0],
        "nn.MultiheadAttention, need_weights=True": module(x, x, x, attn_mask=~mask)[0][0, 0],
        "nn.MultiheadAttention, need_weights=False": module(x, x, x, attn_mask=~mask, need_weights=False)[0][0, 0],
        "safe_attention": safe_attention(x, x, x, mask)[0, 0],
    }
print("output of a query that sees nothing, torch", torch.__version__)
for name, row in rows.items():
    print(f"{name:<45}{row.tolist()}")

# %% [markdown] claims="001.s5-e 001.s5-f"
# The answer depends on the function, on an option that seems to concern only the *reporting* of weights, and
# on the version that is printed above. Do not build on any of them. A model needs a defined answer for each
# of these cases:
#
# | case | what the masks say | what this course does |
# | --- | --- | --- |
# | pads at the end | pad queries see real keys | outputs exist, the loss ignores them |
# | pads at the start | first rows are empty | zeros |
# | a sentence of pads only | every row is empty | zeros, and no position counts in the loss |
# | no position of the batch counts | - | loss 0.0 with finite gradients (`masked_cross_entropy` below) |

# %% [markdown] claims="000.2.5-g"
# ### Packed equals separate
#
# The document mask has an exact meaning: a packed row must give what its documents give one by one. The cell
# below packs two documents into one row and compares. It prints the largest difference for the document mask
# and for the causal mask alone.
# %% demo
generator = torch.Generator().manual_seed(0)
first, second = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (4, 3))

def attend(x, mask):  # self-attention with x as its own queries, keys and values
    return safe_attention(x, x, x, mask)

separate = torch.cat([attend(first, causal_mask(4)), attend(second, causal_mask(3))])
packed = torch.cat([first, second])
for name, mask in {
    "document mask": document_mask(torch.tensor([[1, 1, 1, 1, 2, 2, 2]]))[0],
    "causal mask only": causal_mask(7),
}.items():
    gap = (attend(packed, mask) - separate).abs().amax(dim=-1)
    print(f"{name:<17} first document moved by {gap[:4].max().item():.1e}, second by {gap[4:].max().item():.1e}")

# %% [markdown]
# With the document mask, packing changes nothing beyond rounding. With the causal mask alone the first
# document is still right, the second is not: it has read the first. Nothing in the shapes or in the loss
# would tell you.

# %% [markdown] claims="001.s7-a 002.s6-a 002.s6-d 000.2.8-a 000.2.8-b 000.2.8-c 000.2.8-d 000.2.8-e 000.2.8-f"
# ## The mask makes the architecture
#
# The three classical architectures use the same attention. What differs is who may see whom.
#
# | architecture | mask of self-attention | cross-attention | typical training and use |
# | --- | --- | --- | --- |
# | encoder-only: BERT, ViT | all positions see all positions, in both directions; padding stays hidden | none | masked language modeling (BERT); classification, embeddings for retrieval, reranking |
# | decoder-only: GPT, LLaMA | causal: a position sees itself and what is before it; padding hidden | none | next-token prediction (causal language modeling); continuation, dialogue, code |
# | encoder-decoder: Vaswani et al. 2017, T5 | encoder: both directions; decoder: causal | each target position sees every real source position | translation; T5's denoising, which writes out removed spans |
#
# The mask of the cross-attention is the padding mask of the **source**, `(B, 1, 1, T_source)`. It is not
# causal: the source is complete before the first target token is written. The cell below changes one token
# and prints which outputs move.
# %% demo
generator = torch.Generator().manual_seed(1)
source, target = (torch.randn(T, 6, generator=generator) for T in (4, 5))

def moved(queries, memory, mask, position):
    """Which outputs change when the token of `memory` at this position is replaced?"""
    other = memory.clone()
    other[position] += 1.0
    asks = other if queries is memory else queries
    change = safe_attention(asks, other, other, mask) - safe_attention(queries, memory, memory, mask)
    return change.abs().amax(dim=-1) > 1e-6

print("encoder, last token changed:       outputs that move", moved(target, target, torch.ones(5, 5, dtype=torch.bool), 4).tolist())
print("decoder, last token changed:       outputs that move", moved(target, target, causal_mask(5), 4).tolist())
print("decoder, first token changed:      outputs that move", moved(target, target, causal_mask(5), 0).tolist())
print("cross-attention, last source token:", moved(target, source, torch.ones(1, 4, dtype=torch.bool), 3).tolist())

# %% [markdown] claims="000.2.8-g 000.2.8-h 000.2.8-i"
# Changing a mask changes the architecture, and neither fixes the training objective. UniLM (Dong et al. 2019)
# trains *one* network with bidirectional, causal and source-then-target masks in turn. A prefix language
# model (Raffel et al. 2020, section 3.2) lets the prompt see itself in both directions and keeps the answer
# causal. LLM2Vec (BehnamGhader et al. 2024) opens the mask of trained decoders and, after a little further
# training, gets text encoders.
#
# Decoders have a loss at every position; BERT's objective selects only about 15% of them (Devlin et al.
# 2019). It is tempting to conclude that decoders must be better at everything. That argument alone proves
# nothing. Wang et al. 2022 trained both kinds at comparable budgets: causal decoders with the next-token
# objective were best without further training, and models with bidirectional visibility of the input and a
# masked objective were best after multitask fine-tuning. The wide use of decoders for generation has several
# causes at once: the objective, the data, the training after pretraining, and the engineering (one stack for
# prompt and answer, and a cache that stays valid, lesson 08).

# %% [markdown] claims="001.s5-c 002.s7-g"
# ## Two libraries, two meanings of True
#
# | where | True, 1 or 0 means |
# | --- | --- |
# | this course, `F.scaled_dot_product_attention(attn_mask=...)` | `True` = **may see** |
# | `nn.MultiheadAttention(attn_mask=..., key_padding_mask=...)` | `True` = **hidden** |
# | `scores.masked_fill(mask == 0, -1e9)`, common in tutorials | 0 = hidden, anything else = may see |
# | additive masks (`float`) | 0 = may see, `-inf` = hidden |
#
# Both boolean forms are called "mask" in one and the same library. Hand one to the other and a causal model
# sees exactly the future. Do not trust memory here: read the documentation of the function, then **test it
# with a small matrix**, as the cell after the next exercise does.
#
# The conversion is one operation, and it is its own inverse. It still deserves a name:
# `to_torch_mha_mask(mask)` at a call says what is going on, a lone `~` does not. Convert at the border of
# your code, once, and keep one meaning inside.
# %% solve="to_torch_mha_mask" points=1 difficulty=1 importance=4 minutes=2
def to_torch_mha_mask(mask: Bool[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Convert a mask of this course to the meaning that nn.MultiheadAttention gives it.

    mask:   torch.bool, any shape, True = this query may see this key.
    Returns a new torch.bool tensor of the same shape and device, True = hidden.
    Every entry is converted by itself: queries stay rows, keys stay columns, and rows in
    which nothing (or everything) is visible get no special treatment. mask is not modified.
    """
    ### BEGIN SOLUTION
    return ~mask
    ### END SOLUTION


# %% check="to_torch_mha_mask"
check(to_torch_mha_mask)

# %% [markdown] hints="to_torch_mha_mask"
# 1. "May see" and "is hidden" are opposites. Nothing moves; each entry changes its meaning.
# 2. Logical not, entry by entry, into a new tensor. Stay with booleans: a float tensor would be *added* to the scores.
# 3. The operator is `~`; methods whose name ends in an underscore would overwrite the caller's mask.

# %% [markdown]
# The way back is needed when you read somebody's code that was written for `nn.MultiheadAttention` and want to
# combine its mask with one of yours: turn it round first, then use `&`. (Two masks in which `True` means
# hidden are combined with `|` instead. Mixing the two conventions in one expression is how inverted masks are
# born.)
# %% solve="from_torch_mha_mask" points=1 difficulty=1 importance=3 minutes=2
def from_torch_mha_mask(mask: Bool[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Convert a mask of nn.MultiheadAttention to the meaning of this course.

    mask:   torch.bool, any shape, True = hidden from this query.
    Returns a new torch.bool tensor of the same shape and device, True = may see, so that
    from_torch_mha_mask(to_torch_mha_mask(m)) equals m for every mask m, and the other way
    round. mask is not modified.
    """
    ### BEGIN SOLUTION
    return ~mask
    ### END SOLUTION


# %% check="from_torch_mha_mask"
check(from_torch_mha_mask)

# %% [markdown] hints="from_torch_mha_mask"
# 1. You come back by the road on which you went.
# 2. The opposite of the opposite is the original. The same operation serves both directions.
# 3. Again `~`, and again into a new boolean tensor.

# %% [markdown]
# Now the small matrix. Both functions get the mask in which query 0 sees key 0 and query 1 sees both. To read off the
# weights, `nn.MultiheadAttention` reports them, and `F.scaled_dot_product_attention` gets the identity as
# values.
# %% demo
torch.manual_seed(0)
x, mask = torch.randn(1, 2, 4), causal_mask(2)
module = nn.MultiheadAttention(4, 1, bias=False, batch_first=True)
with torch.no_grad():
    sdpa = F.scaled_dot_product_attention(x, x, torch.eye(2)[None], attn_mask=mask)[0]
    _, inverted = module(x, x, x, attn_mask=mask)
    _, converted = module(x, x, x, attn_mask=to_torch_mha_mask(mask))
print("mask (course):                           ", mask.int().tolist())
print("sdpa sees:                               ", (sdpa > 0).int().tolist())
print("nn.MultiheadAttention, mask as it is:    ", (inverted[0] > 0).int().tolist(), " row sums", inverted[0].sum(-1).tolist())
print("nn.MultiheadAttention, mask converted:   ", (converted[0] > 0).int().tolist())

# %% [markdown]
# Unconverted, query 0 sees key 1, its own future, and query 1 sees nothing. The NaN gives the fault away, but
# only because a row happens to be empty. A padding mask handed over unconverted shows the pads and hides the
# words: every number is finite, and wrong.
#
# One more thing to know about `nn.MultiheadAttention`: it accepts a mask of two dimensions `(T_q, T_k)`, or
# of three, `(B * H, T_q, T_k)`. A `combined_mask` of shape `(B, 1, T, T)` gets there by
# `.expand(B, H, T, T).flatten(0, 1)`. A padding mask can also go in separately, as `key_padding_mask` of shape
# `(B, T)`, again with True = hidden.

# %% [markdown] claims="000.2.5-c 000.2.5-d 000.2.7-a 001.s4-p 002.s7-s"
# ## Labels: the same sequence, one place further
#
# The training pairs of "I like apples", with a begin token `BOS` and an end token `EOS`:
#
# | position | 0 | 1 | 2 | 3 |
# | --- | --- | --- | --- | --- |
# | input | `BOS` | I | like | apples |
# | target | I | like | apples | `EOS` |
#
# The target at position $t$ is the *next* input: `targets[t] = ids[t + 1]`. Counted in places, the targets
# are the sequence moved one place to the **left**. Texts that say "shifted right" usually speak of the
# inputs: in Figure 1 of Vaswani et al. 2017 the decoder's *inputs* are the outputs shifted right. It is one
# and the same pair, seen from its two ends. What counts is that `targets[t]` comes after `inputs[t]`.
#
# "The model uses the first $N$ words to predict word $N + 1$" is right for each single position. It is not
# how training runs: all tokens are known beforehand, so **one** forward pass gives the predictions of all $T$
# positions, and the causal mask makes sure that each one is made as if only its prefix existed. $T + 1$
# tokens give $T$ training pairs.
# %% solve="shift_labels" points=2 difficulty=1 importance=5 minutes=5
def shift_labels(ids: Int[Tensor, "... n"]) -> tuple[Int[Tensor, "... T"], Int[Tensor, "... T"]]:
    """Split token sequences into what the model reads and what it must predict.

    ids: (..., n) integers with n >= 1 and any leading dimensions (also none); the last axis
    is the sequence. With T = n - 1, the result is the tuple (inputs, targets), both (..., T):
    inputs[..., t] = ids[..., t] and targets[..., t] = ids[..., t + 1].

    The first token is never a target, the last is never an input. One token (n = 1) gives
    two tensors of shape (..., 0). Pads and other special ids are ordinary numbers here.
    dtype and device are those of ids, which is not modified. Views of ids are fine.
    """
    ### BEGIN SOLUTION
    return ids[..., :-1], ids[..., 1:]
    ### END SOLUTION


# %% check="shift_labels"
check(shift_labels)

# %% [markdown] hints="shift_labels"
# 1. Write the sequence twice, the second time one place to the left, and keep the columns that have both entries.
# 2. Two slices of the last axis: one leaves out the last token, the other leaves out the first. Mind the order of the tuple.
# 3. `ids[..., :-1]` is the first of the two.

# %% [markdown] claims="001.s5-f"
# ## The loss over the positions that count
#
# Some targets must not be graded: pads, prompts, the step from the last token of one packed document to the
# first token of the next (after `</s>` nobody can know what comes). The convention of PyTorch is to write a
# special number, `ignore_index = -100`, into the targets at these positions. The loss is the mean over the
# **counted** positions.
#
# By hand: the model gives the targets of three positions the probabilities $\tfrac12$, $\tfrac14$ and, at a
# pad, $\tfrac1{10}$. The pad is ignored.
#
# $$\text{loss} = \frac{\ln 2 + \ln 4}{2} = \frac{0.693 + 1.386}{2} = 1.040$$
#
# Two wrong ways that look right. Setting the third term to 0 and dividing by *three* gives 0.693, so that the
# loss falls when you add padding. Averaging each sentence first and then the sentences gives a token of a
# short sentence more weight than one of a long sentence; it can be wanted, but it is a different loss.
#
# And when nothing counts? The mean of nothing is $0/0$, and `F.cross_entropy` returns NaN. Here the loss is
# defined as 0.0, with finite gradients: a batch without supervised tokens should teach nothing, not destroy
# the model.
# %% solve="masked_cross_entropy" points=5 difficulty=3 importance=5 minutes=15
def masked_cross_entropy(
    logits: Float[Tensor, "... V"],
    targets: Int[Tensor, "..."],
    ignore_index: int = -100,
) -> Float[Tensor, ""]:
    """Mean negative log-probability of the targets over the positions that count.

    A position counts when its target is not ignore_index. With p = softmax(logits) along the
    last axis, V classes,

        loss = - (sum over counted positions of log p[target]) / (number of counted positions),

    one mean over all counted positions of all leading dimensions together.

    logits:  (..., V), finite, any leading dimensions: (N, V) and (B, T, V) are typical.
    targets: (...), torch.int64, the shape of logits without its last axis. A counted target
             is in 0 ... V-1, and 0 is a class like any other.
    ignore_index: any integer; also one in 0 ... V-1 (a pad id), which then never counts.

    - If no position counts, the loss is 0.0, and loss.backward() gives finite gradients (0).
    - Logits at ignored positions change neither the loss nor the gradient of others; their
      own gradient is 0.
    - Stable: logits of 1000 and -1000 give neither inf nor nan.

    Returns a tensor without dimensions, in the dtype of logits. Inputs are not modified.
    """
    ### BEGIN SOLUTION
    counted = targets != ignore_index  # (...)
    classes = targets.masked_fill(~counted, 0)  # any valid class: the term is dropped below
    log_p = logits.log_softmax(dim=-1).gather(-1, classes[..., None])[..., 0]  # (...)
    total = log_p.masked_fill(~counted, 0.0).sum()
    return -total / counted.sum().clamp(min=1)
    ### END SOLUTION


# %% check="masked_cross_entropy"
check(masked_cross_entropy)

# %% [markdown] hints="masked_cross_entropy"
# 1. Compute the log-probability of every target, throw away those of the ignored positions, and divide the sum of the rest by *how many are left*.
# 2. `log_softmax` along the last axis is the stable form. `gather` picks one entry per position, but -100 is no valid index: put any valid class in its place first. For the empty case keep the divisor at 1 or more.
# 3. With `counted = targets != ignore_index`: `logits.log_softmax(-1).gather(-1, targets.masked_fill(~counted, 0)[..., None])[..., 0]`, then `masked_fill(~counted, 0.0)`, sum, and divide by `counted.sum().clamp(min=1)`.

# %% [markdown] claims="000.2.5-h 000.2.5-i"
# ## The loss mask: learn the answer, not the question
#
# When a model is fine-tuned on pairs of prompt and answer, often only the tokens of the answer are graded.
# The mask says which **targets** count. A prompt of 3 tokens, `p0 p1 p2`, and an answer `a0 a1 EOS`:
#
# | position t | 0 | 1 | 2 | 3 | 4 |
# | --- | --- | --- | --- | --- | --- |
# | input | p0 | p1 | p2 | a0 | a1 |
# | target | p1 | p2 | a0 | a1 | EOS |
# | counts | no | no | **yes** | yes | yes |
#
# Look at position 2. Its *input* is still part of the prompt, but its *target* is the first token of the
# answer, so it counts. The rule is about the target: token $t + 1$ belongs to the answer if $t + 1 \ge$ the
# length of the prompt. Forgetting the $+1$ is the usual slip. The model is then never taught how an answer
# begins.
# %% solve="completion_loss_mask" points=3 difficulty=2 importance=4 minutes=10
def completion_loss_mask(prompt_lengths: Int[Tensor, "B"], T: int) -> Bool[Tensor, "B T"]:
    """Say which targets belong to the answer (the completion) and count in the loss.

    The mask lines up with the inputs and targets of shift_labels: row b was made from T + 1
    tokens, of which the first prompt_lengths[b] are the prompt, and the target at position t
    is token t + 1. So mask[b, t] is True exactly when t + 1 >= prompt_lengths[b]. The
    position that reads the last token of the prompt predicts the first token of the answer,
    and counts.

    prompt_lengths: (B,) integers >= 0; the rows start with the prompt (no padding before
        it). 0 and 1 both give a row of True: the first token is never a target. A length of
        T + 1 or more gives a row of False.
    T: number of positions of inputs and targets, at least 1.
    Returns a torch.bool tensor of shape (B, T) on the device of prompt_lengths, True =
    counts. Pads after the answer are not its business: they get ignore_index elsewhere.
    """
    ### BEGIN SOLUTION
    target_token = torch.arange(T, device=prompt_lengths.device) + 1  # the token that position t predicts
    return target_token >= prompt_lengths[:, None]  # (B, T)
    ### END SOLUTION


# %% check="completion_loss_mask"
check(completion_loss_mask)

# %% [markdown] hints="completion_loss_mask"
# 1. Ask of each position which token it *predicts*, and whether that token belongs to the answer. What it reads does not matter.
# 2. Number the positions 0 ... T-1; position t predicts token t + 1. Compare these numbers with the prompt lengths, one row per length.
# 3. `torch.arange(T) + 1` has the shape `(T,)` and `prompt_lengths[:, None]` the shape `(B, 1)`; the comparison is `>=`.

# %% [markdown] claims="000.2.5-h 000.2.5-i"
# ## Experiment: does the loss mask stop attention?
#
# One attention layer reads a prompt of 5 tokens and an answer of 4; only the answer is graded. We measure the
# size of the gradient that the loss sends to the embedding at each input position. For comparison, a second
# run hides the prompt from attention. Your prediction for the first run, at the positions of the prompt?
#
# - (a) Zero: the prompt does not count in the loss.
# - (b) Nonzero at all prompt positions: the answer reads them.
# - (c) Nonzero only at the last prompt position, the one whose target counts.
# %% demo
generator = torch.Generator().manual_seed(0)
V, d, prompt = 11, 16, 5
table, Wq, Wk, Wv, Wout = (torch.randn(*s, generator=generator) / d**0.5 for s in [(V, d), (d, d), (d, d), (d, d), (d, V)])
ids = torch.randint(0, V, (1, prompt + 4), generator=generator)
inputs, targets = shift_labels(ids)
counted = completion_loss_mask(torch.tensor([prompt]), inputs.shape[1])

def gradient_by_position(attention_mask):
    x = table[inputs].requires_grad_()
    y = x + safe_attention(x @ Wq, x @ Wk, x @ Wv, attention_mask)
    masked_cross_entropy(y @ Wout, targets.masked_fill(~counted, -100)).backward()
    return x.grad[0].norm(dim=-1)

causal = causal_mask(inputs.shape[1])
is_answer = torch.arange(inputs.shape[1]) >= prompt
position = torch.arange(inputs.shape[1])
fig, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
ax.bar(position - 0.2, gradient_by_position(causal), 0.4, label="loss mask on the answer, causal attention")
ax.bar(position + 0.2, gradient_by_position(causal & is_answer), 0.4, hatch="//", label="the same, and the prompt hidden from attention")
ax.axvline(prompt - 0.5, color="gray", linestyle="--")
ax.text(prompt - 0.55, ax.get_ylim()[1], "prompt  |  answer", ha="center", va="bottom", color="gray")
ax.set(xlabel="input position", ylabel="norm of the gradient (no unit)", xticks=position)
ax.set_title("Does a loss mask keep the prompt from being read?", pad=18)
ax.legend()
plt.show()

# %% [markdown] claims="000.2.5-h 000.2.5-i"
# The bars are the influence of each input on the graded loss. In the first run every position has one, so
# **(b)** is right.
#
# - (a) confuses the two kinds of mask. The loss mask removes *questions from the exam*; it does not close the
#   book. The answer attends to the prompt, and through it the prompt's embeddings, keys and values are
#   trained.
# - (c) describes the second run, where an *attention* mask hides the prompt. Only the last prompt position
#   remains, since its own target, the first token of the answer, counts and its own embedding reaches its
#   output past the attention.

# %% [markdown] claims="000.2.7-b 001.s9-a 001.s10-d 002.s7-s"
# ## Experiment: a loss that is too good
#
# The data come from a Markov chain: the next token is drawn from a distribution that depends on the present
# token only. Its entropy is known, so nobody who sees only the past can have an expected loss below it. We
# train one small model with your causal mask, and one with the mask inverted, as if `True` meant hidden. The
# inverted model sees only the future, not even the present token through attention. Its training loss will be
#
# - (a) higher: it lacks the past, from which one should predict;
# - (b) about the same: a residual connection still brings the present token, and that is all the chain needs;
# - (c) far below the entropy.
#
# Each model is then measured in a second way, as it would be used: for every $t$ it gets the tokens up to $t$
# and *nothing else*, and predicts the next one.
# %% demo
V, T = 12, 24
generator = torch.Generator().manual_seed(0)
transition = (1.5 * torch.randn(V, V, generator=generator)).softmax(dim=-1)  # row: present token, column: next
stationary = torch.linalg.matrix_power(transition, 200)[0]
entropy = -(stationary[:, None] * transition * transition.log()).sum().item()  # nats per token

def sample_chain(n, generator):
    """n sequences of T + 1 tokens, (n, T + 1)."""
    ids = torch.multinomial(stationary.expand(n, -1), 1, generator=generator)
    for _ in range(T):
        ids = torch.cat([ids, torch.multinomial(transition[ids[:, -1]], 1, generator=generator)], dim=1)
    return ids

class OneLayer(nn.Module):
    def __init__(self, mask, d=32):
        super().__init__()
        self.mask, self.token, self.position = mask, nn.Embedding(V, d), nn.Embedding(T, d)
        self.qkv, self.out, self.head = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, V)
        self.ffn = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, ids):
        n = ids.shape[1]
        x = self.token(ids) + self.position.weight[:n]
        x = x + self.out(safe_attention(*self.qkv(x).chunk(3, dim=-1), self.mask[:n, :n]))
        return self.head(x + self.ffn(x))

# %% demo
def train(mask, steps=250):
    torch.manual_seed(0)
    model, generator, losses = OneLayer(mask), torch.Generator().manual_seed(1), []
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        inputs, targets = shift_labels(sample_chain(64, generator))
        loss = masked_cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses

@torch.no_grad()
def two_measures(model):
    """Loss of 512 new sequences: in one pass over the whole row, and from each prefix alone."""
    inputs, targets = shift_labels(sample_chain(512, torch.Generator().manual_seed(2)))
    whole = masked_cross_entropy(model(inputs), targets).item()
    by_prefix = torch.stack([model(inputs[:, : t + 1])[:, -1] for t in range(T)], dim=1)  # T passes
    return whole, masked_cross_entropy(by_prefix, targets).item()

runs = {"causal mask": train(causal_mask(T)), "inverted mask": train(~causal_mask(T))}
measures = {name: two_measures(model) for name, (model, _) in runs.items()}

# %% demo
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for (name, (_, losses)), style in zip(runs.items(), ("-", "-.")):
    left.plot(losses, style, label=name)
left.axhline(entropy, color="black", linestyle="--", linewidth=1, label="entropy of the chain")
left.set(xlabel="training step", ylabel="loss (nats per token)", title="training loss", ylim=(0, None))
left.legend()
for i, (name, values) in enumerate(measures.items()):
    bars = right.bar([i - 0.2, i + 0.2], values, 0.36, color=["C0", "C1"], label=["whole row, one pass", "each prefix alone"] if i == 0 else None)
    right.bar_label(bars, fmt="%.3f")
right.axhline(entropy, color="black", linestyle="--", linewidth=1)
right.axhline(math.log(V), color="gray", linestyle=":", linewidth=1)
right.text(0.35, math.log(V), "ln V: guessing", ha="center", va="bottom", color="gray")
right.text(0.6, entropy, "entropy", ha="center", va="bottom")
right.set(xticks=[0, 1], xticklabels=list(measures), ylabel="loss (nats per token)", title="new sequences", ylim=(0, 3.3))
right.legend(loc="upper left", ncols=2)
fig.suptitle("Can a loss below the entropy of the data be real?")
plt.show()
print(f"entropy {entropy:.3f}; entropy / T {entropy / T:.3f}; inverted mask, one pass: {measures['inverted mask'][0]:.3f}")

# %% [markdown] claims="000.2.7-a 000.2.7-b 001.s4-p 001.s9-a 001.s10-d 002.s7-s"
# Left, the loss while training; right, the trained models measured in two ways on new data. **(c)** is right.
#
# - (a) would be true if the future were useless. But the target of position $t$ *is* the input at $t + 1$,
#   and the inverted mask shows it. The model learned to copy. What is left of its loss comes from the last
#   position, which sees nothing and has to predict honestly: about the entropy divided by $T$, as the printed
#   line confirms.
# - (b) underrates training: it finds the easiest way to a low loss, and copying is easier than predicting.
# - The right-hand bars expose it. Without a future to copy from, the inverted model is no better than
#   guessing. Validation data do not help to see it, since they leak in the same way. Two things do: a loss
#   **below what is possible**, and a measurement from prefixes alone.
#
# The causal model has the same loss in both measures. One pass over the row gave all $T$ predictions that $T$
# passes over its prefixes give, which is why training in parallel is legitimate. The mask guarantees it, and
# nothing else does.

# %% [markdown] claims="001.s9-f 001.s10-j"
# ## Write the test: is it causal?
#
# You have seen that a leak improves every number you look at. So it needs a test of its own, and it should
# work on any model. The method: **change the future and look whether the past moves.** Take a short sequence,
# run it, change the last token, run it again, compare the outputs before the last position.
#
# By hand, for the running mean $y_t = \frac{1}{t+1}(x_0 + \dots + x_t)$ and $x = (2, 4, 9)$: $y = (2, 3, 5)$.
# With $x_2 = 30$ instead of 9 it is $(2, 3, 12)$. The first two have not moved, and the last one may. Now
# subtract the mean over time from each output: $y - \bar y$ with $\bar y = 10/3$ and then $17/3$. The first
# output goes from $-1.33$ to $-3.67$. A harmless-looking normalization has made it a leak.
#
# The method is easy, but a careless form of it misses a lot. Some questions to settle before you write:
#
# | a careless test | what slips through |
# | --- | --- |
# | changes only the last token | a query that sees just one token too many, in the middle of the row |
# | compares only the first output | a leak into any other row |
# | uses one length, say 4 | a mask that was built for 8 positions and is missing beyond |
# | starts from an input of zeros | anything that multiplies the leak by its own input |
# | uses gradients | a maximum or a mean computed under `no_grad`: information flows, gradients do not |
# | uses a batch of one | a model that takes the batch axis for time: `nn.MultiheadAttention` without `batch_first=True` |
# | demands bitwise equality | nothing slips through, but honest models fail: another order of summation changes the last digits |
# | compares with a fixed `atol` | small leaks of small outputs; honest models with outputs of $10^8$ fail |
#
# Dropout must be off while you test, or noise looks like a leak.
# %% solve="is_causal" points=8 difficulty=4 importance=5 minutes=30
def is_causal(f: Callable[[Float[Tensor, "B T 8"]], Float[Tensor, "B T d_out"]]) -> bool:
    """Find out by experiment whether a model keeps the future hidden from the past.

    f is a black box. It takes x of shape (B, T, 8), float64, for any B >= 1 and T >= 1 (as
    long as T <= 1000 and B T <= 20 000), and returns a float64 tensor (B, T, d_out) with some
    d_out >= 1. It is deterministic (no dropout), returns finite numbers, and does not modify
    x. Nothing else is known about it.

    f is causal if out[b, t] depends on x[b, 0], ..., x[b, t] alone: on no later position and
    on no other sample of the batch. An output that depends on less, or on nothing, is fine.
    (How out depends on the numbers B and T themselves is not asked.)

    Which leaks must be found: all that show in a batch of three for some length T from 1 to
    12. A leak may sit in a single output row, channel or sample; it may appear only in long
    inputs or only in short ones; it may pass through something without a gradient.

    What counts as a difference: let S be the largest absolute value in out. With entries of
    x from a standard normal distribution, and everything that should be invisible replaced
    by fresh standard normal numbers, a leak to be found moves some entry of out by more than
    1e-6 S. Rounding moves no entry by more than 1e-10 S; S may be 1e8, and it may be 0.

    Returns True if f is causal, False if it leaks. Some hundred calls of f are enough.
    """
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(0)

    def fresh(T: int) -> Tensor:
        return torch.randn(3, T, 8, dtype=torch.float64, generator=generator)

    for T in range(1, 13):
        x = fresh(T)
        out = f(x)
        tolerance = 1e-8 * out.abs().max()
        for t in range(T - 1):  # replace what comes after t, in all samples
            future_replaced = torch.cat([x[:, : t + 1], fresh(T)[:, t + 1 :]], dim=1)
            moved = (f(future_replaced) - out)[:, : t + 1]
            if (moved.abs() > tolerance).any():
                return False
        for b in range(3):  # replace all samples but b
            others_replaced = fresh(T)
            others_replaced[b] = x[b]
            moved = (f(others_replaced) - out)[b]
            if (moved.abs() > tolerance).any():
                return False
    return True
    ### END SOLUTION


# %% check="is_causal"
check(is_causal)

# %% [markdown] hints="is_causal"
# 1. Fix what output t is allowed to see, replace *everything else* by new random numbers, and ask whether output t moved. Do it for every t, for short and long inputs, in a batch of three.
# 2. Two kinds of replacement: for each cut t, all positions after t (then compare all outputs up to and including t); for each sample b, all other samples (then compare the outputs of b). Compare with a tolerance that is a small multiple of the largest absolute output.
# 3. For each `T` in 1 ... 12, with `x = torch.randn(3, T, 8, dtype=torch.float64)` and `out = f(x)`: for each `t` build `torch.cat([x[:, : t + 1], new[:, t + 1 :]], dim=1)`, and return False if `(f(changed) - out)[:, : t + 1].abs() > 1e-8 * out.abs().max()` anywhere. Then the same for the samples, and `return True` at the end.

# %% [markdown]
# Try your test on a few models. The list says which of them are causal; the last column is your verdict. Can
# you say for each leaky one *how* the future gets in?
# %% demo
torch.manual_seed(0)
rnn = nn.RNN(8, 5, batch_first=True).double()
attention_block = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.3).double().eval()
time_for_batch = nn.MultiheadAttention(8, 2).double().eval()  # batch_first=True forgotten

def blocked(x, m):
    return attention_block(x, x, x, attn_mask=m)[0]

boxes = {
    "RNN": (True, lambda x: rnn(x)[0]),
    "running sum, times 1e8": (True, lambda x: 1e8 * x.cumsum(dim=1)),
    "attention, causal mask converted": (True, lambda x: blocked(x, to_torch_mha_mask(causal_mask(x.shape[1])))),
    "attention, diagonal one too far": (False, lambda x: blocked(x, torch.ones(2 * x.shape[1:2]).triu(2).bool())),
    "attention, no mask": (False, lambda x: blocked(x, None)),
    "attention, batch taken for time": (False, lambda x: time_for_batch(x, x, x)[0]),
    "divided by the largest entry of the row": (False, lambda x: x / x.abs().amax(dim=(1, 2), keepdim=True).detach()),
    "running sum up to 8 tokens, then the mean": (False, lambda x: x.cumsum(1) if x.shape[1] <= 8 else x + x.mean(1, keepdim=True)),
}
with torch.no_grad():
    for name, (truth, f) in boxes.items():
        verdict = is_causal(f)
        print(f"{name:<45}causal: {truth!s:<7}your test: {verdict!s:<7}{'' if verdict == truth else '  <- wrong'}")

# %% [markdown]
# ## What goes wrong: a bug hunt
#
# Somebody read that empty rows give NaN, and that `nan_to_num` turns NaN into 0. The forward pass of the
# function below is right: an empty row gives exact zeros, all other rows agree with yours. It went through
# review. The first update of the optimizer then turned every weight of the model into NaN.
#
# Find out why, mend `hunted_attention`, and run the last line without its `#`. (The cell prints what a review
# would have seen, and what it did not look at.)
# %% demo
def hunted_attention(q, k, v, mask):
    bias = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~mask, -math.inf)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias
    weights = torch.nan_to_num(scores.softmax(dim=-1), nan=0.0)
    return weights @ v

generator = torch.Generator().manual_seed(0)
q, k, v = (torch.randn(4, 3, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3))
mask = combined_mask(torch.tensor([[0, 5, 7, 2]]))[0, 0]  # the first token is a pad: row 0 is empty
out = hunted_attention(q, k, v, mask)
out.sum().backward()
print("row 0 of the output:", out[0].tolist())
print("largest difference from safe_attention:", (out - safe_attention(q, k, v, mask)).abs().max().item())
print("NaN entries in the gradient of q, k, v:", [t.grad.isnan().sum().item() for t in (q, k, v)], "of", q.numel(), "each")
# check(hunted_attention, "safe_attention")

# %% [markdown]
# <details><summary>The answer</summary>
#
# The zeros come too late. The softmax of the empty row has already produced NaN, and its backward pass uses
# that *result*: with the weights $p$ and the incoming gradient $g$ it computes
# $p \odot (g - \sum_j g_j p_j)$. `nan_to_num` sends $g = 0$ back into the NaN entries, but
# $\text{NaN} \cdot 0$ is NaN. The sum `scores + bias` hands it on to the scores, from there it goes to `q`
# (its own row) and to `k` (all rows, since every key met that query).
#
# The mend is to keep the NaN from arising: no row may consist of $-\infty$ only.
#
# ```python
# sees_something = mask.any(dim=-1, keepdim=True)
# hidden = ~mask & sees_something
# scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf)
# weights = scores.softmax(dim=-1).masked_fill(~sees_something, 0.0)
# ```
#
# Lesson for tests: a check of the forward pass does not see a broken backward pass. Look at gradients as
# well, and at rows that see nothing.
#
# </details>

# %% [markdown]
# ### A second one: it counts in twos
#
# This pipeline should teach a table of next-token logits to count: 0, 1, 2, ..., 9, 0, ... The loss goes to
# almost zero. Then it generates. Where is the fault? Both functions look right, each by itself.
# %% demo
def next_token_loss(logits, ids):
    """Loss of the logits at each position against the token that follows it in ids."""
    _, targets = shift_labels(ids)
    return masked_cross_entropy(logits[:, :-1], targets)

torch.manual_seed(0)
table = nn.Embedding(10, 10)  # row: present token, columns: logits of the next
optimizer = torch.optim.Adam(table.parameters(), lr=0.3)
ids = (torch.arange(30) % 10)[None]  # 0 1 2 ... 9 0 1 ...
inputs, targets = shift_labels(ids)
for _ in range(60):
    loss = next_token_loss(table(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
written = [0]
for _ in range(8):
    written.append(table.weight[written[-1]].argmax().item())
print(f"final loss {loss.item():.4f}; it writes", written)

# %% [markdown]
# <details><summary>The answer</summary>
#
# The labels are shifted twice. `shift_labels(ids)` has moved them once; `next_token_loss` expects unshifted
# ids and moves them again. Position $t$ learns token $t + 2$, perfectly well, so the loss is fine. The call
# must be `next_token_loss(table(ids), ids)`, or `masked_cross_entropy(table(inputs), targets)`.
#
# Libraries differ in who shifts: some losses take `labels = input_ids` and shift inside, others take aligned
# targets. A sequence that counts is the quickest way to find out: the model must continue 0 with 1.
#
# </details>

# %% [markdown]
# ## Interview questions
# %% [markdown] essay="four_masks_four_jobs" points=3 claims="001.s5-b 000.2.5-e 000.2.5-i"
# **1. Four masks.** A team fine-tunes a decoder on packed, padded batches of prompts and answers. Explain in
# about ten sentences: what do the causal mask, the padding mask, the document mask and the loss mask each do,
# at which tensor does each act, and what goes wrong, with which symptom, when each one is left out? Can one
# of them do the work of another?
#
# ### BEGIN SOLUTION
# The causal mask hides keys later than the query. It acts on the scores (T_q, T_k) before the softmax.
# Without it each position copies its target from the next input: the training and validation loss fall below
# what is possible, and generation is useless.
#
# The padding mask hides filler as keys; it acts on the scores too, with shape (B, 1, 1, T). Without it the
# output for a sentence depends on how much padding its batch happens to need, so results change with the
# batch composition. With padding at the end a causal mask already hides the pads from real tokens, but with
# padding at the start, or in an encoder, it does not.
#
# The document mask hides keys of other documents in a packed row; scores again, (B, T, T), inserted over the
# heads as (B, 1, T, T). Without it later documents read earlier ones: no error, the loss is hardly changed,
# but packed and separate runs differ.
#
# The loss mask chooses the targets that are graded. It acts after the logits, on the per-position losses (B,
# T), and the mean is over the counted positions. Without it the model also learns to write prompts and pads,
# and the loss falls with more padding. It stops no attention: the answer still reads the prompt, and
# gradients still reach the prompt's embeddings.
#
# No one replaces another. An attention mask does not take a position out of the loss (a pad query still has
# an output and a target), and a loss mask does not keep a token from being read. Full marks: the four jobs,
# where each acts, a symptom for each, and that loss and attention masks are independent.
# ### END SOLUTION
# %% [markdown] claims="001.s10-j 001.s9-f 001.s10-d"
# **2. Why can a future token not affect a past output in a causal decoder? And how would you prove it of a
# model you did not write? (90 seconds, no notes)**
#
# <details><summary>A model answer</summary>
#
# A position gets information from other positions only through attention. Norms, the feed-forward network,
# residuals and the vocabulary projection work on each position by itself. In attention, output $t$ is
# $\sum_j w_{tj} v_j$. For $j > t$ the score is set to $-\infty$ *before* the softmax, so $w_{tj}$ is exactly
# 0 and score $tj$ is also missing from the denominator. So the output of layer 1 at $t$ is a function of
# inputs $0 \dots t$. By induction over the layers so is every later one: layer 2 at $t$ reads layer 1 at
# $0 \dots t$ only.
#
# To prove it of a given model I turn dropout off, run a random input, replace everything after position $t$
# by other random tokens, and check that outputs $0 \dots t$ agree up to rounding. I do it for all $t$, for
# short and long inputs and in a batch, because leaks hide in single heads, in statistics over time, beyond
# the length a mask was built for. Gradients are no substitute: detached statistics leak without one. A second
# sign is a loss below the entropy of known data.
#
# </details>
# %% [markdown] claims="001.s5-c 001.s5-e"
# **3. A colleague replaces your attention by a library's fused function. All shapes fit, the loss is lower
# than before. What do you check first?**
#
# <details><summary>A model answer</summary>
#
# First the meaning of the mask. `F.scaled_dot_product_attention` reads `True` as "may see",
# `nn.MultiheadAttention` as "hidden", other libraries take 0/1 or floats that are added; a float mask of
# zeros and ones is silently *added* to the scores and hides nothing. I pass a 2 x 2 causal mask and an
# identity as values and read off the weights. Second, the alignment of a non-square causal mask: top left or
# bottom right. PyTorch's `is_causal=True` aligns to the top left, which is wrong for decoding with a cache.
# Third, how the mask broadcasts: `(B, T, T)` against `(B, H, T, T)` runs when `B == H` and gives heads the
# masks of sentences. Fourth, rows that see nothing: zeros, NaN or uniform. A lower loss after a change that
# should not change anything is a symptom, not a success.
#
# </details>

# %% [markdown]
# ## Summary
#
# | function | result | rule |
# | --- | --- | --- |
# | `causal_mask(T_q, T_k)` | `(T_q, T_k)` bool | `j <= i + T_k - T_q`: bottom right, diagonal included |
# | `padding_mask(ids)` | `(B, 1, 1, T)` bool | key is not `pad_id` |
# | `document_mask(segment_ids)` | `(B, T, T)` bool | same document **and** causal; `[:, None]` before it meets heads |
# | `combined_mask(ids)` | `(B, 1, T, T)` bool | causal `&` padding; rows may be empty |
# | `safe_attention(q, k, v, mask)` | `(..., T_q, d_v)` | `-inf` before the softmax; an empty row gives zeros and finite gradients |
# | `to_torch_mha_mask(mask)`, `from_torch_mha_mask(mask)` | same shape, bool | `~`: True = may see against True = hidden |
# | `shift_labels(ids)` | two of `(..., n - 1)` | `targets[t] = ids[t + 1]` |
# | `masked_cross_entropy(logits, targets)` | `()` | mean over the counted positions; none counted: 0.0 |
# | `completion_loss_mask(prompt_lengths, T)` | `(B, T)` bool | target `t + 1` belongs to the answer |
# | `is_causal(f)` | `bool` | replace what must be invisible; outputs may not move |
#
# - Attention masks say who reads whom; the loss mask says whose answer is graded. Neither does the other's
#   work.
# - Mask the scores, not the weights. Combine masks with `&`.
# - A large finite number is not minus infinity: an empty row becomes uniform, and float16 cannot hold `-1e9`.
# - Check the meaning of True with a 2 x 2 matrix.
# - A loss that is too good is a leak until shown otherwise. Test it by changing the future.
