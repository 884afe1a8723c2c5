# %% [markdown] claims="000.2.6-a 002.s2-d 002.s7-b 001.s2-a 001.s2-b 001.s2-c 001.s4-a"
# # 07 The block and the model
#
# Attention is one formula. A language model is that formula plus everything that lets it be stacked: a residual
# stream, a norm before each step, a network that works on every position by itself, a table of tokens at the
# bottom and a projection to the vocabulary at the top. Leave one of them out and the stack does not train, or
# does not know the order of its words, or cannot be read. In this lesson you write each part, then the block,
# then the model, and you measure what each part is for.
#
# ```mermaid
# flowchart LR
#     X["x<br/>(B, T, d)"] --> N1["norm1"] --> A["causal attention<br/>qkv, heads, out"] --> P1(("+"))
#     X -- "residual" --> P1
#     P1 -- "u" --> N2["norm2"] --> F["FFN<br/>gate, up, down"] --> P2(("+"))
#     P1 -- "residual" --> P2
#     P2 --> Y["y, to the next block<br/>(B, T, d)"]
# ```
#
# That is one *pre-norm decoder block*. The model is: look up the tokens, add positions, run $L$ such blocks,
# one last norm, one matrix to the vocabulary. "Stack attention many times with residuals and norms" is a
# popular summary of it and leaves out two parts: the FFN, which holds most of the parameters (you will count
# them), and the positions. A class that contains multi-head attention alone, however well written, is a part of
# a Transformer and not yet the smallest one.
#
# **Sizes** used throughout: `B` batch, `T` positions, `d_model` (short: $d$) features of a position, `n_heads`
# heads of width `d_k = d_model / n_heads`, `d_ff` (short: $f$) the inner width of the FFN, `V` vocabulary, `L`
# blocks.
# %%
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from grader import check, hint, progress, solution

# %% demo
import matplotlib.pyplot as plt

plt.style.use("tableau-colorblind10")
torch.set_num_threads(1)  # the matrices here are tiny: more threads would only wait for one another

# %% [markdown] claims="000.2.6-b 001.s1-b 001.s1-c 002.s1-i 002.s1-j"
# ## Which Transformer?
#
# The figure that everybody knows shows the model of 2017: an encoder *and* a decoder, with the norm after each
# addition. Few models of today look exactly like it. They are its relatives, with parts added or taken away, so
# say which one you mean before you explain one:
#
# | | Vaswani et al. 2017 | BERT 2018 | GPT-2 2019 | LLaMA 2023 | this lesson |
# | --- | --- | --- | --- | --- | --- |
# | stacks | encoder + decoder | encoder | decoder | decoder | decoder |
# | norm | LayerNorm, after | LayerNorm, after | LayerNorm, before | RMSNorm, before | RMSNorm, before |
# | FFN | ReLU | GELU | GELU (tanh form) | SwiGLU | SwiGLU |
# | positions | sine table, added | learned, added | learned, added | RoPE, in every attention | learned, added |
# | biases in the FFN | yes | yes | yes | no | no |
# | head | tied to the embedding | tied | tied | not tied | tied |
#
# Each row is a choice, not a law: the block that you write is a common form, and any given model may differ
# from it in any row. The table has only models whose authors published the architecture. For models whose
# authors did not (Claude, GPT-4 and others), "a Transformer with changes" is a fair guess that nobody outside
# can check. And not every language model belongs to the family: Mamba (Gu and Dao, 2023) and RWKV (Peng et al.,
# 2023) are recurrent, without softmax attention.

# %% [markdown] claims="000.2.6-c 000.2.6-d 000.2.6-e 000.2.6-f 000.2.6-i 000.2.6-j 001.s3-g 001.s3-j 001.s4-i"
# ## One token through one block, by hand
#
# Take a single token with four features, $x = (1, 1, 7, 7)$, and norms without gain or bias.
#
# **LayerNorm** centers, then divides by the standard deviation over the features. The mean is 4, the deviations
# are $(-3, -3, 3, 3)$, their mean square (the variance) is 9, so the result is $(-1, -1, 1, 1)$.
#
# **RMSNorm** does not center. The mean of the squares is $(1 + 1 + 49 + 49)/4 = 25$, the root of it 5, so the
# result is $(0.2, 0.2, 1.4, 1.4)$. The sign of every feature survives.
#
# Now a whole block. To keep it to pencil and paper, let the attention return its input (one token that looks at
# itself, with identity projections) and let the FFN return twice its input. With RMSNorm:
#
# | step | pre-norm: $u = x + A(\mathrm{norm}(x))$, $\;y = u + F(\mathrm{norm}(u))$ | post-norm: $u = \mathrm{norm}(x + A(x))$, $\;y = \mathrm{norm}(u + F(u))$ |
# | --- | --- | --- |
# | start | $x = (1, 1, 7, 7)$, RMS 5 | $x = (1, 1, 7, 7)$, RMS 5 |
# | norm | $(0.2, 0.2, 1.4, 1.4)$ | not yet |
# | attention, add | $u = (1.2, 1.2, 8.4, 8.4)$, RMS 6 | $x + A(x) = (2, 2, 14, 14)$ |
# | norm | $(0.2, 0.2, 1.4, 1.4)$ | $u = (0.2, 0.2, 1.4, 1.4)$, RMS 1 |
# | FFN, add | $y = (1.6, 1.6, 11.2, 11.2)$, RMS 8 | $u + F(u) = (0.6, 0.6, 4.2, 4.2)$ |
# | norm | none | $y = (0.2, 0.2, 1.4, 1.4)$, RMS 1 |
#
# Read off three things. In a pre-norm block $x$ itself is still inside $y$, added and never divided; what the
# sub-layers *see* has RMS 1, what they write to *grows* (5, 6, 8). In a post-norm block, the form of 2017, the
# norm stands on the stream, so the stream always has RMS 1 and the size of $x$ is gone after one step. And
# because of the plus signs, every sub-layer must return the shape that it was given.

# %% [markdown] claims="000.2.6-k 001.s3-i 001.s3-k"
# ## LayerNorm
#
# Ba, Kiros and Hinton (2016), equation 3, per position and over its $d$ features:
#
# $$\mu = \frac1d \sum_i x_i, \qquad \sigma^2 = \frac1d \sum_i (x_i - \mu)^2, \qquad y_i = g_i \, \frac{x_i - \mu}{\sqrt{\sigma^2 + \epsilon}} + b_i$$
#
# Three details decide whether the numbers are right. The variance divides by $d$ (`torch.var` divides by $d-1$
# unless it is told otherwise: for our $(1,1,7,7)$ that gives 12 in place of 9). The small $\epsilon$ stands
# *inside* the root. And mean and variance belong to one position of one sequence: no other token, no other
# sequence and no running average has a part in them. This is what separates it from BatchNorm and from
# standardizing a data set: nothing is collected in training, so nothing has to be remembered, or switched over,
# for inference.
#
# One trap is about digits, not about formulas: $\mathrm{mean}(x^2) - \mu^2$ is the same variance on paper, but
# with features near 3000 in float32 it subtracts two numbers near 9,000,000 that carry about seven digits each.
# Center first, then square.
# %% solve="layer_norm" points=4 difficulty=2 importance=5 minutes=10
def layer_norm(
    x: Float[Tensor, "... d"], gain: Float[Tensor, "d"], bias: Float[Tensor, "d"], eps: float = 1e-5
) -> Float[Tensor, "... d"]:
    """Normalize the features of every position: center, divide by the standard deviation, then gain and bias.

        y = gain * (x - mean) / sqrt(variance + eps) + bias

    mean and variance are taken over the last axis only, for every position by itself. The variance is the
    biased one, the mean of the squared deviations (divide by d, not d - 1); eps stands inside the root.

    x:    (..., d) with any number of leading dimensions (also none); d is at least 1. With d = 1 the result is bias.
    gain: (d,) and bias: (d,), in the dtype of x.
    Returns the shape and dtype of x, float16 and bfloat16 too; float64 keeps the precision of float64. x is not
    modified.

    Gradients flow to x (through mean and variance too), gain and bias. Features whose mean is far larger than their
    spread (3000 plus or minus 1, in float32) must come out right, whatever the other positions hold: square the
    deviations from the position's own mean, not the features.
    Source: Ba, Kiros and Hinton (2016), eq. 3. Write it with elementary operations; F.layer_norm is the answer,
    not the exercise.
    """
    ### BEGIN SOLUTION
    centered = x - x.mean(dim=-1, keepdim=True)  # (..., d)
    variance = centered.square().mean(dim=-1, keepdim=True)  # (..., 1)
    return gain * centered / torch.sqrt(variance + eps) + bias
    ### END SOLUTION


# %% check="layer_norm"
check(layer_norm)

# %% [markdown] hints="layer_norm"
# 1. Every position has its own two numbers, a mean and a variance, and they come from its own features only. Which axis counts the features?
# 2. Take the mean along the last axis and keep that axis, so that it lines up with `x`. Square the deviations and take their mean: that is the variance, without any `d - 1`.
# 3. `centered = x - x.mean(dim=-1, keepdim=True)`, `variance = centered.square().mean(dim=-1, keepdim=True)`; the root is `torch.sqrt(variance + eps)`.

