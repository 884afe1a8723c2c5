# %% [markdown]
# # 00 Start here
#
# This course teaches the Transformer by having you write it, one function at a time. Every function that you write is
# judged at once, by checks that know the mistakes people really make.
#
# This first notebook takes ten minutes. It shows how a lesson works, and it has one exercise that everybody passes.
#
# ```mermaid
# flowchart LR
#     R["read"] --> P["predict"] --> W["write"] --> C["check(f)"]
#     C -- "failed: read the message" --> W
#     C -- "stuck" --> H["hint(f)"] --> W
#     C -- "passed" --> E["experiment"] --> R
# ```
#
# ## How a notebook works
#
# A notebook is a column of cells. A cell of code runs when you click into it and press **Shift+Enter**; its result appears
# below it. Cells share one memory: what one cell defines, every later one can use. Run the cells from top to bottom.
#
# Run this one first. It loads PyTorch and the four words that you will use.
# %%
import torch
from jaxtyping import Float
from torch import Tensor

from grader import check, hint, progress, solution

# %% [markdown]
# ## Shapes
#
# Nearly every mistake in a Transformer is a mistake about shapes, so the course writes them down everywhere. This tensor
# has the shape `(2, 3)`: two rows, three columns. Predict each of the three results before you run the cell.
# %% demo
x = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
print("shape:          ", tuple(x.shape))
print("sum over dim 0: ", x.sum(dim=0).tolist())
print("sum over dim -1:", x.sum(dim=-1).tolist())

