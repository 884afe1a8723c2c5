# %% [markdown] claims="002.s4-a 000.2.4-a"
# # 04 Many heads
#
# In "the trophy did not fit into the suitcase because **it** was too big", the word *it* needs at least two things at
# once: which nouns it may stand for, and what is said about its size. One attention row is one set of weights that sum
# to 1. Spend them on the nouns and nothing is left for *big*; split them and every feature of the output becomes the
# same blend. Multi-head attention lets a layer look several times at once: $H$ sets of query, key and value maps, each
# with weights of its own, side by side, at no more parameters than one wide head. You will write it, first as a
# function and then as the module that the rest of the course is built on, and you will switch heads off one by one to
# see what they are good for.
#
# ```mermaid
# flowchart LR
#     X["x<br/>(B, T, d_model)"] -- "W_q, W_k, W_v" --> P["q, k, v<br/>(B, T, d_model) each"]
#     P -- "split_heads" --> S["q, k, v<br/>(B, H, T, d_k) each"]
#     S -- "attention, for each head" --> O["one output a head<br/>(B, H, T, d_k)"]
#     O -- "merge_heads" --> M["side by side<br/>(B, T, d_model)"]
#     M -- "W_o" --> Y["output<br/>(B, T, d_model)"]
# ```
#
# | letter | meaning | in this lesson |
# | :--- | :--- | :--- |
# | $H$ | number of heads, `n_heads` | must divide $d_{model}$ |
# | $d_k$ | width of one head | $d_{model} / H$, for queries, keys and values alike |

# %%
import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from grader import check, hint, progress, solution


