# %% [markdown] claims="000.2.1-a 000.2.1-d 000.2.1-h 000.2.1-j 002.s1-a 002.s1-c 002.s1-f"
# # 01 RNN and attention: what depends on what, and what it costs
#
# A sentence of $T$ words comes in as $T$ vectors. Before a model can use a word together with the words around it,
# information has to move between positions. A recurrent network hands it on, step by step, through one state.
# Attention lets each position read every position that it is allowed to see, directly. This lesson asks of each:
# which output depends on which input, how many steps have to wait for each other, over how long a path the
# information travels, and how much arithmetic it takes.
#
# ```mermaid
# flowchart LR
#     subgraph R["RNN layer: a chain"]
#         direction LR
#         rx0["x0"] --> rh0["h0"] --> rh1["h1"] --> rh2["h2"] --> rh3["h3"]
#         rx1["x1"] --> rh1
#         rx2["x2"] --> rh2
#         rx3["x3"] --> rh3
#     end
#     subgraph A["Attention layer: everything that output 3 reads"]
#         direction LR
#         ax0["x0"] --> ao3["out3"]
#         ax1["x1"] --> ao3
#         ax2["x2"] --> ao3
#         ax3["x3"] --> ao3
#     end
# ```
#
# In the chain, `h3` cannot be computed before `h2`. In the attention layer, `out0`, ..., `out3` are four such fans
# over the same inputs, and none of them waits for another. That is the one difference from which the rest of this
# lesson follows. It is a statement about *waiting*, not about the amount of work: you will count both, measure both,
# and see that they disagree.
#
# You will write eight short functions. You need PyTorch tensors and matrix products, and nothing about Transformers.

# %%
import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from grader import check, hint, progress, solution

# %% demo
import time

import matplotlib.pyplot as plt
import torch.nn.functional as F

plt.style.use("tableau-colorblind10")

# %% [markdown] claims="000.2.1-a 002.s1-d"
# ## By hand: four numbers in a row
#
# Take the smallest RNN there is: one feature, $h_t = \tanh(x_t w_x + h_{t-1} w_h)$ with $w_x = 1$, $w_h = 0.5$, and a
# state that starts at 0. The input is $x = (1, 0, 0, 0)$. Only the first word says anything. Beside it, the same with
# $x_0$ changed from 1 to 2:
#
# | $t$ | computation for $x_0 = 1$ | $h_t$ | $h_t$ for $x_0 = 2$ | moved by |
# | --- | --- | --- | --- | --- |
# | 0 | $\tanh(1)$ | 0.7616 | 0.9640 | 0.2024 |
# | 1 | $\tanh(0.5 \cdot 0.7616)$ | 0.3634 | 0.4478 | 0.0844 |
# | 2 | $\tanh(0.5 \cdot 0.3634)$ | 0.1797 | 0.2202 | 0.0405 |
# | 3 | $\tanh(0.5 \cdot 0.1797)$ | 0.0896 | 0.1097 | 0.0201 |
#
# Two things to see. Row 3 needed row 2, row 2 needed row 1: four lines, one after the other, and no number of helpers
# makes that quicker. And $x_0$ still reaches $h_3$, but each step passes on less than half of what it got.
#
# Now attention at its smallest (lesson 02 builds the real one): every number is its own query, key and value. Output
# $t$ is the average of all inputs with the weights $\mathrm{softmax}_s(x_t x_s)$. For $t = 3$ the scores are
# $0 \cdot x_s = 0$ for every $s$, so the four weights are $\tfrac14$ each and the output is
# $\tfrac14 (1 + 0 + 0 + 0) = 0.25$. With $x_0 = 2$ it is $0.5$. It moved by 0.25, and outputs 1 and 2 moved by just
# as much: the distance does not enter. You can do the four rows in any order, or give them to four people.
#
# (Output 0 has the scores $1 \cdot (1, 0, 0, 0)$, the weights $e / (e + 3) = 0.4754$ and three times $0.1749$, and
# comes out as $0.4754$.)

# %% [markdown] claims="000.2.1-h"
# ## One step of an RNN
#
# With vectors, the two numbers $w_x$, $w_h$ become matrices, and a bias is added (Elman 1990, "Finding structure in
# time"):
#
# $$h_t = \tanh(x_t W_x + h_{t-1} W_h + b)$$
#
# $W_x$ has one row per input feature and one column per state feature; $W_h$ is square. In this course vectors are
# rows and weights multiply from the right, so that a batch of $B$ vectors is a $(B, d)$ matrix and one product serves
# all of them.

# %% solve="rnn_step" points=2 difficulty=1 importance=3 minutes=5
def rnn_step(
    x: Float[Tensor, "B d_in"],
    h: Float[Tensor, "B d_h"],
    Wx: Float[Tensor, "d_in d_h"],
    Wh: Float[Tensor, "d_h d_h"],
    b: Float[Tensor, "d_h"],
) -> Float[Tensor, "B d_h"]:
    """One step of a tanh RNN for a batch: the new state, tanh(x Wx + h Wh + b).

    x:  (B, d_in)    the input of this step
    h:  (B, d_h)     the state before this step
    Wx: (d_in, d_h), Wh: (d_h, d_h), b: (d_h,)
    Returns (B, d_h). tanh is applied to the whole sum, and the old state enters only through Wh.
    The inputs are not modified; the result has their dtype and device.
    """
    ### BEGIN SOLUTION
    return torch.tanh(x @ Wx + h @ Wh + b)
    ### END SOLUTION


# %% check="rnn_step"
check(rnn_step)

# %% [markdown] hints="rnn_step"
# 1. The new state is built from three contributions that are added before anything is squashed: one from the input, one from the old state, one that is always there.
# 2. Each vector is multiplied from the right by its own matrix: the input by `Wx`, the state by `Wh`. The bias has one number per state feature and broadcasts over the batch. `torch.tanh` goes around the sum.
# 3. `torch.tanh(x @ Wx + ... + b)`, with the dots being the state times its matrix.

# %% [markdown] claims="000.2.1-a 000.2.1-b 002.s1-c"
# ## The whole sequence
#
# A layer applies the step to positions $0, 1, \dots, T-1$ in order, each time with the state that the previous step
# left:
#
# $$h_t = \mathrm{step}(x_t, h_{t-1}), \qquad t = 0, \dots, T-1, \qquad \text{where the state before step } 0 \text{ is the argument } \texttt{h0}.$$
#
# It returns all states, because the next layer reads them, and the last state, because whoever goes on with the
# sequence needs it. The last state is everything that the layer keeps of the past. Hence a property worth testing:
# cut a sequence anywhere, scan the first piece, scan the second piece starting from the state that the first one
# left, and you get exactly the uncut result.
#
# Not all of it has to be inside the loop. $x_t W_x + b$ depends on no state, so it can be computed for all $t$ in one
# product before the loop starts. The product $h_{t-1} W_h$ and the $\tanh$ cannot. Do it either way.

# %% solve="rnn_scan" points=4 difficulty=2 importance=4 minutes=15
def rnn_scan(
    x: Float[Tensor, "B T d_in"],
    h0: Float[Tensor, "B d_h"],
    Wx: Float[Tensor, "d_in d_h"],
    Wh: Float[Tensor, "d_h d_h"],
    b: Float[Tensor, "d_h"],
) -> tuple[Float[Tensor, "B T d_h"], Float[Tensor, "B d_h"]]:
    """Run the tanh RNN over a batch of sequences, from position 0 to position T-1.

    x:  (B, T, d_in), T >= 1
    h0: (B, d_h)     the state before the first step; it need not be zero
    Wx: (d_in, d_h), Wh: (d_h, d_h), b: (d_h,)   the same in every step, as in rnn_step
    Returns (outputs, h_T):
        outputs: (B, T, d_h)   outputs[:, t] is the state after x[:, t] has been read
        h_T:     (B, d_h)      the last state, equal to outputs[:, -1]
    Gradients flow to all five inputs, from the last output back to h0 and x[:, 0] (nothing is detached).
    The inputs are not modified; the results have their dtype and device.
    """
    ### BEGIN SOLUTION
    outputs = []
    h = h0
    for t in range(x.shape[1]):
        h = rnn_step(x[:, t], h, Wx, Wh, b)  # (B, d_h)
        outputs.append(h)
    return torch.stack(outputs, dim=1), h
    ### END SOLUTION


