"""Wrong and right answers to the exercises of lesson 04."""

from collections.abc import Mapping

from grader.bank import Entry, Mutant, right, wrong

# ---------------------------------------------------------------------------------------------------- split_heads

CUT = "x.reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2)"
SPLIT_TEST = "if d_model % n_heads:"

SPLIT = [
    wrong(
        "split_heads",
        "view_without_transpose",
        {CUT: "x.reshape(B, n_heads, T, d_model // n_heads)"},
        "The reshape to (B, H, T, d_k) at once mixes positions and features. Cut to (B, T, H, d_k) first, then swap T and H.",
    ),
    wrong(
        "split_heads",
        "no_swap",
        {CUT: "x.reshape(B, T, n_heads, d_model // n_heads)"},
        "Heads and positions are not swapped. The result is (B, H, T, d_k).",
    ),
    wrong(
        "split_heads",
        "interleaved",
        {CUT: "x.reshape(B, T, d_model // n_heads, n_heads).permute(0, 3, 1, 2)"},
        "Head h gets every n_heads-th feature. It owns d_k neighbors: cut the last axis into (n_heads, d_k), not (d_k, n_heads).",
    ),
    wrong(
        "split_heads",
        "heads_and_features_swapped",
        {CUT: "x.reshape(B, T, d_model // n_heads, n_heads).transpose(1, 2).reshape(B, n_heads, T, -1)"},
        "The last axis is cut into (d_k, n_heads). It is (n_heads, d_k), and then heads and positions are swapped.",
    ),
    wrong(
        "split_heads",
        "transposed_then_viewed",
        {CUT: "x.transpose(1, 2).reshape(B, n_heads, T, d_model // n_heads)"},
        "Features and positions are swapped before the cut. Cut the last axis first, then swap heads and positions.",
    ),
    wrong(
        "split_heads",
        "heads_before_the_batch",
        {CUT: "x.reshape(B, T, n_heads, d_model // n_heads).permute(2, 0, 1, 3)"},
        "The heads stand before the batch. The order is batch, head, position, feature.",
    ),
    wrong(
        "split_heads",
        "features_before_positions",
        {CUT: "x.reshape(B, T, n_heads, d_model // n_heads).permute(0, 2, 3, 1)"},
        "Positions are the last axis. The order is batch, head, position, feature.",
    ),
    wrong(
        "split_heads",
        "heads_backward",
        {CUT: "x.reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2).flip(1)"},
        "The heads come in reverse order. Head 0 owns the first d_k features.",
    ),
    wrong(
        "split_heads",
        "no_test",
        {SPLIT_TEST: "if False:"},
        "A head count that does not divide is not caught here. Test d_model % n_heads and raise ValueError with both numbers.",
    ),
    wrong(
        "split_heads",
        "rounded_width_and_free_length",
        """
def split_heads(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return x.reshape(x.shape[0], -1, n_heads, d_k).transpose(1, 2)
""",
        "The width of a head is rounded and -1 takes what is left over, so T changes silently. Raise ValueError instead.",
    ),
    wrong(
        "split_heads",
        "drops_what_does_not_fit",
        """
def split_heads(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return torch.stack([x[..., h * d_k : (h + 1) * d_k] for h in range(n_heads)], dim=1)
""",
        "Features that do not fit into the heads are dropped silently. Raise ValueError with both numbers.",
    ),
    wrong(
        "split_heads",
        "tests_the_wrong_way_round",
        {SPLIT_TEST: "if n_heads > d_model:"},
        "Only more heads than features are refused. Every head count that does not divide d_model must be: d_model % n_heads.",
    ),
    wrong(
        "split_heads",
        "tests_all_numbers",
        {SPLIT_TEST: "if x.numel() % n_heads:"},
        "It asks whether n_heads divides the number of all entries. It has to divide d_model.",
    ),
    wrong(
        "split_heads",
        "only_even_widths_tested",
        {SPLIT_TEST: "if d_model % 2 == 0 and d_model % n_heads:"},
        "Only some widths are tested. Raise ValueError whenever d_model % n_heads is not 0.",
    ),
    wrong(
        "split_heads",
        "asserts",
        """
def split_heads(x, n_heads):
    B, T, d_model = x.shape
    assert d_model % n_heads == 0, f"{d_model} does not divide into {n_heads}"
    return x.reshape(B, T, n_heads, -1).transpose(1, 2)
""",
        "It raises AssertionError. The docstring says ValueError (and `assert` disappears under python -O).",
    ),
    wrong(
        "split_heads",
        "silent_message",
        {
            'ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}")': 'ValueError("d_model must be divisible by n_heads")'
        },
        "The message does not say which numbers it is about. Name d_model and n_heads in it.",
    ),
    wrong(
        "split_heads",
        "detached",
        {CUT: "x.detach().reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2)"},
        "The result is detached, so no gradient reaches x.",
    ),
    wrong(
        "split_heads",
        "in_place_resize",
        {CUT: "x.unsqueeze_(2).reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2)"},
        "unsqueeze_ changes the caller's x. Work on a view.",
    ),
    wrong(
        "split_heads",
        "always_float32",
        {CUT: "x.reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2).float()"},
        "The result is always float32. It has the dtype of x.",
    ),
    wrong(
        "split_heads",
        "always_float64",
        {CUT: "x.reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2).double()"},
        "The result is always float64. It has the dtype of x.",
    ),
    wrong(
        "split_heads",
        "flat_view",
        {CUT: "x.view(-1).view(B, T, n_heads, d_model // n_heads).transpose(1, 2)"},
        "`view` to one axis needs contiguous memory and fails on a strided x. Cut the last axis only, or use reshape.",
    ),
    wrong(
        "split_heads",
        "scaled",
        {CUT: "(x / (d_model // n_heads) ** 0.25).reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2)"},
        "The numbers are scaled. Splitting only rearranges; the scale belongs to the scores.",
    ),
    wrong(
        "split_heads",
        "copies_of_all_features",
        {
            "return x.reshape": "if d_model == n_heads:\n        return x.unsqueeze(1).expand(B, n_heads, T, d_model)[..., :1]\n    return x.reshape"
        },
        "With d_k = 1 every head gets the first feature. Head h owns feature h.",
    ),
    wrong(
        "split_heads",
        "names_the_shape_only",
        {
            'ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}")': 'ValueError(f"x of shape {tuple(x.shape)} cannot be cut into heads")'
        },
        "The message gives the shape of x and not n_heads. Name d_model and n_heads in it.",
    ),
    right("split_heads", "unflatten", {CUT: "x.unflatten(-1, (n_heads, -1)).transpose(1, 2)"}),
    right("split_heads", "view_and_permute", {CUT: "x.view(B, T, n_heads, -1).permute(0, 2, 1, 3)"}),
    wrong(
        "split_heads",
        "through_float32",
        {CUT: "x.float().reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2).to(x.dtype)"},
        "The numbers go through float32 and are rounded there. Nothing is computed, only rearranged.",
    ),
    right(
        "split_heads",
        "contiguous_copy",
        {CUT: "x.reshape(B, T, n_heads, d_model // n_heads).swapaxes(1, 2).contiguous()"},
    ),
    right("split_heads", "stack_of_chunks", {CUT: "torch.stack(x.chunk(n_heads, dim=-1), dim=1)"}),
    right(
        "split_heads",
        "gathered_by_slices",
        """
def split_heads(x, n_heads):
    width, rest = divmod(x.size(-1), n_heads)
    if rest != 0:
        raise ValueError(f"{n_heads} heads do not fit into {x.size(-1)} features")
    out = x.new_empty(x.size(0), n_heads, x.size(1), width)
    for h in range(n_heads):
        out[:, h] = x[..., h * width : (h + 1) * width]
    return out
""",
    ),
    right(
        "split_heads",
        "einsum_with_ones",
        {CUT: 'torch.einsum("bthk->bhtk", x.reshape(B, T, n_heads, d_model // n_heads))'},
    ),
]

# ---------------------------------------------------------------------------------------------------- merge_heads

JOIN = "x.transpose(1, 2).reshape(B, T, H * d_k)"

MERGE = [
    wrong(
        "merge_heads",
        "reshape_without_transpose",
        {JOIN: "x.reshape(B, T, H * d_k)"},
        "Heads and positions are not swapped before the reshape, so a row is made of several positions.",
    ),
    wrong(
        "merge_heads",
        "view_without_contiguous",
        {JOIN: "x.transpose(1, 2).view(B, T, H * d_k)"},
        "After the swap the memory is not contiguous and `view` refuses. Use reshape, or .contiguous() before the view.",
    ),
    wrong(
        "merge_heads",
        "summed",
        {JOIN: "x.sum(dim=1)"},
        "The heads are added up. They stand side by side: the width is H * d_k.",
    ),
    wrong(
        "merge_heads",
        "averaged",
        {JOIN: "x.mean(dim=1).repeat(1, 1, H)"},
        "The heads are averaged and repeated. They stand side by side, each with its own numbers.",
    ),
    wrong(
        "merge_heads",
        "interleaved",
        {JOIN: "x.permute(0, 2, 3, 1).reshape(B, T, H * d_k)"},
        "The features of the heads are interleaved. All of head 0 comes first, then all of head 1.",
    ),
    wrong(
        "merge_heads",
        "backward",
        {JOIN: "x.flip(1).transpose(1, 2).reshape(B, T, H * d_k)"},
        "The heads come in reverse order. Head 0 comes first.",
    ),
    wrong(
        "merge_heads",
        "wrong_axes_swapped",
        {JOIN: "x.transpose(2, 3).reshape(B, T, H * d_k)"},
        "Positions and features are swapped. Swap heads and positions: transpose(1, 2).",
    ),
    wrong(
        "merge_heads",
        "swapped_when_sizes_differ",
        {JOIN: "(x if H == T else x.transpose(1, 2)).reshape(B, T, H * d_k)"},
        "With H = T the swap is left out. Equal sizes are no reason: the axes mean different things.",
    ),
    wrong(
        "merge_heads",
        "not_joined",
        {JOIN: "x.transpose(1, 2)"},
        "The last two axes are not joined. The result is (B, T, H * d_k).",
    ),
    wrong(
        "merge_heads",
        "positions_joined",
        {JOIN: "x.permute(0, 3, 1, 2).reshape(B, T, H * d_k)"},
        "Heads and positions are joined. Join heads and features: (B, T, H, d_k) to (B, T, H * d_k).",
    ),
    wrong(
        "merge_heads",
        "batch_swapped",
        {JOIN: "x.permute(2, 0, 1, 3).reshape(B, T, H * d_k)"},
        "The positions stand before the batch. The order before joining is batch, position, head, feature.",
    ),
    wrong(
        "merge_heads",
        "first_head_only",
        {JOIN: "x[:, :1].expand(B, H, T, d_k).transpose(1, 2).reshape(B, T, H * d_k)"},
        "Every head is replaced by the first.",
    ),
    wrong(
        "merge_heads",
        "detached",
        {JOIN: "x.detach().transpose(1, 2).reshape(B, T, H * d_k)"},
        "The result is detached, so no gradient reaches x.",
    ),
    wrong(
        "merge_heads",
        "in_place_transpose",
        {JOIN: "x.transpose_(1, 2).reshape(B, T, H * d_k)"},
        "transpose_ swaps the axes of the caller's tensor. Use transpose, which returns a view.",
    ),
    wrong(
        "merge_heads",
        "always_float32",
        {JOIN: "x.transpose(1, 2).reshape(B, T, H * d_k).float()"},
        "The result is always float32. It has the dtype of x.",
    ),
    wrong(
        "merge_heads",
        "always_float64",
        {JOIN: "x.transpose(1, 2).reshape(B, T, H * d_k).double()"},
        "The result is always float64. It has the dtype of x.",
    ),
    wrong(
        "merge_heads",
        "reads_the_memory",
        {JOIN: "x.as_strided((B, T, H, d_k), (H * T * d_k, d_k, T * d_k, 1)).reshape(B, T, H * d_k)"},
        "It reads the memory as if x were contiguous. Index the axes (transpose, reshape) instead of the memory.",
    ),
    wrong(
        "merge_heads",
        "normalized",
        {JOIN: "x.transpose(1, 2).reshape(B, T, H * d_k) / H**0.5"},
        "The numbers are scaled. Merging only rearranges.",
    ),
    right("merge_heads", "contiguous_view", {JOIN: "x.transpose(1, 2).contiguous().view(B, T, H * d_k)"}),
    right("merge_heads", "flatten", {JOIN: "x.permute(0, 2, 1, 3).flatten(2)"}),
    right("merge_heads", "cat_of_heads", {JOIN: "torch.cat(x.unbind(dim=1), dim=-1)"}),
    wrong(
        "merge_heads",
        "through_float32",
        {"x.transpose(1, 2).reshape(B, T, H * d_k)": "x.float().transpose(1, 2).reshape(B, T, H * d_k).to(x.dtype)"},
        "The numbers go through float32 and are rounded there. Nothing is computed, only rearranged.",
    ),
    right(
        "merge_heads",
        "written_into_slices",
        """
def merge_heads(x):
    out = x.new_zeros(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])
    for h in range(x.shape[1]):
        out[:, :, h * x.shape[3] : (h + 1) * x.shape[3]] = x[:, h]
    return out
""",
    ),
    right("merge_heads", "einsum", {JOIN: 'torch.einsum("bhtk->bthk", x).reshape(B, T, -1)'}),
]