def attention(q, k, v, mask=None):
    """softmax(q k^T / sqrt(d_k)) v. Mask: True = may see; a row that sees nothing gives zeros (lesson 03)."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., T_q, T_k)
    if mask is None:
        return scores.softmax(dim=-1) @ v
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1).masked_fill(~mask, 0.0) @ v  # (..., T_q, d_v)


# %% demo
import matplotlib.pyplot as plt

plt.style.use("tableau-colorblind10")
torch.set_num_threads(1)  # the tensors below are tiny: a second thread costs more than it brings

# %% [markdown] claims="000.2.4-c 000.2.4-h"
# ## Two heads by hand
#
# Take two positions of width $d_{model} = 2$, all three projections equal to the identity (so $q = k = v = x$), and
#
# $$x = \begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}.$$
#
# **One head**, $d_k = 2$. The scores are $x x^\top / \sqrt 2$: $0.71$ on the diagonal and 0 beside it. Since
# $e^{0.71} = 2.03$, each row has the weights $2.03 / 3.03 = 0.67$ for itself and $0.33$ for the other:
#
# $$\text{output} = \begin{pmatrix} 0.67 & 0.33 \\ 0.33 & 0.67 \end{pmatrix}$$
#
# Both features of a row were averaged with the *same* weights.
#
# **Two heads**, $d_k = 2 / 2 = 1$. Head 0 gets the first feature of every position, head 1 the second. To head 0 the
# sequence is $(1, 0)$, and $\sqrt{d_k} = 1$:
#
# | head 0 | scores | weights | output |
# | :--- | :--- | :--- | :--- |
# | position 0, query 1 | $1\cdot 1 = 1,\; 1\cdot 0 = 0$ | 0.73, 0.27 | $0.73\cdot 1 + 0.27 \cdot 0 = 0.73$ |
# | position 1, query 0 | 0, 0 | 0.5, 0.5 | 0.5 |
#
# Head 1 sees $(0, 1)$ and finds $0.5$ for position 0 and $0.73$ for position 1. Side by side:
#
# $$\text{output} = \begin{pmatrix} 0.73 & 0.50 \\ 0.50 & 0.73 \end{pmatrix}$$
#
# Position 0 prefers itself in head 0 and does not care in head 1. Two heads hold two opinions about the same pair of
# positions; one head cannot. The price: each head compares vectors of width 1 instead of 2. More heads of the same
# $d_{model}$ means narrower heads.

# %% [markdown] claims="000.2.6-aa 001.s4-d 002.s7-c 002.s7-e 001.s8-a"
# ## Exercise: split into heads
#
# The projected queries have the shape $(B, T, d_{model})$. Head $h$ owns the features from $h\,d_k$ up to
# $(h+1)\,d_k - 1$ of every position. Attention works on the last two axes, so the head has to become a leading axis:
# $(B, H, T, d_k)$. For $B=2$, $T=4$, $d_{model}=8$, $H=2$ that is (2, 4, 8) to (2, 2, 4, 4): batch, head, sequence,
# width of a head.
#
# Two steps: cut the last axis into two, $(B, T, H, d_k)$; then swap the axes $T$ and $H$. The second step cannot be
# left out. Count with $T = 2$, $d_{model} = 4$, $H = 2$ and the numbers 0 to 7:
#
# | | head 0 | head 1 |
# | :--- | :--- | :--- |
# | the input, cut | (0, 1) of position 0, (4, 5) of position 1 | (2, 3) of position 0, (6, 7) of position 1 |
# | cut and swapped: right | [[0, 1], [4, 5]] | [[2, 3], [6, 7]] |
# | `view(B, H, T, d_k)` at once: wrong | [[0, 1], [2, 3]] | [[4, 5], [6, 7]] |
#
# In the last line head 0 holds position 0 only, once for each half of its features, and head 1 holds position 1. No
# head sees two positions. The shape is right and no error is raised. Among the public questions on multi-head
# attention, no bug is more common.
#
# **When the heads do not divide.** Many listings compute `d_k = d_model // n_heads` and go on. With $d_{model} = 10$
# and $H = 4$ this rounds to $d_k = 2$, and $4 \cdot 2 = 8$ features are not 10. What happens next depends on the rest
# of the code: an obscure error about sizes, or none at all. Run the next cell: `view(B, -1, H, d_k)` takes what is
# left over for the length.

# %% demo
B, T, d_model, n_heads = 2, 4, 10, 4
d_k = d_model // n_heads  # 2: rounded, without a word
x = torch.randn(B, T, d_model)
q = x.view(B, -1, n_heads, d_k).transpose(1, 2)
print("x:", tuple(x.shape), "  split:", tuple(q.shape), f"  so T went from {T} to {q.shape[2]}")
out = attention(q, q, q).transpose(1, 2).contiguous().view(B, -1, d_model)
print("merged:", tuple(out.shape), "  the right shape, made of", q.shape[2], "positions that do not exist")

# %% [markdown]
# Hence a rule for the whole course: **a head count that does not divide is an error, raised at once, that names both
# numbers.**

# %% solve="split_heads" points=3 difficulty=2 importance=5 minutes=10
def split_heads(x: Float[Tensor, "B T d_model"], n_heads: int) -> Float[Tensor, "B H T d_k"]:
    """Cut the features of every position into heads and put the heads before the positions.

    With d_k = d_model / n_heads: out[b, h, t, i] = x[b, t, h * d_k + i]. So head h owns the
    d_k neighboring features from h * d_k on, and nothing is computed, only rearranged.

    x: (B, T, d_model), every size at least 1, contiguous or not; n_heads at least 1.
    Returns (B, n_heads, T, d_k) in the dtype of x. It may be a view of x, contiguous or not;
    gradients flow back to x, and x is not modified.

    Raises ValueError when n_heads does not divide d_model; the message names both numbers,
    for example "d_model=10 does not divide into n_heads=4".
    """
    ### BEGIN SOLUTION
    B, T, d_model = x.shape
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}")
    return x.reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2)  # (B, T, H, d_k) -> (B, H, T, d_k)
    ### END SOLUTION


# %% check="split_heads"
check(split_heads)

# %% [markdown] hints="split_heads"
# 1. A reshape reads the numbers in the order in which they are stored: first all features of position 0, then all of position 1. In which order of axes does that reading cut the features, and only the features?
# 2. Cut the last axis into (n_heads, d_k) first, which leaves batch and position alone; then swap the axes of position and head. Test `d_model % n_heads` before anything else.
# 3. `x.reshape(B, T, n_heads, d_model // n_heads)`, then `.transpose(1, 2)`; before it `if d_model % n_heads: raise ValueError(...)` with both numbers in an f-string.

# %% [markdown] claims="000.2.6-af 002.s7-k 001.s9-h"
# ## Exercise: merge the heads
#
# After attention the heads have to become features again, $(B, H, T, d_k) \to (B, T, H\,d_k)$, head 0 first. It is the
# same walk backward: swap the axes $H$ and $T$, then join the last two. In the other order, or without the swap, the
# shape is right and the rows are made of different positions.
#
# A swap of axes moves no number in memory, it only changes the strides: steps from one index to the next. After it the
# tensor is not *contiguous*. `view` promises never to copy, so it refuses to join two axes whose numbers are not
# neighbors in memory. `reshape` copies when it must; `.contiguous().view(...)` copies always (unless it already is).

# %% demo
heads = torch.arange(24.0).view(1, 2, 3, 4)  # B=1, H=2, T=3, d_k=4
swapped = heads.transpose(1, 2)  # (1, 3, 2, 4)
print("strides before the swap", heads.stride(), " after it", swapped.stride(), " contiguous:", swapped.is_contiguous())
try:
    swapped.view(1, 3, 8)
except RuntimeError as error:
    print("view:   ", str(error).split(".")[0])
print("reshape:", swapped.reshape(1, 3, 8)[0, 0].tolist(), "= head 0, then head 1, of position 0")

# %% solve="merge_heads" points=2 difficulty=2 importance=5 minutes=5
def merge_heads(x: Float[Tensor, "B H T d_k"]) -> Float[Tensor, "B T d_model"]:
    """Put the heads of every position side by side: the inverse of split_heads.

    With d_model = H * d_k: out[b, t, h * d_k + i] = x[b, h, t, i]. Head 0 comes first.

    x: (B, H, T, d_k), every size at least 1, contiguous or not.
    Returns (B, T, H * d_k) in the dtype of x. Gradients flow back to x, and x is not modified.
    """
    ### BEGIN SOLUTION
    B, H, T, d_k = x.shape
    return x.transpose(1, 2).reshape(B, T, H * d_k)  # (B, T, H, d_k) -> (B, T, d_model)
    ### END SOLUTION


# %% check="merge_heads"
check(merge_heads)

# %% [markdown] hints="merge_heads"
# 1. In the result, all heads of position 0 stand before anything of position 1. Which axis has to come first, and which two belong next to each other, before they can be joined?
# 2. Undo the two steps of the split in reverse order: swap heads and positions, then join the last two axes. The swap leaves memory that `view` cannot join; `reshape` can.
# 3. `x.transpose(1, 2)` has the shape (B, T, H, d_k); `.reshape(B, T, H * d_k)` does the rest.

# %% [markdown] claims="000.2.4-b 002.s4-d 002.s7-l 000.2.6-ac 001.s4-h"
# ## Exercise: multi-head attention
#
# With the two functions the rest is short (Vaswani et al. 2017, section 3.2.2):
#
# $$\mathrm{MultiHead}(X) = \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_H)\, W_o, \qquad
# \mathrm{head}_h = \mathrm{Attention}(X W_q^{(h)},\; X W_k^{(h)},\; X W_v^{(h)})$$
#
# The formula has $H$ small matrices $W_q^{(h)}$ of shape $(d_{model}, d_k)$. We store them side by side as one
# $W_q$ of shape $(d_{model}, d_{model})$: columns $h\,d_k$ to $(h+1)\,d_k - 1$ belong to head $h$. One large product and a split
# give the same numbers as $H$ small products.
#
# Walk the shapes with $B=2$, $T=4$, $d_{model}=8$, $H=2$: `x` (2, 4, 8); `q`, `k`, `v` split (2, 2, 4, 4); scores
# $(B, H, T, T)$ = (2, 2, 4, 4), one square for each head; weights times values (2, 2, 4, 4); merged (2, 4, 8); after $W_o$
# (2, 4, 8), which a block adds to its input (lesson 07). In this example three different things have one shape, so it
# is a poor test: try your code with sizes that all differ, like $B=2$, $T=5$, $d_{model}=21$, $H=3$.
#
# **What is $W_o$ for?** Cut it into $H$ blocks of rows, $W_o^{(h)}$ of shape $(d_k, d_{model})$. A row of numbers
# times a matrix is a sum over the matrix's rows, so
#
# $$\mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_H)\, W_o = \sum_h \mathrm{head}_h\, W_o^{(h)} .$$
#
# Concatenate and project, or project each and add: the same thing. The sum says it more plainly: **heads work next to
# each other and each adds its own contribution to the output.** Without $W_o$ head $h$ could write to its own $d_k$
# features only.
#
# **The mask** is the same for all heads as a rule. Scores are $(B, H, T_q, T_k)$, so a mask of shape $(T_q, T_k)$
# broadcasts as it is, and one of shape $(B, T_q, T_k)$ needs an axis for the heads: `mask.unsqueeze(1)`. Without it,
# broadcasting lines up the batch with the heads, and with $B = H$ nobody complains.
#
# **Self or cross.** Queries always come from `x`. Keys and values come from `memory` if there is one, otherwise from
# `x` too.

# %% solve="multi_head_attention" points=6 difficulty=3 importance=5 minutes=20
def multi_head_attention(
    x: Float[Tensor, "B T_q d_model"],
    Wq: Float[Tensor, "d_model d_model"],
    Wk: Float[Tensor, "d_model d_model"],
    Wv: Float[Tensor, "d_model d_model"],
    Wo: Float[Tensor, "d_model d_model"],
    n_heads: int,
    mask: Bool[Tensor, "..."] | None = None,
    memory: Float[Tensor, "B T_k d_model"] | None = None,
) -> Float[Tensor, "B T_q d_model"]:
    """Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2.2).

    With d_k = d_model / n_heads, head h uses the columns from h * d_k up to, not including,
    (h + 1) * d_k of x Wq, of m Wk and of m Wv, where m is memory, or x when memory is None.
    It computes softmax(q k^T / sqrt(d_k)) v. The outputs of the heads stand side by side,
    head 0 first, and are multiplied by Wo. There are no biases.

    x: (B, T_q, d_model); the matrices are (inputs, outputs): x @ Wq.
    memory: None, or (B, T_k, d_model) with T_k free. All may be contiguous or not.
    mask: None (everything visible), or boolean, True = this query may see this key, of any
        shape of at least two dimensions that broadcasts to (B, n_heads, T_q, T_k), for example
        (T_q, T_k), (B, 1, 1, T_k), (B, 1, T_q, T_k) or (n_heads, T_q, T_k).
        A query of a head that sees no key has zeros as this head's output (before Wo);
        all gradients stay finite. Hidden positions have no influence at all.
    Scores as large as a million, positive or negative, give no inf or nan.

    Returns (B, T_q, d_model), in the dtype (float32 or float64) and on the device of the inputs,
    which are not modified. float64 inputs keep the precision of float64
    (torch.sqrt(torch.tensor(d_k)) is a float32 number).
    The given `attention` and F.scaled_dot_product_attention may be used.
    Raises ValueError when n_heads does not divide d_model; the message names both numbers.
    """
    ### BEGIN SOLUTION
    if memory is None:
        memory = x
    q = split_heads(x @ Wq, n_heads)  # (B, H, T_q, d_k)
    k = split_heads(memory @ Wk, n_heads)  # (B, H, T_k, d_k)
    v = split_heads(memory @ Wv, n_heads)  # (B, H, T_k, d_k)
    heads = attention(q, k, v, mask)  # (B, H, T_q, d_k)
    return merge_heads(heads) @ Wo  # (B, T_q, d_model)
    ### END SOLUTION


# %% check="multi_head_attention"
check(multi_head_attention)

# %% [markdown] hints="multi_head_attention"
# 1. Project, split, attend, merge, project. Everything that has to do with heads is in your two functions; attention itself sees the head as one more leading axis and needs no change.
# 2. `source = x if memory is None else memory`. Queries from `x @ Wq`, keys and values from `source @ Wk` and `source @ Wv`, each through `split_heads`; the given `attention` takes the mask as it is; then `merge_heads` and `@ Wo`.
# 3. `heads = attention(split_heads(x @ Wq, n_heads), split_heads(source @ Wk, n_heads), split_heads(source @ Wv, n_heads), mask)` and `return merge_heads(heads) @ Wo`.

# %% [markdown] claims="000.2.4-a"
# Are two heads two opinions, or the same one twice? That is up to their weights. If the columns of both heads are
# equal, the heads are equal, and the layer has paid for one head twice. The next cell prints the weights that position
# 2 gives to five positions: random columns first, then head 1 a copy of head 0. To read the weights off, the values
# are the identity, as in lesson 03.

# %% demo
generator = torch.Generator().manual_seed(0)
x, Wq, Wk = torch.randn(1, 5, 8, generator=generator), *torch.randn(2, 8, 8, generator=generator) / 3
copied = [W.clone() for W in (Wq, Wk)]
for W in copied:
    W[:, 4:] = W[:, :4]
for label, matrices in (("random columns", (Wq, Wk)), ("head 1 copied from head 0", copied)):
    q, k = (split_heads(x @ W, 2) for W in matrices)
    weights = attention(q, k, torch.eye(5))[0, :, 2]
    print(label.ljust(26), *(f"head {h}: " + " ".join(f"{w:.2f}" for w in weights[h]) for h in range(2)), sep="  ")

# %% [markdown] claims="002.s7-a 002.s7-d"
# ## Exercise: the module
#
# Now with parameters of its own, so that an optimizer finds them. No `nn.Transformer`, no `nn.MultiheadAttention`: the
# point is to have every step in your own hands. Four `nn.Linear` layers from $d_{model}$ to $d_{model}$, called `W_q`,
# `W_k`, `W_v`, `W_o`. An `nn.Linear` stores its weight as (outputs, inputs) and computes `x @ weight.T + bias`, so head
# $h$ owns *rows* $h\,d_k$ to $(h+1)\,d_k - 1$ of `W_q.weight`, and calling `self.W_q(x)` needs no thought about it.
#
# Two things to mind. The constructor is the place for the `ValueError`: a wrong size should fail when the model is
# built, not an hour later. And the order of the arguments differs from the function above: `forward(x, memory, mask)`.
# Pass both by name.

# %% solve="MultiHeadAttention" points=6 difficulty=3 importance=5 minutes=20
class MultiHeadAttention(nn.Module):
    """Multi-head attention as a module; the computation is that of multi_head_attention.

    MultiHeadAttention(d_model, n_heads, bias=False) has four maps from d_model to d_model,
    named W_q, W_k, W_v and W_o: each an nn.Linear(d_model, d_model, bias=bias) with PyTorch's
    default initialization, its weight stored as (outputs, inputs). There are no other
    parameters or saved buffers, nor a second name for one, so that state_dict() holds these
    weights (and biases) alone and they can be loaded by name. Raises ValueError when n_heads
    does not divide d_model; the message names both numbers.

    forward(x, memory=None, mask=None), in this order:
        q = W_q(x), k = W_k(m), v = W_v(m), where m is memory, or x when memory is None.
        Head h takes the d_k = d_model / n_heads features of q, k, v from h * d_k on; scores
        are divided by sqrt(d_k); the heads side by side, head 0 first, go through W_o.
        x: (B, T_q, d_model); memory: (B, T_k, d_model), T_k free; contiguous or not.
        mask: boolean, True = may see, of any shape of at least two dimensions that broadcasts
        to (B, n_heads, T_q, T_k).
        A query of a head that sees no key has zeros as this head's output, before W_o (whose
        bias, if any, is still added), and all gradients stay finite. Hidden positions have no
        influence at all; scores as large as a million, of both signs, give no inf or nan.
        Returns (B, T_q, d_model) in the dtype of x. Works in float32 and, after .double(), in
        float64, with the precision of float64 (torch.sqrt(torch.tensor(d_k)) is a float32
        number). No dropout; training and eval mode give the same, gradients too. No call depends
        on an earlier one or on another module: it uses the weights as they are at the moment.
        x, memory, mask and parameters are not modified.

    F.scaled_dot_product_attention and the given `attention` may be used.
    """

    def __init__(self, d_model: int, n_heads: int, bias: bool = False) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}")
        self.n_heads = n_heads
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)
        ### END SOLUTION

    def forward(
        self,
        x: Float[Tensor, "B T_q d_model"],
        memory: Float[Tensor, "B T_k d_model"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T_q d_model"]:
        ### BEGIN SOLUTION
        if memory is None:
            memory = x
        q = split_heads(self.W_q(x), self.n_heads)  # (B, H, T_q, d_k)
        k = split_heads(self.W_k(memory), self.n_heads)  # (B, H, T_k, d_k)
        v = split_heads(self.W_v(memory), self.n_heads)  # (B, H, T_k, d_k)
        heads = attention(q, k, v, mask)  # (B, H, T_q, d_k)
        return self.W_o(merge_heads(heads))  # (B, T_q, d_model)
        ### END SOLUTION


# %% check="MultiHeadAttention"
check(MultiHeadAttention)

# %% [markdown] hints="MultiHeadAttention"
# 1. `__init__` makes what is learned and checks the sizes; `forward` is `multi_head_attention` with `self.W_q(x)` in the place of `x @ Wq`. The weights of nn.Linear are stored the other way round, so calling the layer is safer than using its weight.
# 2. In `__init__`: the `ValueError`, `self.n_heads`, four `nn.Linear(d_model, d_model, bias=bias)`. In `forward`: choose memory or x, project, `split_heads` three times, `attention(q, k, v, mask)`, `merge_heads`, `self.W_o`.
# 3. `q = split_heads(self.W_q(x), self.n_heads)`, `k` and `v` alike from `memory` (after `if memory is None: memory = x`), then `return self.W_o(merge_heads(attention(q, k, v, mask)))`.

# %% [markdown] claims="001.s9-g"
# ### Compare with a trusted implementation
#
# `nn.MultiheadAttention` computes the same function with another layout: its `in_proj_weight` holds the three matrices
# on top of each other, q, k, v. Its boolean mask means the *opposite* of ours: True = blocked. Copy the weights over
# and compare the forward pass, and then the gradients: a detached tensor or a wrong in-place write can leave the
# output right and the gradient wrong.

# %% demo
torch.manual_seed(0)
mine = MultiHeadAttention(12, 3, bias=True).double()
theirs = nn.MultiheadAttention(12, 3, bias=True, batch_first=True).double()
maps = [mine.W_q, mine.W_k, mine.W_v]
with torch.no_grad():
    theirs.in_proj_weight.copy_(torch.cat([m.weight for m in maps]))
    theirs.in_proj_bias.copy_(torch.cat([m.bias for m in maps]))
theirs.out_proj.load_state_dict(mine.W_o.state_dict())
x = torch.randn(2, 5, 12, dtype=torch.float64)
may_see = torch.ones(5, 5, dtype=torch.bool).tril()
one, two = mine(x, mask=may_see), theirs(x, x, x, attn_mask=~may_see, need_weights=False)[0]
print(f"largest difference of the outputs:            {(one - two).abs().max().item():.1e}")
one.square().sum().backward()
two.square().sum().backward()
stacked = torch.cat([m.weight.grad for m in maps])
print(f"largest difference of the weights' gradients: {(stacked - theirs.in_proj_weight.grad).abs().max().item():.1e}")
wrong = theirs(x, x, x, attn_mask=may_see, need_weights=False)[0]
print(f"the same with our mask handed over as it is:  {(one - wrong).abs().max().item():.1e}")

# %% [markdown] claims="000.2.4-d 000.2.4-e 000.2.4-h 002.s4-b"
# ## Exercise: counting parameters
#
# How many numbers does the layer learn? Head by head: $W_q^{(h)}$, $W_k^{(h)}$, $W_v^{(h)}$ and $W_o^{(h)}$ have
# $d_{model}\, d_k$ each, and there are $H$ of them:
#
# $$H \cdot 4\, d_{model}\, d_k = 4\, d_{model} \cdot (H\, d_k) = 4\, d_{model}^2$$
#
# $H$ is gone. With $d_{model} = 8$: one head of width 8, two of width 4, eight of width 1, always $4 \cdot 64 = 256$. Another
# head does not add parameters, it takes its share from the others. (Fix $d_k$ instead, and let $H$ grow: then the count
# grows with $H$. T5-11B does so: $d_{model} = 1024$, and 128 heads of width 128.)
#
# **Sharing keys and values.** Grouped-query attention (GQA; Ainslie et al. 2023) has fewer key and value heads than
# query heads: `n_kv_heads`, each used by a group of `n_heads / n_kv_heads` query heads. $W_k$ and $W_v$ become
# narrower, $(d_{model}, n_{kv}\, d_k)$. Multi-query attention (MQA; Shazeer 2019) is the case of one. With
# $d_{model} = 8$, $H = 4$, $d_k = 2$ and 2 key and value heads: $64 + 8 \cdot 4 + 8 \cdot 4 + 64 = 192$. Why anybody
# wants this is the subject of lesson 08; it is not the parameters.
#
# **How many heads?** The paper of 2017 has 8, or 16 in its large model, and these two numbers are often quoted as the
# rule. Published models differ a lot; what they share is rather the width of a head, 64 to 128:
#
# | model | $d_{model}$ | heads | $d_k$ | key and value heads |
# | :--- | ---: | ---: | ---: | ---: |
# | Transformer, base (2017) | 512 | 8 | 64 | 8 |
# | Transformer, big (2017) | 1024 | 16 | 64 | 16 |
# | BERT-base, GPT-2 small | 768 | 12 | 64 | 12 |
# | GPT-3 175B (2020) | 12288 | 96 | 128 | 96 |
# | Llama 3.1 8B (2024) | 4096 | 32 | 128 | 8 |
# | Llama 3.1 405B (2024) | 16384 | 128 | 128 | 8 |

# %% solve="attention_parameter_count" points=3 difficulty=2 importance=4 minutes=10
def attention_parameter_count(d_model: int, n_heads: int, n_kv_heads: int | None = None, bias: bool = False) -> int:
    """The number of learned numbers in one attention layer.

    With d_k = d_model / n_heads, counted are the maps of the queries (d_model to
    n_heads * d_k), of the keys and of the values (each d_model to n_kv_heads * d_k), and the
    output map (n_heads * d_k to d_model).

    n_kv_heads: None means n_heads, as in MultiHeadAttention.
    bias: each of the four maps has a bias as well, as long as the output of that map.

    Returns an int. attention_parameter_count(8, 4) is 256, with n_kv_heads=2 it is 192.
    Raises ValueError when n_heads does not divide d_model, or n_kv_heads does not divide
    n_heads; the message names the two numbers that do not fit. All arguments are at least 1.
    """
    ### BEGIN SOLUTION
    if n_kv_heads is None:
        n_kv_heads = n_heads
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}")
    if n_heads % n_kv_heads:
        raise ValueError(f"n_heads={n_heads} does not divide into n_kv_heads={n_kv_heads} groups")
    d_kv = n_kv_heads * (d_model // n_heads)
    maps = [(d_model, d_model), (d_model, d_kv), (d_model, d_kv), (d_model, d_model)]  # (inputs, outputs) of q, k, v, o
    return sum(n_in * n_out + (n_out if bias else 0) for n_in, n_out in maps)
    ### END SOLUTION


# %% check="attention_parameter_count"
check(attention_parameter_count)

# %% [markdown] hints="attention_parameter_count"
# 1. Write down inputs and outputs of the four maps. Only two of them know about `n_kv_heads`.
# 2. Keys and values have `n_kv_heads * d_k` outputs, queries and the output map have `d_model`. A map has inputs times outputs numbers, and a bias adds its outputs once. Test both divisions first.
# 3. `d_kv = n_kv_heads * (d_model // n_heads)`; without bias the count is `2 * d_model * d_model + 2 * d_model * d_kv`; the four biases add `2 * d_model + 2 * d_kv`.

# %% demo
print("heads     d_k   formula   numbers in the module")
for n_heads in (1, 2, 4, 8, 16):
    module = MultiHeadAttention(64, n_heads)
    counted = sum(p.numel() for p in module.parameters())
    print(f"{n_heads:5}   {64 // n_heads:5}   {attention_parameter_count(64, n_heads):7}   {counted:7}")
share = attention_parameter_count(4096, 32, 8) / attention_parameter_count(4096, 32)
print(f"\nLlama 3.1 8B, 8 of 32 key and value heads: {share:.1%} of the full count")

# %% [markdown] claims="000.2.4-i"
# ### Experiment: the same count, the same time?
#
# Parameters do not depend on $H$. Neither do the multiplications in $QK^\top$: $H \cdot T^2 \cdot d_k = T^2\, d_{model}$.
# Predict how the time of the attention step (without the four projections) depends on $H$, at $T = 256$ and
# $d_{model} = 256$, written out and with PyTorch's fused kernel:
#
# - (a) It does not: equal work, equal time.
# - (b) It grows with $H$, because something besides the products is done for each head.
# - (c) It falls with $H$, because heads run in parallel.

# %% demo
import time


def milliseconds(function, *arguments, repeats=7):
    """The shortest of several runs: the one that was disturbed least."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        function(*arguments)
        times.append(1000 * (time.perf_counter() - start))
    return min(times[1:])  # the first run warms up