# %% check="rnn_scan"
check(rnn_scan)

# %% [markdown] hints="rnn_scan"
# 1. One variable holds the state. It starts as `h0`, and every step replaces it by the new state, which is also what that step puts out.
# 2. Loop over `t` in `range(x.shape[1])`, feed `x[:, t]` and the current state to `rnn_step`, collect the new states in a list. `torch.stack(..., dim=1)` turns the list of `(B, d_h)` into `(B, T, d_h)`.
# 3. In the loop: `h = rnn_step(x[:, t], h, Wx, Wh, b)` and then `outputs.append(h)`. Mind that the name on the left is the one that is used on the right.

# %% [markdown] claims="000.2.1-b 000.2.1-c"
# ### Experiment: is an RNN "not parallel"?
#
# One hears that an RNN cannot use parallel hardware. The steps of *one* sequence do wait for each other. But every
# step is a matrix product over the whole batch, and a matrix product is as parallel as anything gets. Below, your
# `rnn_scan` runs over 64 steps for 1, 4, 16 and 64 sequences. Before you run it, choose:
#
# - **a.** 64 sequences take 64 times as long as one: the RNN is serial.
# - **b.** 64 sequences take longer than one, but far less than 64 times as long.
# - **c.** They take the same time: sequences are independent of each other.

# %% demo
torch.set_num_threads(1)  # one core, so that the times below speak of the layer and not of how busy the other cores are


def best_time(f: Callable[[], object], budget: float = 0.03) -> float:
    """Seconds of the quickest call of f within a small budget (at least three calls after a warm-up call)."""
    f()
    times, end = [], time.perf_counter() + budget
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


torch.manual_seed(0)
weights = torch.randn(64, 64) / 8, torch.randn(64, 64) / 8, torch.zeros(64)
batch_sizes = [1, 4, 16, 64]
with torch.no_grad():
    batch_ms = [
        1e3 * best_time(lambda: rnn_scan(torch.ones(B, 64, 64), torch.zeros(B, 64), *weights)) for B in batch_sizes
    ]
for B, ms in zip(batch_sizes, batch_ms):
    print(f"{B:3d} sequences: {ms:6.2f} ms in all, {ms / B:6.3f} ms each")

# %% demo
fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.loglog(batch_sizes, batch_ms, "o-", label="measured")
ax.loglog(batch_sizes, [batch_ms[0] * B for B in batch_sizes], "k:", label="if sequences took turns")
ax.set_xticks(batch_sizes, [str(B) for B in batch_sizes])
ax.minorticks_off()
ax.set(xlabel="batch size B (sequences)", ylabel="time for 64 steps (ms)", title="Do 64 sequences take 64 times as long as one?")
ax.legend()
plt.show()

# %% [markdown] claims="000.2.1-b 000.2.1-c"
# The plot shows the time of the whole scan against the number of sequences; the dotted line is what taking turns
# would cost. The measured curve lies far below it. **a** mistakes the dependence between the steps of one sequence
# for a dependence between sequences. **c** forgets that the arithmetic does grow with $B$; while the batch is small,
# though, most of the time of a step is the fixed cost of starting it, and there the curve is nearly flat. **b** it
# is. A GPU shows the same more strongly: it is used well by an RNN with a large batch and wide layers, and badly by
# one with a batch of 1. What it cannot do is to shorten the chain of $T$ steps.

# %% [markdown] claims="000.2.1-j 002.s1-f 002.s1-e"
# ## What depends on what
#
# Write down for a layer $f$, which maps $(T, d)$ to $(T, d)$, a $T \times T$ table $D$ of booleans: $D_{ts}$ is True
# if output $t$ depends on input $s$. Rows are outputs, columns are inputs. For $T = 4$:
#
# | RNN | attention | causal attention | 3-wide convolution |
# | --- | --- | --- | --- |
# | `X . . .` | `X X X X` | `X . . .` | `X X . .` |
# | `X X . .` | `X X X X` | `X X . .` | `X X X .` |
# | `X X X .` | `X X X X` | `X X X .` | `. X X X` |
# | `X X X X` | `X X X X` | `X X X X` | `. . X X` |
#
# "Causal" means that a position sees itself and what came before it. A centered convolution of width $k = 3$ sees one
# neighbor on either side. Note that the RNN and causal attention have the *same* table: they differ in how the
# information gets there, not in where it gets.
#
# You will find this table by experiment, for any layer, without looking inside: change input $s$ and nothing else,
# and note which outputs move. It is the tool with which this course tests masks, and a good one for debugging. Four
# traps lie in "change input $s$":
#
# - **Too small.** $\tanh(100\,x)$ at $x = 2$ is 1 to the last bit, and so it is at $x = 2.1$. Rounding, hard
#   attention and thresholds are constant almost everywhere; their derivative is 0, so autograd says "no dependence"
#   and is wrong. Try large changes as well as small ones.
# - **In a blind direction.** A layer that normalizes each position ignores a change that adds the same number to all
#   features, or one that doubles the vector. Change all features at random.
# - **Unlucky.** One draw may push a ReLU further into its dead side. Take the union over at least four draws of each
#   size.
# - **Not undone.** Start from the original $x$ for each $s$; otherwise you measure the effect of several changes at
#   once.
#
# And a fifth in "move": two sums in a different order differ in the last bit. A move counts when it is larger than
# rounding. A common line for that is the square root of the machine epsilon, about $1.5 \cdot 10^{-8}$ in float64.

# %% solve="dependency_matrix" points=6 difficulty=3 importance=5 minutes=20
def dependency_matrix(f: Callable[[Tensor], Tensor], x: Float[Tensor, "T d"]) -> Bool[Tensor, "T T"]:
    """Which output positions of f depend on which input positions, found by perturbing a black box.

    f: a deterministic function from (T, d) to (T, d) of the dtype of x; a move of output t means that any feature of
       f(x)[t] moves. f may saturate, normalize, round, or have no useful gradient: use its values only.
    x: (T, d), T >= 1, floating point, finite. It is not modified (also not by an f that writes to its argument).
    Returns a bool tensor (T, T), on the device of x: [t, s] is True if some change of x[s] alone moves f(x)[t].

    For each s, change row s of the original x, all features at once in random directions (each feature up or down), at
    least four times with each of the sizes 0.1, 1, 10 and 100, and take the union of what moved. A move counts if it is
    larger than torch.finfo(x.dtype).eps ** 0.5, so that rounding is not taken for a dependence.
    The same call gives the same answer again.
    """
    ### BEGIN SOLUTION
    T, d = x.shape
    threshold = torch.finfo(x.dtype).eps ** 0.5
    generator = torch.Generator().manual_seed(0)
    before = f(x.clone())
    depends = torch.zeros(T, T, dtype=torch.bool, device=x.device)
    for s in range(T):
        for size in 4 * [0.1, 1.0, 10.0, 100.0]:
            direction = torch.randn(d, generator=generator, dtype=x.dtype).to(x.device)
            changed = x.clone()
            changed[s] += size * direction
            moved = (f(changed) - before).abs().amax(dim=-1)  # (T,), one number per output position
            depends[:, s] |= moved > threshold
    return depends
    ### END SOLUTION


# %% check="dependency_matrix"
check(dependency_matrix)

# %% [markdown] hints="dependency_matrix"
# 1. Keep the outputs for the original `x`. Then change one input position at a time and compare: the output rows that are no longer the same depend on it. This fills one *column* of the table.
# 2. For each `s`: clone `x`, add random noise to row `s`, call `f`, and take the largest absolute difference over the features of each output row. Repeat with noise of size 0.1, 1, 10 and 100, a few draws each, and combine the answers with "or".
# 3. `changed = x.clone(); changed[s] += size * torch.randn(...)`, then `depends[:, s] |= (f(changed) - before).abs().amax(dim=-1) > threshold`. Give `f` a clone of `x` for `before` too.

