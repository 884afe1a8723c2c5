"""Wrong and right answers to the exercises of lesson 03."""

from grader.bank import Entry, Mutant, Variant

ENTRIES: list[Entry] = [
    # ------------------------------------------------------------------------------------ dot_product_variance
    Mutant(
        exercise="dot_product_variance",
        name="scaled",
        replace={"(q * k).sum(dim=-1)": "((q * k).sum(dim=-1) / d_k**0.5)"},
        slip="The dot products are divided by sqrt(d_k), so the variance is always near 1. Measure them unscaled.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="standard_deviation",
        replace={".var()": ".std()"},
        slip="It returns the standard deviation, sqrt(d_k). The variance is its square: .var().",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="mean_instead_of_sum",
        replace={"(q * k).sum(dim=-1)": "(q * k).mean(dim=-1)"},
        slip="A dot product sums the products of the components; the mean divides by d_k, and the variance by d_k squared.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="variance_of_the_products",
        replace={"(q * k).sum(dim=-1).var()": "(q * k).var()"},
        slip="It measures the single products q_i k_i, whose variance is 1. Sum over the last axis first.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="sum_over_the_pairs",
        replace={"sum(dim=-1)": "sum(dim=0)"},
        slip="The sum runs over the n pairs. A dot product sums over the components, the last axis.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="one_variance_a_component",
        source="""
def dot_product_variance(d_k, n, generator):
    q = torch.randn(n, d_k, generator=generator)
    k = torch.randn(n, d_k, generator=generator)
    return (q * k).var(dim=0)
""",
        slip="It gives one variance for each component. Sum the components first, then take one variance over the n sums.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="uniform_numbers",
        source="""
def dot_product_variance(d_k, n, generator):
    q = torch.rand(n, d_k, generator=generator)
    k = torch.rand(n, d_k, generator=generator)
    return (q * k).sum(dim=-1).var().item()
""",
        slip="torch.rand draws uniform numbers between 0 and 1, with mean 1/2 and variance 1/12. Use torch.randn.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="signs",
        source="""
def dot_product_variance(d_k, n, generator):
    q = torch.randint(0, 2, (n, d_k), generator=generator) * 2.0 - 1
    k = torch.randint(0, 2, (n, d_k), generator=generator) * 2.0 - 1
    return (q * k).sum(dim=-1).var().item()
""",
        slip="The components are +1 and -1, as in the example by hand. Here they are standard normal.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="with_itself",
        replace={"(q * k)": "(q * q)"},
        slip="It takes q . q. Queries and keys are drawn independently of each other.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="one_key_for_all",
        replace={"k = torch.randn(n, d_k": "k = torch.randn(1, d_k"},
        slip="All queries meet one and the same key. Each query needs a key of its own.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="every_query_with_every_key",
        replace={"(q * k).sum(dim=-1)": "(q @ k.T)"},
        slip="q @ k.T pairs every query with every key, n times n products. Each query meets its own key only: n products.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="same_generator_state",
        source="""
def dot_product_variance(d_k, n, generator):
    state = generator.get_state()
    q = torch.randn(n, d_k, generator=generator)
    generator.set_state(state)
    k = torch.randn(n, d_k, generator=generator)
    return (q * k).sum(-1).var().item()
""",
        slip="The generator is set back between the two draws, so that k equals q. Draw on without resetting it.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="theory_instead_of_measurement",
        source="def dot_product_variance(d_k, n, generator):\n    return float(d_k)",
        slip="It returns what the theory says. Draw the vectors and measure.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="theory_with_noise",
        source="""
def dot_product_variance(d_k, n, generator):
    return d_k * (1 + 0.01 * torch.randn((), generator=generator).item())
""",
        slip="It returns d_k with a little noise. Draw n pairs and measure.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="ignores_n",
        replace={"q = torch.randn(n,": "q = torch.randn(20000,", "k = torch.randn(n,": "k = torch.randn(20000,"},
        slip="The number of pairs is fixed. Draw n of them.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="seeds_the_generator",
        replace={"q = torch.randn(n, d_k, generator=generator, device=generator.device)": "q = torch.randn(n, d_k, generator=generator.manual_seed(0))"},
        slip="The generator is seeded again, so every call gives the same sample. Only draw from it.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="global_random_state",
        source="""
def dot_product_variance(d_k, n, generator):
    q, k = torch.randn(n, d_k), torch.randn(n, d_k)
    return (q * k).sum(dim=-1).var().item()
""",
        slip="The numbers come from PyTorch's global random state. Pass generator=generator to every draw.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="keys_from_the_global_state",
        replace={"k = torch.randn(n, d_k, generator=generator, device=generator.device)": "k = torch.randn(n, d_k)"},
        slip="The keys come from PyTorch's global random state. Pass generator=generator to both draws.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="returns_the_products",
        replace={".var().item()": ""},
        slip="It returns the n dot products themselves. Take their variance.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="sum_of_squares",
        replace={"(q * k).sum(dim=-1).var()": "(q * k).sum(dim=-1).pow(2).sum()"},
        slip="The squares are summed and not divided by their number.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="at_most_a_thousand_pairs",
        replace={"q = torch": "n = min(n, 1000)\n    q = torch"},
        slip="Only 1000 pairs are drawn, however large n is, so the result scatters more than it should.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="half_of_the_pairs",
        source="""
def dot_product_variance(d_k, n, generator):
    q, k = torch.randn(2 * (n // 2), d_k, generator=generator).chunk(2)
    return (q * k).sum(dim=-1).var().item()
""",
        slip="n vectors are drawn and make n / 2 pairs, so the result scatters more than it should. Draw n queries and n keys.",
    ),
    Mutant(
        exercise="dot_product_variance",
        name="keeps_a_dimension",
        replace={".var().item()": ".var(keepdim=True)"},
        slip="It returns a tensor of shape (1,). Return one number: .var().item().",
    ),
    Variant(
        exercise="dot_product_variance",
        name="einsum_biased_tensor",
        source="""
def dot_product_variance(d_k, n, generator):
    q, k = torch.randn(2, n, d_k, generator=generator)
    return torch.einsum("nd,nd->n", q, k).var(correction=0)
""",
    ),
    Variant(
        exercise="dot_product_variance",
        name="batched_product_float64",
        source="""
def dot_product_variance(d_k, n, generator):
    k = torch.empty(n, d_k, 1, dtype=torch.float64).normal_(generator=generator)
    q = torch.empty(n, 1, d_k, dtype=torch.float64).normal_(generator=generator)
    products = (q @ k).flatten()
    return float(((products - products.mean()) ** 2).sum() / (n - 1))
""",
    ),
    Variant(
        exercise="dot_product_variance",
        name="mean_square",
        source="""
def dot_product_variance(d_k, n, generator):
    products = torch.zeros(n)
    for _ in range(d_k):  # one component after the other
        products += torch.randn(n, generator=generator) * torch.randn(n, generator=generator)
    return (products**2).mean().item()
""",
    ),
    Variant(
        exercise="dot_product_variance",
        name="statistics_module",
        source="""
import statistics

def dot_product_variance(d_k, n, generator):
    q = torch.normal(0.0, 1.0, (n, d_k), generator=generator)
    k = torch.normal(torch.zeros(n, d_k), 1.0, generator=generator)
    return statistics.variance(torch.linalg.vecdot(q, k).tolist())
""",
    ),
    # ---------------------------------------------------------------------------- scaled_dot_product_attention
    Mutant(
        exercise="scaled_dot_product_attention",
        name="no_scale",
        replace={"scale = 1 / math.sqrt(q.shape[-1])": "scale = 1.0"},
        slip="The default scale is missing: the scores should be divided by sqrt(d_k).",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="divides_by_the_reciprocal",
        replace={"(q * scale)": "(q / scale)"},
        slip="The scale is 1 / sqrt(d_k) already; dividing by it multiplies the scores by sqrt(d_k). Multiply by the scale.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="divides_by_d_k",
        replace={"math.sqrt(q.shape[-1])": "q.shape[-1]"},
        slip="The scores are divided by d_k. The default is its square root.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="multiplies_by_the_root",
        replace={"1 / math.sqrt(q.shape[-1])": "math.sqrt(q.shape[-1])"},
        slip="The scores are multiplied by sqrt(d_k) instead of divided.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="root_of_the_number_of_keys",
        replace={"math.sqrt(q.shape[-1])": "math.sqrt(k.shape[-2])"},
        slip="The root is taken of the number of keys, T_k. d_k is the last size of q.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="root_of_the_number_of_queries",
        replace={"math.sqrt(q.shape[-1])": "math.sqrt(q.shape[-2])"},
        slip="The root is taken of the number of queries, T_q. d_k is the last size of q.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="root_of_the_values_width",
        replace={"math.sqrt(q.shape[-1])": "math.sqrt(v.shape[-1])"},
        slip="The root is taken of d_v, the width of the values. The dot products have d_k terms: the last size of q.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="root_of_all_heads",
        replace={"math.sqrt(q.shape[-1])": "math.sqrt(q.shape[-1] * (q.shape[-3] if q.dim() > 2 else 1))"},
        slip="The root is taken of the width of all heads together. d_k is the width of one head, the last size of q.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="half_the_scale",
        replace={"1 / math.sqrt(q.shape[-1])": "q.shape[-1] ** -0.25"},
        slip="Only q is scaled by d_k^(-1/4). Either scale q and k by that much, or one of them by d_k^(-1/2).",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="scaled_twice",
        replace={"@ k.transpose(-2, -1)": "@ k.transpose(-2, -1) * scale"},
        slip="The scale is applied twice, to q and to the scores.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="both_scaled",
        replace={"@ k.transpose(-2, -1)": "@ (k * scale).transpose(-2, -1)"},
        slip="q and k are both multiplied by the scale, so the scores are divided by d_k. Scale one of them.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="scaled_after_the_softmax",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-2, -1)
    if mask is None:
        return scores.softmax(-1) * scale @ v
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0)
    return weights * scale @ v
""",
        slip="The scale is applied to the weights, after the softmax. It belongs to the scores, before it.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="scale_or_default",
        replace={"if scale is None:\n        scale = 1 / math.sqrt(q.shape[-1])": "scale = scale or 1 / math.sqrt(q.shape[-1])"},
        slip="`scale or ...` also replaces a scale of 0. Only None means the default: test `scale is None`.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="ignores_the_scale",
        replace={"if scale is None:": "if True:"},
        slip="The argument `scale` is never used.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="scale_on_top_of_the_default",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if scale is not None:
        scores = scores * scale
    if mask is None:
        return scores.softmax(-1) @ v
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0) @ v
""",
        slip="A scale that is given is multiplied with 1 / sqrt(d_k). It should replace it.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="divides_by_a_given_scale",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    divisor = math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.transpose(-2, -1) / divisor
    if mask is None:
        return scores.softmax(-1) @ v
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0) @ v
""",
        slip="The scores are divided by a scale that is given. They are multiplied by it.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="scale_only_without_mask",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = q @ k.transpose(-2, -1)
    if mask is None:
        return (scores * (q.shape[-1] ** -0.5 if scale is None else scale)).softmax(-1) @ v
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0) @ v
""",
        slip="With a mask the scores are not scaled.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="softmax_over_queries",
        replace={"return scores.softmax(dim=-1)": "return scores.softmax(dim=-2)", "weights = scores.softmax(dim=-1)": "weights = scores.softmax(dim=-2)"},
        slip="The softmax runs along the queries (dim=-2). Each query distributes its weight over the keys: dim=-1.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="softmax_dim_one",
        replace={"return scores.softmax(dim=-1)": "return scores.softmax(dim=1)", "weights = scores.softmax(dim=-1)": "weights = scores.softmax(dim=1)"},
        slip="dim=1 is the key axis only for a single sequence. Count from the back: dim=-1.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="softmax_over_heads",
        replace={
            "return scores.softmax(dim=-1)": "return scores.softmax(dim=max(scores.dim() - 3, 0) if scores.dim() > 2 else -1)",
            "weights = scores.softmax(dim=-1)": "weights = scores.softmax(dim=max(scores.dim() - 3, 0) if scores.dim() > 2 else -1)",
        },
        slip="The softmax runs along a leading dimension (a batch or the heads). It belongs to the keys, the last axis.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="queries_share_one_distribution",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.flatten(-2).softmax(-1).view_as(scores).masked_fill(~mask, 0.0)
    return weights @ v