counts = [1, 2, 4, 8, 16, 32, 64]
x = torch.randn(1, 256, 256)
fig, ax = plt.subplots(figsize=(6.4, 3.8))
steps = {"written out": attention, "fused (F.scaled_dot_product_attention)": F.scaled_dot_product_attention}
for (label, function), style in zip(steps.items(), ("o-", "s--")):
    ax.plot(counts, [milliseconds(function, *[split_heads(x, H)] * 3) for H in counts], style, label=label)
ax.set(xscale="log", yscale="log", xlabel="number of heads $H$ ($d_{model}$ = 256 fixed)", ylabel="time of one attention step (ms)")
ax.set_xticks(counts, counts)
ax.set_title("Do more heads take more time at equal parameters?")
ax.legend()
plt.show()

# %% [markdown]
# Each point is the shortest of several runs on your machine. **(b)** is what usually shows: there are $H\,T^2$ scores
# to store and to send through the softmax, $H$ times as many as with one head, and the products themselves get
# narrower, which kernels like less. **(a)** counts multiplications only. **(c)** confuses what *could* run in parallel
# with what a given machine does: a GPU with idle units comes nearer to it. The two lines compute the same numbers; how
# far they are apart, and how steep they are, depends on the kernel, the memory layout and the hardware. So: parameters
# by formula, time by measurement.