# %% [markdown]
# ### Experiment: four layers, four tables
#
# The next cell defines four layers with random weights, the first of them from your `rnn_scan`; your
# `dependency_matrix` looks at each. The convolution is 3 wide and centered. What will its picture be?
#
# - **a.** A lower triangle, like the RNN's: a convolution slides from left to right.
# - **b.** A band of width 3 around the diagonal.
# - **c.** Full: a kernel is applied to the whole sequence.

# %% demo
T, d = 8, 4
generator = torch.Generator().manual_seed(1)
Wq, Wk, Wv, Wx, Wh = (torch.randn(d, d, generator=generator, dtype=torch.float64) / d**0.5 for _ in range(5))
kernel = torch.randn(d, d, 3, generator=generator, dtype=torch.float64) / (3 * d) ** 0.5
no_bias = torch.zeros(d, dtype=torch.float64)


def rnn_layer(x: Tensor) -> Tensor:
    return rnn_scan(x[None], torch.zeros(1, d, dtype=x.dtype), Wx, Wh, no_bias)[0][0]


def attention_layer(x: Tensor, causal: bool = False) -> Tensor:
    scores = (x @ Wq) @ (x @ Wk).T / d**0.5  # (T, T): one row per query, one column per key
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf"))
    return scores.softmax(dim=-1) @ (x @ Wv)


def conv_layer(x: Tensor) -> Tensor:
    return F.conv1d(x.T[None], kernel, padding=1)[0].T

# %% demo
def draw_tables(tables: dict[str, Tensor], question: str) -> None:
    fig, axes = plt.subplots(1, len(tables), figsize=(2.7 * len(tables), 3.6), layout="constrained")
    for ax, (name, table) in zip(axes, tables.items()):
        ax.imshow(table, cmap="cividis", vmin=0, vmax=1)
        ax.set_xticks([i - 0.5 for i in range(1, len(table))], minor=True)
        ax.set_yticks([i - 0.5 for i in range(1, len(table))], minor=True)
        ax.grid(which="minor", color="white", linewidth=1)
        ax.tick_params(which="minor", length=0)
        ax.set(title=name, xlabel="input position s", ylabel="output position t")
        ax.label_outer()
    fig.suptitle(f"{question} (yellow: yes)")
    plt.show()


x = torch.randn(T, d, generator=generator, dtype=torch.float64)
layers = {
    "RNN": rnn_layer,
    "attention": attention_layer,
    "causal attention": lambda x: attention_layer(x, causal=True),
    "3-wide convolution": conv_layer,
}
draw_tables({name: dependency_matrix(layer, x) for name, layer in layers.items()}, "Which output depends on which input?")

# %% [markdown] claims="000.2.1-d 002.s1-a 002.s1-e 002.s1-f"
# The four pictures show, left to right, a lower triangle, a full square, the same lower triangle again, and a band.
# For the convolution, **b**: the kernel does slide over the whole sequence (**c**), but each output reads only the
# three inputs under it, and a *centered* one reads its right neighbor too, which rules out **a**.
#
# Two corrections to what one often reads. "A Transformer sees all words at once": an encoder does; the causal
# attention of a GPT-like decoder sees the words up to and including the current one, the same set that an RNN sees.
# "A CNN sees only a local window": one *layer* does. The next section stacks them.

# %% [markdown] claims="000.2.1-e 002.s1-c 002.s1-g"
# ## How long a chain must wait
#
# Suppose you had as many processors as you like. What is then the least number of rounds in which one layer gets
# through $T$ positions, if a round does everything whose inputs are ready? For $T = 4$:
#
# | round | RNN | attention | convolution |
# | --- | --- | --- | --- |
# | 1 | $h_0$ | out$_0$, out$_1$, out$_2$, out$_3$ | out$_0$, out$_1$, out$_2$, out$_3$ |
# | 2 | $h_1$ | | |
# | 3 | $h_2$ | | |
# | 4 | $h_3$ | | |
#
# What we count as one step is one use of the layer's rule: one cell update of the RNN, one attention (project, score,
# softmax, sum), one convolution. Inside each of these there are further stages, but their number does not grow with
# $T$. (To be exact: a sum over $T$ numbers takes about $\log_2 T$ rounds of pairwise additions. Like Vaswani et al.
# 2017, Table 1, we count a matrix product as one operation.) So the longest chain of dependent steps is $T$ for the
# RNN and 1 for the other two. This is what "parallel by nature" means: within one layer, no position waits for the
# *output* of another. Layers still wait for each other: $L$ layers of attention are $L$ steps.

# %% solve="sequential_steps" points=2 difficulty=1 importance=5 minutes=5
def sequential_steps(kind: str, T: int) -> int:
    """The longest chain of dependent steps when one layer reads a sequence of T positions.

    A step is one use of the layer's rule; steps whose inputs are ready happen at the same time, on as many processors
    as needed.
    kind = "rnn":        one cell update per position, each waiting for the one before: T
    kind = "attention":  all positions in one step, causal or not: 1
    kind = "conv":       all positions in one step, whatever the kernel: 1
    T = 1 gives 1 for every kind. Returns an int.
    Raises ValueError for any other kind and for T < 1.
    """
    ### BEGIN SOLUTION
    if T < 1:
        raise ValueError(f"T={T}: a sequence has at least one position")
    if kind == "rnn":
        return T
    if kind in ("attention", "conv"):
        return 1
    raise ValueError(f"kind={kind!r} is none of 'rnn', 'attention', 'conv'")
    ### END SOLUTION


# %% check="sequential_steps"
check(sequential_steps)

# %% [markdown] hints="sequential_steps"
# 1. Ask of each layer: while position 5 is being computed, does it need the *output* of position 4, or only inputs?
# 2. Only the RNN needs an output of the same layer. Its steps form one chain through all positions. For the other two, everything is ready at the start.
# 3. `if kind == "rnn": return T`, and for the two others `return 1`. What is left is to raise `ValueError` for other names and for `T < 1`.

# %% [markdown] claims="000.2.1-d 002.s1-e"
# ## How long a path the information takes
#
# A different question: through how many hops must information pass to get from one position to another? A hop is one
# use of a layer's rule that takes it from a position to *another* position. We ask for the two positions that are
# farthest apart, $T - 1$ places, in a stack just deep enough to connect them.
#
# - **RNN.** Each update carries it one position on: $h_0 \to h_1 \to \dots \to h_{T-1}$. That is $T - 1$ hops: $T$
#   boxes have $T - 1$ arrows between them. This is why the path is one shorter than the chain of steps: the first
#   update reads $x_0$ in place and moves nothing between positions.
# - **Attention.** Every position reads every position that it may see: 1 hop, whatever the distance.
# - **Convolution** of odd width $k$, centered. One layer reaches $r = \lfloor k/2 \rfloor$ positions to either side,
#   so $n$ layers reach $n r$. The stack needs the smallest $n$ with $n r \ge T - 1$: $n = \lceil (T-1)/r \rceil$. By
#   hand: $T = 8$, $k = 3$ gives $r = 1$ and $7$ layers; $k = 5$ gives $r = 2$ and $\lceil 3.5 \rceil = 4$. (Dilated
#   kernels, whose gaps grow from layer to layer, need only about $\log_k T$ layers; van den Oord et al. 2016,
#   Kalchbrenner et al. 2016.)
#
# With $T = 1$ there is nothing to cross: 0 hops, for every kind.

