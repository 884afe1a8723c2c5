"""Wrong and right answers to the exercise of lesson 00."""

from grader.bank import Entry, Mutant, Variant

ENTRIES: list[Entry] = [
    Mutant(
        exercise="row_sums",
        name="first_axis",
        replace={"dim=-1": "dim=0"},
        slip="It adds up the first axis (dim=0). The last one is dim=-1.",
    ),
    Mutant(
        exercise="row_sums",
        name="dim_one",
        source="def row_sums(x):\n    return x.sum(dim=min(1, x.dim() - 1))",
        slip="dim=1 is the last axis of a matrix only. Count from the back: dim=-1.",
    ),
    Mutant(
        exercise="row_sums",
        name="everything",
        replace={"x.sum(dim=-1)": "x.sum()"},
        slip="It adds up all numbers. Name the dimension: dim=-1.",
    ),
    Mutant(
        exercise="row_sums",
        name="mean",
        replace={"x.sum": "x.mean"},
        slip="It takes the mean; the sum is wanted.",
    ),
    Mutant(
        exercise="row_sums",
        name="keepdim",
        replace={"dim=-1": "dim=-1, keepdim=True"},
        slip="keepdim=True leaves a last dimension of size 1. It should disappear.",
    ),
    Mutant(
        exercise="row_sums",
        name="cumulative_in_place",
        source="def row_sums(x):\n    return x.detach().cumsum_(dim=-1)[..., -1] + 0 * x.sum(-1)",
        slip="It works in place and so changes the caller's x. Make a new tensor.",
    ),
    Mutant(
        exercise="row_sums",
        name="detached",
        replace={"x.sum": "x.detach().sum"},
        slip="The result is detached from x: no gradient can flow. Leave out detach (and .data, .item(), numpy).",
    ),
    Mutant(
        exercise="row_sums",
        name="always_float64",
        replace={"dim=-1": "dim=-1, dtype=torch.float64"},
        slip="The result is always float64. It should have the dtype of x.",
    ),
    Mutant(
        exercise="row_sums",
        name="without_the_last",
        replace={"x.sum": "x[..., :-1].sum"},
        slip="The last number of each row is left out.",
    ),
    Mutant(
        exercise="row_sums",
        name="absolute_values",
        replace={"x.sum": "x.abs().sum"},
        slip="It adds up absolute values: negative numbers count as positive.",
    ),
    Mutant(
        exercise="row_sums",
        name="loop_over_two_dimensions",
        source="def row_sums(x):\n    return torch.stack([row.sum() for row in x]) if x.dim() > 1 else x.sum()",
        slip="The loop handles matrices only: with more leading dimensions it adds up too much. Use dim=-1.",
    ),
    Variant(exercise="row_sums", name="einsum", source='def row_sums(x):\n    return torch.einsum("...n->...", x)'),
    Variant(exercise="row_sums", name="product_with_ones", source="def row_sums(x):\n    return x @ torch.ones_like(x[(0,) * (x.dim() - 1)])"),
    Variant(exercise="row_sums", name="loop", source="def row_sums(x):\n    return sum(x.unbind(-1))"),
    Variant(exercise="row_sums", name="last_of_cumsum", source="def row_sums(x):\n    return x.cumsum(-1)[..., -1]"),
]