""",
        slip="Queries and keys are flattened before the softmax: all queries share one distribution. Each row needs its own.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="inverted_mask",
        replace={"masked_fill(~mask, torch": "masked_fill(mask, torch", "masked_fill(~mask, 0.0)": "masked_fill(mask, 0.0)"},
        slip="The mask is used the wrong way round: True means that the query may see the key.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="ignored_mask",
        replace={"if mask is None:": "if True:"},
        slip="The mask is never applied.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="causal_whatever_the_mask",
        replace={"scores = scores.masked_fill(~mask": "mask = torch.ones_like(scores, dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2])\n    scores = scores.masked_fill(~mask"},
        slip="It always applies a causal mask. Apply the mask that was passed in.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="transposed_mask",
        replace={"scores = scores.masked_fill(~mask": "mask = mask.transpose(-2, -1) if mask.shape[-1] == mask.shape[-2] else mask\n    scores = scores.masked_fill(~mask"},
        slip="The mask is transposed. Its rows are the queries, its columns the keys.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="first_mask_for_all",
        replace={"scores = scores.masked_fill(~mask": "mask = mask if mask.dim() == 2 else mask[:1]\n    scores = scores.masked_fill(~mask"},
        slip="The first mask of the batch is used for all its items.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="mask_of_two_dimensions_only",
        replace={"scores = scores.masked_fill(~mask": "mask = mask.reshape(scores.shape[-2:])\n    scores = scores.masked_fill(~mask"},
        slip="Only a mask of shape (T_q, T_k) works. Let the mask broadcast to the scores.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="tiny_fill",
        replace={"torch.finfo(scores.dtype).min": "1e-9", ".masked_fill(~mask, 0.0)": ""},
        slip="Hidden scores are filled with a tiny positive number, which leaves them a weight. The minus sign and size matter: use the most negative number.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="fill_with_zero",
        replace={"torch.finfo(scores.dtype).min": "0.0", ".masked_fill(~mask, 0.0)": ""},
        slip="Hidden scores are set to 0, and exp(0) = 1 is a weight like any other. Fill with the most negative number.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="fill_too_high",
        replace={"torch.finfo(scores.dtype).min": "-100.0"},
        slip="-100 is not far enough below low scores: hidden keys win over visible ones. Fill with torch.finfo(dtype).min.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="minus_1e9",
        replace={"torch.finfo(scores.dtype).min": "-1e9"},
        slip="-1e9 does not fit into float16. Take the smallest number of the dtype: torch.finfo(scores.dtype).min.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="minus_infinity",
        replace={"torch.finfo(scores.dtype).min": "float('-inf')", ".masked_fill(~mask, 0.0)": ""},
        slip="A row of -inf has the softmax 0/0 = nan. A row that sees nothing should give zeros.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="smallest_number_without_zeroing",
        replace={".masked_fill(~mask, 0.0)": ""},
        slip="A row that sees nothing becomes uniform over the hidden keys. Set the weights of hidden keys to 0 after the softmax.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="opens_empty_rows",
        replace={"scores = scores.masked_fill(~mask, torch": "mask = mask | ~mask.any(dim=-1, keepdim=True)\n    scores = scores.masked_fill(~mask, torch"},
        slip="A row that sees nothing is opened and attends to every key. It should give zeros.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="nan_removed_from_the_output",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(-1) @ v).nan_to_num(0.0)
""",
        slip="The output is cleaned of nan, but the weights are still nan, and so are the gradients. Avoid the nan before the softmax.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="additive_infinity_with_nan_to_num",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0) @ v