# %% [markdown]
# ## RMSNorm
#
# Zhang and Sennrich (2019), equation 4, asked whether the centering is needed, and left it out:
#
# $$\mathrm{rms}(x) = \sqrt{\frac1d \sum_i x_i^2 + \epsilon}, \qquad y_i = g_i \, \frac{x_i}{\mathrm{rms}(x)}$$
#
# One statistic in place of two, one vector of parameters in place of two. The gain multiplies as it is; some
# libraries store $g - 1$ and add the 1 before they multiply (Gemma does), which matters when you load
# somebody's weights.
# %% solve="rms_norm" points=3 difficulty=1 importance=5 minutes=5
def rms_norm(x: Float[Tensor, "... d"], gain: Float[Tensor, "d"], eps: float = 1e-6) -> Float[Tensor, "... d"]:
    """Divide the features of every position by their root mean square, then multiply by the gain.

        y = gain * x / sqrt(mean(x^2) + eps)

    The mean (not the sum) of the squares runs over the last axis only, for every position by itself. Nothing is
    subtracted and there is no bias. The gain multiplies as it is (not 1 + gain); eps stands inside the root.

    x:    (..., d) with any number of leading dimensions (also none); d is at least 1.
    gain: (d,), in the dtype of x.
    Returns the shape and dtype of x, float16 and bfloat16 too; float64 keeps the precision of float64. A position of
    zeros gives zeros, with finite gradients. x is not modified. Gradients flow to x (through the root too) and gain.
    Source: Zhang and Sennrich (2019), eq. 4. Write it with elementary operations; F.rms_norm is the answer, not
    the exercise.
    """
    ### BEGIN SOLUTION
    mean_square = x.square().mean(dim=-1, keepdim=True)  # (..., 1)
    return gain * x * torch.rsqrt(mean_square + eps)
    ### END SOLUTION


# %% check="rms_norm"
check(rms_norm)

# %% [markdown] hints="rms_norm"
# 1. It is LayerNorm with two things gone: the centering and the bias. What is left of the variance when no mean is subtracted?
# 2. Square, mean along the last axis with that axis kept, add `eps`, take the root, divide, multiply by `gain`.
# 3. `mean_square = x.square().mean(dim=-1, keepdim=True)`, then `gain * x / torch.sqrt(mean_square + eps)`.

# %% [markdown]
# ## Experiment: what does a norm not notice?
#
# A norm is known best by what it throws away. We take a batch of sequences, change something, and look at one
# position, number 0 of sequence 0: has its output changed? The changes: add 3 to all its features; multiply all
# its features by 7; change one of its features; change another position of its sequence; change another
# sequence of the batch. The candidates: no norm, `layer_norm`, `rms_norm`, and BatchNorm in training mode
# (statistics over batch and positions).
#
# **Predict first.** Which of the two norms of this lesson notices what?
#
# - (a) Neither notices the shift, nor the factor.
# - (b) LayerNorm notices neither, RMSNorm notices the shift but not the factor.
# - (c) Both react a little to the other positions, since all positions are normalized together.
# %% demo
gen = torch.Generator().manual_seed(0)
x = torch.randn(4, 6, 8, generator=gen, dtype=torch.float64)  # (B, T, d)
ones, zeros = torch.ones(8, dtype=torch.float64), torch.zeros(8, dtype=torch.float64)
norms = {
    "no norm": lambda z: z,
    "layer_norm": lambda z: layer_norm(z, ones, zeros),
    "rms_norm": lambda z: rms_norm(z, ones),
    "BatchNorm": lambda z: F.batch_norm(z.flatten(0, 1), None, None, training=True).view_as(z),
}
changes = {
    "add 3 to all\nits features": (slice(0, 1), slice(0, 1), slice(None), lambda z: z + 3),
    "multiply all its\nfeatures by 7": (slice(0, 1), slice(0, 1), slice(None), lambda z: 7 * z),
    "add 3 to one\nfeature": (slice(0, 1), slice(0, 1), slice(2, 3), lambda z: z + 3),
    "change another\nposition": (slice(0, 1), slice(3, 4), slice(None), lambda z: 5 * z + 2),
    "change another\nsequence": (slice(1, 2), slice(None), slice(None), lambda z: 5 * z + 2),
}
moved = torch.zeros(len(norms), len(changes))
for column, (b, t, i, change) in enumerate(changes.values()):
    changed = x.clone()
    changed[b, t, i] = change(changed[b, t, i])
    for row, norm in enumerate(norms.values()):
        moved[row, column] = (norm(changed) - norm(x))[0, 0].abs().max()
# %% demo
noticed = (moved > 1e-4).double()  # eps leaves a trace of the factor 7, far below this
fig, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
ax.imshow(noticed, cmap="cividis", vmin=-0.6, vmax=1.6, aspect="auto")
for row in range(len(norms)):
    for column in range(len(changes)):
        word = "moves by" if noticed[row, column] else "does not move"
        value = f"\n{moved[row, column]:.2f}" if noticed[row, column] else ""
        dark = noticed[row, column] == 0
        ax.text(column, row, word + value, ha="center", va="center", fontsize=9, color="white" if dark else "black")
ax.set_xticks(range(len(changes)), changes, fontsize=9)
ax.set_yticks(range(len(norms)), norms)
ax.set_xlabel("what is changed")
ax.set_title("Which changes does the normalized token notice?")
plt.show()

# %% [markdown]
# Light cells: the output of position 0 moved (by the largest amount printed); dark cells: it did not.
#
# - (a) is half right. Both norms are blind to a common factor: a token ten times as long gives the same output.
#   The shift is another matter.
# - (b) is right. LayerNorm subtracts the mean, so a number added to all features disappears. RMSNorm keeps it.
#   This is the whole difference between the two.
# - (c) is what BatchNorm does. For LayerNorm and RMSNorm the last two columns are dark: they mix no positions
#   and no sequences. With BatchNorm over positions a token would see the *future* through the statistics, a
#   leak that no attention mask can stop.
#
# The factor is ignored only as long as $\epsilon$ is small against the mean square; for a position of almost
# zero, $\epsilon$ decides the result.

# %% [markdown] claims="000.2.6-n 000.2.6-o 001.s3-e 001.s4-j"
# ## The feed-forward network
#
# Attention moves information *between* positions. The FFN works *within* each: the same two matrices for every
# position, and no position looks at another. Widen from $d$ to $f$ (usually $4d$), apply a non-linear function
# to every entry, come back to $d$:
#
# $$\mathrm{FFN}(x) = \mathrm{GELU}(x W_1 + b_1)\, W_2 + b_2, \qquad \mathrm{GELU}(z) = z\,\Phi(z) = \frac z2\left(1 + \mathrm{erf}\frac{z}{\sqrt2}\right)$$
#
# Vaswani et al. (2017, eq. 2) used ReLU in this place. GELU (Hendrycks and Gimpel, 2016) weighs $z$ by the
# probability $\Phi(z)$ that a standard normal variable is below it. By hand, with $x = (1, 2)$, no biases and
#
# $$W_1 = \begin{pmatrix}1&0&-1\\0&1&0\end{pmatrix}, \quad W_2 = \begin{pmatrix}1&0\\0&1\\1&1\end{pmatrix}: \qquad xW_1 = (1, 2, -1), \quad
# \mathrm{GELU} = (0.8413,\ 1.9545,\ -0.1587), \quad y = (0.6827,\ 1.7958).$$
#
# There are two GELUs in use. The exact one has the error function; GPT-2 used an approximation with tanh that
# differs by up to about 0.0005. Both are called GELU; this lesson means the exact one.
# %% solve="feed_forward" points=2 difficulty=1 importance=5 minutes=5
def feed_forward(
    x: Float[Tensor, "... d_model"],
    W1: Float[Tensor, "d_model d_ff"],
    b1: Float[Tensor, "d_ff"],
    W2: Float[Tensor, "d_ff d_model"],
    b2: Float[Tensor, "d_model"],
) -> Float[Tensor, "... d_model"]:
    """The classic position-wise FFN: a linear map, GELU, a second linear map.

        y = GELU(x W1 + b1) W2 + b2,     GELU(z) = z/2 * (1 + erf(z / sqrt(2)))

    GELU is the exact form with the error function, which is what torch.nn.functional.gelu computes by default
    (allowed here); approximate="tanh" is another function. It acts on every entry of the widened tensor, once,
    between the two maps. The matrices are stored as (inputs, outputs); nothing is transposed.

    x: (..., d_model) with any number of leading dimensions (also none).
    W1: (d_model, d_ff), b1: (d_ff,), W2: (d_ff, d_model), b2: (d_model,), in the dtype of x.
    Returns the shape and dtype of x, float16 and bfloat16 too; float64 keeps the precision of float64, so a constant is
    a Python number or a tensor in the dtype of x. Every position is treated by itself. x is not modified. Gradients
    flow to all five arguments. Hidden values as large as 1000, of either sign, give no inf or nan, forward or backward.
    Source: Vaswani et al. (2017), eq. 2, with GELU in place of ReLU.
    """
    ### BEGIN SOLUTION
    hidden = F.gelu(x @ W1 + b1)  # (..., d_ff)
    return hidden @ W2 + b2  # (..., d_model)
    ### END SOLUTION


# %% check="feed_forward"
check(feed_forward)

# %% [markdown] hints="feed_forward"
# 1. Three steps in a row: widen, bend, narrow. Only the middle one is not linear, and it must stand between the two matrices.
# 2. A product from the right plus a bias gives the widened rows; `F.gelu` with its default acts entry by entry; a second product and bias come back to `d_model`.
# 3. `hidden = F.gelu(x @ W1 + b1)`; the second line has the same form, without an activation.

# %% [markdown] claims="000.2.6-s 000.2.6-t"
# **Is the FFN a memory?** Write the same formula as a sum over the $f$ hidden units, with $k_j$ the columns of
# $W_1$ and $v_j$ the rows of $W_2$ (biases left out):
#
# $$\mathrm{FFN}(x) = \sum_{j=1}^{f} \mathrm{GELU}(x \cdot k_j)\, v_j$$
#
# It looks like attention over $f$ fixed keys and values, with GELU in place of the softmax. Geva et al. (2021)
# read it so and found units whose key reacts to a recognizable pattern of the text and whose value raises
# fitting next words. That is a useful view of *some* units. It does not make the FFN a table in which one looks
# up a fact under its name: many units fire at once and their values add up; attention takes part in recalling a
# fact (Geva et al., 2023); and the layer where tracing locates a fact is a poor guide to the layer where
# editing changes it (Hase et al., 2023). What a model knows is spread over attention, embeddings and all the
# FFNs.