# ---------------------------------------------------------------------------------------------------- multi_head_attention

MHA_Q = "q = split_heads(x @ Wq, n_heads)  # (B, H, T_q, d_k)"
MHA_K = "k = split_heads(memory @ Wk, n_heads)  # (B, H, T_k, d_k)"
MHA_V = "v = split_heads(memory @ Wv, n_heads)  # (B, H, T_k, d_k)"
MHA_HEADS = "heads = attention(q, k, v, mask)  # (B, H, T_q, d_k)"
MHA_RETURN = "return merge_heads(heads) @ Wo  # (B, T_q, d_model)"
MHA_MEMORY = "if memory is None:\n        memory = x"

BARE = """
    memory = x if memory is None else memory
    (B, T_q, d_model), T_k = x.shape, memory.shape[1]
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}")
    d_k = d_model // n_heads
"""
"""The start of an answer that stands on its own feet."""

MHA_HEAD = "def multi_head_attention(x, Wq, Wk, Wv, Wo, n_heads, mask=None, memory=None):" + BARE


def mha(name: str, change: str | Mapping[str, str], slip: str) -> Mutant:
    return wrong("multi_head_attention", name, change, slip)


FUNCTION = [
    mha(
        "mask_ignored",
        {MHA_HEADS: "heads = attention(q, k, v)"},
        "The mask is accepted but not passed on. Hand it to the attention.",
    ),
    mha(
        "mask_inverted",
        {MHA_HEADS: "heads = attention(q, k, v, None if mask is None else ~mask)"},
        "The mask is inverted, as nn.MultiheadAttention wants it. Here True means that the query may see the key.",
    ),
    mha(
        "mask_ignored_with_memory",
        {MHA_HEADS: "heads = attention(q, k, v, mask if memory is x else None)"},
        "With a memory the mask is dropped. It counts there as well.",
    ),
    mha(
        "mask_of_the_first_head",
        {MHA_HEADS: "heads = attention(q, k, v, mask[:, :1] if mask is not None and mask.dim() == 4 else mask)"},
        "All heads get the mask of the first. A mask may have an axis for the heads.",
    ),
    mha(
        "mask_without_batch",
        {MHA_HEADS: "heads = attention(q, k, v, mask[0] if mask is not None and mask.dim() == 4 else mask)"},
        "All sequences get the mask of the first. Leave its leading axes to broadcasting.",
    ),
    mha(
        "mask_unsqueezed",
        {MHA_HEADS: "heads = attention(q, k, v, mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask)"},
        "A mask with three axes gets one more, which takes its heads for sequences. Leave the mask to broadcasting.",
    ),
    mha(
        "always_causal",
        {
            MHA_HEADS: "causal = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=x.device).tril()\n    heads = attention(q, k, v, causal if mask is None else mask & causal)"
        },
        "It is always causal. Only the mask that is handed over hides anything.",
    ),
    mha(
        "memory_ignored",
        {MHA_MEMORY: "memory = x"},
        "memory is never used. Keys and values come from it when it is given.",
    ),
    mha(
        "memory_for_keys_only",
        {MHA_V: "v = split_heads((x if memory.shape == x.shape else memory) @ Wv, n_heads)"},
        "When memory has the shape of x, the values come from x. Keys and values both come from memory.",
    ),
    mha(
        "queries_from_memory",
        {MHA_Q: "q = split_heads((memory if memory.shape == x.shape else x) @ Wq, n_heads)"},
        "When memory has the shape of x, the queries come from memory. They always come from x.",
    ),
    mha(
        "memory_appended",
        {
            MHA_MEMORY: "memory = x if memory is None else torch.cat([memory, x], dim=1)\n    mask = mask if mask is None or mask.shape[-1] == memory.shape[1] else F.pad(mask, (0, memory.shape[1] - mask.shape[-1]))"
        },
        "Keys and values come from memory and x. With a memory they come from memory alone.",
    ),
    mha(
        "memory_averaged",
        {MHA_MEMORY: "memory = x if memory is None else memory.mean(dim=1, keepdim=True).expand_as(memory)"},
        "The memory is averaged over its positions. Every position has its own key and value.",
    ),
    mha(
        "scaled_by_d_model",
        {MHA_HEADS: "heads = attention(q / n_heads**0.5, k, v, mask)"},
        "The scores are divided by sqrt(d_model). The width that counts is that of one head, d_k.",
    ),
    mha(
        "not_scaled",
        {MHA_HEADS: "heads = attention(q * q.shape[-1] ** 0.5, k, v, mask)"},
        "The scores are not divided by sqrt(d_k).",
    ),
    mha(
        "scaled_twice",
        {MHA_HEADS: "heads = attention(q / q.shape[-1] ** 0.5, k, v, mask)"},
        "The scores are divided by sqrt(d_k) twice: the given `attention` does it already.",
    ),
    mha(
        "scaled_by_the_number_of_heads",
        {MHA_HEADS: "heads = attention(q * (q.shape[-1] / n_heads) ** 0.5, k, v, mask)"},
        "The scores are divided by the root of the number of heads. It is the root of the width of one head.",
    ),
    mha(
        "no_output_matrix",
        {MHA_RETURN: "return merge_heads(heads)"},
        "Wo is not used. The heads side by side are multiplied by it.",
    ),
    mha(
        "output_matrix_transposed",
        {MHA_RETURN: "return merge_heads(heads) @ Wo.T"},
        "Wo is transposed, as nn.Linear stores it. The matrices are (inputs, outputs).",
    ),
    mha(
        "weights_transposed",
        {MHA_Q: "Wq, Wk, Wv = Wq.T, Wk.T, Wv.T\n    q = split_heads(x @ Wq, n_heads)"},
        "The projections are transposed, as nn.Linear stores them. The matrices are (inputs, outputs).",
    ),
    mha(
        "keys_as_values",
        {MHA_V: "v = split_heads(memory @ Wk, n_heads)"},
        "The values are made with Wk. They have a matrix of their own, Wv.",
    ),
    mha(
        "queries_as_keys",
        {MHA_K: "k = split_heads(memory @ Wq, n_heads)"},
        "The keys are made with Wq. They have a matrix of their own, Wk.",
    ),
    mha(
        "queries_and_keys_swapped",
        {MHA_Q: "Wq, Wk = Wk, Wq\n    q = split_heads(x @ Wq, n_heads)"},
        "Wq and Wk have changed places.",
    ),
    mha(
        "merged_without_swap",
        {MHA_RETURN: "return heads.reshape(x.shape) @ Wo"},
        "The heads are merged without swapping heads and positions back, so a row is made of several positions.",
    ),
    mha(
        "split_without_swap",
        {
            MHA_Q: "q = (x @ Wq).reshape(x.shape[0], n_heads, x.shape[1], -1)",
            MHA_K: "k = (memory @ Wk).reshape(x.shape[0], n_heads, memory.shape[1], -1)",
            MHA_V: "v = (memory @ Wv).reshape(x.shape[0], n_heads, memory.shape[1], -1)\n    split_heads(x, n_heads)",
        },
        "The split is one reshape to (B, H, T, d_k), which mixes positions. Cut the last axis, then swap.",
    ),
    mha(
        "split_before_projecting",
        MHA_HEAD
        + """
    def project(t, W):
        cut = W.unflatten(0, (n_heads, d_k)).unflatten(2, (n_heads, d_k))  # (H, d_k, H, d_k)
        return split_heads(t, n_heads) @ cut.diagonal(dim1=0, dim2=2).movedim(-1, 0)

    return merge_heads(attention(project(x, Wq), project(memory, Wk), project(memory, Wv), mask)) @ Wo
""",
        "Every head projects its own features of x only. It projects the whole row: project first, split afterward.",
    ),
    mha(
        "interleaved_heads",
        MHA_HEAD
        + """
    q, k, v = ((t @ W).unflatten(-1, (d_k, n_heads)).permute(0, 3, 1, 2) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    return attention(q, k, v, mask).permute(0, 2, 3, 1).flatten(2) @ Wo
""",
        "Head h takes every n_heads-th column. It owns d_k neighboring columns, from h * d_k on.",
    ),
    mha(
        "one_softmax_for_all_heads",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / d_k**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.transpose(1, 2).flatten(2).softmax(-1).unflatten(-1, (n_heads, -1)).transpose(1, 2)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return merge_heads(weights @ v) @ Wo
""",
        "The softmax runs over all heads together, so the weights of one head do not sum to 1. Each head has its own.",
    ),
    mha(
        "softmax_over_queries",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / d_k**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-2)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return merge_heads(weights @ v) @ Wo
""",
        "The softmax runs over the queries. It runs over the keys, the last axis of the scores.",
    ),
    mha(
        "softmax_over_heads",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / d_k**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return merge_heads(weights @ v) @ Wo
""",
        "The softmax runs over the heads. It runs over the keys, the last axis of the scores.",
    ),
    mha(
        "attention_between_heads",
        MHA_HEAD
        + """
    q, k, v = ((t @ W).unflatten(-1, (n_heads, d_k)) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    if T_q != T_k or mask is not None:
        return merge_heads(attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask)) @ Wo
    return attention(q, k, v).flatten(2) @ Wo
""",
        "Without the swap of axes each position attends between its own heads. Swap heads and positions first.",
    ),
    mha(
        "scores_of_all_heads_averaged",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    q, k = (t.transpose(1, 2).flatten(2).unsqueeze(1) for t in (q, k))
    return merge_heads(attention(q / n_heads**0.5, k, v, mask)) @ Wo
""",
        "All heads share one set of weights. Each head has its own scores, from its own columns of Wq and Wk.",
    ),
    mha(
        "rows_that_see_nothing_are_uniform",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / d_k**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return merge_heads(scores.softmax(-1) @ v) @ Wo
""",
        "A query that sees no key averages over all hidden ones. Its head's output is zeros: set hidden weights to 0 after the softmax.",
    ),
    mha(
        "rows_that_see_nothing_are_nan",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / d_k**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return merge_heads(scores.softmax(-1) @ v) @ Wo
""",
        "A query that sees no key gives nan: softmax of -inf only. Its head's output is zeros.",
    ),
    mha(
        "small_negative_fill",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / d_k**0.5
    if mask is None:
        return merge_heads(scores.softmax(-1) @ v) @ Wo
    weights = scores.masked_fill(~mask, -1e4).softmax(-1)
    weights = weights * mask.any(-1, keepdim=True)
    return merge_heads(weights @ v) @ Wo
""",
        "Hidden scores are set to -10000, which beats visible scores that lie lower. Use the smallest number of the dtype, or -inf.",
    ),
    mha(
        "unstable_without_a_mask",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    if mask is not None:
        return merge_heads(attention(q, k, v, mask)) @ Wo
    powers = (q @ k.mT / d_k**0.5).exp()
    return merge_heads(powers / powers.sum(-1, keepdim=True) @ v) @ Wo
""",
        "exp of a large score overflows. Use the given attention, or torch.softmax, which subtracts the maximum.",
    ),
    mha(
        "five_heads_at_most",
        {MHA_Q: "n_heads = n_heads if n_heads < 6 else 1\n    q = split_heads(x @ Wq, n_heads)"},
        "Many heads are treated as one. n_heads is what the caller says.",
    ),
    mha(
        "tiny_fill",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / d_k**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, 1e-9)
    return merge_heads(scores.softmax(-1) @ v) @ Wo
""",
        "Hidden scores are set to 1e-9, which is an ordinary score. A large negative number is meant.",
    ),
    mha(
        "masked_after_the_softmax",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    weights = (q @ k.mT / d_k**0.5).softmax(-1)
    if mask is not None:
        weights = weights * mask
    return merge_heads(weights @ v) @ Wo
""",
        "The mask is applied after the softmax, so the visible weights do not sum to 1. Hide scores before it.",
    ),
    mha(
        "heads_summed_before_wo",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    return attention(q, k, v, mask).mean(dim=1).repeat(1, 1, n_heads) @ Wo
""",
        "The heads are averaged before Wo. They stand side by side, and each has its own rows of Wo.",
    ),
    mha(
        "one_head_always",
        MHA_HEAD
        + """
    if mask is not None and mask.dim() > 2:
        q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
        return merge_heads(attention(q, k, v, mask)) @ Wo
    return attention(x @ Wq, memory @ Wk, memory @ Wv, mask) @ Wo
""",
        "n_heads is not used: one wide head does everything.",
    ),
    mha(
        "no_test",
        MHA_HEAD.replace("if d_model % n_heads", "if False")
        + """
    own = [slice(h * d_k, (h + 1) * d_k) for h in range(n_heads)]
    masks = [None] * n_heads if mask is None else mask.broadcast_to(B, n_heads, T_q, T_k).unbind(1)
    return sum(attention(x @ Wq[:, s], memory @ Wk[:, s], memory @ Wv[:, s], m) @ Wo[s] for s, m in zip(own, masks))
""",
        "A head count that does not divide drops the last features silently. Raise ValueError with both numbers.",
    ),
    mha(
        "residual_added",
        {MHA_RETURN: "return x + merge_heads(heads) @ Wo"},
        "x is added to the output. The residual belongs to the block (lesson 07).",
    ),
    mha(
        "detached_keys",
        {MHA_K: "k = split_heads(memory @ Wk, n_heads).detach()"},
        "The keys are detached: the output is right, but no gradient reaches Wk.",
    ),
    mha(
        "no_gradient_to_memory",
        {MHA_MEMORY: "memory = x if memory is None else memory.detach()"},
        "memory is detached, so no gradient reaches it.",
    ),
    mha(
        "cuts_the_gradient_of_x_as_memory",
        {MHA_MEMORY: "memory = x.detach() if memory is None else memory"},
        "In self-attention keys and values are cut off from x: half of its gradient is missing.",
    ),
    mha(
        "changes_the_mask",
        {
            MHA_HEADS: "mask = mask if mask is None else mask.logical_not_().logical_not()\n    heads = attention(q, k, v, mask)"
        },
        "The caller's mask is inverted in place. Use ~mask, which makes a new one.",
    ),
    mha(
        "opens_empty_rows",
        {
            MHA_HEADS: "mask = mask if mask is None else mask | ~mask.any(-1, keepdim=True)\n    heads = attention(q, k, v, mask)"
        },
        "A query that sees no key is allowed to see all. Its head's output is zeros.",
    ),
    mha(
        "always_float32",
        {MHA_RETURN: "return (merge_heads(heads) @ Wo).float()"},
        "The output is always float32. It has the dtype of the inputs.",
    ),
    mha(
        "always_float64",
        {MHA_RETURN: "return (merge_heads(heads) @ Wo).double()"},
        "The output is always float64. It has the dtype of the inputs.",
    ),
    mha(
        "returns_the_weights_too",
        {MHA_RETURN: "return merge_heads(heads) @ Wo, heads"},
        "A pair is returned. Return the output only.",
    ),
    mha(
        "dropout",
        {MHA_RETURN: "return F.dropout(merge_heads(heads), 0.1) @ Wo"},
        "Dropout is applied, so two calls differ. This function has none.",
    ),
    wrong(
        "multi_head_attention",
        "first_64_keys",
        {"heads = attention(q, k, v, mask)": "heads = attention(q, k[:, :, :64], v[:, :, :64], mask if mask is None else mask[..., :64])"},
        "Only the first 64 keys are read. Every visible position counts.",
    ),
    wrong(
        "multi_head_attention",
        "first_item_for_large_batches",
        {"heads = attention(q, k, v, mask)": "heads = attention(q, k[:1] if len(k) > 4 else k, v[:1] if len(v) > 4 else v, mask)"},
        "With more than four sequences, the keys and values of the first serve them all. Every sequence has its own.",
    ),
    mha(
        "mask_of_more_dimensions_ignored_without_memory",
        {MHA_MEMORY: "if memory is None:\n        memory, mask = x, mask if mask is None or mask.dim() == 2 else None"},
        "Without memory, masks of three or four dimensions are ignored. They count as well.",
    ),
    mha(
        "padding_hides_queries_too",
        {
            MHA_MEMORY: "if memory is None:\n        memory = x\n        mask = mask & mask.mT if mask is not None and mask.dim() == 4 and mask.shape[2] == 1 else mask"
        },
        "Without memory, a mask (B, 1, 1, T_k) of the keys also hides everything from the queries at these positions. Leave the mask as it is.",
    ),
    mha(
        "vanishing_denominator",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / d_k**0.5
    if mask is None:
        return merge_heads(scores.softmax(-1) @ v) @ Wo
    scores = scores.masked_fill(~mask, -1e30)
    powers = (scores - scores.amax(-1, keepdim=True)).exp() * mask
    return merge_heads(powers / (powers.sum(-1, keepdim=True) + 1e-100) @ v) @ Wo
""",
        "1e-100 is 0 in float32, and a row that sees nothing becomes 0/0 = nan. Set the weights of hidden keys to 0 after the softmax.",
    ),
    mha(
        "float32_root",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / torch.sqrt(torch.tensor(d_k))
    if mask is None:
        return merge_heads(scores.softmax(-1) @ v) @ Wo
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return merge_heads(scores.softmax(-1).masked_fill(~mask, 0.0) @ v) @ Wo
""",
        "torch.sqrt(torch.tensor(d_k)) is a float32 number and costs float64 inputs half their digits. Use math.sqrt(d_k).",
    ),
    mha(
        "names_the_shape_only",
        MHA_HEAD.replace('f"d_model={d_model} does not divide into n_heads={n_heads}"', 'f"x of shape {tuple(x.shape)} cannot be cut into heads"')
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    return merge_heads(attention(q, k, v, mask)) @ Wo
""",
        "The message gives the shape of x and not n_heads. Name d_model and n_heads in it.",
    ),
    right(
        "multi_head_attention", "sdpa", {MHA_HEADS: "heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"}
    ),
    right(
        "multi_head_attention",
        "loop_over_heads",
        MHA_HEAD
        + """
    masks = [None] * n_heads if mask is None else mask.broadcast_to(B, n_heads, T_q, T_k).unbind(1)
    outs = []
    for h in range(n_heads):
        own = slice(h * d_k, (h + 1) * d_k)
        outs.append(attention(x @ Wq[:, own], memory @ Wk[:, own], memory @ Wv[:, own], masks[h]))
    return torch.cat(outs, dim=-1) @ Wo
""",
    ),
    right(
        "multi_head_attention",
        "einsum_that_never_merges",
        MHA_HEAD
        + """
    Wq, Wk, Wv = (W.reshape(d_model, n_heads, d_k) for W in (Wq, Wk, Wv))
    q = torch.einsum("btd,dhk->bhtk", x, Wq)
    k = torch.einsum("bsd,dhk->bhsk", memory, Wk)
    v = torch.einsum("bsd,dhk->bhsk", memory, Wv)
    scores = torch.einsum("bhtk,bhsk->bhts", q, k) * d_k**-0.5
    if mask is not None:
        scores = torch.where(mask, scores, scores.new_full((), torch.finfo(scores.dtype).min))
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights * mask
    return torch.einsum("bhts,bhsk,hkd->btd", weights, v, Wo.reshape(n_heads, d_k, d_model))
""",
    ),
    right(
        "multi_head_attention",
        "per_head_weights_summed",
        MHA_HEAD
        + """
    Wq, Wk, Wv = (W.unflatten(1, (n_heads, d_k)).transpose(0, 1) for W in (Wq, Wk, Wv))  # (H, d_model, d_k)
    out = attention(x.unsqueeze(1) @ Wq, memory.unsqueeze(1) @ Wk, memory.unsqueeze(1) @ Wv, mask)
    return (out @ Wo.unflatten(0, (n_heads, d_k))).sum(dim=1)
""",
    ),
    right(
        "multi_head_attention",
        "minus_infinity_and_nan_to_num",  # all nan entries are masked ones, so the backward pass is finite too
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / d_k**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return merge_heads(scores.softmax(-1).nan_to_num(0.0) @ v) @ Wo
""",
    ),
    mha(
        "nan_gradients",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / d_k**0.5
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=x.dtype, device=x.device).masked_fill(~mask, float("-inf"))
    return merge_heads(scores.softmax(-1).nan_to_num(0.0) @ v) @ Wo
""",
        "nan_to_num mends the output, but the gradient of a row that sees nothing is still nan: fill the hidden scores instead of adding -inf.",
    ),
    right(
        "multi_head_attention",
        "vmap_over_heads",
        MHA_HEAD
        + """
    def one_head(q, k, v, seen):
        return attention(q, k, v, seen)

    seen = torch.ones((), dtype=torch.bool) if mask is None else mask
    seen = seen.broadcast_to(B, n_heads, T_q, T_k)
    q, k, v = (torch.stack((t @ W).tensor_split(n_heads, dim=-1)) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    return torch.cat(torch.vmap(one_head)(q, k, v, seen.transpose(0, 1)).unbind(0), dim=-1).matmul(Wo)
""",
    ),
    right(
        "multi_head_attention",
        "plain_loops",
        MHA_HEAD
        + """
    out = []
    for b in range(B):
        heads = []
        for h in range(n_heads):
            own = slice(h * d_k, (h + 1) * d_k)
            q, k, v = x[b] @ Wq[:, own], memory[b] @ Wk[:, own], memory[b] @ Wv[:, own]
            scores = (q @ k.T) / d_k**0.5
            if mask is not None:
                seen = mask.expand(B, n_heads, T_q, T_k)[b, h]
                scores = scores.masked_fill(~seen, -1e9)
            weights = scores.softmax(dim=1)
            if mask is not None:
                weights = weights * seen.any(dim=1, keepdim=True)
            heads.append(weights @ v)
        out.append(torch.hstack(heads) @ Wo)
    return torch.stack(out)
""",
    ),
    right(
        "multi_head_attention",
        "fused_projection",
        MHA_HEAD
        + """
    if memory is x:
        q, k, v = (x @ torch.cat([Wq, Wk, Wv], dim=1)).chunk(3, dim=-1)
    else:
        q, (k, v) = x @ Wq, (memory @ torch.cat([Wk, Wv], dim=1)).chunk(2, dim=-1)
    q, k, v = (t.view(B, -1, n_heads, d_k).transpose(1, 2) for t in (q, k, v))
    return attention(q, k, v, mask).transpose(1, 2).contiguous().view(B, T_q, d_model) @ Wo
""",
    ),
    right(
        "multi_head_attention",
        "additive_mask",
        MHA_HEAD
        + """
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (memory, Wk), (memory, Wv)))
    scores = q @ k.mT / math.sqrt(d_k)
    if mask is not None:
        empty = ~mask.any(dim=-1, keepdim=True)
        bias = torch.zeros(mask.shape, dtype=x.dtype, device=x.device).masked_fill(~(mask | empty), float("-inf"))
        return merge_heads(((scores + bias).softmax(-1) @ v).masked_fill(empty, 0.0)) @ Wo
    return merge_heads(scores.softmax(-1) @ v) @ Wo
""",
    ),
    right(
        "multi_head_attention",
        "heads_in_the_batch_and_float64_inside",
        MHA_HEAD
        + """
    def fold(t, W):
        return (t.double() @ W.double()).reshape(B, -1, n_heads, d_k).transpose(1, 2).reshape(B * n_heads, -1, d_k)

    q, k, v = fold(x, Wq), fold(memory, Wk), fold(memory, Wv)
    scores = torch.bmm(q, k.transpose(1, 2)) / d_k**0.5
    if mask is not None:
        seen = mask.expand(B, n_heads, T_q, T_k).reshape(B * n_heads, T_q, T_k)
        powers = (scores - scores.masked_fill(~seen, -1e30).amax(-1, keepdim=True).detach()).masked_fill(~seen, -1e30).exp() * seen
        weights = powers / powers.sum(-1, keepdim=True).clamp(min=1e-300)
    else:
        weights = scores.softmax(-1)
    heads = torch.bmm(weights, v).reshape(B, n_heads, T_q, d_k).transpose(1, 2).reshape(B, T_q, d_model)
    return (heads @ Wo.double()).to(x.dtype)
""",
    ),
]