# %% solve="path_length" points=3 difficulty=2 importance=4 minutes=10
def path_length(kind: str, T: int, k: int = 3) -> int:
    """Hops that information needs between the two farthest of T positions, T - 1 places apart.

    A hop is one use of the layer's rule that carries information from a position to another position.
    kind = "rnn":        each update carries it one position on: T - 1
    kind = "attention":  one hop whatever the distance: 1, but 0 if T = 1
    kind = "conv":       a stack of centered convolutions of odd width k, without dilation or stride; each layer carries it
                         up to k // 2 positions: the smallest n with n * (k // 2) >= T - 1
    T = 1 gives 0 for every kind. k is used (and checked) only for "conv". Returns an int.
    Raises ValueError for any other kind, for T < 1, and for "conv" with a k that is even or smaller than 3.
    """
    ### BEGIN SOLUTION
    if T < 1:
        raise ValueError(f"T={T}: a sequence has at least one position")
    if kind == "rnn":
        return T - 1
    if kind == "attention":
        return min(1, T - 1)
    if kind == "conv":
        if k < 3 or k % 2 == 0:
            raise ValueError(f"k={k}: a centered kernel that reaches its neighbors has an odd width of at least 3")
        reach = k // 2
        return (T - 1 + reach - 1) // reach  # (T - 1) / reach, rounded up
    raise ValueError(f"kind={kind!r} is none of 'rnn', 'attention', 'conv'")
    ### END SOLUTION


# %% check="path_length"
check(path_length)

# %% [markdown] hints="path_length"
# 1. The distance to cross is `T - 1`, not `T`. Ask how far one hop of each layer can carry something.
# 2. RNN: one place per hop. Attention: any distance in one hop, and no hop where there is no distance. Convolution: `k // 2` places per layer, so divide and round *up*.
# 3. For whole numbers `-(-a // b)` is `a / b` rounded up; here `a = T - 1` and `b = k // 2`. Check `k` before you divide, and only for `"conv"`.

# %% [markdown] claims="002.s1-e"
# ### Experiment: how deep must the convolution be?
#
# Formulas of this kind are easily off by one, so let the black box decide. First, 3-wide convolutions are stacked 1,
# 2, 4 and 7 deep on $T = 8$ positions. After how many layers does every position reach every other?
#
# - **a.** 3, because $3^2 > 8$: the reach multiplies.
# - **b.** 4, because each layer adds 2 to the window.
# - **c.** 7, because each layer adds 1 on either side.

# %% demo
def stacked(layer: Callable[[Tensor], Tensor], depth: int) -> Callable[[Tensor], Tensor]:
    def stack(x: Tensor) -> Tensor:
        for _ in range(depth):
            x = layer(x)
        return x

    return stack


depths = (1, 2, 4, 7)
tables = {f"{n} layer{'s' * (n > 1)}": dependency_matrix(stacked(conv_layer, n), x) for n in depths}
draw_tables(tables, "How many 3-wide convolutions until everything is connected?")

# %% demo
def hops_to_connect(one_hop: Tensor, wanted: Tensor) -> int:
    """How often information must hop, if one_hop[t, s] says where one hop can take it, until all of `wanted` is reached."""
    reached, hops = torch.eye(len(one_hop), dtype=torch.bool), 0
    while not bool((reached | ~wanted).all()):
        reached, hops = (reached.double() @ one_hop.double()) > 0, hops + 1
    return hops


def rnn_hop(h: Tensor) -> Tensor:  # one round in which every position hands its state to the next
    return torch.tanh(h + F.pad(h, (0, 0, 1, 0))[:-1] @ Wh)


everything = torch.ones(T, T, dtype=torch.bool)
for kind, layer, wanted in [
    ("rnn", rnn_hop, everything.tril()),
    ("attention", attention_layer, everything),
    ("conv", conv_layer, everything),
]:
    hops = hops_to_connect(dependency_matrix(layer, x), wanted)
    print(f"{kind:9s} T={T}: {hops} hops found, path_length says {path_length(kind, T)}, steps {sequential_steps(kind, T)}")

# %% [markdown] claims="000.2.1-d 002.s1-e"
# The band widens by one on either side with each layer, and the corners, positions 0 and 7, fill last, with the
# seventh: **c**. **b** counts the whole window, $2n + 1$, but the farthest position lies to *one* side of the
# window's center. **a** describes dilated kernels. The lines below the pictures find the same numbers by following
# the tables hop by hop.
#
# So all three kinds of layer *can* connect any two positions. They differ in the number of hops: $T - 1$, 1, and
# $\lceil (T-1)/\lfloor k/2 \rfloor \rceil$.

# %% [markdown] claims="000.2.1-f 002.s1-d"
# ### Experiment: connected is not remembered
#
# A True in the table says that *something* arrives. It does not say how much. The next plot measures it: nudge input
# $s$ a little, in random directions, and record how far the last output moves, per unit of nudge, against the
# distance $T - 1 - s$. The weights are random, nothing is trained. There are two RNNs that differ only in the size of
# $W_h$ (an orthogonal matrix times a gain of 0.5 or 1), an LSTM whose forget gate is held open by its bias, and
# attention. What do you expect?
#
# - **a.** All curves are flat and of similar height: every table says True.
# - **b.** The recurrent curves fall with distance, attention's does not.
# - **c.** It depends on the weights: among recurrent layers some forget at once and some keep; attention is flat, but
#   low.

# %% demo
def influence(f: Callable[[Tensor], Tensor], x: Tensor, s: int, size: float = 1e-4) -> float:
    """How far the last output moves per unit of movement of input s: the mean over 8 random directions."""
    directions = torch.randn(8, x.shape[1], generator=torch.Generator().manual_seed(s), dtype=x.dtype)
    moves = []
    for direction in directions / directions.norm(dim=-1, keepdim=True):
        nudged = x.clone()
        nudged[s] += size * direction
        moves.append((f(nudged)[-1] - f(x)[-1]).norm() / size)
    return torch.stack(moves).mean().item()


orthogonal = torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64)).Q


def rnn_with_gain(gain: float) -> Callable[[Tensor], Tensor]:
    zero = torch.zeros(1, d, dtype=torch.float64)
    return lambda x: rnn_scan(x[None], zero, 0.1 * Wx, gain * orthogonal, no_bias)[0][0]


torch.manual_seed(0)
lstm = nn.LSTM(d, d, batch_first=True).double().requires_grad_(False)
lstm.bias_ih_l0[d : 2 * d] = 6.0  # PyTorch's order of the gates: input, forget, cell, output

# %% demo
long_x = torch.randn(64, d, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
remembering = {
    "RNN, gain 0.5": rnn_with_gain(0.5),
    "RNN, gain 1": rnn_with_gain(1.0),
    "LSTM, forget gate open": lambda x: lstm(x[None])[0][0],
    "attention": attention_layer,
}
distances = [0, 1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 63]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, layer), style in zip(remembering.items(), ["o-", "s-", "^-", "D-"]):
    ax.semilogy(distances, [influence(layer, long_x, 63 - n) for n in distances], style, markersize=4, label=name)