# %% [markdown]
# ## Exercise: switch one head off
#
# What is head 2 good for? The plainest experiment is to remove it and see what gets worse: an *ablation*. Since the
# output is a sum of contributions, removing head $h$ has an exact meaning:
#
# $$\text{ablated} = \sum_{g \neq h} \mathrm{head}_g\, W_o^{(g)} = \text{output} - \mathrm{head}_h\, W_o^{(h)}$$
#
# It is *not* the same as zero queries or zero keys of that head: zero scores are equal scores, and the head goes on to
# add the mean of its values. Nor as zero *columns* of $W_o$: these are features of the output, which all heads share.
#
# By hand, with $W_o = \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$ and the two heads from the start of the lesson:
# position 0 had $(0.73, 0.50)$, so its output is $0.73\,(1, 2) + 0.50\,(3, 4)$. Without head 0 it is
# $0.50\,(3, 4) = (1.5, 2)$.

# %% solve="ablate_head" points=4 difficulty=2 importance=4 minutes=10
def ablate_head(
    x: Float[Tensor, "B T_q d_model"],
    Wq: Float[Tensor, "d_model d_model"],
    Wk: Float[Tensor, "d_model d_model"],
    Wv: Float[Tensor, "d_model d_model"],
    Wo: Float[Tensor, "d_model d_model"],
    n_heads: int,
    head: int,
    mask: Bool[Tensor, "..."] | None = None,
    memory: Float[Tensor, "B T_k d_model"] | None = None,
) -> Float[Tensor, "B T_q d_model"]:
    """multi_head_attention without the contribution of one head.

    The output of head number `head` (counted from 0) is replaced by zeros after its
    attention and before Wo; the other heads are computed as always, and nothing is scaled
    up to make good for the loss. So the result is the sum over all g except `head` of
    head_g @ Wo[g * d_k : (g + 1) * d_k], with d_k = d_model / n_heads; with one head it is
    zeros. Gradients are those of this sum (and finite): the head that was removed gets none.

    x, Wq, Wk, Wv, Wo, n_heads, mask and memory are those of multi_head_attention, with the
    same masks, memory, dtypes, sizes of scores and zero rows; none of them is modified.
    Returns (B, T_q, d_model).

    Raises ValueError when n_heads does not divide d_model (the message names both numbers),
    and when head is not one of 0, ..., n_heads - 1 (the message names head and n_heads);
    negative numbers do not count from the back.
    """
    ### BEGIN SOLUTION
    if not 0 <= head < n_heads:
        raise ValueError(f"head={head} does not exist: with n_heads={n_heads} the heads are 0 to {n_heads - 1}")
    d_k = Wo.shape[0] // n_heads
    kept = Wo.clone()
    kept[head * d_k : (head + 1) * d_k] = 0.0  # the rows that carry this head's output
    return multi_head_attention(x, Wq, Wk, Wv, kept, n_heads, mask, memory)
    ### END SOLUTION