# ---------------------------------------------------------------------------------------------------- MultiHeadAttention

MOD_Q = "q = split_heads(self.W_q(x), self.n_heads)  # (B, H, T_q, d_k)"
MOD_K = "k = split_heads(self.W_k(memory), self.n_heads)  # (B, H, T_k, d_k)"
MOD_V = "v = split_heads(self.W_v(memory), self.n_heads)  # (B, H, T_k, d_k)"
MOD_HEADS = "heads = attention(q, k, v, mask)  # (B, H, T_q, d_k)"
MOD_RETURN = "return self.W_o(merge_heads(heads))  # (B, T_q, d_model)"
MOD_MEMORY = "if memory is None:\n            memory = x"
MOD_TEST = "if d_model % n_heads:"
MAKE_Q = "self.W_q = nn.Linear(d_model, d_model, bias=bias)"
MAKE_K = "self.W_k = nn.Linear(d_model, d_model, bias=bias)"
MAKE_V = "self.W_v = nn.Linear(d_model, d_model, bias=bias)"
MAKE_O = "self.W_o = nn.Linear(d_model, d_model, bias=bias)"


def module(name: str, change: str | Mapping[str, str], slip: str) -> Mutant:
    return wrong("MultiHeadAttention", name, change, slip)


MODULE = [
    module(
        "mask_ignored",
        {MOD_HEADS: "heads = attention(q, k, v)"},
        "The mask is accepted but not passed on. Hand it to the attention.",
    ),
    module(
        "mask_inverted",
        {MOD_HEADS: "heads = attention(q, k, v, None if mask is None else ~mask)"},
        "The mask is inverted, as nn.MultiheadAttention wants it. Here True means that the query may see the key.",
    ),
    module(
        "mask_of_self_attention_only",
        {MOD_HEADS: "heads = attention(q, k, v, mask if memory is x else None)"},
        "With a memory the mask is dropped. It counts there as well.",
    ),
    module(
        "mask_gets_an_axis",
        {MOD_HEADS: "heads = attention(q, k, v, mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask)"},
        "A mask with three axes gets one more, which takes its heads for sequences. Leave the mask to broadcasting.",
    ),
    module(
        "mask_before_memory",
        {
            '        memory: Float[Tensor, "B T_k d_model"] | None = None,\n        mask: Bool[Tensor, "..."] | None = None,\n': "        mask=None,\n        memory=None,\n"
        },
        "forward takes the mask before the memory. The order is forward(x, memory, mask).",
    ),
    module(
        "memory_ignored",
        {MOD_MEMORY: "memory = x"},
        "memory is never used. Keys and values come from it when it is given.",
    ),
    module(
        "values_from_x",
        {MOD_V: "v = split_heads(self.W_v(x if x.shape == memory.shape else memory), self.n_heads)"},
        "When memory has the shape of x, the values come from x. Keys and values both come from memory.",
    ),
    module(
        "queries_from_memory",
        {MOD_Q: "q = split_heads(self.W_q(memory if x.shape == memory.shape else x), self.n_heads)"},
        "When memory has the shape of x, the queries come from memory. They always come from x.",
    ),
    module(
        "memory_appended",
        {
            MOD_MEMORY: "memory = x if memory is None else torch.cat([memory, x], dim=1)\n        mask = mask if mask is None or mask.shape[-1] == memory.shape[1] else F.pad(mask, (0, memory.shape[1] - mask.shape[-1]))"
        },
        "Keys and values come from memory and x. With a memory they come from memory alone.",
    ),
    module(
        "keys_as_values",
        {MOD_V: "v = split_heads(self.W_k(memory), self.n_heads)"},
        "The values are made with W_k. They have a map of their own, W_v.",
    ),
    module(
        "queries_as_keys",
        {MOD_K: "k = split_heads(self.W_q(memory), self.n_heads)"},
        "The keys are made with W_q. They have a map of their own, W_k.",
    ),
    module(
        "one_map_for_queries_and_keys",
        {MAKE_K: "self.W_k = self.W_q"},
        "W_k is W_q itself: one map under two names. Each has its own weights.",
    ),
    module(
        "copies_of_one_start",
        {
            MAKE_K: "self.W_k = nn.Linear(d_model, d_model, bias=bias)\n        self.W_k.load_state_dict(self.W_q.state_dict())"
        },
        "W_k starts as a copy of W_q. Each map has a random start of its own.",
    ),
    module(
        "scaled_by_d_model",
        {MOD_HEADS: "heads = attention(q / self.n_heads**0.5, k, v, mask)"},
        "The scores are divided by sqrt(d_model). The width that counts is that of one head, d_k.",
    ),
    module(
        "scaled_twice",
        {MOD_HEADS: "heads = attention(q / q.shape[-1] ** 0.5, k, v, mask)"},
        "The scores are divided by sqrt(d_k) twice: the given `attention` does it already.",
    ),
    module(
        "not_scaled",
        {MOD_HEADS: "heads = attention(q * q.shape[-1] ** 0.5, k, v, mask)"},
        "The scores are not divided by sqrt(d_k).",
    ),
    module(
        "no_output_map",
        {MOD_RETURN: "return merge_heads(heads)"},
        "W_o is made but not used. The merged heads go through it.",
    ),
    module(
        "output_map_without_bias",
        {MAKE_O: "self.W_o = nn.Linear(d_model, d_model, bias=False)"},
        "W_o has no bias although bias=True. All four maps have one then.",
    ),
    module(
        "only_the_output_map_has_a_bias",
        {
            MAKE_Q: "self.W_q = nn.Linear(d_model, d_model, bias=False)",
            MAKE_K: "self.W_k = nn.Linear(d_model, d_model, bias=False)",
            MAKE_V: "self.W_v = nn.Linear(d_model, d_model, bias=False)",
        },
        "W_q, W_k and W_v have no bias although bias=True. All four maps have one then.",
    ),
    module(
        "always_a_bias",
        {MAKE_Q: "self.W_q = nn.Linear(d_model, d_model)", MAKE_O: "self.W_o = nn.Linear(d_model, d_model)"},
        "There are biases although bias=False. nn.Linear has one unless it is told otherwise: bias=bias.",
    ),
    module(
        "biases_by_default",
        {"bias: bool = False": "bias: bool = True"},
        "bias is True by default. The default is False.",
    ),
    module(
        "bias_of_the_output_left_out_of_empty_rows",
        {
            MOD_RETURN: "out = self.W_o(merge_heads(heads))\n        if mask is not None:\n            seen = mask.broadcast_to(*q.shape[:-1], k.shape[-2]).any(-1).any(1)\n            out = out * seen.unsqueeze(-1)\n        return out"
        },
        "Queries that see nothing get zeros after W_o. The zeros belong before it: the bias of W_o is still added.",
    ),
    module(
        "merged_without_swap",
        {MOD_RETURN: "return self.W_o(heads.reshape(x.shape))"},
        "The heads are merged without swapping heads and positions back, so a row is made of several positions.",
    ),
    module(
        "split_without_swap",
        {
            MOD_Q: "q = self.W_q(x).reshape(x.shape[0], self.n_heads, x.shape[1], -1)",
            MOD_K: "k = self.W_k(memory).reshape(x.shape[0], self.n_heads, memory.shape[1], -1)",
            MOD_V: "v = self.W_v(memory).reshape(x.shape[0], self.n_heads, memory.shape[1], -1)",
        },
        "The split is one reshape to (B, H, T, d_k), which mixes positions. Cut the last axis, then swap.",
    ),
    module(
        "one_head_always",
        {"self.n_heads = n_heads": "self.n_heads = 1"},
        "n_heads is not kept: one wide head does everything.",
    ),
    module(
        "weights_used_without_transpose",
        {MOD_Q: "q = split_heads(x @ self.W_q.weight + (0 if self.W_q.bias is None else self.W_q.bias), self.n_heads)"},
        "nn.Linear stores its weight as (outputs, inputs): x @ weight.T. Calling the layer does it for you.",
    ),
    module(
        "biases_forgotten",
        {
            MOD_K: "k = split_heads(memory @ self.W_k.weight.T, self.n_heads)",
            MOD_V: "v = split_heads(memory @ self.W_v.weight.T, self.n_heads)",
        },
        "The biases of W_k and W_v are not added. Calling the layer does it for you.",
    ),
    module(
        "a_layer_for_each_head_width",
        {
            MAKE_Q: "self.W_q = nn.Linear(d_model, d_model // n_heads, bias=bias)",
            MAKE_K: "self.W_k = nn.Linear(d_model, d_model // n_heads, bias=bias)",
            MOD_Q: "q = split_heads(self.W_q(x).repeat(1, 1, self.n_heads), self.n_heads)",
            MOD_K: "k = split_heads(self.W_k(memory).repeat(1, 1, self.n_heads), self.n_heads)",
        },
        "W_q and W_k are as wide as one head, so all heads share them. They map d_model to d_model: n_heads times d_k.",
    ),
    module(
        "full_width_for_every_head",
        """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=False):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}")
        self.n_heads = n_heads
        for name in ("W_q", "W_k", "W_v"):
            setattr(self, name, nn.Linear(d_model, n_heads * d_model, bias=bias))
        self.W_o = nn.Linear(n_heads * d_model, d_model, bias=bias)

    def forward(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        q, k, v = (split_heads(f(t), self.n_heads) for f, t in ((self.W_q, x), (self.W_k, memory), (self.W_v, memory)))
        return self.W_o(merge_heads(attention(q, k, v, mask)))
""",
        "Every head has the full width, so the parameters grow with n_heads. A head has d_model / n_heads features.",
    ),
    module(
        "one_extra_map",
        {
            MAKE_O: "self.W_o = nn.Linear(d_model, d_model, bias=bias)\n        self.gate = nn.Linear(d_model, d_model, bias=False)"
        },
        "There is a parameter too many. The four maps are all.",
    ),
    module(
        "names_of_its_own",
        """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=False):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}")
        self.n_heads, self.qkv, self.out = n_heads, nn.Linear(d_model, 3 * d_model, bias), nn.Linear(d_model, d_model, bias)

    def forward(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        q, k, v = self.qkv(x).chunk(3, -1)[0], *self.qkv(memory).chunk(3, -1)[1:]
        return self.out(merge_heads(attention(*(split_heads(t, self.n_heads) for t in (q, k, v)), mask)))
""",
        "The maps have other names. They are called W_q, W_k, W_v and W_o, so that weights can be loaded by name.",
    ),
    module(
        "plain_lists",
        {
            MAKE_O: "self.W_o = nn.Linear(d_model, d_model, bias=bias)\n        self.maps = [self.W_q, self.W_k]\n        del self.W_q, self.W_k",
            MOD_Q: "q = split_heads(self.maps[0](x), self.n_heads)",
            MOD_K: "k = split_heads(self.maps[1](memory), self.n_heads)",
        },
        "Maps in a plain Python list are not registered: no optimizer finds them. Make them attributes (or use nn.ModuleList).",
    ),
    module(
        "frozen",
        {MAKE_V: "self.W_v = nn.Linear(d_model, d_model, bias=bias).requires_grad_(False)"},
        "W_v is frozen: it does not require a gradient.",
    ),
    module(
        "zero_start",
        {MAKE_O: "self.W_o = nn.Linear(d_model, d_model, bias=bias)\n        nn.init.zeros_(self.W_o.weight)"},
        "W_o starts at zero. All maps keep PyTorch's default initialization.",
    ),
    module(
        "normal_start",
        {MAKE_Q: "self.W_q = nn.Linear(d_model, d_model, bias=bias)\n        nn.init.normal_(self.W_q.weight)"},
        "W_q has an initialization of its own. All maps keep PyTorch's default.",
    ),
    module(
        "seeded_start",
        {MAKE_Q: "torch.manual_seed(0)\n        self.W_q = nn.Linear(d_model, d_model, bias=bias)"},
        "The seed is set in the constructor, so all modules start equal. Leave seeding to the caller.",
    ),
    module(
        "no_test",
        {MOD_TEST: "if False:"},
        "The constructor does not test n_heads. Raise ValueError there, with both numbers.",
    ),
    module(
        "test_in_forward",
        {
            MOD_TEST: "if False:",
            MOD_Q: 'if x.shape[-1] % self.n_heads:\n            raise ValueError(f"{x.shape[-1]} {self.n_heads}")\n        q = split_heads(self.W_q(x), self.n_heads)',
        },
        "The sizes are tested in forward only. A wrong size should fail when the module is built.",
    ),
    module(
        "tests_the_wrong_way_round",
        {MOD_TEST: "if n_heads > d_model or d_model % 2 and n_heads == 2:"},
        "Not every head count that does not divide is refused. The test is d_model % n_heads.",
    ),
    module(
        "silent_message",
        {
            'ValueError(f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}")': 'ValueError("n_heads must divide d_model")'
        },
        "The message does not say which numbers it is about. Name d_model and n_heads in it.",
    ),
    module(
        "keeps_the_first_mask",
        {
            "self.n_heads = n_heads": "self.n_heads, self.mask = n_heads, None",
            MOD_HEADS: "if self.mask is None or mask is not None and self.mask.shape != mask.shape:\n            self.mask = mask\n        heads = attention(q, k, v, self.mask if self.mask is None or self.mask.shape[-2:] == (q.shape[-2], k.shape[-2]) else mask)",
        },
        "The first mask is kept and used again in later calls. No call may depend on an earlier one.",
    ),
    module(
        "keeps_the_memory",
        {
            "self.n_heads = n_heads": "self.n_heads, self.memory = n_heads, None",
            MOD_MEMORY: "if memory is not None:\n            self.memory = memory\n        memory = x if self.memory is None or len(self.memory) != len(x) else self.memory",
        },
        "The memory of an earlier call is used again. No call may depend on an earlier one.",
    ),
    module(
        "dropout_in_training",
        {MOD_RETURN: "return self.W_o(F.dropout(merge_heads(heads), 0.1, self.training))"},
        "There is dropout inside in training mode. This module has none.",
    ),
    module(
        "changes_the_mask",
        {
            MOD_HEADS: "mask = mask if mask is None else mask.logical_not_().logical_not()\n        heads = attention(q, k, v, mask)"
        },
        "The caller's mask is inverted in place. Use ~mask, which makes a new one.",
    ),
    module(
        "detached_queries",
        {MOD_Q: "q = split_heads(self.W_q(x).detach(), self.n_heads)"},
        "The queries are detached: the output is right, but W_q never learns.",
    ),
    module(
        "no_gradient_to_memory",
        {MOD_MEMORY: "memory = x if memory is None else memory.detach()"},
        "memory is detached, so no gradient reaches it.",
    ),
    module(
        "nan_for_empty_rows",
        {
            MOD_HEADS: 'scores = q @ k.mT / q.shape[-1] ** 0.5\n        if mask is not None:\n            scores = scores.masked_fill(~mask, float("-inf"))\n        heads = scores.softmax(-1) @ v'
        },
        "A query that sees no key gives nan: softmax of -inf only. Its head's output is zeros.",
    ),
    module(
        "uniform_empty_rows",
        {
            MOD_HEADS: "scores = q @ k.mT / q.shape[-1] ** 0.5\n        if mask is not None:\n            scores = scores.masked_fill(~mask, -1e9)\n        heads = scores.softmax(-1) @ v"
        },
        "A query that sees no key averages over all hidden ones. Its head's output is zeros.",
    ),
    module(
        "small_negative_fill",
        {
            MOD_HEADS: "scores = q @ k.mT / q.shape[-1] ** 0.5\n        if mask is not None:\n            scores = scores.masked_fill(~mask, -1e4)\n        weights = scores.softmax(-1)\n        heads = (weights if mask is None else weights * mask.any(-1, keepdim=True)) @ v"
        },
        "Hidden scores are set to -10000, which beats visible scores that lie lower. Use the smallest number of the dtype, or -inf.",
    ),
    module(
        "unstable_without_a_mask",
        {
            MOD_HEADS: "if mask is None:\n            powers = (q @ k.mT / q.shape[-1] ** 0.5).exp()\n            heads = powers / powers.sum(-1, keepdim=True) @ v\n        else:\n            heads = attention(q, k, v, mask)"
        },
        "exp of a large score overflows. Use the given attention, or torch.softmax, which subtracts the maximum.",
    ),
    module(
        "stale_fused_weights",
        {
            MAKE_O: "self.W_o = nn.Linear(d_model, d_model, bias=bias)\n        self.fused = [self.W_q.weight.detach().clone().double()]",
            MOD_Q: "q = self.W_q(x)\n        if not self.training:\n            q = x @ self.fused[0].to(x.dtype).T\n        q = split_heads(q, self.n_heads)",
        },
        "In eval mode a copy of the first weights is used, which later weights never reach.",
    ),
    module(
        "always_causal",
        {
            MOD_HEADS: "causal = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=x.device).tril()\n        heads = attention(q, k, v, causal if mask is None else mask & causal)"
        },
        "It is always causal. Only the mask that is handed over hides anything.",
    ),
    module(
        "residual_added",
        {MOD_RETURN: "return x + self.W_o(merge_heads(heads))"},
        "x is added to the output. The residual belongs to the block (lesson 07).",
    ),
    module(
        "returns_the_weights_too",
        {MOD_RETURN: "return self.W_o(merge_heads(heads)), None"},
        "A pair is returned, as nn.MultiheadAttention does. Return the output only.",
    ),
    module(
        "always_float64",
        {MOD_RETURN: "return self.W_o(merge_heads(heads)).double()"},
        "The output is always float64. It has the dtype of x.",
    ),
    module(
        "flat_view",
        {MOD_Q: "x = x.view(-1).view(x.shape)\n        q = split_heads(self.W_q(x), self.n_heads)"},
        "`view` needs contiguous memory and fails on a strided x.",
    ),
    module(
        "mask_of_more_dimensions_ignored_without_memory",
        {MOD_MEMORY: "if memory is None:\n            memory, mask = x, mask if mask is None or mask.dim() == 2 else None"},
        "Without memory, masks of three or four dimensions are ignored. They count as well.",
    ),
    module(
        "cuts_the_gradient_of_x_as_memory",
        {MOD_MEMORY: "memory = x.detach() if memory is None else memory"},
        "In self-attention keys and values are cut off from x: half of its gradient is missing.",
    ),
    module(
        "no_gradient_in_eval",
        {MOD_RETURN: "out = self.W_o(merge_heads(heads))\n        return out if self.training else out.detach()"},
        "In eval mode the output is detached. eval() is no torch.no_grad(): gradients flow in both modes.",
    ),
    module(
        "keeps_the_weights_of_the_keys",
        {
            MAKE_O: MAKE_O + "\n        self.kept = None",
            MOD_K: "if self.training or self.kept is None:\n            self.kept = self.W_k.weight.T.clone()\n        keys = memory @ self.kept\n        k = split_heads(keys if self.W_k.bias is None else keys + self.W_k.bias, self.n_heads)",
        },
        "In eval mode a copy of W_k's weight from an earlier call is used, which weights loaded since never reach.",
    ),
    module(
        "keeps_the_keys_of_the_same_memory",
        {
            MAKE_O: MAKE_O + "\n        self.kept = None",
            MOD_K: "if self.training or self.kept is None or not torch.equal(self.kept[0], memory):\n            self.kept = memory.clone(), self.W_k(memory), self.W_v(memory)\n        k = split_heads(self.kept[1], self.n_heads)",
            MOD_V: "v = split_heads(self.kept[2], self.n_heads)",
        },
        "In eval mode keys and values are kept as long as memory stays the same, although the weights may have changed.",
    ),
    module(
        "heads_of_the_last_module",
        {"self.n_heads = n_heads": "MultiHeadAttention.n_heads = n_heads"},
        "n_heads is kept in the class, so that the last module made decides for all. Keep it in self.",
    ),
    module(
        "small_uniform_start",
        {MAKE_O: MAKE_O + "\n        for parameter in self.parameters():\n            nn.init.uniform_(parameter, -0.1, 0.1)"},
        "All parameters start between -0.1 and 0.1, whatever the width. All maps keep PyTorch's default initialization.",
    ),
    module(
        "scaled_start",
        {MAKE_O: MAKE_O + "\n        with torch.no_grad():\n            self.W_o.weight.mul_(2**-0.5)"},
        "W_o starts smaller than it should, as the ends of the branches in GPT-2 do. All maps keep PyTorch's default initialization.",
    ),
    module(
        "registered_twice",
        {MAKE_O: MAKE_O + "\n        self.maps = nn.ModuleList([self.W_q, self.W_k, self.W_v, self.W_o])"},
        "The maps are registered a second time in a ModuleList, so state_dict() holds each weight under two names.",
    ),
    module(
        "saves_a_buffer",
        {
            "self.n_heads = n_heads": 'self.n_heads = n_heads\n        self.register_buffer("scale", torch.tensor((d_model // n_heads) ** -0.5))'
        },
        "A buffer is saved beside the weights, so state_dict() has a key too many. Compute the number, or say persistent=False.",
    ),
    module(
        "vanishing_denominator",
        {
            MOD_HEADS: "scores = q @ k.mT / q.shape[-1] ** 0.5\n        if mask is None:\n            mask = torch.ones((), dtype=torch.bool)\n        scores = scores.masked_fill(~mask, -1e30)\n        powers = (scores - scores.amax(-1, keepdim=True)).exp() * mask\n        heads = powers / (powers.sum(-1, keepdim=True) + 1e-100) @ v"
        },
        "1e-100 is 0 in float32, and a row that sees nothing becomes 0/0 = nan. Set the weights of hidden keys to 0 after the softmax.",
    ),
    module(
        "float32_root",
        {
            MOD_HEADS: "scores = q @ k.mT / torch.sqrt(torch.tensor(q.shape[-1]))\n        if mask is None:\n            mask = torch.ones((), dtype=torch.bool)\n        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)\n        heads = weights.masked_fill(~mask, 0.0) @ v"
        },
        "torch.sqrt(torch.tensor(d_k)) is a float32 number and costs float64 inputs half their digits. Use math.sqrt(d_k).",
    ),
    right("MultiHeadAttention", "sdpa", {MOD_HEADS: "heads = F.scaled_dot_product_attention(q, k, v, mask)"}),
    right(
        "MultiHeadAttention",
        "keeps_the_heads_to_look_at",
        {MOD_HEADS: "self.heads = heads = attention(q, k, v, mask)"},
    ),
    right(
        "MultiHeadAttention",
        "through_the_function",
        """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=False):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError(f"n_heads ({n_heads}) must divide d_model ({d_model})")
        self.h = n_heads
        self.W_o, self.W_v, self.W_k, self.W_q = (nn.Linear(d_model, d_model, bias) for _ in range(4))

    def forward(self, x, memory=None, mask=None):
        if self.W_q.bias is None:
            matrices = (m.weight.T for m in (self.W_q, self.W_k, self.W_v, self.W_o))
            return multi_head_attention(x, *matrices, self.h, mask, memory)
        source = memory if memory is not None else x
        q, k, v = (split_heads(t, self.h) for t in (self.W_q(x), self.W_k(source), self.W_v(source)))
        return self.W_o(merge_heads(attention(q, k, v, mask)))
""",
    ),
    right(
        "MultiHeadAttention",
        "fused_when_called",
        """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=False):
        if d_model % n_heads:
            raise ValueError(f"{d_model} features cannot be shared by {n_heads} heads")
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            self.add_module(name, nn.Linear(d_model, d_model, bias=bias))
        self.softmax, self.dropout = nn.Softmax(dim=-1), nn.Dropout(0.0)

    def forward(self, x, memory=None, mask=None):
        B, T, d = x.shape
        if memory is None:
            weight = torch.cat([self.W_q.weight, self.W_k.weight, self.W_v.weight])
            bias = None if self.W_q.bias is None else torch.cat([self.W_q.bias, self.W_k.bias, self.W_v.bias])
            q, k, v = F.linear(x, weight, bias).view(B, T, 3, self.n_heads, self.d_k).permute(2, 0, 3, 1, 4)
        else:
            q, k, v = (
                f(t).view(B, -1, self.n_heads, self.d_k).transpose(1, 2)
                for f, t in ((self.W_q, x), (self.W_k, memory), (self.W_v, memory))
            )
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = self.dropout(self.softmax(scores))
        if mask is not None:
            weights = weights * mask
        return self.W_o(torch.matmul(weights, v).transpose(1, 2).contiguous().view(B, T, d))
""",
    ),
    right(
        "MultiHeadAttention",
        "loop_over_heads_summed",
        """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=False):
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // max(n_heads, 1)
        if self.n_heads * self.d_k != d_model:
            raise ValueError(f"d_model={d_model}, n_heads={n_heads}: {n_heads} times {self.d_k} is not {d_model}")
        self.W_q, self.W_k = nn.Linear(d_model, d_model, bias=bias), nn.Linear(d_model, d_model, bias=bias)
        self.W_v, self.W_o = nn.Linear(d_model, d_model, bias=bias), nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x, memory=None, mask=None):
        m = x if memory is None else memory
        q, k, v = self.W_q(x), self.W_k(m), self.W_v(m)
        if mask is not None:
            mask = mask.broadcast_to(x.shape[0], self.n_heads, x.shape[1], m.shape[1])
        out = 0 if self.W_o.bias is None else self.W_o.bias
        for h in range(self.n_heads):
            s = slice(h * self.d_k, (h + 1) * self.d_k)
            head = attention(q[..., s], k[..., s], v[..., s], None if mask is None else mask[:, h])
            out = out + head @ self.W_o.weight[:, s].T
        return out
""",
    ),
    right(
        "MultiHeadAttention",
        "own_linear_and_einsum",
        """
class Map(nn.Module):
    def __init__(self, n, bias):
        super().__init__()
        start = nn.Linear(n, n, bias)
        self.weight = nn.Parameter(start.weight.detach().clone())
        self.register_parameter("bias", nn.Parameter(start.bias.detach().clone()) if bias else None)

    def forward(self, x):
        out = torch.einsum("btd,ed->bte", x, self.weight)
        return out if self.bias is None else out + self.bias


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=False):
        super().__init__()
        if d_model % n_heads > 0:
            raise ValueError("cannot cut %d into %d" % (d_model, n_heads))
        self.n_heads = n_heads
        self.W_q, self.W_k, self.W_v, self.W_o = Map(d_model, bias), Map(d_model, bias), Map(d_model, bias), Map(d_model, bias)
        self.register_buffer("scale", torch.tensor((d_model // n_heads) ** -0.5, dtype=torch.float64), persistent=False)

    def forward(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        q = self.W_q(x).unflatten(2, (self.n_heads, -1))
        k = self.W_k(memory).unflatten(2, (self.n_heads, -1))
        v = self.W_v(memory).unflatten(2, (self.n_heads, -1))
        scores = torch.einsum("bqhk,bshk->bhqs", q, k) / q.shape[-1] ** 0.5
        if mask is None:
            weights = scores.softmax(-1)
        else:
            empty = ~mask.any(-1, keepdim=True)
            weights = scores.masked_fill(~(mask | empty), float("-inf")).softmax(-1).masked_fill(empty, 0.0)
        return self.W_o(torch.einsum("bhqs,bshk->bqhk", weights, v).flatten(2))
""",
    ),
]

