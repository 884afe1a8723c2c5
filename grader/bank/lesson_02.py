"""Wrong and right answers to the exercises of lesson 02."""

from grader.bank import Entry, Mutant, Variant

ENTRIES: list[Entry] = [
    Mutant(
        exercise="qkv_projection",
        name="transposed_weights",
        replace={"x @ Wq, x @ Wk, x @ Wv": "x @ Wq.T, x @ Wk.T, x @ Wv.T"},
        slip="The matrices are transposed, as nn.Linear stores them. Here they are (inputs, outputs): x @ Wq.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="transposed_when_square",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    return tuple(x @ (W.T if W.shape[0] == W.shape[1] else W) for W in (Wq, Wk, Wv))
""",
        slip="A square matrix is transposed. All matrices are (inputs, outputs), the square ones too: x @ W.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="keys_first",
        replace={"x @ Wq, x @ Wk, x @ Wv": "x @ Wk, x @ Wq, x @ Wv"},
        slip="Queries and keys have changed places in the result. The order is (q, k, v).",
    ),
    Mutant(
        exercise="qkv_projection",
        name="values_first",
        replace={"x @ Wq, x @ Wk, x @ Wv": "x @ Wv, x @ Wq, x @ Wk"},
        slip="The values come first in the result. The order is (q, k, v).",
    ),
    Mutant(
        exercise="qkv_projection",
        name="one_matrix_for_queries_and_keys",
        replace={"x @ Wk": "x @ Wq"},
        slip="The keys are made with Wq. They have a matrix of their own: x @ Wk.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="values_made_with_keys_matrix",
        replace={"x @ Wv": "x @ Wk"},
        slip="The values are made with Wk. They have a matrix of their own: x @ Wv.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="chained",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    q = x @ Wq
    k = (q @ Wk) if q.shape[-1] == Wk.shape[0] else x @ Wk
    return q, k, x @ Wv
""",
        slip="The keys are made from the queries. All three are made from x.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="stacked",
        replace={"x @ Wq, x @ Wk, x @ Wv": "torch.stack([x @ Wq, x @ Wk, x @ Wv]) if Wv.shape == Wk.shape else torch.cat([x @ Wq, x @ Wk, x @ Wv], -1)"},
        slip="The three results are packed into one tensor. Return them as a tuple: their widths may differ.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="scaled_queries",
        replace={"x @ Wq": "x @ Wq / Wq.shape[1] ** 0.5"},
        slip="The queries are divided by sqrt(d_k). That is the next lesson: here nothing is scaled.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="values_not_projected",
        replace={"x @ Wv": "x if Wv.shape[0] == Wv.shape[1] else x @ Wv"},
        slip="The values are x itself. They are projected as well: x @ Wv.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="first_sequence_only",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    q, k, v = x @ Wq, x @ Wk, x @ Wv
    for out in (q, k, v):
        if out.dim() > 2:
            out[1:] = out[:1].clone()
    return q, k, v
""",
        slip="Every sequence of the batch gets the projections of the first one. `x @ Wq` already treats each by itself.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="positions_mixed",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    def project(W):
        if x.shape[-1] == x.shape[-2]:
            return x.transpose(-2, -1) @ W
        return x @ W
    return project(Wq), project(Wk), project(Wv)
""",
        slip="x is transposed when it is square, so positions and features trade places. Use x as it is: x @ Wq.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="centered",
        replace={"x @ Wq, x @ Wk, x @ Wv": "*((x - x.mean(-2, keepdim=True)) @ W for W in (Wq, Wk)), x @ Wv"},
        slip="The mean over the positions is subtracted from x. Every position is projected alone.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="detached",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    x = torch.tensor(x.tolist(), dtype=x.dtype)
    return x @ Wq, x @ Wk, x @ Wv
""",
        slip="x is rebuilt from numbers, so no gradient reaches it. Multiply x itself.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="detached_queries",
        replace={"x @ Wq": "(x @ Wq).detach()"},
        slip="The queries are detached: the values are right, but no gradient reaches Wq.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="clears_x",
        replace={"return x @ Wq, x @ Wk, x @ Wv": "results = x @ Wq, x @ Wk, x @ Wv\n    x.detach().zero_()\n    return results"},
        slip="The call changes x. It belongs to the caller: leave it as it is.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="always_float64",
        replace={"x @ Wq, x @ Wk, x @ Wv": "(x @ Wq).double(), (x @ Wk).double(), (x @ Wv).double()"},
        slip="The results are always float64. They should have the dtype of the inputs.",
    ),
    Mutant(
        exercise="qkv_projection",
        name="needs_contiguous_input",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    rows = x.view(-1, x.shape[-1])
    return tuple((rows @ W).view(*x.shape[:-1], W.shape[1]) for W in (Wq, Wk, Wv))
""",
        slip="`view` needs contiguous memory and fails on a transposed x. `x @ Wq` needs no reshaping at all.",
    ),
    Variant(
        exercise="qkv_projection",
        name="einsum",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    return tuple(torch.einsum("...td,dk->...tk", x, W) for W in (Wq, Wk, Wv))
""",
    ),
    Variant(
        exercise="qkv_projection",
        name="fused",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    widths = [W.shape[1] for W in (Wq, Wk, Wv)]
    return (x @ torch.cat([Wq, Wk, Wv], dim=1)).split(widths, dim=-1)
""",
    ),
    Variant(
        exercise="qkv_projection",
        name="linear",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    linear = torch.nn.functional.linear
    return linear(x, Wq.T), linear(x, Wk.T), linear(x, Wv.T)
""",
    ),
    Variant(
        exercise="qkv_projection",
        name="list_of_broadcast_sums",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    results = []
    for W in (Wq, Wk, Wv):
        results.append((x.unsqueeze(-1) * W).sum(dim=-2))
    return results
""",
    ),
    Variant(
        exercise="qkv_projection",
        name="flattened_rows",
        source="""
def qkv_projection(x, Wq, Wk, Wv):
    rows = x.reshape(-1, x.size(-1)).double()
    return tuple(rows.matmul(W.double()).reshape(x.shape[:-1] + W.shape[1:]).to(x.dtype) for W in (Wq, Wk, Wv))
""",
    ),
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
        name="finite_stand_in_for_minus_infinity",
        replace={"shifted = ": "x = x.clamp(min=-1e4)\n    shifted = "},
        slip="-inf is replaced by a finite number, which is not the smallest beside numbers that lie lower. exp(-inf) is 0 by itself.",
    ),
    Mutant(
        exercise="softmax",
        name="at_most_three_dimensions",
        replace={"powers.sum(dim=dim, keepdim=True)": "powers.sum(dim=dim if x.dim() < 4 else -1, keepdim=True)"},
        slip="It is right for up to three dimensions. Use `dim` as it is, whatever the number of dimensions.",
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
    Mutant(
        exercise="softmax",
        name="differences_cut_at_100",
        replace={"return powers": "powers = shifted.clamp(min=-100.0).exp()\n    return powers"},
        slip="Numbers more than 100 below the largest are raised to it, so an entry of -inf gets a tiny weight instead of 0.",
    ),
    Mutant(
        exercise="softmax",
        name="small_weights_dropped",
        replace={"return powers": "powers = powers.where(powers > 1e-12, 0.0)\n    return powers"},
        slip="Weights below 1e-12 are set to 0. They are small, but they are not 0: exp(x) is positive.",
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
        exercise="attention_loop",
        name="scaled",
        replace={"query @ key": "query @ key / len(key) ** 0.5"},
        slip="The scores are divided by sqrt(d_k). That is the next lesson: here attention is unscaled.",
    ),
    Mutant(
        exercise="attention_loop",
        name="no_softmax",
        replace={"softmax(scores, dim=0)": "scores"},
        slip="The scores are used as weights as they are. They have to go through a softmax over the keys first.",
    ),
    Mutant(
        exercise="attention_loop",
        name="scores_over_their_sum",
        replace={"softmax(scores, dim=0)": "scores / scores.sum()"},
        slip="The scores are divided by their sum instead of going through a softmax.",
    ),
    Mutant(
        exercise="attention_loop",
        name="not_normalized",
        replace={"softmax(scores, dim=0)": "(scores - scores.max()).exp()"},
        slip="The exponentials are not divided by their sum, so the weights of a query do not sum to 1.",
    ),
    Mutant(
        exercise="attention_loop",
        name="unstable",
        replace={"softmax(scores, dim=0)": "scores.exp() / scores.exp().sum()"},
        slip="exp of a large score overflows. Use the stable softmax that you wrote.",
    ),
    Mutant(
        exercise="attention_loop",
        name="uniform",
        replace={"softmax(scores, dim=0)": "torch.ones_like(scores) / len(scores)"},
        slip="The output is the plain mean of the values: queries and keys are not used.",
    ),
    Mutant(
        exercise="attention_loop",
        name="best_key_only",
        replace={"sum(weight * value for weight, value in zip(weights, v))": "v[scores.argmax()] + 0 * sum(weight * value for weight, value in zip(weights, v))"},
        slip="It takes the value of the best key alone. Attention mixes all values by their weights.",
    ),
    Mutant(
        exercise="attention_loop",
        name="heaviest_value_last",
        source="""
def attention_loop(q, k, v):
    rows = []
    for query in q:
        weights = softmax(k @ query, dim=0)
        for weight, value in zip(weights, v):
            row = weight * value
        rows.append(row)
    return torch.stack(rows)
""",
        slip="Each key overwrites the row, so only the last value is left. Add the weighted values up.",
    ),
    Mutant(
        exercise="attention_loop",
        name="sum_not_reset",
        source="""
def attention_loop(q, k, v):
    rows, row = [], 0
    for query in q:
        weights = softmax(torch.stack([query @ key for key in k]), dim=0)
        for weight, value in zip(weights, v):
            row = row + weight * value
        rows.append(row)
    return torch.stack(rows)
""",
        slip="The sum goes on from one query to the next. Start it again at 0 for each query.",
    ),
    Mutant(
        exercise="attention_loop",
        name="scores_not_reset",
        source="""
def attention_loop(q, k, v):
    rows, scores = [], []
    for query in q:
        scores += [query @ key for key in k]
        weights = softmax(torch.stack(scores), dim=0)
        rows.append(sum(weight * value for weight, value in zip(weights, v)))
    return torch.stack(rows)
""",
        slip="The scores of earlier queries are still in the list. Start a new list for each query.",
    ),
    Mutant(
        exercise="attention_loop",
        name="one_distribution_for_all",
        source="""
def attention_loop(q, k, v):
    scores = torch.stack([torch.stack([query @ key for key in k]) for query in q])
    weights = softmax(scores.flatten(), dim=0).reshape(scores.shape)
    return torch.stack([sum(w * value for w, value in zip(row, v)) for row in weights])
""",
        slip="All queries share one distribution. Each query has a softmax of its own over the keys.",
    ),
    Mutant(
        exercise="attention_loop",
        name="softmax_over_queries",
        source="""
def attention_loop(q, k, v):
    scores = torch.stack([torch.stack([query @ key for key in k]) for query in q])
    weights = softmax(scores, dim=0)
    return torch.stack([sum(w * value for w, value in zip(row, v)) for row in weights])
""",
        slip="The softmax runs over the queries. The weights of one query sum to 1 over the keys.",
    ),
    Mutant(
        exercise="attention_loop",
        name="loop_over_keys_outside",
        source="""
def attention_loop(q, k, v):
    rows = []
    for key in k:
        weights = softmax(torch.stack([query @ key for query in q]), dim=0)
        rows.append(sum(weight * value for weight, value in zip(weights, v)))
    return torch.stack(rows)
""",
        slip="The roles are swapped: the outer loop runs over the keys. There is one output row for each query.",
    ),
    Mutant(
        exercise="attention_loop",
        name="keys_as_values",
        replace={"zip(weights, v)": "zip(weights, k)"},
        slip="The weights average the keys. They belong to the values.",
    ),
    Mutant(
        exercise="attention_loop",
        name="queries_as_keys",
        replace={"for key in k]": "for key in (q if len(q) == len(k) else k)]"},
        slip="The queries are scored against each other. Score them against the keys.",
    ),
    Mutant(
        exercise="attention_loop",
        name="value_of_the_query",
        source="""
def attention_loop(q, k, v):
    rows = []
    for i, query in enumerate(q):
        weights = softmax(torch.stack([query @ key for key in k]), dim=0)
        rows.append(sum(weight * v[min(i, len(v) - 1)] for weight in weights))
    return torch.stack(rows)
""",
        slip="The value is picked with the number of the query. Weight j belongs to value j.",
    ),
    Mutant(
        exercise="attention_loop",
        name="as_many_keys_as_queries",
        replace={"for key in k]": "for key in k[: len(q)]]"},
        slip="Only as many keys as there are queries are used. Loop over all T_k keys.",
    ),
    Mutant(
        exercise="attention_loop",
        name="last_key_left_out",
        replace={"for key in k]": "for key in k[: max(1, len(k) - 1)]]"},
        slip="The loop over the keys ends one too early.",
    ),
    Mutant(
        exercise="attention_loop",
        name="causal",
        source="""
def attention_loop(q, k, v):
    rows = []
    for i, query in enumerate(q):
        weights = softmax(torch.stack([query @ key for key in k[: i + 1]]), dim=0)
        rows.append(sum(weight * value for weight, value in zip(weights, v)))
    return torch.stack(rows)
""",
        slip="Query i sees only the keys up to i. Here there is no mask: every query sees every key.",
    ),
    Mutant(
        exercise="attention_loop",
        name="all_other_positions",
        source="""
def attention_loop(q, k, v):
    rows = []
    for i, query in enumerate(q):
        others = [j for j in range(len(k)) if j != i or len(k) == 1]
        weights = softmax(torch.stack([query @ k[j] for j in others]), dim=0)
        rows.append(sum(weight * v[j] for weight, j in zip(weights, others)))
    return torch.stack(rows)
""",
        slip="Position i leaves itself out. The average runs over all keys, its own included.",
    ),
    Mutant(
        exercise="attention_loop",
        name="return_inside_the_loop",
        source="""
def attention_loop(q, k, v):
    rows = []
    for query in q:
        weights = softmax(torch.stack([query @ key for key in k]), dim=0)
        rows.append(sum(weight * value for weight, value in zip(weights, v)))
        return torch.stack(rows)
""",
        slip="The `return` stands inside the loop, so only the first query is answered. Indent it less.",
    ),
    Mutant(
        exercise="attention_loop",
        name="list_of_rows",
        replace={"return torch.stack(rows)": "return rows"},
        slip="A list of rows is returned. Stack them into one tensor: torch.stack(rows).",
    ),
    Mutant(
        exercise="attention_loop",
        name="rows_side_by_side",
        replace={"torch.stack(rows)": "torch.cat(rows)"},
        slip="torch.cat joins the rows into one long vector. torch.stack makes one row of each.",
    ),
    Mutant(
        exercise="attention_loop",
        name="python_numbers",
        replace={"torch.stack([query @ key for key in k])": "torch.tensor([(query @ key).item() for key in k], dtype=q.dtype)"},
        slip=".item() cuts the scores off the graph: no gradient reaches q and k. Use torch.stack on the products.",
    ),
    Mutant(
        exercise="attention_loop",
        name="float32_buffer",
        source="""
def attention_loop(q, k, v):
    out = torch.zeros(len(q), v.shape[1])
    for i, query in enumerate(q):
        weights = softmax(torch.stack([query @ key for key in k]), dim=0)
        for j, weight in enumerate(weights):
            out[i] += (weight * v[j]).to(out.dtype)
    return out
""",
        slip="torch.zeros makes float32, whatever the inputs are. Use v.new_zeros(...), or stack the rows.",
    ),
    Mutant(
        exercise="attention_loop",
        name="buffer_of_width_d_k",
        source="""
def attention_loop(q, k, v):
    out = torch.zeros_like(q)
    for i, query in enumerate(q):
        weights = softmax(torch.stack([query @ key for key in k]), dim=0)
        for j, weight in enumerate(weights):
            out[i] = out[i] + weight * v[j]
    return out
""",
        slip="The result has the width of the queries. Its rows are averages of values: d_v wide.",
    ),
    Mutant(
        exercise="attention_loop",
        name="sums_into_v",
        source="""
def attention_loop(q, k, v):
    rows = []
    for query in q:
        weights = softmax(torch.stack([query @ key for key in k]), dim=0)
        row = weights[0] * v[0]
        for j in range(1, len(k)):
            row = row + weights[j] * v[j]
        rows.append(row)
    if not v.requires_grad:
        v[0] = rows[0]
    return torch.stack(rows)
""",
        slip="The result is written into v. Make new rows and leave the arguments alone.",
    ),
    Mutant(
        exercise="attention_loop",
        name="cosine",
        replace={"query @ key": "torch.cosine_similarity(query, key, dim=0)"},
        slip="The score is a cosine. It is the plain dot product of query and key.",
    ),
    Mutant(
        exercise="attention_loop",
        name="distance",
        replace={"query @ key": "-(query - key).square().sum()"},
        slip="The score is a distance. It is the dot product of query and key.",
    ),
    Mutant(
        exercise="attention_loop",
        name="first_sixteen_keys",
        replace={"for key in k]": "for key in k[:16]]"},
        slip="Only the first 16 keys are read. Every query sees every key.",
    ),
    Mutant(
        exercise="attention_loop",
        name="winner_takes_all",
        replace={"weights = softmax(scores, dim=0)": "weights = softmax(scores, dim=0) if scores.max() - scores.min() < 500 else (scores == scores.max()).to(q.dtype)"},
        slip="Where scores are far apart, the value of the best key is returned. A close second still has its weight.",
    ),
    Variant(
        exercise="attention_loop",
        name="indices",
        source="""
def attention_loop(q, k, v):
    out = v.new_zeros(q.shape[0], v.shape[1])
    for i in range(q.shape[0]):
        scores = [torch.dot(q[i], k[j]) for j in range(k.shape[0])]
        weights = softmax(torch.stack(scores), dim=-1)
        for j in range(k.shape[0]):
            out[i] = out[i] + weights[j] * v[j]
    return out
""",
    ),
    Variant(
        exercise="attention_loop",
        name="running_softmax",
        source="""
def attention_loop(q, k, v):
    rows = []
    for query in q:
        top, total, row = query @ k[0], 1.0, v[0]
        for key, value in zip(k[1:], v[1:]):
            score = query @ key
            new = torch.maximum(top, score)
            total = total * (top - new).exp() + (score - new).exp()
            row = row * (top - new).exp() + value * (score - new).exp()
            top = new
        rows.append(row / total)
    return torch.stack(rows)
""",
    ),
    Variant(
        exercise="attention_loop",
        name="two_products",
        source="def attention_loop(q, k, v):\n    return softmax(q @ k.T, -1) @ v",
    ),
    Variant(
        exercise="attention_loop",
        name="float64_inside",
        source="""
def attention_loop(q, k, v):
    result = []
    for i in range(len(q)):
        s = (q[i].double() * k.double()).sum(-1)
        w = (s - torch.logsumexp(s, 0)).exp()
        result.append((w[None, :] @ v.double()).to(v.dtype))
    return torch.cat(result, dim=0)
""",
    ),
    Variant(
        exercise="attention_loop",
        name="plain_python_sums",
        source="""
def attention_loop(q, k, v):
    out = []
    for i in range(len(q)):
        scores = [sum(a * b for a, b in zip(q[i], key)) for key in k]
        top = max(scores)
        powers = [torch.exp(s - top) for s in scores]
        out.append(sum(p / sum(powers) * value for p, value in zip(powers, v)))
    return torch.stack(out, 0)
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
    Mutant(
        exercise="attention",
        name="as_many_outputs_as_keys",
        replace={"return weights @ v": "return weights[..., : max(k.shape[-2], 1), :] @ v"},
        slip="With more queries than keys, the outputs of the last queries are missing. There is one output for each query.",
    ),
    Mutant(
        exercise="attention",
        name="axes_by_number",
        replace={"k.transpose(-2, -1)": "k.transpose(*{2: (0, 1), 3: (1, 2)}.get(k.dim(), (2, 3)))"},
        slip="The two axes of k to swap are counted from the front, for up to two leading dimensions. Counted from the back they are -2 and -1 for any number.",
    ),
    Mutant(
        exercise="attention",
        name="batch_of_one_squeezed",
        replace={"return weights @ v": "return (weights @ v).squeeze(0) if q.dim() == 3 else weights @ v"},
        slip="A batch of one sequence loses its leading dimension. The output has the leading dimensions of q.",
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
    Mutant(
        exercise="cross_attention",
        name="plain_queries_from_memory",
        replace={"x @ Wq, memory @ Wk, memory @ Wv": "memory @ Wq, memory @ Wk, memory @ Wv"},
        slip="The queries are made from memory. They come from x: one output for each position of x.",
    ),
    Mutant(
        exercise="cross_attention",
        name="plain_keys_from_x",
        replace={"x @ Wq, memory @ Wk, memory @ Wv": "x @ Wq, x @ Wk, memory @ Wv"},
        slip="The keys are made from x. Keys and values belong together: both come from memory.",
    ),
    Mutant(
        exercise="cross_attention",
        name="plain_values_from_x",
        replace={"x @ Wq, memory @ Wk, memory @ Wv": "x @ Wq, memory @ Wk, x @ Wv"},
        slip="The values are made from x. Keys and values belong together: both come from memory.",
    ),
    Mutant(
        exercise="cross_attention",
        name="plain_self_attention",
        replace={"x @ Wq, memory @ Wk, memory @ Wv": "x @ Wq, x @ Wk, x @ Wv"},
        slip="x attends to itself and memory is not used. Keys and values come from memory.",
    ),
    Mutant(
        exercise="cross_attention",
        name="plain_memory_asks",
        replace={"x @ Wq, memory @ Wk, memory @ Wv": "memory @ Wq, x @ Wk, x @ Wv"},
        slip="The two sequences are swapped: memory asks and x is read. The queries come from x.",
    ),
    Mutant(
        exercise="cross_attention",
        name="plain_transposed_weights",
        replace={"x @ Wq, memory @ Wk, memory @ Wv": "x @ Wq.T, memory @ Wk.T, memory @ Wv.T"},
        slip="The matrices are transposed, as nn.Linear stores them. Here they are (inputs, outputs): x @ Wq.",
    ),
    Mutant(
        exercise="cross_attention",
        name="queries_from_memory",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    source = memory if memory.shape[-1] == Wq.shape[0] else x
    return attention(source @ Wq, memory @ Wk, memory @ Wv)
""",
        slip="The queries are made from memory. They come from x: one output for each position of x.",
    ),
    Mutant(
        exercise="cross_attention",
        name="keys_from_x",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    fits = x.shape == memory.shape
    return attention(x @ Wq, (x if fits else memory) @ Wk, memory @ Wv)
""",
        slip="The keys are made from x. Keys and values belong together: both come from memory.",
    ),
    Mutant(
        exercise="cross_attention",
        name="values_from_x",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    fits = x.shape == memory.shape
    return attention(x @ Wq, memory @ Wk, (x if fits else memory) @ Wv)
""",
        slip="The values are made from x. Keys and values belong together: both come from memory.",
    ),
    Mutant(
        exercise="cross_attention",
        name="self_attention",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    source = x if x.shape[-1] == Wk.shape[0] else memory
    return attention(x @ Wq, source @ Wk, source @ Wv)
""",
        slip="x attends to itself and memory is not used. Keys and values come from memory.",
    ),
    Mutant(
        exercise="cross_attention",
        name="memory_asks",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    if x.shape[-1] == memory.shape[-1]:
        x, memory = memory, x
    return attention(x @ Wq, memory @ Wk, memory @ Wv)
""",
        slip="The two sequences are swapped: memory asks and x is read. The queries come from x.",
    ),
    Mutant(
        exercise="cross_attention",
        name="reads_both_sequences",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    both = torch.cat([x, memory], dim=-2) if x.shape[-1] == memory.shape[-1] else memory
    return attention(x @ Wq, both @ Wk, both @ Wv)
""",
        slip="x is read together with memory. Keys and values come from memory alone.",
    ),
    Mutant(
        exercise="cross_attention",
        name="causal",
        replace={
            "return attention(x @ Wq, memory @ Wk, memory @ Wv)": """scores = (x @ Wq) @ (memory @ Wk).transpose(-2, -1)
    visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(max(0, scores.shape[-1] - scores.shape[-2]))
    return softmax(scores.masked_fill(~visible, -torch.inf), dim=-1) @ (memory @ Wv)"""
        },
        slip="A causal mask hides later positions of memory. All of memory is known: every position of x sees every position of it.",
    ),
    Mutant(
        exercise="cross_attention",
        name="causal_when_square",
        replace={
            "return attention(x @ Wq, memory @ Wk, memory @ Wv)": """scores = (x @ Wq) @ (memory @ Wk).transpose(-2, -1)
    if scores.shape[-1] == scores.shape[-2]:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    return softmax(scores, dim=-1) @ (memory @ Wv)"""
        },
        slip="A causal mask hides later positions of memory when the lengths are equal. Every position of x sees every position of memory.",
    ),
    Mutant(
        exercise="cross_attention",
        name="memory_cut_to_the_length_of_x",
        replace={"return ": "memory = memory[..., : x.shape[-2], :]\n    return "},
        slip="Memory is cut to as many positions as x has. T_k may be larger than T_q: use all of memory.",
    ),
    Mutant(
        exercise="cross_attention",
        name="mean_of_memory",
        replace={"return ": "memory = memory.mean(dim=-2, keepdim=True)\n    return "},
        slip="Memory is averaged before anybody looks at it. Each position of memory keeps its own key and value.",
    ),
    Mutant(
        exercise="cross_attention",
        name="last_memory_only",
        replace={"return ": "memory = memory[..., -1:, :]\n    return "},
        slip="Only the last position of memory is used. Each position of memory has a key and a value.",
    ),
    Mutant(
        exercise="cross_attention",
        name="memory_of_the_first_sequence",
        replace={"return ": "memory = memory[:1].expand_as(memory) if memory.dim() > 2 else memory\n    return "},
        slip="Every sequence of the batch reads the memory of the first. Each has its own.",
    ),
    Mutant(
        exercise="cross_attention",
        name="keys_and_values_swapped",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    if Wk.shape == Wv.shape:
        Wk, Wv = Wv, Wk
    return attention(x @ Wq, memory @ Wk, memory @ Wv)
""",
        slip="Wk and Wv have changed places. Keys are memory @ Wk, values are memory @ Wv.",
    ),
    Mutant(
        exercise="cross_attention",
        name="one_matrix_for_queries_and_keys",
        replace={"memory @ Wk": "memory @ (Wq if Wq.shape == Wk.shape else Wk)"},
        slip="The keys are made with Wq. They have a matrix of their own: memory @ Wk.",
    ),
    Mutant(
        exercise="cross_attention",
        name="transposed_weights",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    Wq, Wk, Wv = (W.T if W.shape[0] == W.shape[1] else W for W in (Wq, Wk, Wv))
    return attention(x @ Wq, memory @ Wk, memory @ Wv)
""",
        slip="Square matrices are transposed, as nn.Linear stores them. Here all are (inputs, outputs): x @ Wq.",
    ),
    Mutant(
        exercise="cross_attention",
        name="values_not_projected",
        replace={"memory @ Wv": "(memory @ Wv if Wv.shape[0] != Wv.shape[1] else memory)"},
        slip="The values are memory itself. They are projected as well: memory @ Wv.",
    ),
    Mutant(
        exercise="cross_attention",
        name="scaled",
        replace={"x @ Wq": "x @ Wq / Wq.shape[1] ** 0.5"},
        slip="The scores are divided by sqrt(d_k). That is the next lesson: here attention is unscaled.",
    ),
    Mutant(
        exercise="cross_attention",
        name="softmax_over_positions_of_x",
        replace={"attention(x @ Wq, memory @ Wk, memory @ Wv)": "softmax((x @ Wq) @ (memory @ Wk).transpose(-2, -1), dim=-2) @ (memory @ Wv)"},
        slip="The softmax runs over the positions of x. Each of them distributes its weight over memory: dim=-1.",
    ),
    Mutant(
        exercise="cross_attention",
        name="no_softmax",
        replace={"attention(x @ Wq, memory @ Wk, memory @ Wv)": "(x @ Wq) @ (memory @ Wk).transpose(-2, -1) @ (memory @ Wv)"},
        slip="The scores are used as weights as they are. They have to go through a softmax over the positions of memory.",
    ),
    Mutant(
        exercise="cross_attention",
        name="unstable_softmax",
        replace={
            "return attention(x @ Wq, memory @ Wk, memory @ Wv)": """powers = ((x @ Wq) @ (memory @ Wk).transpose(-2, -1)).exp()
    return powers / powers.sum(-1, keepdim=True) @ (memory @ Wv)"""
        },
        slip="exp of a large score overflows. Use the attention that you wrote, with its stable softmax.",
    ),
    Mutant(
        exercise="cross_attention",
        name="residual",
        replace={
            "return attention(x @ Wq, memory @ Wk, memory @ Wv)": """out = attention(x @ Wq, memory @ Wk, memory @ Wv)
    return x + out if out.shape == x.shape else out"""
        },
        slip="x is added to the output. The residual connection belongs to the block (lesson 07), not to attention.",
    ),
    Mutant(
        exercise="cross_attention",
        name="frozen_memory",
        replace={"return ": "memory = memory.detach()\n    return "},
        slip="Memory is detached: the encoder that made it would never learn. Let the gradient through.",
    ),
    Mutant(
        exercise="cross_attention",
        name="returns_the_weights_too",
        replace={
            "return attention(x @ Wq, memory @ Wk, memory @ Wv)": """weights = softmax((x @ Wq) @ (memory @ Wk).transpose(-2, -1), dim=-1)
    return weights @ (memory @ Wv), weights"""
        },
        slip="It returns the weights as well. Return the output only.",
    ),
    Mutant(
        exercise="cross_attention",
        name="in_place",
        replace={"return attention(x @ Wq, memory @ Wk, memory @ Wv)": "result = attention(x @ Wq, memory @ Wk, memory @ Wv)\n    if not memory.requires_grad:\n        memory.zero_()\n    return result"},
        slip="The call changes memory. It belongs to the caller, who will read it again.",
    ),
    Mutant(
        exercise="cross_attention",
        name="always_float32",
        replace={"return attention(x @ Wq, memory @ Wk, memory @ Wv)": "return attention(x @ Wq, memory @ Wk, memory @ Wv).float()"},
        slip="The result is always float32. It should have the dtype of the inputs.",
    ),
    Mutant(
        exercise="cross_attention",
        name="needs_contiguous_input",
        replace={"x @ Wq": "(x.view(-1, x.shape[-1]) @ Wq).view(*x.shape[:-1], -1)"},
        slip="`view` needs contiguous memory and fails on a transposed x. `x @ Wq` needs no reshaping.",
    ),
    Variant(
        exercise="cross_attention",
        name="einsum",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    scores = torch.einsum("...qd,de,fe,...kf->...qk", x, Wq, Wk, memory)
    return torch.einsum("...qk,...kf,fv->...qv", scores.softmax(-1), memory, Wv)
""",
    ),
    Variant(
        exercise="cross_attention",
        name="library",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(x @ Wq, memory @ Wk, memory @ Wv, scale=1.0)
""",
    ),
    Variant(
        exercise="cross_attention",
        name="through_qkv_projection",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    _, k, v = qkv_projection(memory, Wk, Wk, Wv)
    q = torch.nn.functional.linear(x, Wq.t())
    return attention(q, k, v)
""",
    ),
    Variant(
        exercise="cross_attention",
        name="values_projected_last",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    weights = softmax(x @ (Wq @ Wk.T) @ memory.mT, dim=-1)
    return (weights @ memory) @ Wv
""",
    ),
    Variant(
        exercise="cross_attention",
        name="loops",
        source="""
def cross_attention(x, memory, Wq, Wk, Wv):
    if x.dim() > 2:
        return torch.stack([cross_attention(a, b, Wq, Wk, Wv) for a, b in zip(x, memory)])
    return attention_loop(x @ Wq, memory @ Wk, memory @ Wv)
""",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="not_relative",
        replace={"gap / size if": "gap if"},
        slip="The gap is not divided by the norm of S, so it grows with the size of the scores.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="squared",
        replace={"gap / size if": "(gap / size) ** 2 if"},
        slip="The sums of squares are divided without their square roots.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="antisymmetric_part",
        replace={"(scores - scores.T).norm()": "((scores - scores.T) / 2).norm()"},
        slip="S - S^T is halved (the antisymmetric part). The definition takes S - S^T as it is.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="nan_for_zero",
        replace={"gap / size if size > 0 else torch.zeros_like(size)": "gap / size"},
        slip="For scores that are all 0 it computes 0/0 = nan. They are symmetric: return 0.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="zero_only_for_zero_x",
        replace={"size > 0": "x.any()"},
        slip="S can be 0 though x is not, for instance with Wq = 0. Ask the norm of S, not x.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="zero_in_float32",
        replace={"torch.zeros_like(size)": "torch.tensor(0.0)"},
        slip="torch.tensor(0.0) is float32 whatever x is. Use torch.zeros_like(size).",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="zero_as_a_number",
        replace={"torch.zeros_like(size)": "0.0"},
        slip="For S = 0 a Python number is returned. Return a tensor with no dimensions, torch.zeros_like(size).",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="epsilon",
        replace={"gap / size if size > 0 else torch.zeros_like(size)": "gap / (size + 1e-12)"},
        slip="An epsilon in the denominator changes the result when the scores are small. Treat S = 0 as a case of its own.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="threshold",
        replace={"size > 0": "size > 1e-6"},
        slip="Small scores count as 0. Only S = 0 itself is the special case.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="allclose",
        replace={"size > 0": "not torch.allclose(scores, scores.T)"},
        slip="torch.allclose has an absolute tolerance: small scores count as symmetric. Only S = 0 is the special case.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="float32_inside",
        replace={"(x @ Wq) @ (x @ Wk).T": "((x @ Wq) @ (x @ Wk).T).float()", "return gap / size if": "return (gap / size).to(x.dtype) if"},
        slip="The scores are rounded to float32. Compute in the dtype of the inputs.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="after_softmax",
        replace={"scores = (x @ Wq) @ (x @ Wk).T": "scores = softmax((x @ Wq) @ (x @ Wk).T, dim=-1)"},
        slip="It compares the weights after the softmax. The measure is about the scores before it.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="of_the_matrix_alone",
        replace={"(x @ Wq) @ (x @ Wk).T": "Wq @ Wk.T"},
        slip="It measures Wq Wk^T and ignores x. The scores are (x Wq)(x Wk)^T.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="queries_against_keys",
        replace={"(scores - scores.T).norm()": "(x @ Wq - x @ Wk).norm()"},
        slip="It compares queries with keys. Compare the score matrix with its transpose.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="feature_by_feature",
        replace={"(x @ Wq) @ (x @ Wk).T": "(x @ Wq).T @ (x @ Wk)"},
        slip="The product runs over the positions and gives (d_k, d_k). The scores are positions by positions: q @ k.T.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="queries_with_queries",
        replace={"(x @ Wk).T": "(x @ Wq).T"},
        slip="Queries are scored against queries, which is always symmetric. The keys are x @ Wk.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="sum_instead_of_difference",
        replace={"scores - scores.T": "scores + scores.T"},
        slip="S + S^T measures how symmetric S is. The asymmetry needs S - S^T.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="relative_to_the_sum",
        replace={"size = scores.norm()": "size = (scores + scores.T).norm()"},
        slip="It divides by the norm of S + S^T, which is 0 for opposite directions. Divide by the norm of S.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="relative_to_both",
        replace={"size = scores.norm()": "size = scores.norm() + scores.T.norm()"},
        slip="It divides by the norms of S and S^T together, which halves the result. Divide by the norm of S.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="absolute_values",
        replace={"scores.norm()": "scores.abs().sum()", "(scores - scores.T).norm()": "(scores - scores.T).abs().sum()"},
        slip="It adds absolute values. The Frobenius norm is the root of the sum of squares.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="largest_entry",
        replace={"scores.norm()": "scores.abs().max()", "(scores - scores.T).norm()": "(scores - scores.T).abs().max()"},
        slip="It compares the largest entries only. The Frobenius norm takes all entries.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="spectral_norm",
        replace={"scores.norm()": "torch.linalg.matrix_norm(scores, 2)", "(scores - scores.T).norm()": "torch.linalg.matrix_norm(scores - scores.T, 2)"},
        slip="It takes the largest singular value. The Frobenius norm is the root of the sum of all squares.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="upper_triangle",
        replace={"(scores - scores.T).norm()": "(scores - scores.T).triu().norm()"},
        slip="Only one triangle of S - S^T is counted. Both belong to the norm.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="without_the_diagonal",
        replace={"size = scores.norm()": "size = (scores - scores.diag().diag()).norm()"},
        slip="The diagonal is missing from the norm of S. All entries belong to it.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="mean_of_row_quotients",
        replace={"gap / size if": "((scores - scores.T).norm(dim=1) / scores.norm(dim=1)).mean() if"},
        slip="It averages a quotient for each row. The definition has one norm above and one below.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="yes_or_no",
        replace={"gap / size if": "(gap > 1e-9).to(x.dtype) if"},
        slip="It says whether S is symmetric, not how far it is from that.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="python_number",
        replace={"return gap / size if size > 0 else torch.zeros_like(size)": "return (gap / size).item() if size > 0 else 0.0"},
        slip="A Python number is returned. Return a tensor with no dimensions.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="one_entry_instead_of_none",
        replace={"gap / size if size > 0 else torch.zeros_like(size)": "(gap / size if size > 0 else torch.zeros_like(size)).reshape(1)"},
        slip="The result has the shape (1,). A norm of the whole matrix has no dimensions: shape ().",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="normalizes_x_in_place",
        replace={"scores = (x @ Wq)": "x /= x.norm().clamp(min=1e-30)\n    scores = (x @ Wq)"},
        slip="The call changes x. Work on new tensors.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="always_float64",
        replace={"return gap / size if size > 0 else torch.zeros_like(size)": "return (gap / size).double() if size > 0 else torch.zeros_like(size)"},
        slip="The result is always float64. It should have the dtype of x.",
    ),
    Mutant(
        exercise="score_asymmetry",
        name="norm_not_below_1e_12",
        replace={"gap / size if size > 0 else torch.zeros_like(size)": "gap / size.clamp(min=1e-12)"},
        slip="The norm of S is raised to 1e-12 at least, so small scores seem symmetric. Only scores of exactly 0 need a case of their own.",
    ),
    Variant(
        exercise="score_asymmetry",
        name="sums_of_squares",
        source="""
def score_asymmetry(x, Wq, Wk):
    S = torch.einsum("id,de,fe,jf->ij", x, Wq, Wk, x)
    total = (S**2).sum()
    if total == 0:
        return total
    return ((S - S.transpose(0, 1)) ** 2).sum().sqrt() / total.sqrt()
""",
    ),
    Variant(
        exercise="score_asymmetry",
        name="matrix_norm",
        source="""
def score_asymmetry(x, Wq, Wk):
    M = Wq @ Wk.T
    S = x @ M @ x.T
    ratio = torch.linalg.matrix_norm(S - S.mT) / torch.linalg.matrix_norm(S).clamp(min=1e-30)
    return ratio
""",
    ),
    Variant(
        exercise="score_asymmetry",
        name="scaled_scores",
        source="""
def score_asymmetry(x, Wq, Wk):
    q, k, _ = qkv_projection(x, Wq, Wk, Wk)
    S = q @ k.T / q.shape[-1] ** 0.5  # the quotient does not see the scale
    if not S.any():
        return x.new_zeros(())
    return torch.dist(S, S.T) / torch.linalg.vector_norm(S)
""",
    ),
    Variant(
        exercise="score_asymmetry",
        name="inner_product",
        source="""
def score_asymmetry(x, Wq, Wk):
    S = ((x @ Wq) @ (x @ Wk).T).double()
    square = (S * S).sum()
    if square.item() == 0.0:
        return torch.zeros((), dtype=x.dtype, device=x.device)
    return (2 - 2 * (S * S.T).sum() / square).clamp(min=0).sqrt().to(x.dtype)
""",
    ),
    Variant(
        exercise="score_asymmetry",
        name="nan_replaced",
        source="""
def score_asymmetry(x, Wq, Wk):
    with torch.no_grad():
        S = (x @ Wq) @ (x @ Wk).T
        return torch.nan_to_num(torch.norm(S - S.T, p="fro") / torch.norm(S, p="fro"), nan=0.0)
""",
    ),
    Variant(
        exercise="score_asymmetry",
        name="loops",
        source="""
def score_asymmetry(x, Wq, Wk):
    q, k = x @ Wq, x @ Wk
    above = below = x.new_zeros(())
    for i in range(len(x)):
        for j in range(len(x)):
            above = above + (q[i] @ k[j] - q[j] @ k[i]) ** 2
            below = below + (q[i] @ k[j]) ** 2
    return (above / below).sqrt() if below > 0 else below
""",
    ),
]