# %% check="ablate_head"
check(ablate_head)

# %% [markdown] hints="ablate_head"
# 1. The heads are added up at the very end, through their own rows of `Wo`. What does a head contribute whose rows are zero?
# 2. Copy `Wo`, since the caller's must stay as it is; set the `d_k` rows of this head to zero; call `multi_head_attention` with the copy and pass mask and memory on. Test `0 <= head < n_heads` first.
# 3. `kept = Wo.clone()`, then `kept[head * d_k : (head + 1) * d_k] = 0.0`, then `return multi_head_attention(x, Wq, Wk, Wv, kept, n_heads, mask, memory)`.

# %% [markdown] claims="000.2.4-f 000.2.4-g 002.s4-c"
# ## Experiment: what do heads specialize in?
#
# "The first head looks at subject and verb, the second at what a pronoun stands for." That is how heads are often
# introduced. To see what is true of it we need a model whose jobs we know. A sequence of 12 random symbols out of 8;
# at each position (from the fourth on) the model has to name three symbols: the one **1 back**, the one **3 back**, and
# the **first** of the sequence. The model is one attention layer with 4 heads and nothing else: embeddings plus learned
# positions, your `multi_head_attention`, and one linear map to the three answers.

# %% demo
JOBS, V, LENGTH, WIDTH = ["1 back", "3 back", "first"], 8, 12, 32