# %% [markdown]
# `dim=0` runs down the columns and leaves one number a column. `dim=-1` runs along the last axis and leaves one number a
# row. The dimension that you name is the one that disappears. Counting from the back (`-1` is the last) is the habit of
# this course: code written so works for one sequence, for a batch of sequences, and for a batch of heads of sequences.
#
# ## Your first exercise
#
# An exercise is a function with its description and without its body. A type hint such as `Float[Tensor, "... n"]` says
# what goes in: floating point numbers, any number of leading dimensions (the dots), and a last one of size `n`.
#
# Replace the line `raise NotImplementedError("not started")` by your code, run the cell, then run the `check` below it.
# %% solve="row_sums" points=1 difficulty=1 importance=1 minutes=2
def row_sums(x: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
    """Add up the numbers along the last axis.

    x: (..., n), any number of leading dimensions, also none; n is at least 1.
    Returns (...): the shape of x without its last dimension, in the dtype of x. x is not modified.
    """
    ### BEGIN SOLUTION
    return x.sum(dim=-1)
    ### END SOLUTION


# %% check="row_sums"
check(row_sums)

# %% [markdown] hints="row_sums"
# 1. The last axis disappears and all others stay. Which number names the last axis, whatever the shape?
# 2. A tensor has a method `sum` that takes the dimension to be added up.
# 3. `x.sum(dim=-1)` is the sum along the last axis; return it.

# %% [markdown]
# ## What `check` tells you
#
# The table has a line for each property that was tested: what it is, of what **kind** it is, the verdict, and for a failed
# one what happened. The kinds are the same in all lessons:
#
# | kind | what it is about |
# | --- | --- |
# | shape | the shape and type of what you return |
# | values | the numbers, compared with a worked case or with a reference solution |
# | causality | that nothing depends on what it must not see |
# | gradient | that training through your function would work |
# | numerics | large numbers, half precision, rows with nothing in them |
# | purity | that your function leaves its arguments alone and answers the same when asked twice |
# | mechanism | that you wrote the thing itself and did not call it |
#
# An exercise that you have not touched is "not started". That is no failure.
#
# ## A failed check, read together
#
# Here is a version of the exercise with a mistake in it. Run the cell and read the table before you read on.
# %% demo
def row_sums_wrong(x):
    return x.sum(dim=0)


check(row_sums_wrong, "row_sums")

# %% [markdown]
# Read it from the top. The **shape** check gives the smallest case that went wrong: what went in, what came out, what was
# expected. A tensor of shape `(2, 3)` must give 2 numbers, and this function gave 3: so it added up the wrong axis. The line
# **Likely slip** appears when your outputs are equal, on the same inputs, to those of a mistake that the course knows by name.
#
# One row of numbers alone would not have shown the mistake: for a tensor with one dimension the first axis *is* the last
# one, and this function gets it right. A square matrix would have hidden it from the shape check, though not from the
# numbers. This is why the checks try several shapes, with sizes that differ from each other.
#
# Mend `row_sums_wrong` in the cell above and run it again. `check(f, "name")` judges any function as if it were the
# exercise of that name: use it for second attempts, and in the bug hunts that close each lesson.
#
# ## The other words
#
# - `hint(row_sums)` gives the next of three hints, each stronger than the one before: the idea, the operation, nearly the line.
# - `solution(row_sums)` asks you a question; called again, it shows a solution. Yours may differ and be just as right.
# - `progress()` draws the whole course, a square an exercise.
# %% demo
progress()

# %% [markdown]
# **Start over.** A lesson or a single exercise goes back to its empty state with a command in a terminal (in JupyterLab:
# File, New, Terminal). Run it in the folder that holds `run.py`; the terminal opens one level below it. Your former work
# is kept in `my-course/.grader/backup/`:
#
# ```
# cd ..
# python3 run.py study reset my-course 00 --exercise row_sums
# ```
#
# If a notebook behaves strangely, choose *Kernel, Restart Kernel and Run up to Selected Cell*: memory is emptied, your text stays.
#
# ## Conventions
#
# They hold in every lesson; come back to this table when you are in doubt.
#
# | thing | convention |
# | --- | --- |
# | letters | `B` batch, `H` heads, `T` positions (`T_q` queries, `T_k` keys where they differ), `d_model`, `d_k`, `d_v`, `d_ff` widths, `V` vocabulary, `L` layers |
# | layout | `(B, T, d_model)`; heads `(B, H, T, d_k)`; scores `(..., T_q, T_k)`; softmax along the last axis, the keys |
# | extra dimensions | attention functions accept any leading dimensions, written `...` |
# | weights | functions take matrices and multiply from the right, `x @ W` with `W: (d_in, d_out)`; modules use `nn.Linear` |
# | masks | boolean, **True: this query may see this key** (as in PyTorch's `scaled_dot_product_attention`; `nn.MultiheadAttention` means the opposite) |
# | causal masks | with fewer queries than keys they are aligned to the bottom right: the last query sees every key |
# | a row that may see nothing | its output and its weights are zeros, and every gradient is finite |
# | positions | start at 0; sine and cosine are interleaved in pairs `(2i, 2i+1)`, sine first, base 10000 |
# | FLOPs | a multiplication with an addition counts 2 |
# | dtype, device | the output has those of the inputs; inputs are never modified |
# | gradients | flow from the output to every floating point input, unless a stub says otherwise |
# | names | keep the names of functions and of their arguments: checks call them by name |
#
# ## Before you go on: three questions
#
# <details><summary>Why does the course prefer <code>dim=-1</code> to <code>dim=1</code>?</summary>
#
# Counted from the back, the last axis keeps its number when leading dimensions are added. `dim=1` is the last axis of a
# matrix and the middle axis of a batch of matrices: the same code would then add up something else without an error.
#
# </details>
#
# <details><summary>Your function returns the right numbers but changes its argument in place. Why is that a failure?</summary>
#
# The caller still needs the tensor. In a block, the same `x` goes into the sublayer and, beside it, into the residual sum;
# a sublayer that changes `x` spoils the sum, and the error shows far away from its cause.
#
# </details>
#
# <details><summary>All your checks pass. Does that prove that the function is right?</summary>
#
# No test proves that. What the course does instead: for every exercise it keeps a collection of wrong answers, and a check
# that lets one of them pass counts as a defect of the course. So a passed exercise at least has none of the known mistakes.
#
# </details>
#
# ## On one screen
#
# | | |
# | --- | --- |
# | run a cell | Shift+Enter |
# | judge an answer | `check(f)`, or `check(other_f, "exercise")` |
# | get on | `hint(f)`, three times; then `solution(f)`, twice |
# | see where you stand | `progress()` |
# | shapes | the dimension that you name in `sum(dim=...)` disappears: `(2, 3)` with `dim=-1` gives `(2,)` |
#
# Next: `01_rnn_and_attention`.