""",
        slip="The weights are cleaned of nan after the softmax, but the backward pass runs through the nan: gradients of q and k are nan.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="epsilon_in_the_denominator",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / (powers.sum(-1, keepdim=True) + 1e-9) @ v
""",
        slip="-inf minus -inf is nan before the denominator is reached. Treat rows that see nothing before the softmax.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="masked_after_the_softmax",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    weights = scores.softmax(-1)
    return (weights if mask is None else weights.masked_fill(~mask, 0.0)) @ v
""",
        slip="Hidden keys are removed only after the softmax, so the visible weights sum to less than 1. Hide the scores first.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="renormalized_with_epsilon",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-9)
    return weights @ v
""",
        slip="Visible weights that are small beside a hidden key are lost before they are renormalized. Hide the scores before the softmax.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="scores_times_mask",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return (scores if mask is None else scores * mask).softmax(-1) @ v
""",
        slip="Multiplying by the mask sets hidden scores to 0, and exp(0) = 1. Fill them with the most negative number.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="mask_added_as_numbers",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return (scores if mask is None else scores + mask).softmax(-1) @ v
""",
        slip="The boolean mask is added as 0 and 1. Hidden scores must become the most negative number.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="zeros_only_if_all_is_hidden",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is None:
        return scores.softmax(-1) @ v
    if not mask.any():
        return torch.zeros(*scores.shape[:-1], v.shape[-1], dtype=v.dtype) + 0 * (q.sum() + k.sum() + v.sum())
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) @ v
""",
        slip="Only a mask that hides everything is treated. Each row that sees nothing gives zeros, beside others that see keys.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="unstable_softmax",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    powers = ((q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)).exp()
    if mask is not None:
        powers = powers * mask
    return powers @ v / powers.sum(-1, keepdim=True).clamp(min=1e-30)
""",
        slip="exp of a large score overflows. Subtract the largest score of the row first, or use softmax.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="clamped_scores",
        replace={"@ k.transpose(-2, -1)": "@ k.transpose(-2, -1)\n    scores = scores.clamp(-50, 50)"},
        slip="Clamping the scores changes the weights. The softmax is stable for large scores as it is.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="keys_as_values",
        replace={"return scores.softmax(dim=-1) @ v": "return scores.softmax(dim=-1) @ k", "return weights @ v": "return weights @ k"},
        slip="The weights average the keys. They belong to the values: weights @ v.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="uniform_over_the_visible",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = (q @ k.transpose(-2, -1)) * 0
    if mask is None:
        return scores.softmax(-1) @ v
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0) @ v
""",
        slip="The output is the plain mean of the visible values: queries and keys are not used.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="hardmax",
        replace={"return scores.softmax(dim=-1) @ v": "return F.one_hot(scores.argmax(-1), scores.shape[-1]).to(v.dtype) @ v"},
        slip="It takes the value of the best key alone. Attention mixes all values by their weights.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="reversed_transpose",
        replace={"k.transpose(-2, -1)": "k.permute(*reversed(range(k.dim())))"},
        slip="`.T` and a full reversal also swap the leading dimensions. Swap only the last two: k.transpose(-2, -1).",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="reshape_for_transpose",
        replace={"k.transpose(-2, -1)": "k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])"},
        slip="reshape keeps the numbers in their order and does not transpose. Use k.transpose(-2, -1).",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="detached_weights",
        replace={"return scores.softmax(dim=-1) @ v": "return scores.softmax(dim=-1).detach() @ v", "return weights @ v": "return weights.detach() @ v"},
        slip="The weights are detached: no gradient reaches q and k.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="weights_detached_with_a_mask",
        replace={"return weights @ v": "return weights.detach() @ v"},
        slip="With a mask the weights are detached: no gradient reaches q and k.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="dropout_always_on",
        replace={"return scores.softmax(dim=-1) @ v": "return F.dropout(scores.softmax(dim=-1), 0.1) @ v", "return weights @ v": "return F.dropout(weights, 0.1) @ v"},
        slip="Dropout is applied to the weights although nothing asks for it: results are random.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="scales_q_in_place",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    with torch.no_grad():
        q.mul_(q.shape[-1] ** -0.5 if scale is None else scale)
    scores = q @ k.transpose(-2, -1)
    if mask is None:
        return scores.softmax(-1) @ v
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0) @ v
""",
        slip="q is scaled in place, in the caller's tensor. Make a new one: q * scale.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="inverts_the_mask_in_place",
        replace={"scores = scores.masked_fill(~mask, torch": "mask.logical_not_()\n    scores = scores.masked_fill(mask, torch", "masked_fill(~mask, 0.0)": "masked_fill(mask, 0.0)"},
        slip="The caller's mask is inverted in place. Use ~mask, which is a new tensor.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="always_float32",
        replace={"return scores.softmax(dim=-1) @ v": "return scores.float().softmax(dim=-1) @ v.float()", "return weights @ v": "return weights.float() @ v.float()"},
        slip="The result is always float32. It should have the dtype of the inputs.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="float32_inside",
        replace={"(q * scale) @ k.transpose(-2, -1)": "((q * scale).float() @ k.float().transpose(-2, -1)).to(q.dtype)"},
        slip="The scores are computed in float32 even for float64 inputs. Keep the dtype of the inputs.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="empty_rows_by_column",
        replace={"masked_fill(~mask, 0.0)": "masked_fill(~mask.any(dim=-2, keepdim=True), 0.0)"},
        slip="It zeroes keys that nobody sees. What must be zeroed is a row: a query that sees no key.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="first_row_mask_for_all",
        replace={"scores = scores.masked_fill(~mask, torch": "mask = mask[..., :1, :].expand_as(mask)\n    scores = scores.masked_fill(~mask, torch"},
        slip="The mask of the first query is used for all queries.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="right_values_wrong_gradient_through_the_scale",
        replace={"(q * scale)": "(q.detach() * scale)"},
        slip="q is detached: no gradient reaches it.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="library",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