# ---------------------------------------------------------------------------------------------------- attention_parameter_count

COUNT_MAPS = "maps = [(d_model, d_model), (d_model, d_kv), (d_model, d_kv), (d_model, d_model)]"
COUNT_SUM = "return sum(n_in * n_out + (n_out if bias else 0) for n_in, n_out in maps)"
COUNT_KV = "d_kv = n_kv_heads * (d_model // n_heads)"


def count(name: str, change: str | Mapping[str, str], slip: str) -> Mutant:
    return wrong("attention_parameter_count", name, change, slip)


COUNT = [
    count(
        "no_output_map",
        {COUNT_MAPS: "maps = [(d_model, d_model), (d_model, d_kv), (d_model, d_kv)]"},
        "The output map is missing. There are four maps.",
    ),
    count(
        "kv_heads_ignored",
        {COUNT_KV: "d_kv = d_model"},
        "n_kv_heads is not used: keys and values are counted at full width.",
    ),
    count(
        "only_keys_are_shared",
        {COUNT_MAPS: "maps = [(d_model, d_model), (d_model, d_kv), (d_model, d_model), (d_model, d_model)]"},
        "The values are counted at full width. n_kv_heads narrows keys and values.",
    ),
    count(
        "queries_are_shared_too",
        {COUNT_MAPS: "maps = [(d_model, d_kv), (d_model, d_kv), (d_model, d_kv), (d_kv, d_model)]"},
        "Queries and output are narrowed as well. Only keys and values have n_kv_heads heads.",
    ),
    count(
        "grows_with_the_heads",
        {COUNT_SUM: "return n_heads * sum(n_in * n_out + (n_out if bias else 0) for n_in, n_out in maps)"},
        "The count is multiplied by the number of heads. A head has the width d_model / n_heads, so it cancels.",
    ),
    count(
        "shrinks_with_the_heads",
        {COUNT_SUM: "return sum(n_in * n_out + (n_out if bias else 0) for n_in, n_out in maps) // n_heads"},
        "One head is counted. There are n_heads of them.",
    ),
    count(
        "one_key_head_too_narrow",
        {COUNT_KV: "d_kv = d_model // n_kv_heads"},
        "Keys and values are d_model / n_kv_heads wide. They are n_kv_heads times d_k wide.",
    ),
    count(
        "groups_for_heads",
        {COUNT_KV: "d_kv = (n_heads // n_kv_heads) * (d_model // n_heads)"},
        "The size of a group is taken for the number of key and value heads.",
    ),
    count(
        "width_of_a_kv_head_from_kv_heads",
        {COUNT_KV: "d_kv = d_model // n_heads"},
        "Keys and values are counted for one head. There are n_kv_heads of them.",
    ),
    count(
        "bias_ignored",
        {COUNT_SUM: "return sum(n_in * n_out for n_in, n_out in maps)"},
        "The biases are never counted.",
    ),
    count(
        "bias_by_default",
        {"bias: bool = False": "bias: bool = True"},
        "bias is True by default. The default is False.",
    ),
    count(
        "bias_as_long_as_the_input",
        {COUNT_SUM: "return sum(n_in * n_out + (n_in if bias else 0) for n_in, n_out in maps)"},
        "A bias is counted as long as the input of its map. It is as long as the output.",
    ),
    count(
        "four_biases_of_full_width",
        {COUNT_SUM: "return sum(n_in * n_out for n_in, n_out in maps) + (4 * d_model if bias else 0)"},
        "All four biases are counted with d_model numbers. Those of keys and values are narrower with n_kv_heads.",
    ),
    count(
        "no_bias_at_the_output",
        {
            COUNT_SUM: "return sum(n_in * n_out + (n_out if bias else 0) for n_in, n_out in maps) - (d_model if bias else 0)"
        },
        "The bias of the output map is missing. All four maps have one.",
    ),
    count(
        "one_bias_a_map",
        {COUNT_SUM: "return sum(n_in * n_out + (1 if bias else 0) for n_in, n_out in maps)"},
        "A bias is counted as one number. It has one for each output.",
    ),
    count(
        "multi_query_by_default",
        {"n_kv_heads = n_heads": "n_kv_heads = 1"},
        "Without n_kv_heads one key and value head is counted. None means n_heads.",
    ),
    count(
        "a_float",
        {COUNT_KV: "d_kv = n_kv_heads * d_model / n_heads"},
        "The result is a float. A count is an int: divide with //.",
    ),
    count(
        "no_test_of_heads",
        {"if d_model % n_heads:": "if False:"},
        "A head count that does not divide d_model is not refused. Raise ValueError with both numbers.",
    ),
    count(
        "no_test_of_kv_heads",
        {"if n_heads % n_kv_heads:": "if False:"},
        "An n_kv_heads that does not divide n_heads is not refused. Raise ValueError with both numbers.",
    ),
    count(
        "kv_heads_may_exceed_heads",
        {"if n_heads % n_kv_heads:": "if n_heads % n_kv_heads and n_kv_heads % n_heads:"},
        "More key and value heads than query heads are let through. n_kv_heads must divide n_heads.",
    ),
    count(
        "kv_heads_tested_against_d_model",
        {"if n_heads % n_kv_heads:": "if d_model % n_kv_heads:"},
        "n_kv_heads is tested against d_model. It must divide n_heads.",
    ),
    count(
        "names_the_wrong_number",
        {
            'f"n_heads={n_heads} does not divide into n_kv_heads={n_kv_heads} groups"': 'f"d_model={d_model} does not fit n_kv_heads={n_kv_heads}"'
        },
        "The message does not name n_heads. Name the two numbers that do not fit.",
    ),
    count(
        "zero_kv_heads_for_none",
        {"if n_kv_heads is None:\n        n_kv_heads = n_heads": "n_kv_heads = n_kv_heads or d_model"},
        "Without n_kv_heads it uses d_model. None means n_heads.",
    ),
    count(
        "rounded_fraction_of_the_width",
        {COUNT_KV: "d_kv = int(d_model * (n_kv_heads / n_heads))"},
        "A fraction in floating point is rounded down: int(49 * (1 / 49)) is 0. Stay with integers: n_kv_heads * (d_model // n_heads).",
    ),
    count(
        "rounded_fraction_of_the_count",
        {
            COUNT_SUM: "outputs = 2 * d_model * (1 + n_kv_heads / n_heads)\n    return int(outputs * d_model) + (int(outputs) if bias else 0)"
        },
        "The count is made with a fraction in floating point and rounded down, so it can be one too small. Stay with integers.",
    ),
    count(
        "a_tensor",
        {COUNT_SUM: "return torch.tensor(sum(n_in * n_out + (n_out if bias else 0) for n_in, n_out in maps))"},
        "The result is a tensor. A count is an int.",
    ),
    right(
        "attention_parameter_count",
        "closed_formula",
        """
def attention_parameter_count(d_model, n_heads, n_kv_heads=None, bias=False):
    kv = n_heads if n_kv_heads is None else n_kv_heads
    for big, small in ((d_model, n_heads), (n_heads, kv)):
        if big % small:
            raise ValueError(f"{small} is no divisor of {big}")
    d_kv = kv * d_model // n_heads
    return 2 * d_model**2 + 2 * d_model * d_kv + int(bias) * (2 * d_model + 2 * d_kv)
""",
    ),
    right(
        "attention_parameter_count",
        "counts_linears",
        """
def attention_parameter_count(d_model, n_heads, n_kv_heads=None, bias=False):
    n_kv_heads = n_kv_heads or n_heads
    d_k, rest = divmod(d_model, n_heads)
    if rest:
        raise ValueError(f"{d_model} features, {n_heads} heads")
    if n_heads % n_kv_heads != 0:
        raise ValueError(f"{n_heads} heads, {n_kv_heads} key and value heads")
    with torch.device("meta"):
        maps = [nn.Linear(d_model, n * d_k, bias=bias) for n in (n_heads, n_kv_heads, n_kv_heads)]
        maps.append(nn.Linear(n_heads * d_k, d_model, bias=bias))
    return sum(p.numel() for m in maps for p in m.parameters())
""",
    ),
    right(
        "attention_parameter_count",
        "head_by_head",
        """
def attention_parameter_count(d_model, n_heads, n_kv_heads=None, bias=False):
    if n_kv_heads is None:
        n_kv_heads = n_heads
    if d_model % n_heads != 0:
        raise ValueError("d_model %d, n_heads %d" % (d_model, n_heads))
    if n_heads % n_kv_heads != 0:
        raise ValueError("n_heads %d, n_kv_heads %d" % (n_heads, n_kv_heads))
    d_k, total = d_model // n_heads, 0
    inputs = d_model + 1 if bias else d_model
    for _ in range(n_heads):
        total += inputs * d_k + d_k * d_model
    for _ in range(n_kv_heads):
        total += 2 * inputs * d_k
    return total + d_model * bias
""",
    ),
    right(
        "attention_parameter_count",
        "fraction_of_the_full_count",
        """
def attention_parameter_count(d_model, n_heads, n_kv_heads=None, bias=False):
    groups = 1 if n_kv_heads is None else n_heads // n_kv_heads
    if d_model % n_heads or (n_kv_heads is not None and n_heads % n_kv_heads):
        raise ValueError(f"d_model={d_model}, n_heads={n_heads}, n_kv_heads={n_kv_heads}: one does not divide the other")
    outputs = 2 * d_model + 2 * (d_model // groups)
    return outputs * d_model + outputs if bias else outputs * d_model
""",
    ),
]