ax.set(xlabel="distance from the last position (positions)", ylabel="movement of the last output\nper unit of movement of the input")
ax.set_title("How much of an input is left after some distance?")
ax.set_ylim(bottom=1e-13)  # below this there is only rounding
ax.legend()
plt.show()
for length in (16, 64, 256):
    padded = torch.randn(length, d, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    share = sum(influence(attention_layer, padded, s) for s in range(0, length - 1, 5)) / len(range(0, length - 1, 5))
    print(f"attention over {length:3d} positions: one of them moves the last output by {share:.4f} per unit, on average")

# %% [markdown] claims="000.2.1-f 002.s1-d"
# The plot shows, on a logarithmic axis, what is left of an input after some distance. **a** reads "depends" as
# "remembers"; the curves lie many orders of magnitude apart. **b** is the textbook picture, and the RNN with gain 0.5
# draws it: a straight line down, about a factor of 2 lost per step, until only rounding is left. But fading is a
# property of the weights, not of recurrence: with gain 1 the same layer loses little per step, and the LSTM's open
# gate was invented to hold (Hochreiter and Schmidhuber 1997; the trouble itself: Bengio, Simard and Frasconi 1994).
# What *training* makes of it is another matter: gradients travel along the same path and shrink or grow with it.
#
# Attention is flat in the distance, and low: with random weights one position among $T$ gets a share of about $1/T$,
# as the printed lines show. A path of one hop gives information the *chance* to arrive. Whether it does depends on
# the weights that the softmax gives it, on what the value projection keeps, and on what later layers do. **c** fits
# best.

# %% [markdown] claims="000.2.1-i 000.2.1-n 001.s10-h"
# ## Counting the arithmetic
#
# A product of $(n, m)$ by $(m, p)$ has $n p$ results, each a sum of $m$ products: $n m p$ multiply-adds, which we
# count as $2 n m p$ FLOPs (one multiplication, one addition). Everything that is not a matrix product (bias, $\tanh$,
# softmax, scaling, masking) is left out; it grows no faster in $T$ than the products beside it, and is smaller by a
# factor of about the width of the vectors that they multiply.
#
# **RNN layer**, input and state both of width $d$. Per position two products of a $(1, d)$ row with a $(d, d)$
# matrix, $2 d^2$ each. For $B$ sequences of $T$ positions:
#
# $$\underbrace{2 B T d^2}_{\text{input maps } x_t W_x} + \underbrace{2 B T d^2}_{\text{recurrence } h_{t-1} W_h} = 4 B T d^2$$
#
# The first summand can be done for all positions at once, the second cannot; the count is the same.

# %% solve="rnn_flops" points=2 difficulty=1 importance=3 minutes=5
def rnn_flops(B: int, T: int, d: int) -> int:
    """FLOPs of the forward pass of one tanh RNN layer with d_in = d_h = d, over B sequences of T positions.

    Counted, a multiply-add as 2: the input map x[t] Wx and the recurrent map h[t-1] Wh of every position, also of the
    first one.
    Not counted: bias, tanh. Returns an exact int.
    """
    ### BEGIN SOLUTION
    input_maps = 2 * B * T * d * d
    recurrence = 2 * B * T * d * d
    return input_maps + recurrence
    ### END SOLUTION


# %% check="rnn_flops"
check(rnn_flops)

# %% [markdown] hints="rnn_flops"
# 1. Two matrices act at every position of every sequence. Count one of them, once, first.
# 2. A row of `d` numbers times a `(d, d)` matrix takes `d * d` multiply-adds, each 2 FLOPs. There are `B * T` positions and two such products at each.
# 3. `2 * B * T * d * d` is the input map alone; the recurrent map costs as much again.

# %% [markdown] claims="000.2.1-k 000.2.1-n 001.s6-a 001.s6-b 001.s10-h"
# **Attention layer** of width $d$ with $H$ heads. Lesson 02 explains queries, keys and values; to count them you need
# only the shapes. Four projections, each $(T, d)$ by $(d, d)$: queries, keys, values, and the output map after the
# heads are put together. That is $4 \cdot 2 B T d^2$. In between, each of the $H$ heads, of width $d_k = d / H$,
# multiplies queries by keys, $(T, d_k)$ by $(d_k, T)$, and weights by values, $(T, T)$ by $(T, d_k)$. Each is
# $2 T^2 d_k$ per head, hence $2 T^2 d$ for all heads together: the number of heads cancels.
#
# $$\underbrace{8 B T d^2}_{\text{four projections}} + \underbrace{2 B T^2 d}_{Q K^\top} + \underbrace{2 B T^2 d}_{A V} = 8 B T d^2 + 4 B P d, \qquad P = T^2 \text{ pairs of a query and a key.}$$
#
# Under a **causal** mask query $t$ sees keys $0, \dots, t$, so only $P = 1 + 2 + \dots + T = T(T+1)/2$ pairs matter.
# A kernel that skips the others does about half the work; one that computes all scores and then masks them does not.
# We count what is needed.
#
# By hand: $B = 1$, $T = 4$, $d = 2$. Projections $8 \cdot 4 \cdot 4 = 128$; the pairs $4 \cdot 16 \cdot 2 = 128$;
# together 256. Causal: $P = 10$, $4 \cdot 10 \cdot 2 = 80$, together 208. The RNN: $4 \cdot 4 \cdot 4 = 64$.
#
# So "an RNN is $O(T)$, a Transformer is $O(T^2)$" leaves out the widths, and with them the answer. An attention layer
# of this kind takes *more* FLOPs than an RNN layer of the same width at *every* length: $8 > 4$ already. And at
# lengths well below the width its cost is the projections, which are linear in $T$.

# %% solve="attention_flops" points=4 difficulty=2 importance=5 minutes=10
def attention_flops(B: int, T: int, d_model: int, H: int, causal: bool = False) -> int:
    """FLOPs of the forward pass of one self-attention layer with H heads of width d_model / H.

    Counted, a multiply-add as 2, over B sequences of T positions:
      - four projections (queries, keys, values, output), each (d_model, d_model), at every position
      - the scores, Q K^T: one dot product of width d_model / H for each head and each visible pair (query, key)
      - the weighted sum, A V: as much again
    Visible pairs per sequence and head: T * T, or T * (T + 1) / 2 if causal (a position sees itself).
    Not counted: biases, scaling, masking, softmax. Returns an exact int.
    Raises ValueError if H does not divide d_model.
    """
    ### BEGIN SOLUTION
    if d_model % H != 0:
        raise ValueError(f"d_model={d_model} does not divide into H={H} heads")
    pairs = T * (T + 1) // 2 if causal else T * T
    projections = 4 * 2 * B * T * d_model * d_model
    scores = 2 * B * H * pairs * (d_model // H)
    weighted_sum = 2 * B * H * pairs * (d_model // H)
    return projections + scores + weighted_sum
    ### END SOLUTION


# %% check="attention_flops"
check(attention_flops)

# %% [markdown] hints="attention_flops"
# 1. Two kinds of work: what happens at each position by itself (four square matrices) and what happens for each *pair* of positions (a dot product for the score, and a vector added with a weight).
# 2. First `8 * B * T * d_model**2`. Then, for each visible pair, `2 * d_model` FLOPs for its score over all heads and `2 * d_model` for its part of the weighted sum. Only the number of pairs depends on `causal`.
# 3. `pairs = T * (T + 1) // 2 if causal else T * T` (whole-number division), and the second part is `4 * B * pairs * d_model`. Raise `ValueError` if `d_model % H != 0`.

# %% [markdown] claims="000.2.1-k 001.s6-b 001.s10-h"
# ## Where the square takes over
#
# The part that grows with $T^2$ equals the projections when $4 B T^2 d = 8 B T d^2$, that is at
#
# $$T^* = 2 d.$$
#
# A Transformer layer has a second part, the feed-forward network (lesson 07): at each position two matrices,
# $(d, d_{\mathrm{ff}})$ and $(d_{\mathrm{ff}}, d)$, together $4 B T d\, d_{\mathrm{ff}}$ FLOPs. Set the square
# against *all* linear maps of the layer: $4 T^2 d = 8 T d^2 + 4 T d\, d_{\mathrm{ff}}$, so
#
# $$T^* = 2 d + d_{\mathrm{ff}}.$$
#
# By hand, with the sizes of the base model of Vaswani et al. 2017, $d = 512$ and $d_{\mathrm{ff}} = 2048$:
# $T^* = 1024$ against the projections and $3072$ against all linear maps. Below that length, the "quadratic" layer
# spends most of its arithmetic on something linear in $T$.

# %% solve="crossover_length" points=2 difficulty=2 importance=4 minutes=5
def crossover_length(d_model: int, d_ff: int | None = None) -> int:
    """The length T at which the T^2 part of a layer takes as many FLOPs as its linear maps.

    The T^2 part: Q K^T and A V of full (not causal) self-attention, 4 B T^2 d_model FLOPs.
    The linear maps: the four (d_model, d_model) projections; if d_ff is given, also the two matrices of a feed-forward
    network, (d_model, d_ff) and (d_ff, d_model).
    Returns the exact T, which is a whole number, as an int. It does not depend on the batch or the heads.
    """
    ### BEGIN SOLUTION
    if d_ff is None:
        return 2 * d_model  # 4 T^2 d = 8 T d^2
    return 2 * d_model + d_ff  # 4 T^2 d = 8 T d^2 + 4 T d d_ff
    ### END SOLUTION


# %% check="crossover_length"
check(crossover_length)

# %% [markdown] hints="crossover_length"
# 1. Write down both costs for the same `B`, `T`, `d_model`, set them equal, and divide by everything that stands on both sides.
# 2. Without the feed-forward network: `4 T^2 d = 8 T d^2`. With it, add `4 T d d_ff` to the right side. Solve for `T`.
# 3. After dividing by `4 T d`, the left side is `T` and the right side is a sum of at most two terms, each without `T`.

# %% [markdown]
# ### A second opinion on the counts
#
# PyTorch can count for itself: `FlopCounterMode` notes every matrix product that is really executed. It should agree
# with your formulas exactly. (It would not see the causal saving: the plain layer below computes all scores, whatever
# is masked afterwards.) A batch of 3, 20 positions, width 24, 4 heads:

# %% demo
from torch.utils.flop_counter import FlopCounterMode


class Attention(nn.Module):
    """Self-attention with n_heads heads, naive (scores in full) or fused (PyTorch's kernel, which works in blocks)."""

    def __init__(self, d_model: int, n_heads: int, fused: bool) -> None:
        super().__init__()
        self.n_heads, self.fused = n_heads, fused
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, d_model)
        B, T, d = x.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        if self.fused:
            heads = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.n_heads)  # (B, H, T, T)
            heads = scores.softmax(dim=-1) @ v
        return self.out(heads.transpose(1, 2).reshape(B, T, d))

# %% demo
count_x, count_W = torch.randn(3, 20, 24), torch.randn(24, 24)
with FlopCounterMode(display=False) as counted:
    rnn_scan(count_x, torch.zeros(3, 24), count_W, count_W, torch.zeros(24))
print(f"RNN:       counted {counted.get_total_flops()}, rnn_flops {rnn_flops(3, 20, 24)}")
with FlopCounterMode(display=False) as counted:
    Attention(24, n_heads=4, fused=False)(count_x)
print(f"attention: counted {counted.get_total_flops()}, attention_flops {attention_flops(3, 20, 24, H=4)}")
print(f"base model of 2017: T* = {crossover_length(512)} (projections), {crossover_length(512, 2048)} (all linear maps)")

# %% [markdown] claims="002.s1-h 000.2.1-n"
# ## Experiment: wall time
#
# "A Transformer trains 10 to 100 times faster than an RNN." Faster at which length, which width, with which kernel,
# on which machine? Below: one layer, forward and backward, for one sequence on one core of this machine. PyTorch's
# own RNN and LSTM (an LSTM step is four RNN-like maps, so it counts $16 B T d^2$), and attention with 4 heads, naive
# and fused (the second never holds the scores as one whole matrix). The cell takes a few seconds and stops at its
# deadline. Before you run it: at $d = 64$, which layer is quickest?
#
# - **a.** Attention at every length: 1 step against $T$.
# - **b.** The RNN at every length: it has the fewest FLOPs.
# - **c.** Attention at short lengths, a recurrent layer at long ones.

# %% demo
def layers_of_width(d: int) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "RNN": nn.RNN(d, d, batch_first=True),
        "LSTM": nn.LSTM(d, d, batch_first=True),
        "attention, naive": Attention(d, 4, fused=False),
        "attention, fused": Attention(d, 4, fused=True),
    }