""",
        slip="It calls PyTorch's own function, which is what this exercise asks you to write: two products, a softmax, fills.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="mask_dimensions_added_behind_the_lead",
        replace={"scores = scores.masked_fill(~mask, torch.finfo": "missing = scores.dim() - mask.dim()\n    mask = mask.view(*mask.shape[:-2], *missing * (1,), *mask.shape[-2:]) if mask.dim() > 1 and missing else mask\n    scores = scores.masked_fill(~mask, torch.finfo"},
        slip="The dimensions that a mask lacks are put behind its own leading ones, so a mask of (H, T_q, T_k) is lined up with the batch. Broadcasting lines up from the back.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="one_dimensional_mask_ignored",
        replace={"if mask is None:": "if mask is None or mask.dim() < 2:"},
        slip="A mask with one dimension, (T_k,), is ignored. It broadcasts to the scores: the same keys are hidden from every query.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="adds_a_billion_in_any_dtype",
        replace={"scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)": "scores = scores + torch.where(mask, 0.0, -1e9).to(scores.dtype)"},
        slip="Hidden scores get -1e9 added. In float16 that is -inf, and a row that sees nothing has gradients of nan. Fill with the smallest number of the dtype.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="first_64_keys",
        replace={"if mask is None:": "k, v, scores = k[..., :64, :], v[..., :64, :], scores[..., :64]\n    mask = mask if mask is None else mask[..., :64]\n    if mask is None:"},
        slip="Only the first 64 keys are read, with or without a mask. Every visible key counts.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="float32_root",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = q @ k.transpose(-2, -1)
    scores = scores / torch.sqrt(torch.tensor(k.size(-1))) if scale is None else scores * scale
    if mask is None:
        return scores.softmax(-1) @ v
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0) @ v
""",
        slip="torch.sqrt(torch.tensor(d_k)) is a float32 number and costs float64 inputs half their digits. Use math.sqrt(d_k).",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="adds_minus_10000",
        replace={"scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)": "scores = scores + (1.0 - mask.to(scores.dtype)) * -10000.0"},
        slip="Hidden scores get -10000 added and are not below visible ones that lie as much lower. Fill with torch.finfo(scores.dtype).min.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="adds_the_smallest_number",
        replace={"scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)": "scores = scores + (1.0 - mask.to(scores.dtype)) * torch.finfo(scores.dtype).min"},
        slip="The smallest number is added. In float16, on top of a low score, that is -inf, and a row that sees nothing has gradients of nan. Fill with it instead.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="mask_of_one_column_ignored",
        replace={"if mask is None:": "if mask is None or mask.shape[-1] != k.shape[-2]:"},
        slip="A mask whose last size is 1, such as (B, 1, T_q, 1), is ignored. It broadcasts to the scores: a query sees all keys or none.",
    ),
    Mutant(
        exercise="scaled_dot_product_attention",
        name="flattens_with_view",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    q3, k3, v3 = (t.view(-1, *t.shape[-2:]) for t in (q, k, v))
    scores = torch.bmm(q3 * scale, k3.transpose(1, 2)).view(*q.shape[:-1], k.shape[-2])
    if mask is None:
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0)
    return torch.bmm(weights.view(-1, *weights.shape[-2:]), v3).view(*q.shape[:-1], v.shape[-1])
""",
        slip="`view` cannot join the axes of heads that are a transposed (B, T, H, d_k). Use reshape; or @, which needs no flattening.",
    ),
    Variant(
        exercise="scaled_dot_product_attention",
        name="einsum_with_minus_infinity",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    d_k = q.size(-1)
    scores = torch.einsum("...qd,...kd->...qk", q, k) * (d_k**-0.5 if scale is None else scale)
    if mask is not None:
        mask = mask.expand(scores.shape)
        empty = ~mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~mask, float("-inf")).masked_fill(empty, 0.0)
        weights = torch.where(empty, torch.zeros_like(scores), scores.softmax(-1))
    else:
        weights = torch.softmax(scores, -1)
    return torch.einsum("...qk,...kv->...qv", weights, v)
""",
    ),
    Variant(
        exercise="scaled_dot_product_attention",
        name="nan_to_num_after_fill",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = q @ k.mT / math.sqrt(q.shape[-1]) if scale is None else q @ k.mT * scale
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -torch.inf)
    return torch.softmax(scores, dim=-1).nan_to_num(0.0) @ v