# %% [markdown] claims="000.2.6-p 001.s4-k 001.s4-l 001.s4-m 001.s4-n"
# ## SwiGLU, the gated FFN
#
# Shazeer (2020, eq. 6) compared FFNs in which one linear map opens and closes the other:
#
# $$\mathrm{SwiGLU}(x) = \bigl(\mathrm{SiLU}(x W_g) \odot (x W_u)\bigr)\, W_d, \qquad \mathrm{SiLU}(z) = z\,\sigma(z) = \frac{z}{1 + e^{-z}}$$
#
# $W_g$ is the *gate*, $W_u$ goes *up*, $W_d$ comes *down*; $\odot$ multiplies entry by entry. One hidden unit
# by hand: a gate of 2 and an up of $-2$ give $\mathrm{SiLU}(2) \cdot (-2) = 1.7616 \cdot (-2) = -3.5232$. With
# a gate of $-10$ the same unit gives about $0.0009$: closed.
#
# Three matrices, not two. With $d = 8$ and $f = 16$ the gated FFN has $3 \cdot 8 \cdot 16 = 384$ parameters and
# the plain one (no biases) $2 \cdot 8 \cdot 16 = 256$. Every parameter of a matrix is used in one multiply-add
# per token, so the cost differs in the same ratio: 768 FLOPs a token against 512. "The same $f$" is therefore
# no fair comparison. For the *same* cost as a plain FFN of width $4d$, a gated one needs $3 d f = 8 d^2$,
# $f = \tfrac83 d$: this is where LLaMA's odd widths come from ($d = 4096$ gives 10,923, rounded up to a
# multiple of 256: 11,008).
# %% solve="swiglu" points=3 difficulty=2 importance=5 minutes=5
def swiglu(
    x: Float[Tensor, "... d_model"],
    Wg: Float[Tensor, "d_model d_ff"],
    Wu: Float[Tensor, "d_model d_ff"],
    Wd: Float[Tensor, "d_ff d_model"],
) -> Float[Tensor, "... d_model"]:
    """The gated position-wise FFN of LLaMA and many others.

        y = (SiLU(x Wg) * (x Wu)) Wd,     SiLU(z) = z * sigmoid(z)

    * multiplies entry by entry. SiLU acts on the gate x Wg only, not on x Wu and not on the product; the logistic
    sigmoid alone is not SiLU. There are no biases. torch.nn.functional.silu is allowed. The matrices are stored as
    (inputs, outputs); nothing is transposed.

    x: (..., d_model) with any number of leading dimensions (also none).
    Wg: (d_model, d_ff), Wu: (d_model, d_ff), Wd: (d_ff, d_model), in the dtype of x.
    Returns the shape and dtype of x, float16 and bfloat16 too; float64 keeps the precision of float64, so a constant is
    a Python number or a tensor in the dtype of x. Every position is treated by itself. x is not modified. Gradients
    flow to all four arguments. Gates as large as 1000, of either sign, give no inf or nan, forward or backward.
    Source: Shazeer (2020), eq. 6.
    """
    ### BEGIN SOLUTION
    gate = F.silu(x @ Wg)  # (..., d_ff)
    return (gate * (x @ Wu)) @ Wd  # (..., d_model)
    ### END SOLUTION


# %% check="swiglu"
check(swiglu)

# %% [markdown] hints="swiglu"
# 1. Two maps of the same `x` to the wide side: one says how far each unit is open, the other what it carries. They meet before the way down.
# 2. `F.silu` goes around the gate's product only. Multiply the two wide tensors entry by entry with `*`, then a matrix product with `Wd`.
# 3. `gate = F.silu(x @ Wg)`; the wide tensor is `gate * (x @ Wu)`.

# %% [markdown]
# ## Experiment: who mixes positions?
#
# Take a function that maps $(T, d)$ to $(T, d)$ and ask for its Jacobian: how does feature $i$ of output
# position $t$ react to feature $j$ of input position $s$? Put together the $d \times d$ numbers that belong to
# one pair $(t, s)$ by their root sum of squares and you have a $T \times T$ picture of who depends on whom. We
# do this for the FFN, for causal attention and for the two in one pre-norm block with residuals.
#
# **Predict first.** What does the picture of the FFN look like?
#
# - (a) Full: all positions share the same weights, so they influence one another.
# - (b) A diagonal, one and the same $d \times d$ block repeated, since the weights are the same.
# - (c) A diagonal, with different blocks.
# %% demo
def attend(x, Wqkv, Wo, n_heads):
    """Causal multi-head attention with given weights: x (..., T, d), Wqkv (d, 3d), Wo (d, d)."""
    q, k, v = ((x @ W).unflatten(-1, (n_heads, -1)).transpose(-3, -2) for W in Wqkv.chunk(3, dim=-1))
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (..., H, T, d_k)
    return heads.transpose(-3, -2).flatten(-2) @ Wo


def influence(f, x):
    """(T, T): root sum of squares of d f(x)[t] / d x[s] over the two feature axes."""
    jacobian = torch.autograd.functional.jacobian(f, x)  # (T, d, T, d)
    return jacobian.square().sum(dim=(1, 3)).sqrt()


def glorot(d_in, d_out, generator, dtype=torch.float32):
    """A random matrix of the usual starting size, variance 2 / (d_in + d_out)."""
    return torch.randn(d_in, d_out, generator=generator, dtype=dtype) * math.sqrt(2 / (d_in + d_out))


# %% demo
gen = torch.Generator().manual_seed(1)
T, d, f = 7, 12, 40
W1, W2, Wqkv, Wo = (glorot(a, b, gen, torch.float64) for a, b in ((d, f), (f, d), (d, 3 * d), (d, d)))
zeros = torch.zeros(f, dtype=torch.float64)
x = torch.randn(T, d, generator=gen, dtype=torch.float64)
unit = lambda z: rms_norm(z, torch.ones(d, dtype=torch.float64))
ffn = lambda z: feed_forward(z, W1, zeros, W2, zeros[:d])
attention = lambda z: attend(z, Wqkv, Wo, n_heads=3)
block = lambda z: (u := z + attention(unit(z))) + ffn(unit(u))
fig, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained", sharey=True)
for ax, (name, g) in zip(axes, {"FFN": ffn, "causal attention": attention, "block": block}.items()):
    strength = influence(g, x)
    image = ax.imshow(strength.masked_fill(strength == 0, float("nan")), cmap="viridis", vmin=0)
    ax.set_title(name)
    ax.set_xlabel("input position s")
    fig.colorbar(image, ax=ax, shrink=0.75, label="|d out / d in|")
axes[0].set_ylabel("output position t")
fig.suptitle("Which input positions does an output position depend on? (white: exactly zero)")
plt.show()
full = torch.autograd.functional.jacobian(ffn, x)
print(f"FFN: largest entry off the diagonal {max(full[t, :, s].abs().max() for t in range(T) for s in range(T) if s != t):.1e}, "
      f"first two blocks differ by {(full[0, :, 0] - full[1, :, 1]).abs().max():.2f}")

# %% [markdown] claims="001.s3-a 001.s3-f"
# Rows are outputs, columns inputs; white cells are exactly zero, not merely small.
#
# - (a) mistakes shared weights for shared information. A position is changed *by* the common matrices, not
#   *through* another position.
# - (b) would hold for a linear map, whose Jacobian is its matrix. GELU bends differently at different inputs,
#   so the blocks on the diagonal differ.
# - (c) is right: block diagonal, block $t$ depending on $x_t$.
#
# Attention fills the lower triangle: itself and the past. The block has the same triangle, with a strong
# diagonal from the residual. So the division of labor is exact: **only attention moves information between
# positions; norms, FFN and residual never do.** By alternating them a stack collects context, works on what it
# has collected, and collects again with what it has worked out.

# %% [markdown] claims="000.2.6-q 000.2.6-r"
# **Is the FFN there because attention is linear?** One often reads so. A map is linear if
# $f(a + b) = f(a) + f(b)$. Attention is linear in $x$ only while its weights are *held fixed*; they come out of
# a softmax of products of $x$ with itself. The next cell measures how far each part is from linear, as the
# relative gap $\lVert f(a+b) - f(a) - f(b)\rVert / \lVert f(a+b)\rVert$.
# %% demo
gen = torch.Generator().manual_seed(2)
a, b = (torch.randn(T, d, generator=gen, dtype=torch.float64) for _ in range(2))
fixed = torch.rand(T, T, generator=gen, dtype=torch.float64).tril()
fixed /= fixed.sum(dim=-1, keepdim=True)  # attention weights that do not depend on x
parts = {
    "two matrices, no activation": lambda z: z @ W1 @ W2,
    "attention with fixed weights": lambda z: fixed @ z @ Wqkv[:, 2 * d :] @ Wo,
    "attention": attention,
    "RMSNorm": unit,
    "FFN (GELU)": ffn,
}
for name, g in parts.items():
    gap = (g(a + b) - g(a) - g(b)).norm() / g(a + b).norm()
    print(f"{name:30s} relative gap from linear: {gap:.3f}")

# %% [markdown]
# The first two are linear up to rounding. Attention, the norm and the FFN are not. So the FFN is *one* of three
# non-linear parts of a block. What it adds is a non-linear function of the **features of a position**: without
# it, what a position gathers from the values can only be averaged and multiplied by matrices.

