"""Wrong and right answers to the exercises of lesson 02."""

from grader.bank import Entry, Mutant, Variant

ENTRIES: list[Entry] = [
    Mutant(
        exercise="softmax",
        name="no_maximum",
        replace={"x - x.amax(dim=dim, keepdim=True)": "x"},
        slip="No maximum is subtracted, so exp overflows for large entries. Subtract the largest entry of each slice first.",
    ),
    Mutant(
        exercise="softmax",
        name="global_maximum",
        replace={"x.amax(dim=dim, keepdim=True)": "x.max()"},
        slip="The maximum of the whole tensor is subtracted: a slice far below it underflows to 0/0. Each slice needs its own.",
    ),
    Mutant(
        exercise="softmax",
        name="no_keepdim",
        source="""
def softmax(x, dim):
    powers = (x - x.amax(dim=dim, keepdim=True)).exp()
    return powers / powers.sum(dim=dim)
""",
        slip="The sum lost its dimension and lines up with the wrong axis. Keep it: keepdim=True.",
    ),
    Mutant(
        exercise="softmax",
        name="last_axis_always",
        replace={"x.amax(dim=dim, keepdim=True)": "x.amax(dim=-1, keepdim=True)", "powers.sum(dim=dim, keepdim=True)": "powers.sum(dim=-1, keepdim=True)"},
        slip="It always runs along the last axis. Use the argument `dim`, for the maximum and for the sum.",
    ),
    Mutant(
        exercise="softmax",
        name="sum_over_everything",
        replace={"powers.sum(dim=dim, keepdim=True)": "powers.sum()"},
        slip="It divides by the sum over all entries. Each slice along `dim` has its own sum.",
    ),
    Mutant(
        exercise="softmax",
        name="sum_of_x",
        replace={"powers.sum(dim=dim, keepdim=True)": "x.sum(dim=dim, keepdim=True)"},
        slip="It divides by the sum of x instead of the sum of exp(x).",
    ),
    Mutant(
        exercise="softmax",
        name="epsilon",
        replace={"powers.sum(dim=dim, keepdim=True)": "(powers.sum(dim=dim, keepdim=True) + 1e-6)"},
        slip="An epsilon in the denominator makes the weights sum to less than 1. After subtracting the maximum the sum is at least 1: no epsilon is needed.",
    ),
    Mutant(
        exercise="softmax",
        name="base_two",
        replace={"shifted.exp()": "shifted.exp2()"},
        slip="It uses powers of 2 instead of powers of e.",
    ),
    Mutant(
        exercise="softmax",
        name="in_place",
        replace={"shifted = x - x.amax(dim=dim, keepdim=True)": "shifted = x.sub_(x.amax(dim=dim, keepdim=True).clone())"},
        slip="It subtracts in place and so changes the caller's x. Make a new tensor.",
    ),
    Mutant(
        exercise="softmax",
        name="clamped",
        replace={"x - x.amax(dim=dim, keepdim=True)": "x.clamp(-50, 50)"},
        slip="Clamping large entries avoids the overflow but changes the weights. Subtract the maximum of each slice.",
    ),
    Mutant(
        exercise="softmax",
        name="detached_denominator",
        replace={"powers.sum(dim=dim, keepdim=True)": "powers.sum(dim=dim, keepdim=True).detach()"},
        slip="The denominator is detached: the values are right, the gradient is not. Let it flow through the sum as well.",
    ),
    Mutant(
        exercise="softmax",
        name="library_softmax",
        source="def softmax(x, dim):\n    return torch.softmax(x, dim)",
        slip="torch.softmax is the answer, not the exercise: write it with max, exp, sum and a division.",
    ),
    Mutant(
        exercise="softmax",
        name="always_float64",
        replace={"powers / powers.sum(dim=dim, keepdim=True)": "(powers / powers.sum(dim=dim, keepdim=True)).double()"},
        slip="The result is always float64. It should have the dtype of x.",
    ),
    Variant(
        exercise="softmax",
        name="logsumexp",
        source="def softmax(x, dim):\n    return (x - x.logsumexp(dim, keepdim=True)).exp()",
    ),
    Variant(
        exercise="softmax",
        name="float64_inside",
        source="""
def softmax(x, dim):
    y = x.double()
    y = torch.exp(y - y.max(dim, keepdim=True).values)
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)
""",
    ),
    Variant(
        exercise="softmax",
        name="moved_axis",
        source="""
def softmax(x, dim):
    y = x.movedim(dim, 0)
    y = torch.exp(y - y.max(0)[0].detach())
    return (y / y.sum(0)).movedim(0, dim)
""",
    ),
    Variant(
        exercise="softmax",
        name="sigmoid_of_differences",
        source="""
def softmax(x, dim):
    y = x.movedim(dim, -1)
    top = y.amax(-1, keepdim=True)
    weight = torch.exp(y - top)
    return torch.einsum("...i,...->...i", weight, 1 / weight.sum(-1)).movedim(-1, dim)
""",
    ),
    Mutant(
        exercise="attention",
        name="softmax_over_queries",
        replace={"softmax(scores, dim=-1)": "softmax(scores, dim=-2)"},
        slip="The softmax runs along the queries (dim=-2). Each query distributes its weight over the keys: dim=-1.",
    ),
    Mutant(
        exercise="attention",
        name="scaled",
        replace={"q @ k.transpose(-2, -1)": "q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5"},
        slip="The scores are divided by sqrt(d_k). That is the next lesson: here attention is unscaled.",
    ),
    Mutant(
        exercise="attention",
        name="softmax_over_heads",
        replace={"softmax(scores, dim=-1)": "softmax(scores, dim=max(scores.dim() - 3, 0) if scores.dim() > 2 else 1)"},
        slip="The softmax runs along a leading dimension (a batch or the heads). It belongs to the keys, the last axis.",
    ),
    Mutant(
        exercise="attention",
        name="softmax_dim_one",
        replace={"softmax(scores, dim=-1)": "softmax(scores, dim=1)"},
        slip="dim=1 is the key axis only for a single sequence. Count from the back: dim=-1.",
    ),
    Mutant(
        exercise="attention",
        name="no_softmax",
        replace={"softmax(scores, dim=-1)": "scores / scores.sum(-1, keepdim=True)"},
        slip="The scores are divided by their sum instead of going through a softmax.",
    ),
    Mutant(
        exercise="attention",
        name="one_distribution_for_all",
        replace={"softmax(scores, dim=-1)": "softmax(scores.flatten(), dim=0).view_as(scores) * scores.shape[-2]"},
        slip="All queries share one distribution. Each query has a softmax of its own over the keys.",
    ),
    Mutant(
        exercise="attention",
        name="uniform",
        replace={"softmax(scores, dim=-1)": "torch.ones_like(scores) / scores.shape[-1]"},
        slip="The output is the plain mean of the values: queries and keys are not used.",
    ),
    Mutant(
        exercise="attention",
        name="keys_as_values",
        replace={"weights @ v": "weights @ k"},
        slip="The weights average the keys. They belong to the values: weights @ v.",
    ),
    Mutant(
        exercise="attention",
        name="queries_swapped_with_keys",
        replace={"scores = q @ k.transpose(-2, -1)": "scores = (k @ q.transpose(-2, -1))"},
        slip="Scores are keys by queries. They should be queries by keys: q @ k.transpose(-2, -1).",
    ),
    Mutant(
        exercise="attention",
        name="reversed_transpose",
        replace={"k.transpose(-2, -1)": "k.permute(*reversed(range(k.dim())))"},
        slip="`.T` and a full reversal also swap the leading dimensions. Swap only the last two: k.transpose(-2, -1).",
    ),
    Mutant(
        exercise="attention",
        name="reshape_for_transpose",
        replace={"k.transpose(-2, -1)": "k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])"},
        slip="reshape keeps the numbers in their order and does not transpose. Use k.transpose(-2, -1).",
    ),
    Mutant(
        exercise="attention",
        name="detached_weights",
        replace={"weights @ v": "weights.detach() @ v"},
        slip="The weights are detached: no gradient reaches q and k.",
    ),
    Mutant(
        exercise="attention",
        name="hardmax",
        replace={"weights @ v": "torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(v.dtype) @ v"},
        slip="It takes the value of the best key alone. Attention mixes all values by their weights.",
    ),
    Mutant(
        exercise="attention",
        name="unstable_softmax",
        replace={"softmax(scores, dim=-1)": "scores.exp() / scores.exp().sum(-1, keepdim=True)"},
        slip="exp of a large score overflows. Use the stable softmax that you wrote.",
    ),
    Variant(
        exercise="attention",
        name="einsum",
        source="""
def attention(q, k, v):
    weights = torch.einsum("...qd,...kd->...qk", q, k).softmax(-1)
    return torch.einsum("...qk,...kv->...qv", weights, v)
""",
    ),
    Variant(
        exercise="attention",
        name="library",
        source="def attention(q, k, v):\n    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)",
    ),
    Variant(
        exercise="attention",
        name="loops",
        source="""
def attention(q, k, v):
    if q.dim() > 2:
        return torch.stack([attention(*item) for item in zip(q, k, v)])
    return torch.stack([(torch.softmax(k @ row, 0)[:, None] * v).sum(0) for row in q])
""",
    ),
    Variant(
        exercise="attention",
        name="broadcast_sum",
        source="""
def attention(q, k, v):
    scores = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1).double()
    weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    return (weights.unsqueeze(-1) * v.unsqueeze(-3)).sum(-2).to(v.dtype)
""",
    ),
]