def answers(ids):
    """The three right answers of positions 3, 4, ...: (B, T - 3, 3)."""
    return torch.stack([ids.roll(1, dims=1), ids.roll(3, dims=1), ids[:, :1].expand_as(ids)], dim=-1)[:, 3:]


def train(n_heads, seed, steps=250):
    """Trains symbols, positions, Wq, Wk, Wv, Wo and the map to the answers; returns them."""
    g = torch.Generator().manual_seed(seed)
    shapes = [(V, WIDTH), (LENGTH, WIDTH), *[(WIDTH, WIDTH)] * 4, (WIDTH, len(JOBS) * V)]
    scales = [0.5, 0.5, *[WIDTH**-0.5] * 5]
    weights = [(torch.randn(shape, generator=g) * scale).requires_grad_() for shape, scale in zip(shapes, scales)]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    for _ in range(steps):
        ids = torch.randint(V, (32, LENGTH), generator=g)
        out = multi_head_attention(weights[0][ids] + weights[1], *weights[2:6], n_heads)
        logits = (out @ weights[6])[:, 3:].unflatten(-1, (len(JOBS), V))
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 2), answers(ids).flatten()).backward()
        optimizer.step()
    return [w.detach() for w in weights]

# %% [markdown]
# Three models, trained alike; only the seed of the random start and of the data differs. Then every head of every
# model is switched off in turn, and the accuracy of each job is measured on new sequences. **Predict** what the three
# tables of 4 heads times 3 jobs look like:
#
# - (a) The same in all three: head 0 does job 1, head 1 does job 2, and so on.
# - (b) Within a model the heads divide the jobs somehow, but the numbers of the heads differ from model to model, and
#   with four heads for three jobs one may be idle.
# - (c) Every head does a quarter of every job, so each ablation costs a little everywhere.

# %% demo
test_ids = torch.randint(V, (500, LENGTH), generator=torch.Generator().manual_seed(99))


def accuracy(weights, out):
    """The share of right answers for each job, on the test sequences."""
    guess = (out @ weights[6])[:, 3:].unflatten(-1, (len(JOBS), V)).argmax(dim=-1)
    return (guess == answers(test_ids)).float().mean(dim=(0, 1))


def contributions(weights, n_heads):
    """The output of the whole layer, and what each head adds to it."""
    arguments = (weights[0][test_ids] + weights[1], *weights[2:6], n_heads)
    full = multi_head_attention(*arguments)
    return full, [full - ablate_head(*arguments, head) for head in range(n_heads)]