# %% [markdown] claims="000.2.6-g 000.2.6-l 001.s3-b"
# ## The pre-norm block
#
# $$u = x + \mathrm{Attention}(\mathrm{Norm}_1(x)), \qquad y = u + \mathrm{FFN}(\mathrm{Norm}_2(u))$$
#
# Follow the plain $x$: it goes through both plus signs untouched. It is called the *residual stream*:
# sub-layers read a normalized copy of it and write by adding. Two consequences can be read off the formula. If
# both sub-layers return zero, the block is the identity. And
# $\partial y / \partial x = I + (\text{terms through the sub-layers})$: the gradient has a path with nothing in
# its way, from the last block to the first.
#
# So that nothing but the wiring is at stake, the block gets its four parts as functions. Note which value each
# plus sign adds back: the stream *before* the norm.
# %% solve="prenorm_block" points=4 difficulty=2 importance=5 minutes=10
def prenorm_block(
    x: Float[Tensor, "... T d_model"],
    norm1: Callable[[Tensor], Tensor],
    attention: Callable[[Tensor], Tensor],
    norm2: Callable[[Tensor], Tensor],
    ffn: Callable[[Tensor], Tensor],
) -> Float[Tensor, "... T d_model"]:
    """One pre-norm block from its four parts: the norm stands before each sub-layer, and the residual passes it by.

        u = x + attention(norm1(x))
        y = u + ffn(norm2(u))            returned

    x: (..., T, d_model). The four others are functions of one tensor that return a tensor of the same shape (they may
    be modules). Call each of them exactly once. Nothing is normalized after the last addition.
    With attention and ffn that return zeros, the result equals x.

    Returns the shape and dtype of x. Gradients flow to x and to the parameters of the functions, where they have some.
    Neither x nor a tensor that a function was given or returned is modified: a function may return the very tensor that
    it was given or a view of it, and keep both (for its gradient, say). So add with `a + b` and not with `+=`.
    """
    ### BEGIN SOLUTION
    u = x + attention(norm1(x))
    return u + ffn(norm2(u))
    ### END SOLUTION


# %% check="prenorm_block"
check(prenorm_block)

# %% [markdown] hints="prenorm_block"
# 1. Draw the picture at the top of the lesson: the line called residual leaves *before* the norm. What does it carry to the plus sign?
# 2. Give a name to the result of the first half; the second half is the same pattern with that name in place of `x`.
# 3. `u = x + attention(norm1(x))`, and the second line has the same form.

# %% [markdown]
# ## The post-norm block
#
# The model of 2017 normalizes after the addition: "the output of each sub-layer is LayerNorm(x + Sublayer(x))"
# (Vaswani et al., section 3.1). The parts are the same, the wiring is not.
# %% solve="postnorm_block" points=2 difficulty=1 importance=4 minutes=5
def postnorm_block(
    x: Float[Tensor, "... T d_model"],
    norm1: Callable[[Tensor], Tensor],
    attention: Callable[[Tensor], Tensor],
    norm2: Callable[[Tensor], Tensor],
    ffn: Callable[[Tensor], Tensor],
) -> Float[Tensor, "... T d_model"]:
    """One post-norm block from its four parts: each sub-layer reads the plain stream, and the sum is normalized.

        u = norm1(x + attention(x))
        y = norm2(u + ffn(u))            returned

    The arguments are those of prenorm_block, in the same order: x is (..., T, d_model), the four others are functions of
    one tensor that return a tensor of the same shape. Call each of them exactly once.
    With attention and ffn that return zeros, the result equals norm2(norm1(x)).

    Returns the shape and dtype of x. Gradients flow to x and to the parameters of the functions, where they have some.
    Neither x nor a tensor that a function was given or returned is modified: a function may return the very tensor that
    it was given or a view of it, and keep both (for its gradient, say). So add with `a + b` and not with `+=`.
    Source: Vaswani et al. (2017), section 3.1.
    """
    ### BEGIN SOLUTION
    u = norm1(x + attention(x))
    return norm2(u + ffn(u))
    ### END SOLUTION


# %% check="postnorm_block"
check(postnorm_block)

# %% [markdown] hints="postnorm_block"
# 1. Sub-layer, plus, norm: in this order, twice. The sub-layer reads what has not been normalized again.
# 2. The norm goes around the whole sum, and its result is what the second half starts from.
# 3. `u = norm1(x + attention(x))`, and the second line has the same form.

# %% [markdown] claims="000.2.6-m 001.s3-h 001.s10-c"
# ## Experiment: what do residual and norm do deep down?
#
# Four ways to wire the same 24 random blocks: pre-norm, post-norm, residuals without any norm, norms without
# any residual. Weights at the usual starting size, causal attention, random tokens, a random linear read-out
# with cross-entropy, averaged over three draws. For each block we record: the size (RMS) of the stream that
# enters it; how alike its positions are (mean cosine between two of them); and, after one backward pass, the
# size of the gradient at its FFN ($W_2$) and at its queries ($W_q$).
#
# **Predict first.** Which wiring gives every block a usable gradient?
#
# - (a) All that have a residual: the identity term keeps gradients alive.
# - (b) Pre-norm only; in post-norm the gradient of the first blocks' FFNs dies out.
# - (c) It takes both, residual and norm; and FFN and queries need not tell the same story.
# %% demo
identity = lambda z: z
wirings = {
    "pre-norm": lambda x, norm, attention, ffn: prenorm_block(x, norm, attention, norm, ffn),
    "post-norm": lambda x, norm, attention, ffn: postnorm_block(x, norm, attention, norm, ffn),
    "residual, no norm": lambda x, norm, attention, ffn: prenorm_block(x, identity, attention, identity, ffn),
    "norm, no residual": lambda x, norm, attention, ffn: ffn(norm(attention(norm(x)))),
}


def record_depth(wiring, seed, L=24, B=4, T=16, d=64, n_heads=4, f=256, V=100):
    gen = torch.Generator().manual_seed(seed)
    norm = lambda z: layer_norm(z, torch.ones(d), torch.zeros(d))
    x, size, alike, weights = torch.randn(B, T, d, generator=gen), [], [], []
    for _ in range(L):
        size.append(x.detach().square().mean().sqrt())
        unit = F.normalize(x.detach(), dim=-1)
        alike.append(((unit @ unit.mT).sum() / B - T) / (T * T - T))  # without each position's 1 with itself
        Wq, Wkv, Wo, W1, W2 = (glorot(a, b, gen).requires_grad_() for a, b in ((d, d), (d, 2 * d), (d, d), (d, f), (f, d)))
        weights.append((W2, Wq))
        x = wiring(x, norm, lambda z: attend(z, torch.cat([Wq, Wkv], dim=-1), Wo, n_heads), lambda z: F.gelu(z @ W1) @ W2)
    logits = norm(x) @ glorot(d, V, gen)
    F.cross_entropy(logits.flatten(0, 1), torch.randint(V, (B * T,), generator=gen)).backward()
    gradients = [[W.grad.norm() for W in pair] for pair in zip(*weights)]
    return torch.tensor([size, alike, *gradients])  # (4, L)


# %% demo
panels = ["size of the stream (RMS)", "cosine between positions", "gradient at the FFN's $W_2$", "gradient at $W_q$"]
fig, axes = plt.subplots(2, 2, figsize=(10, 6.4), layout="constrained", sharex=True)
for (name, wiring), line in zip(wirings.items(), ("-", "--", ":", "-.")):
    runs = torch.stack([record_depth(wiring, seed) for seed in range(3)])  # (3, 4, L)
    means = runs.log().mean(dim=0).exp()
    means[1] = runs[:, 1].mean(dim=0)  # a cosine can be negative: plain mean
    for ax, values in zip(axes.flat, means):
        ax.plot(range(1, len(values) + 1), values, line, label=name, linewidth=2)
    print(f"{name:18s} last block: gradient at W_2 {means[2, -1]:.1e}, at W_q {means[3, -1]:.1e}, cosine {means[1, -1]:.3f}")
for ax, label in zip(axes.flat, panels):
    ax.set_ylabel(label)
    if "cosine" not in label:
        ax.set_yscale("log")
for ax in axes[1]:
    ax.set_xlabel("block, counted from the input")
axes[0, 0].legend(fontsize=9)
fig.suptitle("What arrives at a block, and what gradient comes back to it?")
plt.show()

# %% [markdown]
# Upper row: what arrives. Lower row: what comes back.
#
# - (a) fails at the dotted line. Residuals without norms: every block adds something in proportion to the
#   stream, so the stream grows by a factor per block, and gradients explode by orders of magnitude towards the
#   first blocks. The identity term guarantees *a path*, not a *size*.
# - (b) is the usual story, and the lower left panel does not show it: in post-norm the gradient at the FFNs is
#   nearly the same everywhere. What differs is the level. In pre-norm the stream grows (roughly like the root
#   of the number of blocks), the last norm divides by that size, and so the late blocks get smaller gradients
#   the deeper the stack is. In post-norm the last blocks get a large gradient however deep it is (Xiong et al.,
#   2020, prove this for their setting): one reason why it wants a warm-up.
# - (c) is right. Look at the right column. Without residuals all positions become the same vector within a few
#   blocks (*rank collapse*, Dong et al., 2021), and where all keys are alike no query can matter: the gradient
#   at $W_q$ is practically zero (Noci et al., 2022). Post-norm goes the same way, only slower, and so do
#   residuals without norms. Pre-norm keeps the positions apart longest, since $x$ itself stays in the sum.
#
# So: the residual keeps the information of each position, the norm keeps sizes in hand, and neither does the
# other's work.

# %% [markdown] claims="000.2.6-h"
# ## Experiment: does pre-norm decide how good the model gets?
#
# A small task that needs attention: the second half of a sequence repeats its first half, 12 symbols, and the
# loss counts the second half only. We train both wirings with the same optimizer (AdamW, learning rate 0.003),
# 2 blocks deep and 8 blocks deep, and post-norm at 8 blocks once more with a warm-up (the learning rate climbs
# from 0 over the first 100 steps).
#
# **Predict first.**
#
# - (a) Pre-norm ends lower at both depths.
# - (b) At depth 2 they are alike; at depth 8 post-norm without warm-up does not learn in this time.
# - (c) Post-norm never trains at depth 8.
# %% demo
class Attention(nn.Module):
    def __init__(self, d, n_heads):
        super().__init__()
        self.Wqkv, self.Wo = nn.Parameter(torch.empty(d, 3 * d)), nn.Parameter(torch.empty(d, d))
        self.n_heads = n_heads

    def forward(self, x):
        return attend(x, self.Wqkv, self.Wo, self.n_heads)