def forward_and_training_time(layer: nn.Module, x: Tensor) -> tuple[float, float]:
    """Seconds of a forward pass alone, and of a forward and a backward pass."""

    def forward_backward() -> None:
        y = layer(x)
        (y if isinstance(y, Tensor) else y[0]).sum().backward()

    with torch.no_grad():
        forward = best_time(lambda: layer(x))
    return forward, best_time(forward_backward)

# %% demo
widths, lengths = [64, 256], [16, 64, 256, 1024]
deadline = time.perf_counter() + 12
seconds = {}  # (layer, d, T) -> (forward, forward and backward)
for T_now in lengths:
    for d_now in widths:
        x_now = torch.randn(1, T_now, d_now, requires_grad=True)
        for name, layer in layers_of_width(d_now).items():
            late = time.perf_counter() > deadline
            seconds[name, d_now, T_now] = (math.nan, math.nan) if late else forward_and_training_time(layer, x_now)


def layer_flops(name: str, d: int, T: int) -> int:  # forward, one sequence
    return {"RNN": rnn_flops(1, T, d), "LSTM": 4 * rnn_flops(1, T, d)}.get(name, attention_flops(1, T, d, H=4))


print("layer              d     T   forward   forward and     forward      forward")
print("                                ms   backward, ms       MFLOP    GFLOP per s")
for (name, d_now, T_now), (forward, both) in seconds.items():
    flops = layer_flops(name, d_now, T_now)
    cells = f"{1e3 * forward:9.2f}  {1e3 * both:12.2f}  {flops / 1e6:10.2f}  {flops / forward / 1e9:11.1f}"
    print(f"{name:17s} {d_now:3d}  {T_now:4d} {cells}")

# %% demo
fig, axes = plt.subplots(2, 2, figsize=(9, 6.4), sharex=True, sharey="row", layout="constrained")
for column, d_now in enumerate(widths):
    for name, style in zip(layers_of_width(d_now), ["o-", "s-", "^--", "D-"]):
        ms = [1e3 * seconds[name, d_now, T_now][1] for T_now in lengths]
        axes[0, column].loglog(lengths, ms, style, markersize=5, label=name)
        mflop = [3e-6 * layer_flops(name, d_now, T_now) for T_now in lengths]  # a backward pass counts about two forward ones
        if name != "attention, fused":  # as many FLOPs as the naive one
            axes[1, column].loglog(lengths, mflop, style, markersize=5, label=name)
    axes[0, column].set_title(f"width d = {d_now}: measured")
    axes[1, column].set(title=f"width d = {d_now}: counted", xlabel="length T (positions)")
    axes[1, column].set_xticks(lengths, [str(T_now) for T_now in lengths])
    axes[1, column].minorticks_off()
axes[0, 0].set_ylabel("forward and backward (ms)")
axes[1, 0].set_ylabel("forward and backward (MFLOP)")
axes[0, 0].legend()
fig.suptitle("Does the layer with the fewest FLOPs finish first?")
plt.show()

# %% demo
def first_length_slower(name: str, other: str, d: int) -> str:
    """The first measured length at which `name` takes longer than `other` to train on."""
    for T_now in lengths:
        if seconds[name, d, T_now][1] > seconds[other, d, T_now][1]:
            return f"from T = {T_now} on the list"
    return "nowhere on the list"


for d_now in widths:
    for recurrent in ("RNN", "LSTM"):
        ratios = [seconds[recurrent, d_now, T_now][1] / seconds["attention, fused", d_now, T_now][1] for T_now in lengths]
        numbers = ", ".join(f"{ratio:.1f} at T={T_now}" for ratio, T_now in zip(ratios, lengths))
        print(f"d={d_now:3d}: time of {recurrent} / fused attention: {numbers}")
        print(f"       fused attention is slower {first_length_slower('attention, fused', recurrent, d_now)}")
    print(f"       by FLOPs attention passes the LSTM at T = {crossover_length(d_now)}, and is above the RNN at every T")