# %% demo
fig, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained", sharey=True)
for seed, ax in enumerate(axes):
    weights = train(4, seed)
    full, parts = contributions(weights, 4)
    before = accuracy(weights, full)
    loss = torch.stack([before - accuracy(weights, full - part) for part in parts])  # (heads, jobs)
    image = ax.imshow(loss, vmin=0, vmax=1, cmap="cividis")
    for h, j in torch.cartesian_prod(torch.arange(4), torch.arange(3)).tolist():
        ax.text(j, h, f"{loss[h, j]:.2f}", ha="center", va="center", color="white" if loss[h, j] < 0.5 else "black")
    ax.set_xticks(range(3), JOBS)
    ax.set(xlabel="job", title=f"seed {seed}")
    print(f"seed {seed}, all four heads on:", *(f"{job}: {a:.1%}" for job, a in zip(JOBS, before)), sep="  ")
axes[0].set(ylabel="head switched off", yticks=range(4))
fig.colorbar(image, ax=axes, label="accuracy lost (share of answers)")
fig.suptitle("Does head 0 always do the same job?")
plt.show()

# %% [markdown]
# Bright cells are jobs that collapse without that head. **(b)**: the jobs get divided, and which head takes which
# differs between the seeds. It cannot be otherwise: nothing in the layer tells the heads apart. Renumber them (permute
# the columns of $W_q, W_k, W_v$ and the rows of $W_o$ in blocks) and the function is the same, so **(a)** would need a
# reason to prefer one numbering. **(c)** does not show here with jobs as separate as these; in language models many
# heads are in between. A head whose whole row is near zero is idle or has a colleague who can stand in.
#
# So "head 1 does subjects" is not how the layer is built. Some heads of *trained* language models have been found to
# follow syntax or coreference (Clark et al. 2019 on BERT, Voita et al. 2019 on translation); that was measured
# afterward, model by model, it is not assigned, and it holds for a minority of the heads.

# %% [markdown]
# ### Experiment: how many heads does it need?
#
# Now eight heads of width 4 for the same three jobs. First each head is switched off alone. Then they go one after the
# other, least important first, and stay off. (Contributions add up, so several can be subtracted at once.) **Predict**:
#
# - (a) No single head matters, so all of them can go without much loss.
# - (b) Several can go for free, then accuracy falls step by step: with spare heads, a single ablation says little.
# - (c) Every head is needed: a layer uses what it has.

# %% demo
fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
for seed, marker in enumerate("os^"):
    weights = train(8, seed)
    full, parts = contributions(weights, 8)
    alone = [accuracy(weights, full - part).mean().item() for part in parts]
    order = sorted(range(8), key=lambda head: -alone[head])  # the least important head first
    left = [accuracy(weights, full - sum(parts[h] for h in order[:n])).mean().item() for n in range(9)]
    axes[0].plot(range(8), alone, marker, label=f"seed {seed}")
    axes[1].plot(range(9), left, marker + "-", label=f"seed {seed}")
for ax in axes:
    ax.axhline(1 / V, color="gray", linewidth=0.8, label="guessing")
axes[0].set(ylim=(0, 1.05), xlabel="the one head switched off", ylabel="accuracy, mean of the three jobs")
axes[1].set(xlabel="number of heads switched off")
axes[1].legend(loc="lower left")
fig.suptitle("How many of eight heads do three jobs need?")
plt.show()

# %% [markdown]
# Left: alone, most heads cost little; here and there one holds a job by itself. Right: that does not mean that they can
# all go. **(b)**: the first ones are
# free, and each of the last ones takes a large part of a job with it. When two heads share a job, removing either
# costs little, removing both costs the job; so the importances of single heads do not add up (**a**). And a layer that
# works with all its heads on may well be redundant (**c**): Michel et al. 2019, *Are Sixteen Heads Really Better than
# One?*, removed a good part of the heads of trained translation and BERT models at test time with little loss, some layers going
# down to one head. Redundant after training is not the same as useless in training.
#
# A caution about the method: zeros are a value the next layers may never have seen. Replacing a head's output by its
# *mean* over a data set is a gentler ablation, and in a deep network the two can disagree.

# %% [markdown] claims="001.s8-a 001.s9-h"
# ## What goes wrong
#
# Number of heads, width of a head, layout: keep asking for the three at every line that touches an axis.
#
# | slip | symptom | what hides it |
# | :--- | :--- | :--- |
# | `view(B, H, T, d_k)` at once | heads mix positions; a causal mask leaks | the shape; $H = 1$; $T = 1$ |
# | merging without the swap | rows made of several positions | the shape; $H = 1$; $T = 1$ |
# | `d_model // n_heads` unchecked | obscure error, or a wrong length inside | sizes that divide |
# | scores divided by $\sqrt{d_{model}}$ | too flat weights in every head | $H = 1$ |
# | softmax over all heads together | weights of one head do not sum to 1 | $H = 1$ |
# | mask $(B, T, T)$ without `unsqueeze(1)` | batch lined up with heads | $B = H$, $B = 1$ |
# | mask accepted but not passed on | no effect | tests without a mask |
# | `W_o` forgotten | head $h$ writes to its own features only | the shape |
#
# Each step has a test of its own: after the swap, compare one number with its formula, `out[b, h, t, i]` against
# `x[b, t, h * d_k + i]`; after the merge, `merge_heads(split_heads(x, H))` must be `x`; for the mask, change a hidden
# position and see who moves.
#
# **Bug hunt.** The function below passes every test of shapes. With a causal mask, position 0 may depend on itself
# alone. The last line changes one position after the other and measures how far the output at position 0 moves.
# Find the line, mend it in this cell, and run the check without its `#`.

# %% demo
def hurried_attention(x, Wq, Wk, Wv, Wo, n_heads, mask=None, memory=None):
    if x.shape[-1] % n_heads:
        raise ValueError(f"d_model={x.shape[-1]} does not divide into n_heads={n_heads}")
    memory = x if memory is None else memory
    q, k, v = (
        (tokens @ W).view(tokens.shape[0], tokens.shape[1], n_heads, -1).transpose(1, 2)
        for tokens, W in ((x, Wq), (memory, Wk), (memory, Wv))
    )
    heads = attention(q, k, v, mask)
    return heads.reshape(x.shape) @ Wo