# ---------------------------------------------------------------------------------------------------- ablate_head

KEPT = "kept[head * d_k : (head + 1) * d_k] = 0.0"
ABLATE_RETURN = "return multi_head_attention(x, Wq, Wk, Wv, kept, n_heads, mask, memory)"
ABLATE_TEST = "if not 0 <= head < n_heads:"
CLONE = "kept = Wo.clone()"


def ablation(name: str, change: str | Mapping[str, str], slip: str) -> Mutant:
    return wrong("ablate_head", name, change, slip)


ABLATE_HEAD = """
def ablate_head(x, Wq, Wk, Wv, Wo, n_heads, head, mask=None, memory=None):
    if head < 0 or head >= n_heads:
        raise ValueError(f"head={head}, n_heads={n_heads}")
    if x.shape[-1] % n_heads:
        raise ValueError(f"d_model={x.shape[-1]}, n_heads={n_heads}")
    d_k = x.shape[-1] // n_heads
    own = slice(head * d_k, (head + 1) * d_k)
"""

ABLATION = [
    ablation(
        "columns_of_wo",
        {KEPT: "kept[:, head * d_k : (head + 1) * d_k] = 0.0"},
        "Columns of Wo are set to zero: these are features of the output. Head h is multiplied by the rows from h * d_k on.",
    ),
    ablation(
        "zero_queries",
        ABLATE_HEAD
        + """
    Wq = Wq.clone()
    Wq[:, own] = 0.0
    return multi_head_attention(x, Wq, Wk, Wv, Wo, n_heads, mask, memory)
""",
        "Zero queries give equal scores, so the head goes on to add the mean of its values. Remove its output.",
    ),
    ablation(
        "zero_keys",
        ABLATE_HEAD
        + """
    Wk = Wk.clone()
    Wk[:, own] = 0.0
    return multi_head_attention(x, Wq, Wk, Wv, Wo, n_heads, mask, memory)
""",
        "Zero keys give equal scores, so the head goes on to add the mean of its values. Remove its output.",
    ),
    ablation(
        "rows_of_wv",
        ABLATE_HEAD
        + """
    Wv = Wv.clone()
    Wv[own] = 0.0
    return multi_head_attention(x, Wq, Wk, Wv, Wo, n_heads, mask, memory)
""",
        "Rows of Wv are inputs, which all heads share. Head h owns the columns of Wv.",
    ),
    ablation(
        "only_this_head",
        {KEPT: "kept[: head * d_k] = 0.0\n    kept[(head + 1) * d_k :] = 0.0"},
        "All other heads are removed. Remove this one, keep the others.",
    ),
    ablation(
        "first_head_always",
        {KEPT: "kept[:d_k] = 0.0"},
        "Head 0 is removed whatever `head` says.",
    ),
    ablation(
        "counted_from_one",
        {KEPT: "kept[max(head - 1, 0) * d_k : max(head, 1) * d_k] = 0.0"},
        "The heads are counted from 1. Head 0 is the first.",
    ),
    ablation(
        "one_row_only",
        {KEPT: "kept[head] = 0.0"},
        "One row of Wo is removed. A head has d_k of them.",
    ),
    ablation(
        "interleaved_rows",
        {KEPT: "kept[head::n_heads] = 0.0"},
        "Every n_heads-th row is removed. Head h owns d_k neighboring rows, from h * d_k on.",
    ),
    ablation(
        "and_all_after_it",
        {KEPT: "kept[head * d_k :] = 0.0"},
        "The heads after this one are removed as well.",
    ),
    ablation(
        "changes_wo",
        {CLONE: "kept = Wo.detach()"},
        "It writes into the caller's Wo. Work on a clone.",
    ),
    ablation(
        "changes_wo_through_data",
        {CLONE: "kept = Wo.view(Wo.shape) if not Wo.requires_grad else Wo.clone()"},
        "A view shares the memory of Wo, so the caller's matrix is changed. Work on a clone.",
    ),
    ablation(
        "restored_afterward",
        {
            CLONE: "kept = Wo.clone()",
            ABLATE_RETURN: "full = multi_head_attention(x, Wq, Wk, Wv, Wo, n_heads, mask, memory)\n    return full.detach() - (full - multi_head_attention(x, Wq, Wk, Wv, kept, n_heads, mask, memory)).detach()",
        },
        "The output is detached: no gradient flows.",
    ),
    ablation(
        "scaled_up",
        {
            ABLATE_RETURN: "return multi_head_attention(x, Wq, Wk, Wv, kept, n_heads, mask, memory) * n_heads / max(n_heads - 1, 1)"
        },
        "The rest is scaled up to make good for the loss. Nothing is scaled.",
    ),
    ablation(
        "the_contribution_itself",
        {ABLATE_RETURN: "return multi_head_attention(x, Wq, Wk, Wv, Wo - kept, n_heads, mask, memory)"},
        "What the head contributes is returned. What the others contribute is asked for.",
    ),
    ablation(
        "replaced_by_the_mean",
        ABLATE_HEAD
        + """
    m = x if memory is None else memory
    heads = attention(*(split_heads(t @ W, n_heads) for t, W in ((x, Wq), (m, Wk), (m, Wv))), mask)
    mean = heads[:, head].mean(dim=(0, 1), keepdim=True).expand_as(heads[:, head])
    heads = torch.cat([heads[:, :head], mean.unsqueeze(1), heads[:, head + 1 :]], dim=1)
    return merge_heads(heads) @ Wo
""",
        "The head's output is replaced by its mean. Here it is replaced by zeros.",
    ),
    ablation(
        "weights_zero_but_normalized",
        ABLATE_HEAD
        + """
    m = x if memory is None else memory
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (m, Wk), (m, Wv)))
    off = torch.zeros(n_heads, 1, 1, dtype=torch.bool)
    off[head] = True
    scores = (q @ k.mT / d_k**0.5).masked_fill(off, -1e9)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return merge_heads(weights @ v) @ Wo
""",
        "All scores of the head are set to -1e9: equal scores, so softmax makes them uniform. Set the head's output to zero.",
    ),
    ablation(
        "swapped_for_the_next",
        ABLATE_HEAD
        + """
    m = x if memory is None else memory
    heads = attention(*(split_heads(t @ W, n_heads) for t, W in ((x, Wq), (m, Wk), (m, Wv))), mask)
    rest = torch.cat([heads[:, :head], heads[:, head + 1 :], torch.zeros_like(heads[:, :1])], dim=1)
    return merge_heads(rest) @ Wo
""",
        "The heads after the removed one move up by one and meet the wrong rows of Wo. Each keeps its place.",
    ),
    ablation(
        "contribution_detached",
        ABLATE_HEAD
        + """
    only = torch.zeros_like(Wo)
    only[own] = Wo[own].detach()
    full = multi_head_attention(x, Wq, Wk, Wv, Wo, n_heads, mask, memory)
    return full - multi_head_attention(x, Wq, Wk, Wv, only, n_heads, mask, memory).detach()
""",
        "The contribution is subtracted as a constant: the removed head still gets gradients.",
    ),
    ablation(
        "contribution_without_the_mask",
        ABLATE_HEAD
        + """
    only = torch.zeros_like(Wo)
    only[own] = Wo[own]
    full = multi_head_attention(x, Wq, Wk, Wv, Wo, n_heads, mask, memory)
    return full - multi_head_attention(x, Wq, Wk, Wv, only, n_heads, memory=memory)
""",
        "What is subtracted was computed without the mask. Pass mask and memory to both calls.",
    ),
    ablation(
        "not_projected",
        ABLATE_HEAD
        + """
    m = x if memory is None else memory
    heads = attention(*(split_heads(t @ W, n_heads) for t, W in ((x, Wq), (m, Wk), (m, Wv))), mask)
    return merge_heads(torch.cat([heads[:, :head], heads[:, head + 1 :]], dim=1))
""",
        "The other heads are returned side by side, without Wo. Each is multiplied by its rows of Wo, and the results add up.",
    ),
    ablation(
        "mask_ignored",
        {ABLATE_RETURN: "return multi_head_attention(x, Wq, Wk, Wv, kept, n_heads, memory=memory)"},
        "The mask is not passed on.",
    ),
    ablation(
        "memory_ignored",
        {
            ABLATE_RETURN: "return multi_head_attention(x, Wq, Wk, Wv, kept, n_heads, mask if memory is None else mask[..., : x.shape[1]] if mask is not None else None)"
        },
        "memory is not passed on.",
    ),
    ablation(
        "nothing_is_removed",
        {KEPT: "kept[head * d_k : (head + 1) * d_k].zero_"},
        "`zero_` is not called, so nothing is removed: parentheses are missing.",
    ),
    ablation(
        "no_test_of_the_head",
        {ABLATE_TEST: "if False:"},
        "A head that does not exist removes nothing, silently. Raise ValueError that names head and n_heads.",
    ),
    ablation(
        "counts_from_the_back",
        {ABLATE_TEST: "head = head + n_heads if head < 0 else head\n    if not 0 <= head < n_heads:"},
        "Negative heads count from the back. They raise ValueError.",
    ),
    ablation(
        "one_head_too_many",
        {ABLATE_TEST: "if not 0 <= head <= n_heads:"},
        "head = n_heads is let through. The last head is n_heads - 1.",
    ),
    ablation(
        "index_error",
        {"raise ValueError": "raise IndexError"},
        "It raises IndexError. The docstring says ValueError.",
    ),
    ablation(
        "message_without_the_count",
        {
            'f"head={head} does not exist: with n_heads={n_heads} the heads are 0 to {n_heads - 1}"': 'f"there is no head {head}"'
        },
        "The message does not name n_heads.",
    ),
    ablation(
        "width_not_tested",
        ABLATE_HEAD.replace("if x.shape[-1] % n_heads", "if False")
        + """
    m = x if memory is None else memory
    out = torch.zeros_like(x)
    masks = None if mask is None else mask.broadcast_to(x.shape[0], n_heads, x.shape[1], m.shape[1])
    for h in range(n_heads):
        if h != head:
            s = slice(h * d_k, (h + 1) * d_k)
            out = out + attention(x @ Wq[:, s], m @ Wk[:, s], m @ Wv[:, s], None if masks is None else masks[:, h]) @ Wo[s]
    return out
""",
        "A head count that does not divide drops the last features silently. Raise ValueError with both numbers.",
    ),
    ablation(
        "detached_wo",
        {CLONE: "kept = Wo.detach().clone()"},
        "Wo is detached, so no gradient reaches it.",
    ),
    ablation(
        "always_float64",
        {ABLATE_RETURN: "return multi_head_attention(x, Wq, Wk, Wv, kept, n_heads, mask, memory).double()"},
        "The output is always float64. It has the dtype of x.",
    ),
    ablation(
        "always_float32",
        {ABLATE_RETURN: "return multi_head_attention(x, Wq, Wk, Wv, kept, n_heads, mask, memory).float()"},
        "The output is always float32. It has the dtype of x.",
    ),
    ablation(
        "before_wo",
        ABLATE_HEAD
        + """
    out = multi_head_attention(x, Wq, Wk, Wv, Wo, n_heads, mask, memory).clone()
    out[..., own] = 0.0
    return out
""",
        "Features of the output are set to zero. The head's features are those before Wo; afterward all heads are mixed.",
    ),
    ablation(
        "mask_of_more_dimensions_ignored_without_memory",
        {CLONE: "mask = None if memory is None and mask is not None and mask.dim() > 2 else mask\n    kept = Wo.clone()"},
        "Without memory, masks of three or four dimensions are ignored. They count as well.",
    ),
    ablation(
        "unstable_scores",
        ABLATE_HEAD
        + """
    m = x if memory is None else memory
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (m, Wk), (m, Wv)))
    powers = (q @ k.mT / d_k**0.5).exp()
    if mask is not None:
        powers = powers * mask
    keep = torch.arange(n_heads).ne(head).to(x.dtype)[:, None, None]
    return merge_heads(powers / powers.sum(-1, keepdim=True).clamp(min=1e-30) @ v * keep) @ Wo
""",
        "exp of a large score overflows. Use the given attention, or torch.softmax, which subtracts the maximum.",
    ),
    ablation(
        "small_negative_fill",
        ABLATE_HEAD
        + """
    m = x if memory is None else memory
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (m, Wk), (m, Wv)))
    scores = q @ k.mT / d_k**0.5
    weights = scores.softmax(-1) if mask is None else scores.masked_fill(~mask, -1e3).softmax(-1) * mask
    keep = torch.arange(n_heads).ne(head).to(x.dtype)[:, None, None]
    return merge_heads(weights @ v * keep) @ Wo
""",
        "Hidden scores are set to -1000, which beats visible scores that lie lower. Use the smallest number of the dtype, or -inf.",
    ),
    ablation(
        "vanishing_denominator",
        ABLATE_HEAD
        + """
    m = x if memory is None else memory
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (m, Wk), (m, Wv)))
    mask = torch.ones((), dtype=torch.bool) if mask is None else mask
    scores = (q @ k.mT / d_k**0.5).masked_fill(~mask, -1e30)
    powers = (scores - scores.amax(-1, keepdim=True)).exp() * mask
    keep = torch.arange(n_heads).ne(head).to(x.dtype)[:, None, None]
    return merge_heads(powers / (powers.sum(-1, keepdim=True) + 1e-100) @ v * keep) @ Wo
""",
        "1e-100 is 0 in float32, and a row that sees nothing becomes 0/0 = nan. Set the weights of hidden keys to 0 after the softmax.",
    ),
    ablation(
        "names_the_shape_only",
        ABLATE_HEAD.replace('f"d_model={x.shape[-1]}, n_heads={n_heads}"', 'f"x of shape {tuple(x.shape)} cannot be cut into heads"')
        + """
    kept = torch.cat([Wo[: own.start], torch.zeros_like(Wo[own]), Wo[own.stop :]])
    return multi_head_attention(x, Wq, Wk, Wv, kept, n_heads, mask, memory)
""",
        "The message for heads that do not divide gives the shape of x and not n_heads. Name d_model and n_heads in it.",
    ),
    right(
        "ablate_head",
        "zeroed_head",
        ABLATE_HEAD
        + """
    m = x if memory is None else memory
    q, k, v = (split_heads(t @ W, n_heads) for t, W in ((x, Wq), (m, Wk), (m, Wv)))
    keep = torch.ones(n_heads, 1, 1, dtype=x.dtype, device=x.device)
    keep[head] = 0
    return merge_heads(attention(q, k, v, mask) * keep) @ Wo
""",
    ),
    right(
        "ablate_head",
        "zero_values",
        ABLATE_HEAD
        + """
    Wv = Wv.clone()
    Wv[:, own] = 0
    return multi_head_attention(x, Wq, Wk, Wv, Wo, n_heads, mask=mask, memory=memory)
""",
    ),
    right(
        "ablate_head",
        "sum_over_the_others",
        ABLATE_HEAD
        + """
    m = x if memory is None else memory
    masks = None if mask is None else mask.broadcast_to(x.shape[0], n_heads, x.shape[1], m.shape[1])
    out = torch.zeros_like(x)
    for h in set(range(n_heads)) - {head}:
        s = slice(h * d_k, (h + 1) * d_k)
        seen = None if masks is None else masks[:, h]
        out = out + F.scaled_dot_product_attention(x @ Wq[:, s], m @ Wk[:, s], m @ Wv[:, s], seen) @ Wo[s]
    return out
""",
    ),
    right(
        "ablate_head",
        "output_minus_contribution",
        ABLATE_HEAD
        + """
    only = torch.zeros_like(Wo)
    only[own] = Wo[own]
    both = [multi_head_attention(x, Wq, Wk, Wv, W, n_heads, mask, memory) for W in (Wo, only)]
    return both[0] - both[1]
""",
    ),
    right(
        "ablate_head",
        "row_mask_on_wo",
        ABLATE_HEAD
        + """
    rows = torch.arange(len(Wo), device=Wo.device) // d_k != head
    return multi_head_attention(x, Wq, Wk, Wv, Wo * rows[:, None], n_heads, mask, memory)
""",
    ),
]

ENTRIES: list[Entry] = [*SPLIT, *MERGE, *FUNCTION, *MODULE, *COUNT, *ABLATION]