# %% [markdown] claims="002.s1-h 000.2.1-n"
# The upper plots show measured time, the lower ones the FLOPs of the same layers; the printed lines say where the
# curves cross on your machine. Compare the order of the lines above and below.
#
# The RNN is lowest in every lower plot and far from it in the upper left one: prediction **b** takes FLOPs for
# seconds. At short and middle lengths the RNN's $T$ small steps each pay the fixed cost of being started, and a
# product of one row with a matrix is too small to keep even one core busy (last column of the table). Prediction
# **a** fails at the other end: the square grows until it outweighs that cost. At $d = 64$ you will most likely find
# **c**, and at the longest length the LSTM ahead of everything, although it has four times the FLOPs of the RNN:
# on a CPU PyTorch runs its steps in one fused kernel (oneDNN), and those of the RNN one by one. If your machine says
# otherwise, believe your machine.
#
# So "how many times faster" is not one number: the ratios printed above differ widely between sizes, and a ratio below
# 1 means that the recurrent layer was the quicker one. A ratio of 10 to 100 is possible: on a GPU with thousands of
# arithmetic units and a small batch, a chain of $T$ launches leaves nearly all of them idle. It does not follow from
# the algorithm. An honest statement names $T$, $d$, $B$, the kernel and the machine. And by FLOPs alone the LSTM's
# $16 B T d^2$ equals attention's $8 B T d^2 + 4 B T^2 d$ at $T = 2d$: the same crossover again.

# %% [markdown] claims="001.s6-c 001.s6-d 001.s6-e 001.s8-c"
# ## Experiment: the square in time and in memory
#
# `crossover_length` says that the $T^2$ part has as many *FLOPs* as the projections at $T = 2d$. At which length does
# it take as much *time* on this machine? For $d = 128$, so $2d = 256$, choose:
#
# - **a.** At 256: time follows FLOPs.
# - **b.** Well before 256: the pairs cost more time per FLOP than the projections.
# - **c.** Well after 256.

# %% demo
d_now, square_lengths = 128, [32, 64, 128, 256, 512, 1024]
project = Attention(d_now, 4, fused=True)


def naive_core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1) @ v