generator = torch.Generator().manual_seed(0)
x, matrices = torch.randn(1, 6, 12, generator=generator), torch.randn(4, 12, 12, generator=generator)
causal = torch.ones(6, 6, dtype=torch.bool).tril()
before = hurried_attention(x, *matrices, 3, causal)
for t in range(6):
    changed = x.clone()
    changed[:, t] += 1.0
    gap = (hurried_attention(changed, *matrices, 3, causal) - before)[:, 0].abs().max()
    print(f"changed position {t}: output 0 moves by {gap:.2f}")
# check(hurried_attention, "multi_head_attention")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The heads are merged without swapping the axes back. `heads` is $(B, H, T, d_k)$; read in this order, the first
# $d_{model} = 12$ numbers are positions 0, 1 and 2 of head 0, and they become "position 0" of the output. So it
# depends on positions 1 and 2, and the mask, which was right inside, is of no use. The line should read
#
# ```python
# return heads.transpose(1, 2).reshape(x.shape) @ Wo
# ```
#
# A toy model often trains with this bug: $W_o$ and later layers can partly untangle a fixed shuffle, and looking into
# the future even lowers the training loss. It shows when text is generated one token at a time.
#
# </details>

# %% [markdown]
# ## Interview questions
#
# The first is answered in writing, and a person reads it. For the other two, say your answer aloud before you open
# the model answer.

# %% [markdown] essay="more_heads" points=3
# **A colleague doubles the number of heads of a model, from 16 to 32, with everything else fixed, and says: "Twice the
# parameters, twice the relations it can learn." What is true?** About 90 seconds (150 to 200 words). Say what happens
# to the parameters, to the width of a head and to the time, and what can be said about the relations.
#
# ### BEGIN SOLUTION
# Parameters: none are added. Each head has 4 d_model d_k numbers with d_k = d_model / H, so H heads have
# 4 d_model^2, whatever H is. (It would be different if d_k were kept: then the count doubles.)
#
# Width: each head is half as wide. Its score matrix q k^T has a rank of at most d_k, and its values carry d_k numbers,
# so a single head can express less. Scores are divided by the root of the new, smaller d_k. Somewhere it becomes too
# narrow; published models keep 64 to 128.
#
# Time: the multiplications of q k^T and of the weights with the values stay T^2 d_model each, but there are twice as
# many scores to store and to normalize, so the time can grow. Measure it: it depends on kernel, layout and hardware.
#
# Relations: there are 32 attention patterns at once instead of 16. What they do is not assigned. Heads may learn
# different things, share one job or be redundant; many can be removed after training at little cost. So more patterns
# are possible, not guaranteed.
#
# Marking: 1 point for the constant count with its reason; 1 for the narrower heads with a consequence, or for the time
# with its reason; 1 for saying that roles are learned, not assigned, and that redundancy is common.
# ### END SOLUTION

# %% [markdown]
# **What would be lost without $W_o$?**
#
# <details><summary>Model answer</summary>
#
# Without $W_o$ the output is the concatenation: features $h\,d_k$ to $(h+1)\,d_k - 1$ come from head $h$ and from no
# other. $W_o$ lets every head write into all $d_{model}$ features, and lets the layer add up what several heads found.
# Within one head it is redundant as a matrix: $W_v^{(h)} W_o^{(h)}$ is a single map of rank at most $d_k$ (the
# "value-output circuit"; Elhage et al. 2021), so for $H = 1$ and $d_k = d_{model}$ it could be folded into $W_v$. For
# several heads that is no longer possible in the form of the layer: the folded $W_v^{(h)}$ would be $d_{model}$ wide
# for each head.
#
# </details>

# %% [markdown]
# **You switch off each head of a trained model in turn, and none changes the loss. Are the heads useless?**
#
# <details><summary>Model answer</summary>
#
# No. First, redundancy: if two heads do the same job, either can go, but not both. Importance has to be measured on
# sets of heads (greedily, or by the gradient of the loss with respect to a gate on each head, as Michel et al. 2019
# do). Second, the residual stream and other layers can carry the information past a missing head. Third, the measure:
# the mean loss on one data set hides a head that matters for rare cases. Fourth, check the experiment: does the
# ablation do anything? Compare outputs, not only the loss. A head that was switched off by zeroing its queries still
# adds the mean of its values.
#
# </details>

# %% [markdown]
# ## Summary
#
# | object | shape | remember |
# | :--- | :--- | :--- |
# | `x`, `memory` | (B, T_q, d_model), (B, T_k, d_model) | queries from `x`, keys and values from `memory` |
# | `Wq`, `Wk`, `Wv`, `Wo` | (d_model, d_model) | head h: columns of the first three, rows of `Wo` |
# | `q`, `k`, `v` split | (B, H, T, d_k) | cut the last axis, *then* swap; H must divide d_model |
# | scores, weights | (B, H, T_q, T_k) | divided by $\sqrt{d_k}$, the width of one head; each row of each head sums to 1 |
# | mask | broadcasts to (B, H, T_q, T_k) | True = may see; (B, T_q, T_k) needs `unsqueeze(1)`; an empty row gives zeros |
# | heads, merged | (B, H, T_q, d_k), (B, T_q, d_model) | swap back, *then* join |
# | output | (B, T_q, d_model) | $\sum_h \mathrm{head}_h W_o^{(h)}$ |
#
# - $4\,d_{model}^2$ parameters, for every number of heads; more heads are narrower heads.
# - GQA and MQA narrow $W_k$ and $W_v$: $2\,d_{model}^2 + 2\,d_{model}\,n_{kv}\,d_k$.
# - What a head does is learned, differs from seed to seed, and is often shared with other heads.
# - To remove a head, zero its rows of $W_o$; single ablations miss jobs that heads share.
#
# References: Vaswani et al. 2017, *Attention Is All You Need*; Clark et al. 2019, *What Does BERT Look At?*; Michel et
# al. 2019, *Are Sixteen Heads Really Better than One?*; Voita et al. 2019, *Analyzing Multi-Head Self-Attention*;
# Shazeer 2019, *Fast Transformer Decoding*; Elhage et al. 2021, *A Mathematical Framework for Transformer Circuits*;
# Ainslie et al. 2023, *GQA*.