""",
    ),
    Variant(
        exercise="scaled_dot_product_attention",
        name="additive_finite_mask",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    root = math.sqrt(math.sqrt(1 / q.shape[-1])) if scale is None else 1.0
    scores = (q * root) @ (k * root).transpose(-1, -2)
    if scale is not None:
        scores = scale * scores
    if mask is None:
        return scores.softmax(-1) @ v
    bias = torch.zeros_like(scores).masked_fill_(~mask, -30_000.0)
    return (scores + bias).softmax(-1) @ v * mask.any(-1, keepdim=True)
""",
    ),
    Variant(
        exercise="scaled_dot_product_attention",
        name="exponentials_by_hand",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scores = torch.matmul(q, torch.transpose(k, -2, -1)) * (1 / q.shape[-1] ** 0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -float("inf"))
    top = scores.amax(-1, keepdim=True).clamp(min=-1e4).detach()
    powers = torch.exp(scores - top)
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-4) @ v
""",
    ),
    Variant(
        exercise="scaled_dot_product_attention",
        name="float64_inside",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    if scale is None:
        scale = q.shape[-1] ** -0.5
    scores = q.double() @ k.double().transpose(-2, -1) * scale
    if mask is None:
        mask = torch.ones((), dtype=torch.bool)
    scores = torch.where(mask, scores, -1e9)
    weights = scores.softmax(-1) * mask
    return (weights @ v.double()).to(q.dtype)
""",
    ),
    Variant(
        exercise="scaled_dot_product_attention",
        name="loops",
        source="""
def scaled_dot_product_attention(q, k, v, mask=None, scale=None):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    lead = q.shape[:-2]
    if mask is None:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    mask = mask.expand(*lead, q.shape[-2], k.shape[-2]).reshape(-1, q.shape[-2], k.shape[-2])
    items = []
    for q1, k1, v1, m1 in zip(q.reshape(-1, *q.shape[-2:]), k.reshape(-1, *k.shape[-2:]), v.reshape(-1, *v.shape[-2:]), mask):
        rows = []
        for query, seen in zip(q1, m1):
            if seen.any():
                rows.append((k1[seen] @ query * scale).softmax(0) @ v1[seen])
            else:
                rows.append(0 * query.sum() * v1[0])
        items.append(torch.stack(rows))
    return torch.stack(items).reshape(*lead, *items[0].shape)
""",
    ),
    # ---------------------------------------------------------------------------------------- softmax_jacobian
    Mutant(
        exercise="softmax_jacobian",
        name="diagonal_missing",
        replace={"torch.diag_embed(p) - p": "-p"},
        slip="The diagonal part diag(p) is missing: raising z_i also raises p_i itself.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="diagonal_only",
        replace={"torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)": "torch.diag_embed(p * (1 - p))"},
        slip="Only the diagonal p_i (1 - p_i) is there. Raising z_j also lowers every other weight, by p_i p_j.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="like_a_sigmoid",
        replace={"torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)": "p * (1 - p)"},
        slip="p (1 - p) is the derivative of a sigmoid, entry by entry. The softmax needs a matrix for each slice.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="sign",
        replace={"torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)": "p.unsqueeze(-1) * p.unsqueeze(-2) - torch.diag_embed(p)"},
        slip="The sign is turned round: a weight grows with its own score.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="plus",
        replace={"torch.diag_embed(p) - p": "torch.diag_embed(p) + p"},
        slip="The outer product is added. Raising one score lowers the other weights: subtract it.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="identity_for_the_diagonal",
        replace={"torch.diag_embed(p)": "torch.eye(p.shape[-1], dtype=p.dtype)"},
        slip="The diagonal holds ones. It should hold p: J = diag(p) - p p^T.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="squares_instead_of_outer_product",
        replace={"p.unsqueeze(-1) * p.unsqueeze(-2)": "torch.diag_embed(p * p)"},
        slip="Only p_i squared is subtracted, on the diagonal. The outer product p_i p_j stands everywhere.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="squares_in_every_row",
        replace={"p.unsqueeze(-1) * p.unsqueeze(-2)": "(p * p).unsqueeze(-1)"},
        slip="It subtracts p_i squared in every column. The entry of row i and column j is p_i p_j.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="softmax_of_the_weights",
        replace={"return torch": "p = p.softmax(dim=-1)\n    return torch"},
        slip="It takes the softmax of p. p is the output of the softmax already.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="one_slice_only",
        source="def softmax_jacobian(p):\n    return torch.diag(p) - torch.outer(p, p)",
        slip="torch.diag and torch.outer know a single vector only. Use diag_embed and broadcasting for leading dimensions.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="two_dimensions_only",
        source="""
def softmax_jacobian(p):
    if p.dim() == 1:
        return torch.diag(p) - torch.outer(p, p)
    return torch.diag_embed(p) - torch.einsum("bi,bj->bij", p, p)
""",
        slip="It works for one leading dimension. Any number of them is allowed.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="outer_product_over_the_batch",
        source="""
def softmax_jacobian(p):
    flat = p.reshape(-1, p.shape[-1])
    return torch.diag_embed(p) - flat.T @ flat / len(flat)
""",
        slip="The outer products of all slices are averaged. Each slice has its own.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="wrong_axes",
        replace={"p.unsqueeze(-1) * p.unsqueeze(-2)": "p.unsqueeze(-1) * p.unsqueeze(0)"},
        slip="The row vector is made at the front, so leading dimensions mix. Both new axes belong at the end: -1 and -2.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="smoothed",
        replace={"return torch": "p = p + 1e-6\n    return torch"},
        slip="An epsilon is added to p. No division or logarithm is here that would need it.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="clamped",
        replace={"return torch": "p = p.clamp(1e-7, 1 - 1e-7)\n    return torch"},
        slip="p is clamped away from 0 and 1, so that one-hot weights do not give exactly 0. No clamping is needed.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="in_place",
        source="""
def softmax_jacobian(p):
    outer = p.unsqueeze(-1) * p.unsqueeze(-2)
    return torch.diag_embed(p.mul_(1.0).sub_(0.0).add_(p.round().mul(1e-3))) - outer
""",
        slip="p is changed in place. Work on a new tensor.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="always_float32",
        replace={"torch.diag_embed(p)": "torch.diag_embed(p.float())", "p.unsqueeze(-1) *": "p.float().unsqueeze(-1) *", "p.unsqueeze(-2)": "p.float().unsqueeze(-2)"},
        slip="The result is always float32. It should have the dtype of p.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="always_float64",
        replace={"torch.diag_embed(p) - p.unsqueeze(-1)": "torch.diag_embed(p.double()) - p.unsqueeze(-1)"},
        slip="The result is always float64. It should have the dtype of p.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="identity_in_float32",
        replace={"torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)": "p.unsqueeze(-1) * (torch.eye(p.shape[-1], device=p.device) - p.unsqueeze(-2))"},
        slip="The identity matrix is made in float32, so the result for a float16 p is float32. Give it the dtype of p.",
    ),
    Mutant(
        exercise="softmax_jacobian",
        name="flattens_with_view",
        source="""
def softmax_jacobian(p):
    flat = p.view(-1, p.shape[-1])
    return (torch.diag_embed(flat) - flat.unsqueeze(2) * flat.unsqueeze(1)).view(*p.shape, p.shape[-1])
""",
        slip="`view` cannot join the leading axes of a transposed p. Use reshape; or index from the end, which needs no flattening.",
    ),
    Variant(
        exercise="softmax_jacobian",
        name="delta_minus_p",
        source="""
def softmax_jacobian(p):
    eye = torch.eye(p.shape[-1], dtype=p.dtype, device=p.device)
    return p[..., :, None] * (eye - p[..., None, :])
""",
    ),
    Variant(
        exercise="softmax_jacobian",
        name="through_the_logarithm",
        source="""
def softmax_jacobian(p):
    z = torch.log(p)
    rows = z.reshape(-1, p.shape[-1])
    found = [torch.autograd.functional.jacobian(lambda x: x.softmax(-1), row) for row in rows]
    return torch.stack(found).reshape(*p.shape, p.shape[-1])
""",
    ),
    Variant(
        exercise="softmax_jacobian",
        name="einsum",
        source="""
def softmax_jacobian(p):
    outer = -torch.einsum("...i,...j->...ij", p, p)
    outer.diagonal(dim1=-2, dim2=-1).add_(p)
    return outer
""",
    ),
    Variant(
        exercise="softmax_jacobian",
        name="rows_one_by_one",
        source="""
def softmax_jacobian(p):
    n = p.shape[-1]
    rows = [p[..., i : i + 1] * ((torch.arange(n) == i).to(p.dtype) - p) for i in range(n)]
    return torch.stack(rows, dim=-2)
""",
    ),
    Variant(
        exercise="softmax_jacobian",
        name="matrix_product_in_float64",
        source="""
def softmax_jacobian(p):
    column = p.double().unsqueeze(-1)
    return (torch.diag_embed(p.double()) - column @ column.mT).to(p.dtype)
""",
    ),
    # ---------------------------------------------------------------------------------------- saturation_sweep
    Mutant(
        exercise="saturation_sweep",
        name="sqrt_and_d_swapped",
        replace={'("sqrt", math.sqrt(d_k))': '("sqrt", d_k)', '("d", d_k)]': '("d", math.sqrt(d_k))]'},
        slip='The lists "sqrt" and "d" are exchanged.',
    ),
    Mutant(
        exercise="saturation_sweep",
        name="multiplied",
        replace={"scores / divisor": "scores * divisor"},
        slip="The scores are multiplied by the root and by d_k. Divide.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="raw_is_scaled",
        replace={'("raw", 1.0)': '("raw", math.sqrt(d_k))'},
        slip='"raw" is scaled as well. It takes the scores as they are.',
    ),
    Mutant(
        exercise="saturation_sweep",
        name="scaled_by_the_number_of_keys",
        replace={"math.sqrt(d_k)": "math.sqrt(n_keys)"},
        slip='"sqrt" divides by the root of the number of keys. It should be the root of the width d_k.',
    ),
    Mutant(
        exercise="saturation_sweep",
        name="sum_over_queries",
        replace={"entropy(weights).mean()": "entropy(weights).sum()"},
        slip="The entropies of the queries are summed. Average them.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="median",
        replace={"entropy(weights).mean()": "entropy(weights).median()"},
        slip="It takes the median over the queries. The mean is asked for.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="entropy_of_the_mean",
        replace={"entropy(weights).mean()": "entropy(weights.mean(dim=0))"},
        slip="The weights are averaged before the entropy. Take the entropy of each query first, then the mean.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="bits",
        replace={"entropy(weights).mean().item()": "entropy(weights).mean().item() / math.log(2)"},
        slip="The entropy is in bits. In nats the logarithm is natural.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="fraction_of_the_maximum",
        replace={"entropy(weights).mean().item()": "entropy(weights).mean().item() / max(math.log(n_keys), 1e-9)"},
        slip="The entropy is divided by ln(n_keys). It is asked for in nats, not relative to the maximum.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="sign",
        replace={"entropy(weights).mean().item()": "-entropy(weights).mean().item()"},
        slip="The sign is turned round: an entropy is never negative.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="effective_keys",
        replace={"entropy(weights).mean().item()": "entropy(weights).exp().mean().item()"},
        slip="It gives the effective number of keys, e^H. The entropy H itself is asked for.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="nan_from_zero_times_log_zero",
        replace={"entropy(weights).mean()": "-(weights * weights.log()).sum(-1).mean()"},
        slip="0 times ln(0) is nan when a weight underflows to 0. By convention 0 ln 0 = 0: use `entropy`.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="smoothed_logarithm",
        replace={"entropy(weights).mean()": "-(weights * (weights + 1e-2).log()).sum(-1).mean()"},
        slip="A large epsilon inside the logarithm changes the entropy. Use `entropy`.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="softmax_over_queries",
        replace={"softmax(dim=-1)": "softmax(dim=0)"},
        slip="The softmax runs along the queries. Each query distributes its weight over the keys, the last axis.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="new_draw_for_each_scaling",
        source="""
def saturation_sweep(dims, n_keys, generator):
    result = {"raw": [], "sqrt": [], "d": []}
    for d_k in dims:
        for name, divisor in [("raw", 1.0), ("sqrt", math.sqrt(d_k)), ("d", d_k)]:
            q, k = torch.randn(512, d_k, generator=generator), torch.randn(n_keys, d_k, generator=generator)
            result[name].append(entropy((q @ k.T / divisor).softmax(-1)).mean().item())
    return result
""",
        slip="Each scaling draws its own scores. All three should start from the same, so that only the scaling differs.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="sorted_dims",
        replace={"for d_k in dims:": "for d_k in sorted(dims):"},
        slip="The widths are sorted first. The results should stand in the order of dims.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="sorts_dims_in_place",
        replace={"for d_k in dims:": "dims.sort()\n    for d_k in dims:"},
        slip="The caller's list is sorted in place. Leave dims alone.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="eight_queries",
        replace={"torch.randn(512, d_k": "torch.randn(8, d_k"},
        slip="A mean over 8 queries is noisy. Draw 512.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="one_query",
        replace={"torch.randn(512, d_k": "torch.randn(1, d_k"},
        slip="It draws a single query. Draw 512 and average.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="fixed_number_of_keys",
        replace={"torch.randn(n_keys, d_k": "torch.randn(64, d_k"},
        slip="The number of keys is fixed. Draw n_keys of them.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="uniform_numbers",
        source="""
def saturation_sweep(dims, n_keys, generator):
    result = {"raw": [], "sqrt": [], "d": []}
    for d_k in dims:
        q, k = torch.rand(512, d_k, generator=generator), torch.rand(n_keys, d_k, generator=generator)
        for name, divisor in [("raw", 1.0), ("sqrt", math.sqrt(d_k)), ("d", d_k)]:
            result[name].append(entropy((q @ k.T / divisor).softmax(-1)).mean().item())
    return result
""",
        slip="torch.rand draws uniform numbers between 0 and 1. Use torch.randn.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="scores_drawn_directly",
        source="""
def saturation_sweep(dims, n_keys, generator):
    result = {"raw": [], "sqrt": [], "d": []}
    for d_k in dims:
        scores = torch.randn(512, n_keys, generator=generator) * math.sqrt(d_k)
        for name, divisor in [("raw", 1.0), ("sqrt", math.sqrt(d_k)), ("d", d_k)]:
            result[name].append(entropy((scores / divisor).softmax(-1)).mean().item())
    return result
""",
        slip="The scores are drawn from N(0, d_k) directly. They are dot products: a long query has larger scores than a short one.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="one_draw_for_all_widths",
        source="""
def saturation_sweep(dims, n_keys, generator):
    result = {"raw": [], "sqrt": [], "d": []}
    queries = torch.randn(512, max(dims), generator=generator)
    keys = torch.randn(n_keys, max(dims), generator=generator)
    for d_k in dims:
        scores = queries[:, :d_k] @ keys[:, :d_k].T
        for name, divisor in [("raw", 1.0), ("sqrt", math.sqrt(d_k)), ("d", d_k)]:
            result[name].append(entropy((scores / divisor).softmax(-1)).mean().item())
    return result
""",
        slip="One draw, cut to size, serves all widths. Draw anew for each width.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="seeds_the_generator",
        replace={"for d_k in dims:": "generator.manual_seed(0)\n    for d_k in dims:"},
        slip="The generator is seeded again, so that every call gives the same. Only draw from it.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="global_random_state",
        replace={"q = torch.randn(512, d_k, generator=generator, device=generator.device)": "q = torch.randn(512, d_k)"},
        slip="The queries come from PyTorch's global random state. Pass generator=generator to every draw.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="tuple_of_lists",
        replace={"return result": "return result['raw'], result['sqrt'], result['d']"},
        slip='It returns a tuple. A dict with the keys "raw", "sqrt" and "d" is asked for.',
    ),
    Mutant(
        exercise="saturation_sweep",
        name="one_dict_a_width",
        replace={"return result": "return [{name: values[i] for name, values in result.items()} for i in range(len(dims))]"},
        slip="It returns a list of dicts. One dict of three lists is asked for.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="last_width_only",
        replace={"for d_k in dims:": "for d_k in dims:\n        result = {'raw': [], 'sqrt': [], 'd': []}"},
        slip="The lists are made anew for every width: only the last one is left.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="entropies_of_all_queries",
        replace={"entropy(weights).mean().item()": "entropy(weights)"},
        slip="It keeps the entropy of every query. Average them to one number for each width.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="scaled_one_after_the_other",
        replace={"weights = (scores / divisor)": "scores = scores / divisor\n            weights = scores"},
        slip='The scalings pile up: "d" divides scores that were already divided by the root. Each starts from the raw scores.',
    ),
    Mutant(
        exercise="saturation_sweep",
        name="integer_root",
        replace={"math.sqrt(d_k)": "math.isqrt(d_k)"},
        slip="The root is rounded down to an integer, which is right for 16, 64 and 256 only. Use math.sqrt(d_k).",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="keys_drawn_once",
        source="""
def saturation_sweep(dims, n_keys, generator):
    result = {"raw": [], "sqrt": [], "d": []}
    keys = torch.randn(n_keys, max(dims), generator=generator)
    for d_k in dims:
        scores = torch.randn(512, d_k, generator=generator) @ keys[:, :d_k].T
        for name, divisor in [("raw", 1.0), ("sqrt", math.sqrt(d_k)), ("d", d_k)]:
            result[name].append(entropy((scores / divisor).softmax(-1)).mean().item())
    return result
""",
        slip="The keys are drawn once and cut to each width. Draw queries and keys anew for every entry of dims.",
    ),
    Mutant(
        exercise="saturation_sweep",
        name="sixty_four_queries",
        replace={"torch.randn(512, d_k": "torch.randn(64, d_k"},
        slip="A mean over 64 queries is noisy. Draw 512.",
    ),
    Variant(
        exercise="saturation_sweep",
        name="own_keys_for_each_query",
        source="""
def saturation_sweep(dims, n_keys, generator):
    out = dict(raw=[], sqrt=[], d=[])
    for width in dims:
        k = torch.randn(512, n_keys, width, generator=generator)
        q = torch.randn(512, width, generator=generator)
        s = torch.einsum("nd,nkd->nk", q, k)
        for name, power in dict(raw=0, sqrt=-0.5, d=-1).items():
            logs = (s * width**power).log_softmax(-1)
            out[name].append(float(-(logs.exp() * logs).sum(-1).mean()))
    return out
""",
    ),
    Variant(
        exercise="saturation_sweep",
        name="more_queries_in_float64",
        source="""
def saturation_sweep(dims, n_keys, generator):
    columns = []
    for d_k in dims:
        q, k = (torch.randn(m, d_k, generator=generator, dtype=torch.float64) for m in (1000, n_keys))
        s = q @ k.T
        columns.append([entropy(torch.softmax(z, 1)).mean() for z in (s, s / d_k**0.5, s / d_k)])
    return {name: [float(column[i]) for column in columns] for i, name in enumerate(("raw", "sqrt", "d"))}
""",
    ),
    Variant(
        exercise="saturation_sweep",
        name="tensors_as_lists",
        source="""
def saturation_sweep(dims, n_keys, generator):
    def mean_entropy(s):
        p = s.softmax(-1)
        return -torch.xlogy(p, p).sum(-1).mean()

    scores = [torch.randn(512, d, generator=generator) @ torch.randn(d, n_keys, generator=generator) for d in dims]
    return {
        "d": torch.stack([mean_entropy(s / d) for s, d in zip(scores, dims)]),
        "sqrt": torch.stack([mean_entropy(s / math.sqrt(d)) for s, d in zip(scores, dims)]),
        "raw": torch.stack([mean_entropy(s) for s in scores]),
    }
""",
    ),
    Variant(
        exercise="saturation_sweep",
        name="masked_logarithm",
        source="""
def saturation_sweep(dims, n_keys, generator):
    result = {"raw": [0.0] * len(dims), "sqrt": [0.0] * len(dims), "d": [0.0] * len(dims)}
    for i, d_k in enumerate(dims):
        both = torch.randn(512 + n_keys, d_k, generator=generator)
        s = both[:512] @ both[512:].T
        for name, scale in (("raw", 1), ("sqrt", 1 / math.sqrt(d_k)), ("d", 1 / d_k)):
            p = torch.softmax(s * scale, dim=1)
            terms = torch.where(p > 0, -p * p.clamp(min=1e-45).log(), torch.zeros_like(p))
            result[name][i] = terms.sum(1).mean().item()
    return result
""",
    ),
    # --------------------------------------------------------------------------------------- qk_norm_attention
    Mutant(
        exercise="qk_norm_attention",
        name="not_normalized",
        replace={"F.normalize(q, dim=-1) @ F.normalize(k, dim=-1)": "q @ k"},
        slip="Queries and keys are not normalized: the scores are plain dot products.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="only_queries_normalized",
        replace={"F.normalize(k, dim=-1)": "k"},
        slip="Only the queries are normalized. A cosine needs both.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="only_keys_normalized",
        replace={"F.normalize(q, dim=-1)": "q"},
        slip="Only the keys are normalized. A cosine needs both.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="multiplied_by_tau",
        replace={"cosines / tau": "cosines * tau"},
        slip="The cosines are multiplied by tau. Henry et al. multiply by g = 1 / tau; here you divide.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="ignores_tau",
        replace={"cosines / tau": "cosines"},
        slip="tau is not used: the cosines are divided by it before the softmax.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="also_divided_by_the_root",
        replace={"cosines / tau": "cosines / tau / math.sqrt(q.shape[-1])"},
        slip="The scores are also divided by sqrt(d_k). tau takes its place.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="root_for_tau",
        replace={"cosines / tau": "cosines * math.sqrt(q.shape[-1]) / tau"},
        slip="The cosines carry a factor sqrt(d_k), as RMSNorm would give it. Here both vectors have length 1.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="default_dim",
        replace={"F.normalize(q, dim=-1)": "F.normalize(q)", "F.normalize(k, dim=-1)": "F.normalize(k)"},
        slip="F.normalize runs along dim=1 by default, which is the last axis only for a single sequence. Say dim=-1.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="normalized_along_positions",
        replace={"F.normalize(q, dim=-1)": "F.normalize(q, dim=-2)", "F.normalize(k, dim=-1)": "F.normalize(k, dim=-2)"},
        slip="The norm runs along the positions. One vector lies along the last axis.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="one_norm_for_all",
        replace={"F.normalize(q, dim=-1)": "q / q.norm()", "F.normalize(k, dim=-1)": "(k / k.norm())"},
        slip="All queries are divided by one common norm. Each vector has its own: norm(dim=-1, keepdim=True).",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="squared_length",
        replace={"F.normalize(q, dim=-1)": "(q / q.pow(2).sum(-1, keepdim=True))", "F.normalize(k, dim=-1)": "(k / k.pow(2).sum(-1, keepdim=True))"},
        slip="The vectors are divided by the square of their length. The root is missing.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="sum_of_absolute_values",
        replace={"F.normalize(q, dim=-1)": "F.normalize(q, p=1, dim=-1)", "F.normalize(k, dim=-1)": "F.normalize(k, p=1, dim=-1)"},
        slip="The vectors are divided by the sum of absolute values. A cosine needs the Euclidean length, p=2.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="root_mean_square",
        replace={"F.normalize(q, dim=-1)": "F.rms_norm(q, q.shape[-1:])", "F.normalize(k, dim=-1)": "F.rms_norm(k, k.shape[-1:])"},
        slip="RMSNorm gives vectors of length sqrt(d_k), so the scores are d_k times too large. Use the Euclidean length.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="layer_norm",
        replace={
            "F.normalize(q, dim=-1)": "F.normalize(q - q.mean(-1, keepdim=True), dim=-1)",
            "F.normalize(k, dim=-1)": "F.normalize(k - k.mean(-1, keepdim=True), dim=-1)",
        },
        slip="The mean of each vector is subtracted first. Only the length is divided out.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="values_normalized_too",
        replace={".softmax(dim=-1) @ v": ".softmax(dim=-1) @ F.normalize(v, dim=-1)"},
        slip="The values are normalized as well. Only queries and keys are.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="large_epsilon",
        replace={
            "F.normalize(q, dim=-1)": "(q / (q.norm(dim=-1, keepdim=True) + 1e-3))",
            "F.normalize(k, dim=-1)": "(k / (k.norm(dim=-1, keepdim=True) + 1e-3))",
        },
        slip="An epsilon of 1e-3 is added to the length, so short vectors do not become unit vectors. Use max(length, 1e-12).",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="floor_too_high",
        replace={"F.normalize(q, dim=-1)": "F.normalize(q, dim=-1, eps=1e-2)", "F.normalize(k, dim=-1)": "F.normalize(k, dim=-1, eps=1e-2)"},
        slip="The floor of the length is too high: short vectors do not become unit vectors. It is 1e-12.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="no_epsilon",
        replace={
            "F.normalize(q, dim=-1)": "(q / q.norm(dim=-1, keepdim=True))",
            "F.normalize(k, dim=-1)": "(k / k.norm(dim=-1, keepdim=True))",
        },
        slip="A zero vector gives 0/0 = nan. Divide by max(length, 1e-12).",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="tau_as_a_number",
        source="""
def qk_norm_attention(q, k, v, tau):
    if torch.is_tensor(tau):
        tau = tau.detach()
    return (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) / tau).softmax(-1) @ v
""",
        slip="tau is detached, so no gradient reaches it and it can not be learned.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="lengths_detached",
        replace={
            "F.normalize(q, dim=-1)": "(q / q.detach().norm(dim=-1, keepdim=True).clamp(min=1e-12))",
            "F.normalize(k, dim=-1)": "(k / k.detach().norm(dim=-1, keepdim=True).clamp(min=1e-12))",
        },
        slip="The lengths are detached: the values are right, the gradients are not. Let them flow through the norm.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="tau_floored",
        replace={"cosines / tau": "cosines / (tau.clamp(min=0.01) if torch.is_tensor(tau) else max(tau, 0.01))"},
        slip="tau is kept above 0.01. Use it as it is given.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="logarithm_of_tau",
        replace={"cosines / tau": "cosines * torch.exp(-torch.as_tensor(tau, dtype=q.dtype))"},
        slip="tau is taken as the logarithm of the temperature. It is the temperature itself.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="tau_squared",
        replace={"F.normalize(q, dim=-1)": "(F.normalize(q, dim=-1) / tau)"},
        slip="The scores are divided by tau twice.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="tau_after_the_softmax",
        replace={"(cosines / tau).softmax(dim=-1) @ v": "cosines.softmax(dim=-1) / tau @ v"},
        slip="The weights are divided by tau, after the softmax. Divide the cosines, before it.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="softmax_over_queries",
        replace={"softmax(dim=-1)": "softmax(dim=-2)"},
        slip="The softmax runs along the queries (dim=-2). Each query distributes its weight over the keys: dim=-1.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="no_softmax",
        replace={"(cosines / tau).softmax(dim=-1)": "(cosines / tau)"},
        slip="The cosines are used as weights without a softmax.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="absolute_cosines",
        replace={"cosines / tau": "cosines.abs() / tau"},
        slip="The sign of the cosine is lost: opposite vectors should score lowest.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="reversed_transpose",
        replace={"F.normalize(k, dim=-1).transpose(-2, -1)": "F.normalize(k, dim=-1).permute(*reversed(range(k.dim())))"},
        slip="`.T` and a full reversal also swap the leading dimensions. Swap only the last two: transpose(-2, -1).",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="normalizes_in_place",
        source="""
def qk_norm_attention(q, k, v, tau):
    with torch.no_grad():
        k.div_(k.norm(dim=-1, keepdim=True).clamp(min=1e-12))
    return (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) / tau).softmax(-1) @ v
""",
        slip="The caller's keys are normalized in place. Make a new tensor.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="always_float64",
        replace={"(cosines / tau).softmax(dim=-1) @ v": "(cosines / tau).double().softmax(dim=-1) @ v.double()"},
        slip="The result is always float64. It should have the dtype of the inputs.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="tau_over_the_batch",
        replace={"cosines / tau": "cosines / (tau.view(-1, *[1] * (q.dim() - 1)) if torch.is_tensor(tau) and tau.dim() and len(tau) == len(q) else tau)"},
        slip="tau is lined up with the batch. Its shape (H, 1, 1) broadcasts to the heads as it stands.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="norm_not_below_1e_6",
        replace={"F.normalize(q, dim=-1)": "F.normalize(q, dim=-1, eps=1e-6)", "F.normalize(k, dim=-1)": "F.normalize(k, dim=-1, eps=1e-6)"},
        slip="Lengths below 1e-6 are raised to 1e-6, so short vectors are not normalized. The bound of the exercise is 1e-12.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="batch_and_heads_only",
        replace={"return (cosines / tau).softmax(dim=-1) @ v": "weights = (cosines / tau).softmax(dim=-1)\n    return torch.einsum(\"bhij,bhjd->bhid\", weights, v) if v.dim() > 3 else weights @ v"},
        slip="The weighted sum is written for two leading dimensions at most. Any number of them is allowed: use `...` or @.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="cosine_similarity_by_default",
        source="""
def qk_norm_attention(q, k, v, tau):
    cosines = F.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1)
    return (cosines / tau).softmax(dim=-1) @ v
""",
        slip="F.cosine_similarity raises lengths below 1e-8 to 1e-8 unless it is told otherwise. The bound of the exercise is 1e-12: pass eps=1e-12.",
    ),
    Mutant(
        exercise="qk_norm_attention",
        name="flattens_with_view",
        source="""
def qk_norm_attention(q, k, v, tau):
    unit = lambda x: F.normalize(x.view(-1, x.shape[-1]), dim=1).view(x.shape)
    return (unit(q) @ unit(k).transpose(-2, -1) / tau).softmax(dim=-1) @ v
""",
        slip="`view` cannot join the axes of heads that are a transposed (B, T, H, d_k). F.normalize with dim=-1 needs no flattening.",
    ),
    Variant(
        exercise="qk_norm_attention",
        name="lengths_divided_out_of_the_scores",
        source="""
def qk_norm_attention(q, k, v, tau):
    lengths_q = torch.linalg.vector_norm(q, dim=-1, keepdim=True).clamp(min=1e-12)
    lengths_k = torch.linalg.vector_norm(k, dim=-1, keepdim=True).clamp(min=1e-12)
    scores = torch.einsum("...qd,...kd->...qk", q / lengths_q, k / lengths_k)
    return torch.softmax(scores / tau, dim=-1) @ v
""",
    ),
    Variant(
        exercise="qk_norm_attention",
        name="cosine_similarity",
        source="""
def qk_norm_attention(q, k, v, tau):
    cosines = F.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1, eps=1e-12)
    return F.softmax(cosines / tau, -1) @ v
""",
    ),
    Variant(
        exercise="qk_norm_attention",
        name="library_attention",
        source="""
def qk_norm_attention(q, k, v, tau):
    q, k = (x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12) for x in (q, k))
    return F.scaled_dot_product_attention(q / tau, k, v, scale=1.0)
""",
    ),
    Variant(
        exercise="qk_norm_attention",
        name="small_epsilon_added",
        source="""
def qk_norm_attention(q, k, v, tau):
    unit = lambda x: x / (x.square().sum(-1, keepdim=True).sqrt() + 1e-12)
    scores = unit(q) @ unit(k).mT * (1 / tau)
    weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    return (weights.unsqueeze(-1) * v.unsqueeze(-3)).sum(-2)
""",
    ),
    Variant(
        exercise="qk_norm_attention",
        name="float64_inside",
        source="""
def qk_norm_attention(q, k, v, tau):
    a, b = F.normalize(q.double(), dim=-1), F.normalize(k.double(), dim=-1)
    return ((a @ b.transpose(-1, -2) / tau).softmax(-1) @ v.double()).to(v.dtype)
""",
    ),
]