part_ms: dict[str, list[float]] = {"four projections": [], "T x T part, naive": [], "T x T part, fused": []}
with torch.no_grad():
    for T_now in square_lengths:
        x_now = torch.randn(1, T_now, d_now)
        q, k, v = torch.randn(3, 1, 4, T_now, d_now // 4)
        for part, run in zip(
            part_ms,
            [
                lambda: project.out(project.qkv(x_now)[..., :d_now]),
                lambda: naive_core(q, k, v),
                lambda: F.scaled_dot_product_attention(q, k, v),
            ],
        ):
            part_ms[part].append(1e3 * best_time(run))

# %% demo
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (part, ms), style in zip(part_ms.items(), ["o-", "s-", "D-"]):
    ax.loglog(square_lengths, ms, style, markersize=5, label=part)
ax.axvline(crossover_length(d_now), color="black", linestyle=":", label="as many FLOPs, T = 2d")
ax.set_xticks(square_lengths, [str(T_now) for T_now in square_lengths])
ax.minorticks_off()
ax.set(xlabel="length T (positions)", ylabel="forward time (ms)", title="From which length on does the square take more time? (d = 128)")
ax.legend()
plt.show()
for part in ("T x T part, naive", "T x T part, fused"):
    over = [T_now for T_now, square, linear in zip(square_lengths, part_ms[part], part_ms["four projections"]) if square > linear]
    print(f"{part}: slower than the projections at T = {over or 'none of these'}; by FLOPs from {crossover_length(d_now)} on")

# %% [markdown] claims="001.s6-c 001.s6-d"
# The plot shows the two parts of an attention layer, timed apart; to the right of the dotted line the square has more
# FLOPs than the projections. Most likely both lines of the square cross that of the projections to the left of it:
# **b**. A pair costs more time per FLOP. The naive part writes a matrix of $B \cdot H \cdot T \cdot T$ scores, reads
# it to scale it, reads and writes it for the softmax, reads it again for the last product: time that no FLOP count
# contains (against **a**). The fused kernel (FlashAttention; Dao et al. 2022) takes the keys in blocks and keeps a
# running softmax, so that this matrix never exists. How much time that saves on this machine is the distance between
# the two lines of the square; it is large where the matrix no longer fits into the cache.
#
# Time is noisy, memory is not. The next cell counts the bytes that each version keeps for the backward pass.

# %% demo
def bytes_kept(f: Callable[..., Tensor], *inputs: Tensor) -> int:
    """Bytes of the different tensors that autograd keeps until the backward pass."""
    kept = {}

    def note(t: Tensor) -> Tensor:
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        result = f(*inputs)
    assert result.requires_grad
    return sum(kept.values())


for T_now in (128, 256, 512, 1024):
    q, k, v = (torch.randn(1, 4, T_now, 32, requires_grad=True) for _ in range(3))
    kib = [bytes_kept(f, q, k, v) / 1024 for f in (naive_core, F.scaled_dot_product_attention)]
    gap = (naive_core(q, k, v) - F.scaled_dot_product_attention(q, k, v)).abs().max().item()
    print(f"T={T_now:5d}: naive keeps {kib[0]:8.0f} KiB, fused {kib[1]:6.0f} KiB; results differ by {gap:.0e}")

# %% [markdown] claims="001.s6-c 001.s6-d 001.s6-e 001.s8-c"
# Each doubling of $T$ makes the naive version keep nearly 4 times as much and the fused one twice as much, while the
# results agree up to rounding. That is what FlashAttention changes and what it does not: it stores the inputs, the
# output and one number per row instead of the $B \times H \times T \times T$ matrix, but it computes *the same
# function*, with the same $4 B T^2 d$ FLOPs. It is exact, and it is still quadratic in time: at the right end of the
# plot above, a doubling of $T$ costs the fused version roughly four times as much, the projections twice.

# %% [markdown] claims="000.2.1-e 000.2.1-g 000.2.1-l 000.2.1-m"
# ## Training is parallel, generating is not
#
# A language model predicts the next token at every position. In training the whole text is known, so under a causal
# mask one call gives the predictions for all positions. In generation the input of position $t + 1$ *is* the output
# of position $t$: it does not exist before position $t$ is done. Attention removed the chain inside the layer; this
# one lies outside it, in the task. The toy model below counts its calls. (That each call recomputes everything is
# waste that a cache avoids, lesson 08. The cache makes a call cheaper; the number of calls stays.)

# %% demo
generator = torch.Generator().manual_seed(5)
embedding = torch.randn(32, d, generator=generator, dtype=torch.float64)  # a vector for each of 32 tokens
place = 4 * torch.randn(17, d, generator=generator, dtype=torch.float64)  # and one for each position
calls = 0


def next_tokens(ids: Tensor) -> Tensor:
    """For every position of ids: the token that a tiny untrained causal model would put next."""
    global calls
    calls += 1
    return (attention_layer(embedding[ids] + place[: len(ids)], causal=True) @ embedding.T).argmax(dim=-1)


ids = torch.tensor([7])
for _ in range(16):  # each new token is an input of the next call
    ids = torch.cat([ids, next_tokens(ids)[-1:]])
print(f"generating 16 tokens took {calls} calls, one after the other: {ids.tolist()}")
calls = 0
agreed = bool((next_tokens(ids[:-1]) == ids[1:]).all())
print(f"predicting the same 16, now that they are known, took {calls} call; the same tokens: {agreed}")

# %% [markdown]
# ## What goes wrong: a bug hunt
#
# A colleague hoists the input projection out of the loop, as this lesson suggests. Shapes are right, values lie
# between -1 and 1, the first state is right to the last bit, gradients reach all five inputs, and it is no slower
# than yours. Run the cell, look at the picture, and find what is wrong. Then mend `hoisted_scan` and run
# `check(hoisted_scan, "rnn_scan")` in a cell of your own.

# %% demo
def hoisted_scan(x, h0, Wx, Wh, b):
    """The input maps of all positions in one product, then the loop over the states."""
    projected = x @ Wx + b  # (B, T, d_h)
    h, outputs = h0, []
    for t in range(x.shape[1]):
        state = torch.tanh(projected[:, t] + h @ Wh)
        outputs.append(state)
    return torch.stack(outputs, dim=1), state


def scanned_by(scan: Callable) -> Callable[[Tensor], Tensor]:
    start = torch.full((1, d), 0.5, dtype=torch.float64)
    return lambda x: scan(x[None], start, Wx, Wh, no_bias)[0][0]


tables = {"your rnn_scan": rnn_scan, "hoisted_scan": hoisted_scan}
draw_tables({name: dependency_matrix(scanned_by(scan), x) for name, scan in tables.items()}, "Who still knows the past?")

# %% [markdown]
# The left table is a triangle, the right one only a diagonal: no output of `hoisted_scan` depends on an earlier
# input.
#
# <details><summary>What was wrong, and why ordinary tests miss it</summary>
#
# The loop computes `state` but never puts it back into `h`, so every step starts from `h0`. The line `h = state` is
# missing (or simply call it `h` on both sides). Nothing fails: a loop that forgets its state is a layer that looks at
# each position alone. With $T = 1$ it is right; with `h0` zero it even has no recurrence at all, and the loss of a
# model that uses it still falls, because each word alone tells something. What shows it is a question about
# dependence: does the last output move when the first input does? Splitting the sequence and handing on the state
# shows it too: the second piece then starts from another state than the uncut scan gives it.
#
# </details>
#
# Other slips of this lesson, and how they show:
#
# | slip | what you see | what finds it |
# | --- | --- | --- |
# | `h0` ignored, zeros used | nothing, while `h0` is zero | cut the sequence, hand on the state |
# | scan from right to left | right shapes, right range | the dependency table is an upper triangle |
# | a table found with one tiny nudge | saturated layers look independent | a large change moves them |
# | a table with rows and columns exchanged | causal looks anti-causal; full and band look right | a layer whose table is not symmetric |
# | causal pairs counted as $T^2 / 2$ | nearly right at long lengths | $T = 1$: one pair, not a half |

# %% [markdown] claims="000.2.1-f" essay="connectivity_is_not_memory" points=3
# ## Interview question 1 (written)
#
# A colleague says: "In an RNN, word 1 is 500 steps away from word 501. In a Transformer it is one step away. So the
# Transformer remembers word 1, and the RNN does not." What is right in this, and what does not follow? Use both
# directions: what can an RNN keep, and how can attention lose something that is one hop away? Name one measurement
# that would decide the matter for two given models. About 150 words.
#
# ### BEGIN SOLUTION
# Right: the shortest path between the two positions has 500 hops in an RNN layer and 1 in an attention layer, so on
# the way through the RNN a signal is transformed 500 times, and so is the gradient. If each step multiplies it by a
# factor of about $g$, what is left is about $g^{500}$, which vanishes for $g < 1$ and explodes for $g > 1$. (1 point)
#
# What does not follow: a path is an opportunity, not a memory. An RNN whose recurrent map is close to orthogonal, or
# an LSTM with an open forget gate, keeps a signal over hundreds of steps; its limit is also the fixed size of the
# state. Attention may give word 1 a weight of nearly 0: with unselective weights each of 501 positions gets about
# 1/501, another key may win the softmax, the value projection may drop the feature, word 1 may lie outside the mask
# or the context window, and later layers may overwrite it. (1 point)
#
# A measurement: change word 1 only and see how far output 501 moves, against the distance, in both trained models; or
# a recall task at growing distance, accuracy against distance, on the same training budget. (1 point; "look at the
# attention weights" alone earns none of it, because a weight does not say what is done with the value.)
# ### END SOLUTION

# %% [markdown] claims="000.2.1-a 000.2.1-b 000.2.1-c"
# ## Interview question 2
#
# "RNNs cannot be parallelized." What in an RNN can be computed in parallel, and what exactly cannot?
#
# <details><summary>Model answer</summary>
#
# In parallel: the sequences of a batch; the inner work of each matrix product; the input maps $x_t W_x + b$ of all
# positions, which is half of the FLOPs if $d_{\mathrm{in}} = d_h$; and the layers of a stack, as a wavefront, since
# layer 2 can do step $t$ while layer 1 does step $t + 1$. So an RNN does use a GPU, and uses it well when the batch
# and the width are large.
#
# Not in parallel: the steps $h_t = \tanh(\dots + h_{t-1} W_h)$ of one sequence in one layer, a chain of length $T$.
# It is the nonlinearity between the steps that forbids regrouping them. Without it, $h_t = h_{t-1} W_h + u_t$ is a
# linear recurrence, steps can be combined pairwise, and a parallel scan needs only about $\log_2 T$ rounds (Martin
# and Cundy 2018). Linear state-space layers use this.
#
# The cost of the chain is waiting, not FLOPs: $4 B T d^2$ is less than the attention layer's $8 B T d^2 + 4 B T^2 d$
# at every $T$.
#
# </details>

# %% [markdown] claims="000.2.1-g 000.2.1-l 000.2.1-m"
# ## Interview question 3
#
# A Transformer processes all positions in parallel. Why does it still write its answer one token at a time? What
# helps, and what does not?
#
# <details><summary>Model answer</summary>
#
# Parallel over positions requires that the inputs of all positions are known. In training they are: the text is
# given, the target at each position is the next token of the same text, and the causal mask keeps each position from
# reading its target. The prompt is known too, so it is read in parallel (prefill). A generated token is known only
# when it has been sampled, and it is the input of the next position. $n$ new tokens are a chain of $n$ forward
# passes, each through all layers. This follows from the factorization $p(x) = \prod_t p(x_t \mid x_{<t})$ together
# with sampling, not from the layer.
#
# A KV cache makes each pass cheaper, since old keys and values are not recomputed; the new query still reads all of
# them. A larger batch raises the throughput, not the speed of one answer. Speculative decoding shortens the chain of
# *large*-model passes: a small model guesses several tokens, and the large one checks them in one parallel pass,
# because then they are known. More processors alone do not help.
#
# </details>

# %% [markdown] claims="000.2.1-i 000.2.1-k 000.2.1-n 001.s6-a 001.s6-b 001.s6-e 001.s10-h"
# ## Summary
#
# | one layer, width $d$ | RNN | attention, $H$ heads | convolution, width $k$ |
# | --- | --- | --- | --- |
# | rule | $h_t = \tanh(x_t W_x + h_{t-1} W_h + b)$ | out$_t$ = weighted average of projected inputs | out$_t$ = sum over $k$ neighbors |
# | input, output | $(B, T, d_{\mathrm{in}})$, $(B, T, d_h)$ and $(B, d_h)$ | $(B, T, d)$, $(B, T, d)$; scores $(B, H, T, T)$ | $(B, T, d)$, $(B, T, d)$ |
# | output $t$ depends on | inputs $0..t$ | all; causal: $0..t$ | $t - \lfloor k/2 \rfloor .. t + \lfloor k/2 \rfloor$ |
# | steps that wait for each other | $T$ | 1 | 1 |
# | hops between the farthest positions | $T - 1$ | 1 | $\lceil (T-1) / \lfloor k/2 \rfloor \rceil$ layers |
# | FLOPs forward | $4 B T d^2$ (LSTM: $16 B T d^2$) | $8 B T d^2 + 4 B T^2 d$; causal: $T^2 \to T(T+1)/2$ | $2 B T k d^2$ |
#
# - Inside a layer attention has no chain. Generation has one all the same: each token is an input of the next.
# - A path says that information *can* arrive. How much arrives is decided by the weights: recurrence may keep it,
#   attention may dilute it to $1/T$.
# - The square passes the projections at $T = 2d$ and all linear maps of a block at $T = 2d + d_{\mathrm{ff}}$. Below
#   that, most of the FLOPs are linear in $T$.
# - FLOPs are not seconds: small steps pay for being started, large matrices for being moved. A fused kernel removes
#   the stored $T \times T$ matrix, neither the $T^2 d$ FLOPs nor any digit of the result.
# - "How many times faster?" has an answer only for a given $T$, $d$, $B$, kernel and machine.
#
# `progress()` shows where you stand.