# %% demo
class Stack(nn.Module):
    def __init__(self, wiring, depth, V=12, T=24, d=32, n_heads=2):
        super().__init__()
        self.wiring, self.tokens, self.positions = wiring, nn.Embedding(V, d), nn.Embedding(T, d)
        ffn = lambda: nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        parts = lambda: nn.ModuleList([nn.LayerNorm(d), Attention(d, n_heads), nn.LayerNorm(d), ffn()])
        self.blocks, self.norm, self.head = nn.ModuleList([parts() for _ in range(depth)]), nn.LayerNorm(d), nn.Linear(d, V)
        for p in (*self.blocks.parameters(), self.head.weight):
            if p.dim() == 2:
                nn.init.xavier_normal_(p)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for norm1, attention, norm2, ffn in self.blocks:
            x = self.wiring(x, norm1, attention, norm2, ffn)
        return self.head(self.norm(x))


# %% demo
def train(wiring, depth, warmup=1, steps=150, lr=3e-3, B=16, V=12, T=24, seed=0):
    torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(seed + 1)
    model = Stack(wiring, depth, V, T)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    losses = []
    for step in range(steps):
        half = torch.randint(V, (B, T // 2), generator=gen)
        ids = torch.cat([half, half], dim=1)
        logits = model(ids[:, :-1])[:, T // 2 - 1 :]  # the positions whose next symbol is in the second half
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, T // 2 :].flatten())
        optimizer.param_groups[0]["lr"] = lr * min(1, (step + 1) / warmup)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# %% demo
runs = {
    "2 blocks": {"pre-norm": (prenorm_block, 2, 1), "post-norm": (postnorm_block, 2, 1)},
    "8 blocks": {
        "pre-norm": (prenorm_block, 8, 1),
        "post-norm": (postnorm_block, 8, 1),
        "post-norm, warm-up": (postnorm_block, 8, 100),
    },
}
fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", sharey=True)
for ax, (depth, entries) in zip(axes, runs.items()):
    for (name, arguments), line in zip(entries.items(), ("-", "--", ":")):
        losses = train(*arguments)
        ax.plot(range(1, len(losses) + 1), losses, line, label=name, linewidth=2)
        print(f"{depth}, {name:19s} mean loss of the last 10 steps: {sum(losses[-10:]) / 10:.3f}")
    ax.axhline(math.log(12), color="gray", linewidth=1, label="ln 12, a guess")
    ax.set_title(depth)
    ax.set_xlabel("training step")
    ax.legend(fontsize=9)
axes[0].set_ylabel("cross-entropy (nats per symbol)")
fig.suptitle("Pre-norm or post-norm: which learns to copy?")
plt.show()

# %% [markdown]
# - (a) holds on the right only. With two blocks both learn the task and end alike; which of the two is ahead on
#   the way depends on the seed (`train` takes one: try it).
# - (b) is what happens here: the deep post-norm stack stays at the level of a guess.
# - (c) is too strong: with a warm-up the same stack starts to learn, later than pre-norm. A smaller learning
#   rate would help as well; try it.
#
# Pre-norm is easier to *train* deep. That is not the same as a better *model*: where both train, post-norm has
# been reported to end at least as well (Liu et al., 2020), and with residuals scaled by depth it has been
# trained with a thousand layers (Wang et al., 2022, DeepNet). Nor do all recent models choose plain
# pre-norm: Gemma 2 normalizes before *and* after each sub-layer, OLMo 2 only its output, before it is added.
# Place of the norm, initialization, learning rate and data decide together.

# %% [markdown] claims="000.2.8-j 001.s1-a 001.s4-b 001.s4-c"
# ## The walk of the shapes
#
# To compute a block by hand, first fix the five sizes ($B$, $T$, $d$, $H$, $f$), then write down one shape
# after the other. A popular example takes $B=2$, $T=4$, $d=8$, $H=2$, so $d_k = 4$, and with it $f = 16$:
#
# | step | shape | step | shape |
# | --- | --- | --- | --- |
# | `x`, `norm1` | (2, 4, 8) | `u`, `norm2` | (2, 4, 8) |
# | `qkv` (q, k and v side by side, each (2, 4, 8)) | (2, 4, 24) | `gate`, `up` | (2, 4, 16) |
# | `q`, `k`, `v`, split into heads | (2, 2, 4, 4) | `hidden`, their product | (2, 4, 16) |
# | `scores`, `weights` | (2, 2, 4, 4) | `down` | (2, 4, 8) |
# | `heads`, then `merged`, `out` | (2, 2, 4, 4), (2, 4, 8) | `y` | (2, 4, 8) |
#
# The layout (batch, sequence, hidden) comes in and goes out; only inside does it change. As a drawing the
# example is fine, as a *test* it is poor: $B = H$ and $T = d_k$, so the shape of `q` is also the shape of
# `scores`, and many a mistake of axis leaves every shape as it is. You will see three of them below.
# %% solve="shape_walk" points=4 difficulty=2 importance=5 minutes=15
def shape_walk(B: int, T: int, d_model: int, n_heads: int, d_ff: int) -> dict[str, tuple[int, ...]]:
    """The shape of every intermediate of the pre-norm decoder block with SwiGLU, by name, in order of computation.

    The names, in this order, d_k standing for d_model // n_heads:

        x        the input                                     (batch, sequence, hidden)
        norm1    after the first norm
        qkv      the fused projection, q, k and v side by side
        q, k, v  three entries, each split into heads          (batch, head, sequence, d_k)
        scores   queries against keys                          (batch, head, query, key)
        weights  after scaling, mask and softmax
        heads    the weighted sums of the values, by head
        merged   the heads side by side again                  (batch, sequence, hidden)
        out      after the output projection
        u        after the first residual addition
        norm2    after the second norm
        gate     x W_g, before and after SiLU                  (batch, sequence, d_ff)
        up       x W_u
        hidden   SiLU(gate) * up
        down     back to the hidden width
        y        after the second residual addition: the output

    All arguments are positive ints. Returns a dict of exactly these 18 names, each with a tuple of ints; the order of
    the dict is the order above. Nothing has to be computed with tensors.
    Raises ValueError when n_heads does not divide d_model; the message contains both numbers.
    """
    ### BEGIN SOLUTION
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}")
    stream = (B, T, d_model)
    split = (B, n_heads, T, d_model // n_heads)
    square = (B, n_heads, T, T)
    wide = (B, T, d_ff)
    return {
        "x": stream,
        "norm1": stream,
        "qkv": (B, T, 3 * d_model),
        "q": split,
        "k": split,
        "v": split,
        "scores": square,
        "weights": square,
        "heads": split,
        "merged": stream,
        "out": stream,
        "u": stream,
        "norm2": stream,
        "gate": wide,
        "up": wide,
        "hidden": wide,
        "down": stream,
        "y": stream,
    }
    ### END SOLUTION


# %% check="shape_walk"
check(shape_walk)

# %% [markdown] hints="shape_walk"
# 1. There are only five different shapes in the whole walk: the stream, the fused projection, the heads, the square of positions, the wide side.
# 2. The stream is `(B, T, d_model)`; the fused projection is three times as wide; heads are `(B, n_heads, T, d_model // n_heads)`; scores pair positions with positions; the wide side has `d_ff` in the last place. Test `d_model % n_heads` first.
# 3. Name the five (`stream`, `split = (B, n_heads, T, d_model // n_heads)`, `square = (B, n_heads, T, T)`, `wide = (B, T, d_ff)`, and `(B, T, 3 * d_model)`) and return one dict that lists the 18 names of the docstring in order.

# %% [markdown] claims="001.s4-b"
# **Sizes that coincide hide mistakes.** Three wrong lines: the scores with the product taken over the wrong
# axis (channel against channel), the heads put before the batch, the split done without the transpose. For
# which sizes does the shape give the mistake away?
# %% demo
for sizes in ((2, 4, 8, 2, 16), (2, 5, 21, 3, 40)):  # B, T, d_model, n_heads, d_ff
    walk = shape_walk(*sizes)
    B, T, d_model, n_heads, _ = sizes
    x = torch.randn(walk["x"])
    q = x.view(B, T, n_heads, -1).transpose(1, 2)  # right
    mistakes = {
        "scores as q^T k": ((q.mT @ q).shape, walk["scores"]),
        "heads before the batch": (q.transpose(0, 1).shape, walk["q"]),
        "split without transpose": (x.view(B, n_heads, T, -1).shape, walk["q"]),
    }
    print(f"B={B}, T={T}, d_model={d_model}, n_heads={n_heads}, d_k={d_model // n_heads}")
    for name, (got, expected) in mistakes.items():
        verdict = "hidden" if tuple(got) == expected else "seen by its shape"
        print(f"  {name:25s} {tuple(got)!s:15s} expected {expected!s:15s} {verdict}")

# %% [markdown]
# With the popular sizes all three pass. With sizes that all differ the first two are caught. The third has the
# right shape *always*: it cuts a row of features in the wrong order and mixes positions, and only values, or
# the test "change one token and see who moves", can find it. So check shapes with sizes that all differ, and do
# not stop at shapes.

# %% [markdown] claims="000.2.6-u 000.2.6-v 000.2.6-w 000.2.6-x 000.2.6-y 000.2.6-z 000.2.6-ag"
# ## The decoder block
#
# Now as a module with parameters. Three conventions make it a block whose weights can be exchanged with others
# by name:
#
# - **One fused projection.** `qkv` maps $d$ to $3d$ without bias. The result, cut into three pieces of width
#   $d$, is q, k, v, *in this order*. One large matrix product keeps the hardware busier than three small ones;
#   the numbers are the same.
# - **Heads are contiguous.** Within each piece, head $h$ owns features $h d_k$ to $(h+1) d_k - 1$.
# - **Names.** `norm1`, `qkv`, `out` for the first sub-layer; `norm2`, `gate`, `up`, `down` for the second. All
#   maps without bias, an RMSNorm of its own for each sub-layer.
#
# `nn.RMSNorm(d_model)` is your `rms_norm` with a gain that is learned; its default `eps=None` means the machine
# epsilon of the dtype (about $1.2 \cdot 10^{-7}$ in float32) where your function has $10^{-6}$. What the block
# does *not* have: positions (they come in at the bottom of the model), dropout, and a cache for generation
# (lesson 08). `forward` is your `prenorm_block` with these parts.
# %% solve="DecoderBlock" points=8 difficulty=3 importance=5 minutes=25
class DecoderBlock(nn.Module):
    """A pre-norm decoder block: RMSNorm, causal multi-head attention, RMSNorm, SwiGLU.

        u = x + Attention(norm1(x))
        y = u + down(SiLU(gate(h)) * up(h)),   h = norm2(u)

    DecoderBlock(d_model, n_heads, d_ff), by position or by keyword, raises ValueError when n_heads does not divide
    d_model; the message contains both numbers. Its parameters are exactly these, so that weights can be loaded by name:

        norm1.weight (d_model,)              nn.RMSNorm(d_model) with its default eps
        qkv.weight   (3 d_model, d_model)    nn.Linear without bias: q, k, v side by side, in this order
        out.weight   (d_model, d_model)      nn.Linear without bias, after the heads are merged
        norm2.weight (d_model,)              nn.RMSNorm(d_model) with its default eps
        gate.weight  (d_ff, d_model)         nn.Linear without bias
        up.weight    (d_ff, d_model)         nn.Linear without bias
        down.weight  (d_model, d_ff)         nn.Linear without bias

    All keep PyTorch's default initialization. Buffers of your own are allowed, more parameters are not. Another usual
    eps is accepted: anything from 1e-5 down to the machine epsilon of the dtype.

    forward(x): x (B, T, d_model), any B and T from 1 on -> (B, T, d_model), in the dtype of x.
    Of each piece of qkv, head h takes the d_k = d_model / n_heads features from h d_k on. Scores are divided by sqrt(d_k).
    Causal whatever the weights: position t sees positions 0 ... t, itself included. Scores of any size give the weights
    of the softmax: all 0, or near 1e6 of either sign. There is no position encoding, no dropout and no cache inside.
    F.scaled_dot_product_attention is allowed. x is not modified; one block takes inputs of changing length, and works
    after .double() too, with the precision of float64: a constant is a Python number or a tensor in the dtype of x.

    Putting the attention into a method of its own is a suggestion; only what is said above is checked.
    """

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}")
        self.n_heads = n_heads
        self.norm1 = nn.RMSNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)
        self.norm2 = nn.RMSNorm(d_model)
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)
        ### END SOLUTION

    def attention(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        ### BEGIN SOLUTION
        B, T, d_model = x.shape
        q, k, v = (
            piece.view(B, T, self.n_heads, -1).transpose(1, 2)  # (B, H, T, d_k)
            for piece in self.qkv(x).split(d_model, dim=-1)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)  # (B, H, T, T)
        merged = (weights @ v).transpose(1, 2).reshape(B, T, d_model)
        return self.out(merged)
        ### END SOLUTION

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        ### BEGIN SOLUTION
        u = x + self.attention(self.norm1(x))
        h = self.norm2(u)
        return u + self.down(F.silu(self.gate(h)) * self.up(h))
        ### END SOLUTION


# %% check="DecoderBlock"
check(DecoderBlock)

# %% [markdown] hints="DecoderBlock"
# 1. Walk the shapes: your `shape_walk` lists every step of `forward`, and the docstring lists every module of `__init__`. Which two lines change the order of axes?
# 2. Cut `self.qkv(x)` into three pieces of width `d_model`, view each as `(B, T, n_heads, d_k)` and swap the two middle axes. Scores, strict upper triangle to `-inf`, softmax over the last axis, times `v`; then swap the axes *back* before the reshape to `(B, T, d_model)`. The residual adds the stream before the norm.
# 3. `q, k, v = (p.view(B, T, self.n_heads, -1).transpose(1, 2) for p in self.qkv(x).split(d_model, dim=-1))`; merge with `.transpose(1, 2).reshape(B, T, d_model)`; the second half is `u + self.down(F.silu(self.gate(h)) * self.up(h))` with `h = self.norm2(u)`.

# %% [markdown]
# Does the module walk as you predicted? A hook on each part reports the shape that it really returns.
# %% demo
sizes = B, T, d_model, n_heads, d_ff = 2, 5, 21, 3, 40
block, walk = DecoderBlock(d_model, n_heads, d_ff), shape_walk(B, T, d_model, n_heads, d_ff)
seen = {}
for name, part in block.named_children():
    part.register_forward_hook(lambda module, inputs, output, name=name: seen.update({name: tuple(output.shape)}))
seen["y"] = tuple(block(torch.randn(walk["x"])).shape)
for name, shape in seen.items():
    print(f"{name:6s} {shape!s:13s} {'as predicted' if shape == walk[name] else f'predicted {walk[name]}'}")

# %% [markdown] claims="001.s9-i"
# **A test that must not be fooled by chance.** To see whether the future leaks, change the last token and look
# whether earlier outputs move. The next cell does it three times: with the block as it is, with dropout added
# in training mode, and with the same dropout in evaluation mode.
# %% demo
torch.manual_seed(3)
block = DecoderBlock(12, 3, 32)
with_dropout = nn.Sequential(block, nn.Dropout(0.1))
x = torch.randn(2, 5, 12)
changed = x.clone()
changed[:, -1] += 1.0  # only the last position
cases = ("no dropout", block, True), ("dropout, train()", with_dropout, True), ("dropout, eval()", with_dropout, False)
for name, model, training in cases:
    model.train(training)
    with torch.no_grad():
        gap = (model(x) - model(changed)).abs()
    print(f"{name:17s} earlier outputs move by {gap[:, :-1].max():.1e}, the last one by {gap[:, -1].max():.2f}")

# %% [markdown]
# In training mode the earlier outputs move although nothing leaks: two calls drop different entries. Call
# `eval()` (or fix the random state) before you compare two runs, or you will hunt a leak that does not exist.

# %% [markdown]
# ## Where the parameters are
#
# Count the block. The attention has four $d \times d$ matrices however many heads they are cut into; the gated
# FFN three of $d \times f$; each RMSNorm one gain of length $d$:
#
# $$4d^2 + 3df + 2d$$
#
# The flags of the function take parts away, so that you can ask for the FFN alone: with $d = 8$, $f = 16$ it
# must give 384, and 256 without the gate.
# %% solve="block_parameter_count" points=3 difficulty=2 importance=4 minutes=10
def block_parameter_count(
    d_model: int, d_ff: int, gated: bool = True, norms: bool = True, bias: bool = False, attention: bool = True
) -> int:
    """The number of learned numbers in one block, in total. The number of heads is not needed: it changes nothing.

    attention: count q, k, v and the output projection, four maps from d_model to d_model.
    The FFN is always counted: gated, three maps (gate and up from d_model to d_ff, down from d_ff to d_model);
        gated=False, the two of the classic FFN (d_model to d_ff and back).
    norms: count two RMSNorms, each with a gain of length d_model. They have no bias, whatever `bias` says.
    bias: each of the linear maps counted above has a bias as well, as long as its output is wide.

    Returns a Python int, exact for models of any size. The defaults give the size of DecoderBlock(d_model, n_heads,
    d_ff). Example: block_parameter_count(8, 16, norms=False, attention=False) is 384, and 256 with gated=False.
    """
    ### BEGIN SOLUTION
    maps = [(d_model, d_ff), (d_ff, d_model)]  # (inputs, outputs)
    if gated:
        maps += [(d_model, d_ff)]
    if attention:
        maps += [(d_model, d_model)] * 4
    total = sum(n_in * n_out + (n_out if bias else 0) for n_in, n_out in maps)
    return total + (2 * d_model if norms else 0)
    ### END SOLUTION


# %% check="block_parameter_count"
check(block_parameter_count)

# %% [markdown] hints="block_parameter_count"
# 1. List the linear maps that are counted as pairs (inputs, outputs). Everything follows from the list.
# 2. A map has `n_in * n_out` weights, and `n_out` more when `bias` is set. The FFN has two or three maps, the attention four square ones; the norms add `d_model` each, twice.
# 3. `maps = [(d_model, d_ff), (d_ff, d_model)]`, one more `(d_model, d_ff)` if gated, four `(d_model, d_model)` for the attention; then `sum(n_in * n_out + (n_out if bias else 0) for n_in, n_out in maps)`.

# %% [markdown] claims="001.s4-m 001.s4-n 002.s2-e"
# The next cell prints the example, and then tries the function on models that have been published. Depths:
# GPT-2's smallest model has 12 blocks, GPT-3 96, LLaMA 65B 80, Llama 3.1 405B 126, so "12 to 128" is a fair
# range for large models; small ones have fewer (DistilBERT has 6).
# %% demo
small = [block_parameter_count(8, 16, gated, norms=False, attention=False) for gated in (True, False)]
print(f"d=8, f=16: gated FFN {small[0]} parameters, {2 * small[0]} FLOPs a token; plain FFN {small[1]}, {2 * small[1]}")
published = [  # name, blocks, d_model, d_ff, gated, bias, rows of d_model in embeddings and head, parameters in the paper
    ("GPT-2 small", 12, 768, 3072, False, True, 50257 + 1024, "124 million"),
    ("GPT-3", 96, 12288, 49152, False, True, 50257 + 2048, "175 billion"),
    ("LLaMA 7B", 32, 4096, 11008, True, False, 2 * 32000, "6.7 billion"),
    ("LLaMA 65B", 80, 8192, 22016, True, False, 2 * 32000, "65.2 billion"),
]
for name, depth, d_model, d_ff, gated, bias, rows, paper in published:
    block_size = block_parameter_count(d_model, d_ff, gated, bias=bias)
    ffn_size = block_parameter_count(d_model, d_ff, gated, norms=False, bias=bias, attention=False)
    total = depth * block_size + rows * d_model
    print(f"{name:12s} {total / 1e9:8.3f} billion (paper: {paper:12s})  FFN {ffn_size / block_size:.0%} of a block, "
          f"blocks {depth * block_size / total:.0%} of the model")

# %% [markdown]
# The counts meet the published ones up to rounding (GPT's LayerNorms have a bias that we do not count; it does
# not show). About two thirds of a block are FFN: a picture of the Transformer without it leaves out most of the
# weights.

# %% [markdown] claims="001.s10-a 001.s10-b 001.s10-e 000.2.7-k 001.s4-o"
# ## The model
#
# What is still missing at both ends:
#
# - **In.** A token is a number, and its vector a row of a table: `tokens`, $(V, d)$. Looking up row $i$ is the
#   same as multiplying a one-hot row by the table, only without the zeros. Positions have a table of their own,
#   $(T_{max}, d)$, and the two vectors are added.
# - **Blocks.** $L$ of them, each with weights of its own.
# - **Out.** Pre-norm blocks never normalize the stream itself, so one last norm does. Then a matrix from $d$ to
#   $V$ gives the *logits*: one score for each word of the vocabulary, at every position at once, $(B, T, V)$.
#
# The last matrix is *tied*: it is the token table itself, used the other way round (Press and Wolf, 2017). The
# logit of word $w$ is the dot product of the final vector with the embedding of $w$. Tied means one and the
# same parameter: a copy would drift away with the first step of training.
#
# **Initialization.** GPT-2 drew its matrices from a normal distribution with standard deviation 0.02, and so do
# you. (It also shrank the matrices that write into the stream by $1/\sqrt{2L}$; we leave that out.) PyTorch's
# default for `nn.Embedding` is a standard deviation of 1, fifty times as large. What that does to a tied head
# is the next experiment.
# %% solve="TinyGPT" points=8 difficulty=4 importance=5 minutes=30
class TinyGPT(nn.Module):
    """A decoder-only language model: token and position tables, n_layers DecoderBlocks, a final norm, a tied head.

        x = tokens[ids] + positions[0 ... T-1];   x = block(x) for each block;   logits = head(norm(x))

    TinyGPT(vocab_size, d_model, n_heads, n_layers, d_ff, max_len), by position or by keyword, has these attributes:

        tokens     nn.Embedding(vocab_size, d_model)
        positions  nn.Embedding(max_len, d_model)
        blocks     nn.ModuleList (or nn.Sequential) of n_layers DecoderBlock(d_model, n_heads, d_ff), each with weights
                   of its own
        norm       nn.RMSNorm(d_model) with its default eps, or another from 1e-5 down to the dtype's machine epsilon
        head       nn.Linear(d_model, vocab_size, bias=False), whose weight IS tokens.weight: one Parameter, not a copy

    so that weights load by name ("tokens.weight", "blocks.0.qkv.weight", "norm.weight", ...), and loading or training
    tokens.weight changes the head with it. There are no other parameters and no dropout.

    Initialization: every matrix (both tables, and all linear maps of all blocks) is drawn by itself from a normal
    distribution with mean 0 and standard deviation 0.02, from torch's global generator, so that torch.manual_seed
    decides it; the gains of the norms stay 1. The cross-entropy of the new model is therefore near ln(vocab_size).

    forward(ids): ids (B, T), int64 from 0 to vocab_size - 1 -> logits (B, T, vocab_size), before any softmax,
    in the dtype of the parameters. Causal: the logits at position t depend on ids[:, : t + 1] only. Every call uses the
    weights as they are then, whatever calls came before it, in training and in evaluation mode.
    T may be anything from 1 to max_len; a longer input raises ValueError whose message contains T and max_len, in both
    modes. ValueError also when n_heads does not divide d_model (DecoderBlock does that).
    """

    def __init__(self, vocab_size: int, d_model: int, n_heads: int, n_layers: int, d_ff: int, max_len: int) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList([DecoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.norm = nn.RMSNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.head.weight = self.tokens.weight  # tied
        for parameter in self.parameters():
            if parameter.dim() == 2:  # the gains of the norms are vectors
                nn.init.normal_(parameter, std=0.02)
        ### END SOLUTION

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T vocab_size"]:
        ### BEGIN SOLUTION
        T, max_len = ids.shape[1], self.positions.num_embeddings
        if T > max_len:
            raise ValueError(f"T={T} tokens are more than max_len={max_len}; shorten the input")
        x = self.tokens(ids) + self.positions.weight[:T]  # (B, T, d_model)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # (B, T, vocab_size)
        ### END SOLUTION


# %% check="TinyGPT"
check(TinyGPT)

# %% [markdown] hints="TinyGPT"
# 1. Bottom to top: two tables, a list of blocks, a norm, a matrix. The docstring names them. The only unusual line is the one that makes two modules share one parameter.
# 2. Build the blocks in a list comprehension inside `nn.ModuleList` (a product `[block] * n` would be one block n times). Assign the embedding's weight to the head's. Then go over all parameters and draw the two-dimensional ones again. In `forward`, test T first; the first T rows of the position table broadcast over the batch.
# 3. `self.head.weight = self.tokens.weight`; `for p in self.parameters(): if p.dim() == 2: nn.init.normal_(p, std=0.02)`; `x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]`.

# %% [markdown] claims="000.2.2-i"
# **What does a block above the first one read?** Two sequences with the same token at the same place but
# different words before it. At the input of each block we compare the two vectors of that token. (The matrices
# are made 10 times as large as at the start, so that the blocks have something to say.)
# %% demo
torch.manual_seed(4)
model = TinyGPT(vocab_size=50, d_model=48, n_heads=4, n_layers=5, d_ff=96, max_len=8)
with torch.no_grad():
    for parameter in model.blocks.parameters():
        if parameter.dim() == 2:
            parameter *= 10
entering = []
for part in (*model.blocks, model.norm):
    part.register_forward_pre_hook(lambda module, inputs: entering.append(inputs[0].detach()))
model(torch.tensor([[3, 14, 15, 9], [26, 5, 35, 9]]))  # token 9 at position 3, twice
for name, x in zip(["block 1", "block 2", "block 3", "block 4", "block 5", "final norm"], entering):
    one, other = x[:, 3]
    print(f"input of {name:10s} relative difference of the two vectors: {(one - other).norm() / one.norm():.2f}")

# %% [markdown]
# Only the first block reads the plain embedding, where the two are the same. Every later one reads what the
# blocks below have made of it: a vector of the token *in its context*.

# %% [markdown]
# ## Experiment: what is the loss of a model that knows nothing?
#
# Before any training we feed random tokens and take the cross-entropy against random targets, for vocabularies
# from 10 to 10,000, once with the embedding's standard deviation at 0.02 and once at PyTorch's default 1.
#
# **Predict first.** What is the loss at 0.02?
#
# - (a) Anything: random weights, random loss.
# - (b) $\ln V$, whatever the architecture.
# - (c) About 1, since losses are normalized.
# %% demo
def initial_loss(V, std, B=8, T=32):
    torch.manual_seed(5)
    model = TinyGPT(vocab_size=V, d_model=64, n_heads=4, n_layers=3, d_ff=128, max_len=T)
    nn.init.normal_(model.tokens.weight, std=std)
    ids, targets = torch.randint(V, (2, B, T))
    with torch.no_grad():
        logits = model(ids)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
    return loss, logits.gather(-1, ids.unsqueeze(-1)).mean().item()


# %% demo
vocabularies = [10, 30, 100, 300, 1000, 3000, 10000]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(vocabularies, [math.log(V) for V in vocabularies], color="gray", label="ln V")
for std, marker in ((0.02, "o"), (1.0, "s")):
    losses, own = zip(*(initial_loss(V, std) for V in vocabularies))
    ax.plot(vocabularies, losses, marker, label=f"embedding std {std}")
    print(f"std {std}: loss minus ln V = {', '.join(f'{loss - math.log(V):+.2f}' for V, loss in zip(vocabularies, losses))}")
    print(f"{' ' * len(str(std))}     mean logit of the token just read: {', '.join(f'{logit:.1f}' for logit in own)}")
ax.set(xscale="log", ylim=(0, None), xlabel="vocabulary size V", ylabel="cross-entropy (nats per token)")
ax.set_title("What is the loss of an untrained model?")
ax.legend(loc="center right")
plt.show()

# %% [markdown]
# - (b) at 0.02, and here is why. If all logits are nearly equal, the softmax is nearly uniform, every word gets
#   $1/V$, and $-\ln(1/V) = \ln V$. The final norm gives a vector of $d = 64$ features with RMS 1; each logit is
#   its dot product with an embedding, a sum of 64 terms of standard deviation 0.02, so the logits have a
#   standard deviation of about $0.02\sqrt{64} = 0.16$. For normal logits of variance $s^2$ the loss lies about
#   $s^2/2$ above $\ln V$: here $0.0128$, next to nothing.
# - (a) is what the squares show: nothing at all like $\ln V$, and hardly any influence of $V$. The embeddings
#   now have length 8 and outweigh everything that the blocks add to the stream, so the final vector (length 8
#   too) is nearly the embedding of the token just read, and the tied head gives that token a logit of almost
#   $8 \cdot 8 = 64$. The model is certain that the last word will be repeated, and pays for it.
# - (c) confuses nats with percentages. Cross-entropy has no upper end, and its size at the start tells the
#   vocabulary.
#
# Use this as the first test of every model that you train: **the first loss must be close to $\ln V$.** Far
# above: initialization or scale. Below: the targets are visible somewhere, or the text repeats itself (the lean
# towards the token just read is there at 0.02 too, only small: the printed logit stays below 1).

# %% [markdown] claims="001.s10-i"
# ## Redraw the block from memory
#
# Close everything above. On paper, draw one pre-norm decoder block from $x$ to $y$ for $B=2$, $T=5$, $d=21$,
# $H=3$, $f=40$ and write the shape on every arrow. You are done when your drawing answers these:
#
# 1. Where do the two residual lines leave, and where do they come back?
# 2. Which arrows are four-dimensional, and which axis of the scores does the softmax run along?
# 3. Where is the mask, and which triangle does it close?
# 4. Which boxes have parameters, and how many has each?
# 5. Which box, and only which, lets positions see one another? Why can a future token not change a past output?
#
# Then type your shapes into the cell below, in order, and run it. It shows the first place where you and
# `shape_walk` part, and nothing beyond it.
# %% demo
mine = {}  # from memory: {"x": (2, 5, 21), "norm1": ..., "qkv": ..., ...}

walk = shape_walk(2, 5, 21, 3, 40)
right = 0
for (name, shape), (expected_name, expected) in zip(mine.items(), walk.items()):
    if (name, tuple(shape)) != (expected_name, expected):
        print(f"step {right + 1}: you have {name} {shape}; have another look at what comes after step {right}")
        break
    right += 1
print(f"{right} of {len(walk)} steps from memory")

# %% [markdown]
# <details><summary>What a good drawing answers</summary>
#
# 1. From the stream *before* `norm1` to the plus sign after `out`; from `u`, before `norm2`, to the plus sign
#    after `down`.
# 2. `q`, `k`, `v`, `heads`: (2, 3, 5, 7); `scores`, `weights`: (2, 3, 5, 5). Along the last axis, the keys.
# 3. On the scores, before the softmax. It closes the strict upper triangle: key later than query. The diagonal
#    stays open.
# 4. `norm1` 21, `qkv` $3 \cdot 21^2 = 1323$, `out` 441, `norm2` 21, `gate` 840, `up` 840, `down` 840; together
#    4326.
# 5. Attention, through `weights @ v`. Every other box works on one position at a time, and in `weights` all
#    columns after the row's own position are zero; so does every block of the stack, and a stack of causal maps
#    is causal.
#
# </details>

# %% [markdown]
# ## What goes wrong
#
# | symptom | look at |
# | --- | --- |
# | loss stays at $\ln V$ in a deep stack, a shallow one trains | where the norm stands; missing residual; learning rate without warm-up |
# | loss explodes after a few steps | residuals without norms; embedding at standard deviation 1 under a tied head |
# | all blocks always have equal weights | `[block] * n_layers`: one block, used $n$ times |
# | `head` and `tokens` drift apart | tied by copying the values, not by sharing the parameter |
# | small offset against a published model | `torch.var` divides by $d-1$; $\epsilon$ outside the root; tanh GELU; gain stored as $g-1$ |
# | right shapes, wrong values | a split without transpose, a merge without transposing back; q, k, v cut in another order |
# | a "leak" that changes from run to run | dropout still on |
#
# **Bug hunt.** The next cell has a block that somebody wrote from the sentence "first normalize, then apply the
# sub-layer, then add". Its shapes are right, it is causal, its gradients flow, and a shallow model trains with
# it. The symptom is printed: with sub-layers that return zero a pre-norm block must hand its input on, and a
# token 100 times as long must stay longer. Find the mistake, mend it and run the check.
# %% demo
def buggy_block(x, norm1, attention, norm2, ffn):
    x = norm1(x)
    x = x + attention(x)
    x = norm2(x)
    return x + ffn(x)


gen = torch.Generator().manual_seed(6)
x = torch.randn(2, 5, 12, generator=gen)
unit = lambda z: rms_norm(z, torch.ones(12))
silent = lambda z: torch.zeros_like(z)
for name, block in {"prenorm_block": prenorm_block, "buggy_block": buggy_block}.items():
    y, long = block(x, unit, silent, unit, silent), block(100 * x, unit, silent, unit, silent)
    print(f"{name:14s} with silent sub-layers: output differs from input by {(y - x).abs().max():.2f}; "
          f"a token 100 times as long comes out {(long.norm() / y.norm()):.1f} times as long")
# check(buggy_block, "prenorm_block")   # remove the first "#" when you have mended it

# %% [markdown]
# <details><summary>Answer</summary>
#
# `x = norm1(x)` overwrites the stream, so the plus sign adds the *normalized* tensor back, and the same again
# in the second half. The identity path is gone: every block divides the stream by its size, twice. Keep the
# stream under its own name:
#
# ```python
# def mended_block(x, norm1, attention, norm2, ffn):
#     u = x + attention(norm1(x))
#     return u + ffn(norm2(u))
# ```
#
# You are in good company: the first version of `norm_first` in PyTorch's own Transformer layer had this mistake
# (pytorch/pytorch, issue 61165, July 2021). Shapes, causality and "has a gradient" pass; the test that finds it
# is the one with silent sub-layers.
#
# </details>

# %% [markdown]
# ## Three questions from interviews
# %% [markdown] essay="from_tokens_to_logits" points=3
# **1. Explain in 90 seconds (about 200 words) what happens in a decoder-only Transformer between token ids and
# logits.** Give the shapes, say what attention, FFN, residual, norm and mask are for, and what is parallel in
# training but not in generation.
#
# ### BEGIN SOLUTION
# Ids (B, T) look up rows of a table and become hidden states (B, T, d); position vectors are added. They pass L
# blocks that keep this shape. In each, a norm brings every position to the same scale, one fused projection
# makes queries, keys and values, these are split into H heads (B, H, T, d_k), and scores (B, H, T, T), divided
# by the root of d_k, with the future set to minus infinity, become weights by a softmax over the keys. The
# weighted values are merged to (B, T, d), projected and *added* to the stream. A second norm and a (gated) FFN,
# which works on every position by itself, add their result as well. Attention moves information between
# positions; the FFN transforms the features of one. The residual keeps what is already there and gives
# gradients a path with an identity term; norms keep the scale in hand; together they make deep stacks
# trainable, though neither guarantees it. A final norm and a projection, often tied to the embedding, give
# logits (B, T, V). Because the mask hides the future, training computes the losses of all positions in one
# pass. Generation needs the token it has just chosen and goes one step at a time, with a cache for the old keys
# and values. Cost: projections and FFN grow with T d^2 and T d f, scores with T^2 d.
#
# For full marks: shapes incl. the heads and the scores; the order of norm, sub-layer, addition; softmax over
# keys after the mask; only attention mixes positions; parallel training against serial generation.
# ### END SOLUTION

# %% [markdown]
# **2. "Pre-norm solved the gradient problem of deep Transformers." Do you agree?**
#
# <details><summary>Model answer</summary>
#
# Partly. In a pre-norm block the stream is never normalized, so the Jacobian of a stack contains an identity
# term and positions keep their own information; deep stacks train without a warm-up, as the copy experiment
# showed. But the identity is a path, not a guarantee of size: residuals without norms explode. In pre-norm the
# stream grows with depth, so late blocks change it relatively little and get smaller gradients. And easier
# training is not a better final model: post-norm with warm-up or scaled residuals trains deep too and has been
# reported to end at least as well. I would say: pre-norm is the safe default; the question is decided together
# with initialization, learning rate and depth.
#
# </details>
#
# **3. A colleague replaces the FFN ($f = 4d$, GELU) by SwiGLU with the same $f$, gets a lower loss and says
# that gating is better. What do you ask?**
#
# <details><summary>Model answer</summary>
#
# Whether the two have the same cost. SwiGLU has three matrices: $12 d^2$ parameters and $24 d^2$ FLOPs a token
# against $8 d^2$ and $16 d^2$. At equal $f$ the FFN is 1.5 times as large, so a lower loss is no surprise. The
# fair comparison takes $f = \tfrac83 d$ for the gated one (as Shazeer did, two thirds of the width), the same
# data and steps, a learning rate tuned for each, and several seeds.
#
# </details>

# %% [markdown]
# ## On one screen
#
# | part | formula | shape |
# | --- | --- | --- |
# | LayerNorm | $g \odot (x - \mu)/\sqrt{\sigma^2 + \epsilon} + b$, biased variance, per position | $(\dots, d) \to (\dots, d)$ |
# | RMSNorm | $g \odot x / \sqrt{\mathrm{mean}(x^2) + \epsilon}$ | $(\dots, d) \to (\dots, d)$ |
# | FFN | $\mathrm{GELU}(xW_1 + b_1)W_2 + b_2$ | $d \to f \to d$, each position by itself |
# | SwiGLU | $(\mathrm{SiLU}(xW_g) \odot xW_u)W_d$ | three matrices, $3df$ parameters |
# | pre-norm | $u = x + A(\mathrm{norm}(x)),\; y = u + F(\mathrm{norm}(u))$ | identity if $A = F = 0$ |
# | post-norm | $u = \mathrm{norm}(x + A(x)),\; y = \mathrm{norm}(u + F(u))$ | stream always at RMS 1 |
# | block | $4d^2 + 3df + 2d$ parameters | $(B,T,d) \to (B,T,3d) \to (B,H,T,d_k) \to (B,H,T,T) \to (B,H,T,d_k) \to (B,T,d) \to (B,T,f) \to (B,T,d)$ |
# | model | tokens + positions, $L$ blocks, norm, tied head | $(B,T) \to (B,T,d) \to (B,T,V)$ |
#
# - Only attention moves information between positions. Norms, FFN and residuals work on one position at a time.
# - The residual adds back the stream *before* the norm. Residual and norm do different work, and a deep stack
#   needs both.
# - Test with sizes that all differ, with silent sub-layers, with dropout off. The first loss is near $\ln V$.
#
# `progress()` shows where you stand.
