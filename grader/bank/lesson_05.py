"""Wrong and right answers to the exercises of lesson 05."""

from grader.bank import Entry, Mutant, Variant

ENTRIES: list[Entry] = [
    Mutant(
        exercise="causal_mask",
        name="inverted",
        replace={
            "torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)": "~torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)"
        },
        slip="True and False are exchanged: it marks the future. True means that the query may see the key.",
    ),
    Mutant(
        exercise="causal_mask",
        name="strict_triangle",
        replace={"tril(T_k - T_q)": "tril(T_k - T_q - 1)"},
        slip="The diagonal is hidden: a position may see itself, j <= i.",
    ),
    Mutant(
        exercise="causal_mask",
        name="one_too_many",
        replace={"tril(T_k - T_q)": "tril(T_k - T_q + 1)"},
        slip="Each query sees one key of the future. Compare with j <= i, not j <= i + 1.",
    ),
    Mutant(
        exercise="causal_mask",
        name="top_left",
        replace={"tril(T_k - T_q)": "tril()"},
        slip="The triangle starts in the top left corner. With T_k > T_q it must end in the bottom right: the last query sees every key.",
    ),
    Mutant(
        exercise="causal_mask",
        name="wrong_sign",
        replace={"tril(T_k - T_q)": "tril(T_q - T_k)"},
        slip="The offset of the triangle has the wrong sign: it is T_k - T_q.",
    ),
    Mutant(
        exercise="causal_mask",
        name="upper_triangle",
        replace={"tril(T_k - T_q)": "triu(T_k - T_q)"},
        slip="It keeps the upper triangle, the future. Keep the lower one, tril.",
    ),
    Mutant(
        exercise="causal_mask",
        name="strict_upper_triangle",
        replace={"tril(T_k - T_q)": "triu(T_k - T_q + 1)"},
        slip="This is the mask of what is hidden (the strict upper triangle). True means visible: take the opposite.",
    ),
    Mutant(
        exercise="causal_mask",
        name="ignores_t_k",
        replace={"T_k = T_q if T_k is None else T_k": "T_k = T_q"},
        slip="T_k is not used. The mask has one column for each key.",
    ),
    Mutant(
        exercise="causal_mask",
        name="transposed",
        replace={"torch.ones(T_q, T_k, dtype=torch.bool)": "torch.ones(T_k, T_q, dtype=torch.bool)"},
        slip="Rows and columns are exchanged: one row for each query, one column for each key.",
    ),
    Mutant(
        exercise="causal_mask",
        name="floats",
        replace={"dtype=torch.bool": "dtype=torch.float32"},
        slip="The mask is made of floats, which would be added to the scores. Make it boolean: dtype=torch.bool.",
    ),
    Mutant(
        exercise="causal_mask",
        name="integers",
        replace={"dtype=torch.bool": "dtype=torch.int64"},
        slip="The mask is made of integers. ~ and & mean something else for them: make it boolean.",
    ),
    Mutant(
        exercise="causal_mask",
        name="additive",
        source="""
def causal_mask(T_q, T_k=None):
    T_k = T_q if T_k is None else T_k
    return torch.full((T_q, T_k), -math.inf).triu(T_k - T_q + 1)
""",
        slip="This is an additive mask with -inf. Return booleans, True where the query may see the key.",
    ),
    Mutant(
        exercise="causal_mask",
        name="everything",
        replace={".tril(T_k - T_q)": ""},
        slip="It hides nothing. Keep the lower triangle only.",
    ),
    Mutant(
        exercise="causal_mask",
        name="diagonal_only",
        replace={"torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)": "torch.eye(T_q, T_k, dtype=torch.bool)"},
        slip="Each query sees one key only. It sees all keys up to its own position.",
    ),
    Mutant(
        exercise="causal_mask",
        name="two_extra_axes",
        replace={
            "torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)": "torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)[None, None]"
        },
        slip="It has extra axes in front. The shape is (T_q, T_k).",
    ),
    Mutant(
        exercise="causal_mask",
        name="at_least_one_visible",
        replace={"tril(T_k - T_q)": "tril(max(T_k - T_q, 0))"},
        slip="For T_k < T_q the offset stays at 0. The formula j <= i + (T_k - T_q) holds there as well: the first queries see nothing.",
    ),
    Mutant(
        exercise="causal_mask",
        name="no_empty_rows",
        replace={
            "torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)": "torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q) | (torch.arange(T_k) == 0)"
        },
        slip="Rows that should be empty see key 0. If T_k < T_q, the first queries see nothing.",
    ),
    Mutant(
        exercise="causal_mask",
        name="refuses_fewer_keys",
        replace={
            "T_k = T_q if T_k is None else T_k": "T_k = T_q if T_k is None else T_k\n    if T_k < T_q:\n        raise ValueError('more queries than keys')"
        },
        slip="It raises for T_k < T_q. The formula j <= i + (T_k - T_q) holds there as well.",
    ),
    Mutant(
        exercise="causal_mask",
        name="decode_row_only",
        replace={"tril(T_k - T_q)": "tril(T_k - 1 if T_q == 1 else 0)"},
        slip="Only a single query is aligned to the end. Every number of queries is: the offset is T_k - T_q.",
    ),
    Mutant(
        exercise="causal_mask",
        name="window_of_eight",
        replace={
            "torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)": "torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q) & torch.ones(T_q, T_k, dtype=torch.bool).triu(T_k - T_q - 7)"
        },
        slip="A query sees only the last eight keys. It sees all keys up to its own position.",
    ),
    Mutant(
        exercise="causal_mask",
        name="cached_largest",
        source="""
_seen = {}

def causal_mask(T_q, T_k=None):
    T_k = T_q if T_k is None else T_k
    size = max(T_q, T_k, _seen.get("size", 0))
    _seen["size"] = size
    mask = torch.ones(size, size, dtype=torch.bool).tril()
    return mask[:T_q, :T_k]
""",
        slip="It cuts the top left corner out of a larger square. The last query must see every key: cut out of the last rows of the first T_k columns.",
    ),
    Mutant(
        exercise="causal_mask",
        name="fixed_buffer",
        replace={
            "torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)": "torch.ones(256, 256, dtype=torch.bool).tril()[T_k - T_q : T_k, :T_k] if T_q <= T_k else torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)"
        },
        slip="It cuts the mask out of a square of fixed size and fails beyond it. Make it in the size that is asked for.",
    ),
    Mutant(
        exercise="causal_mask",
        name="other_name",
        replace={
            "T_q: int, T_k: int | None = None": "T_q: int, S: int | None = None",
            "T_k = T_q if T_k is None else T_k": "T_k = T_q if S is None else S",
        },
        slip="The second argument has another name. It is called T_k.",
    ),
    Variant(
        exercise="causal_mask",
        name="comparison",
        source="""
def causal_mask(T_q, T_k=None):
    T_k = T_q if T_k is None else T_k
    return torch.arange(T_k) <= torch.arange(T_q)[:, None] + (T_k - T_q)
""",
    ),
    Variant(
        exercise="causal_mask",
        name="not_upper",
        source="""
def causal_mask(T_q, T_k=None):
    T_k = T_k if T_k is not None else T_q
    return ~torch.ones(T_q, T_k).triu(diagonal=T_k - T_q + 1).bool()
""",
    ),
    Variant(
        exercise="causal_mask",
        name="loops",
        source="""
def causal_mask(T_q, T_k=None):
    if T_k is None:
        T_k = T_q
    mask = torch.zeros(T_q, T_k, dtype=torch.bool)
    for i in range(T_q):
        mask[i, : max(i + T_k - T_q + 1, 0)] = True
    return mask
""",
    ),
    Variant(
        exercise="causal_mask",
        name="last_rows_of_a_square",
        source="""
def causal_mask(T_q, T_k=None):
    T_k = T_q if T_k is None else T_k
    size = max(T_q, T_k)
    return torch.tril(torch.ones(size, size)).eq(1)[size - T_q :, size - T_k :]
""",
    ),
    Variant(
        exercise="causal_mask",
        name="from_indices",
        source="""
def causal_mask(T_q, T_k=None):
    T_k = T_q if T_k is None else T_k
    query, key = torch.meshgrid(torch.arange(T_k - T_q, T_k), torch.arange(T_k), indexing="ij")
    return torch.logical_not(key > query)
""",
    ),
    Mutant(
        exercise="padding_mask",
        name="inverted",
        replace={"ids != pad_id": "ids == pad_id"},
        slip="True and False are exchanged: it marks the pads. True means that the key may be seen.",
    ),
    Mutant(
        exercise="padding_mask",
        name="no_extra_axes",
        replace={"(ids != pad_id)[:, None, None, :]": "ids != pad_id"},
        slip="The shape is (B, T). Insert the axes of heads and queries: (B, 1, 1, T).",
    ),
    Mutant(
        exercise="padding_mask",
        name="one_extra_axis",
        replace={"[:, None, None, :]": "[:, None, :]"},
        slip="The shape is (B, 1, T). Scores have four axes: (B, 1, 1, T).",
    ),
    Mutant(
        exercise="padding_mask",
        name="hides_queries",
        replace={"[:, None, None, :]": "[:, None, :, None]"},
        slip="The mask stands along the queries. Pads are hidden as keys, the last axis: (B, 1, 1, T).",
    ),
    Mutant(
        exercise="padding_mask",
        name="axes_in_front",
        replace={"[:, None, None, :]": "[None, None]"},
        slip="The new axes stand before the batch. They belong between the batch and the keys.",
    ),
    Mutant(
        exercise="padding_mask",
        name="square",
        replace={
            "(ids != pad_id)[:, None, None, :]": "(ids != pad_id)[:, None, None, :].expand(-1, 1, ids.shape[1], -1).clone()"
        },
        slip="The mask is spread over the queries. Leave that axis at 1, broadcasting does the rest.",
    ),
    Mutant(
        exercise="padding_mask",
        name="pairs_of_real_tokens",
        replace={
            "(ids != pad_id)[:, None, None, :]": "((ids != pad_id)[:, None, None, :] & (ids != pad_id)[:, None, :, None])"
        },
        slip="It hides pads as queries as well. Only keys are hidden here, and the shape is (B, 1, 1, T).",
    ),
    Mutant(
        exercise="padding_mask",
        name="ignores_pad_id",
        replace={"ids != pad_id": "ids != 0"},
        slip="It compares with 0 always. Compare with the argument pad_id.",
    ),
    Mutant(
        exercise="padding_mask",
        name="positive_ids",
        replace={"ids != pad_id": "ids > pad_id"},
        slip="It takes every id up to pad_id for filler. Only pad_id itself is: use !=.",
    ),
    Mutant(
        exercise="padding_mask",
        name="truth_of_ids",
        replace={"ids != pad_id": "ids.bool()"},
        slip="It takes 0 for the pad id always. Compare with the argument pad_id.",
    ),
    Mutant(
        exercise="padding_mask",
        name="stops_at_the_first_pad",
        replace={"(ids != pad_id)[:, None, None, :]": "(ids != pad_id).long().cumprod(-1).bool()[:, None, None, :]"},
        slip="It hides everything after the first pad. Each id counts by itself: pads may stand at the start.",
    ),
    Mutant(
        exercise="padding_mask",
        name="trailing_pads_only",
        replace={
            "(ids != pad_id)[:, None, None, :]": "((ids != pad_id).flip(-1).long().cumsum(-1).flip(-1) > 0)[:, None, None, :]"
        },
        slip="It hides pads at the end only. Every occurrence of pad_id is filler, at the start and in the middle as well.",
    ),
    Mutant(
        exercise="padding_mask",
        name="leading_pads_only",
        replace={"(ids != pad_id)[:, None, None, :]": "((ids != pad_id).long().cumsum(-1) > 0)[:, None, None, :]"},
        slip="It hides pads at the start only. Every occurrence of pad_id is filler.",
    ),
    Mutant(
        exercise="padding_mask",
        name="lengths",
        replace={
            "(ids != pad_id)[:, None, None, :]": "(torch.arange(ids.shape[1]) < (ids != pad_id).sum(-1, keepdim=True))[:, None, None, :]"
        },
        slip="It counts the real tokens and shows that many from the left. That is right only for pads at the end.",
    ),
    Mutant(
        exercise="padding_mask",
        name="never_empty",
        replace={
            "(ids != pad_id)[:, None, None, :]": "((ids != pad_id) | ((ids == pad_id).all(-1, keepdim=True)))[:, None, None, :]"
        },
        slip="A row of pads only is shown completely. All its keys are filler: all are hidden.",
    ),
    Mutant(
        exercise="padding_mask",
        name="also_minus_hundred",
        replace={"ids != pad_id": "(ids != pad_id) & (ids != -100)"},
        slip="It also hides -100, the ignore_index of the loss. Only pad_id is filler.",
    ),
    Mutant(
        exercise="padding_mask",
        name="first_key_always",
        replace={
            "(ids != pad_id)[:, None, None, :]": "((ids != pad_id) | (torch.arange(ids.shape[1]) == 0))[:, None, None, :]"
        },
        slip="Key 0 is always visible. If it is a pad, it is hidden like any other.",
    ),
    Mutant(
        exercise="padding_mask",
        name="first_row_for_all",
        replace={
            "(ids != pad_id)[:, None, None, :]": "(ids[:1] != pad_id)[:, None, None, :].expand(len(ids), 1, 1, -1)"
        },
        slip="All rows get the mask of row 0. Each row of the batch has its own.",
    ),
    Mutant(
        exercise="padding_mask",
        name="causal_too",
        replace={
            "(ids != pad_id)[:, None, None, :]": "(ids != pad_id)[:, None, None, :] & torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()"
        },
        slip="It is causal as well. The padding mask knows no direction: (B, 1, 1, T).",
    ),
    Mutant(
        exercise="padding_mask",
        name="floats",
        replace={"(ids != pad_id)[:, None, None, :]": "(ids != pad_id)[:, None, None, :].float()"},
        slip="The mask is made of floats. Make it boolean.",
    ),
    Mutant(
        exercise="padding_mask",
        name="additive",
        replace={
            "(ids != pad_id)[:, None, None, :]": "torch.zeros(ids.shape).masked_fill(ids == pad_id, -math.inf)[:, None, None, :]"
        },
        slip="This is an additive mask with -inf. Return booleans, True where the key may be seen.",
    ),
    Mutant(
        exercise="padding_mask",
        name="in_place",
        replace={"(ids != pad_id)[:, None, None, :]": "ids.sub_(pad_id)[:, None, None, :] != 0"},
        slip="It changes the caller's ids. Compare without modifying them.",
    ),
    Mutant(
        exercise="padding_mask",
        name="compared_as_float32",
        replace={"ids != pad_id": "ids.float() != float(pad_id)"},
        slip="The ids are compared as float32, in which large integers coincide. Compare the integers.",
    ),
    Variant(
        exercise="padding_mask",
        name="unsqueeze",
        source="""
def padding_mask(ids, pad_id=0):
    return ids.ne(pad_id).unsqueeze(1).unsqueeze(2)
""",
    ),
    Variant(
        exercise="padding_mask",
        name="view",
        source="""
def padding_mask(ids, pad_id=0):
    B, T = ids.shape
    return torch.logical_not(ids == pad_id).reshape(B, 1, 1, T)
""",
    ),
    Variant(
        exercise="padding_mask",
        name="loops",
        source="""
def padding_mask(ids, pad_id=0):
    mask = torch.ones(ids.shape[0], 1, 1, ids.shape[1], dtype=torch.bool)
    for b, row in enumerate(ids.tolist()):
        for j, token in enumerate(row):
            mask[b, 0, 0, j] = token != pad_id
    return mask
""",
    ),
    Variant(
        exercise="padding_mask",
        name="subtract",
        source="""
def padding_mask(ids, pad_id=0):
    return (ids - pad_id).abs().clamp(max=1).bool()[:, None][:, None]
""",
    ),
    Variant(
        exercise="padding_mask",
        name="isin",
        source="""
def padding_mask(ids, pad_id=0):
    mask = torch.isin(ids, torch.tensor([pad_id], dtype=ids.dtype, device=ids.device), invert=True)
    return torch.einsum("bt->bt", mask)[:, None, None]
""",
    ),
    Mutant(
        exercise="document_mask",
        name="not_causal",
        replace={" & causal_mask(T).to(segment_ids.device)": ""},
        slip="A query also sees later positions of its document. Combine with a causal mask: same document and j <= i.",
    ),
    Mutant(
        exercise="document_mask",
        name="causal_only",
        replace={
            "same_document & causal_mask(T).to(segment_ids.device)": "causal_mask(T).to(segment_ids.device).expand_as(same_document)"
        },
        slip="The borders of the documents are open. Both conditions must hold: same document and j <= i.",
    ),
    Mutant(
        exercise="document_mask",
        name="either",
        replace={"same_document & causal": "same_document | causal"},
        slip="The two conditions are joined by `or`. Both must hold: &.",
    ),
    Mutant(
        exercise="document_mask",
        name="inverted",
        replace={
            "same_document & causal_mask(T).to(segment_ids.device)": "~(same_document & causal_mask(T).to(segment_ids.device))"
        },
        slip="True and False are exchanged. True means that the query may see the key.",
    ),
    Mutant(
        exercise="document_mask",
        name="earlier_documents",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "segment_ids[:, :, None] >= segment_ids[:, None, :]"
        },
        slip="A document sees all earlier ones. Compare the segment ids with ==.",
    ),
    Mutant(
        exercise="document_mask",
        name="neighbors",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "(segment_ids[:, :, None] - segment_ids[:, None, :]).abs() <= 1"
        },
        slip="Documents with neighboring ids see each other. Compare the segment ids with ==.",
    ),
    Mutant(
        exercise="document_mask",
        name="strict",
        replace={"causal_mask(T)": "torch.ones(T, T, dtype=torch.bool).tril(-1)"},
        slip="The diagonal is hidden: every position sees itself.",
    ),
    Mutant(
        exercise="document_mask",
        name="one_too_many",
        replace={"causal_mask(T)": "torch.ones(T, T, dtype=torch.bool).tril(1)"},
        slip="A query sees one position of the future. The condition is j <= i.",
    ),
    Mutant(
        exercise="document_mask",
        name="future_only",
        replace={"causal_mask(T)": "causal_mask(T).T"},
        slip="It keeps the upper triangle: a query sees itself and what comes later. Keep the lower one.",
    ),
    Mutant(
        exercise="document_mask",
        name="end_token_to_the_next",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "segment_ids.roll(-1, -1)[:, :, None] == segment_ids.roll(-1, -1)[:, None, :]"
        },
        slip="The last token of each document is counted to the next one. The segment ids are right as they are: do not shift them.",
    ),
    Mutant(
        exercise="document_mask",
        name="start_token_to_the_former",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "torch.cat([segment_ids[:, :1], segment_ids[:, :-1]], 1)[:, :, None] == torch.cat([segment_ids[:, :1], segment_ids[:, :-1]], 1)[:, None, :]"
        },
        slip="The first token of each document is counted to the one before. The segment ids are right as they are: do not shift them.",
    ),
    Mutant(
        exercise="document_mask",
        name="first_row_for_all",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "(segment_ids[:1, :, None] == segment_ids[:1, None, :]).expand(len(segment_ids), T, T)"
        },
        slip="All rows get the mask of row 0. Each row of the batch has its own documents.",
    ),
    Mutant(
        exercise="document_mask",
        name="rows_mixed",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "segment_ids[:, :, None] == segment_ids.flip(0)[:, None, :]"
        },
        slip="Queries of one row are compared with the keys of another. Both come from the same row.",
    ),
    Mutant(
        exercise="document_mask",
        name="extra_axis",
        replace={
            "return same_document & causal_mask(T).to(segment_ids.device)": "return (same_document & causal_mask(T).to(segment_ids.device))[:, None]"
        },
        slip="It has an axis for the heads. The shape here is (B, T, T); who uses it inserts the axis.",
    ),
    Mutant(
        exercise="document_mask",
        name="floats",
        replace={
            "return same_document & causal_mask(T).to(segment_ids.device)": "return (same_document & causal_mask(T).to(segment_ids.device)).float()"
        },
        slip="The mask is made of floats. Make it boolean.",
    ),
    Mutant(
        exercise="document_mask",
        name="contiguous_runs",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "(segment_ids.diff(dim=-1, prepend=segment_ids[:, :1]) != 0).cumsum(-1)[:, :, None] == (segment_ids.diff(dim=-1, prepend=segment_ids[:, :1]) != 0).cumsum(-1)[:, None, :]"
        },
        slip="It starts a new document at every change of the id. Equal ids are one document, also with another one in between.",
    ),
    Mutant(
        exercise="document_mask",
        name="zero_is_padding",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "(segment_ids[:, :, None] == segment_ids[:, None, :]) & (segment_ids != 0)[:, None, :]"
        },
        slip="It hides the segment id 0. Here 0 is an id like any other.",
    ),
    Mutant(
        exercise="document_mask",
        name="product",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "segment_ids[:, :, None] * segment_ids[:, None, :] == segment_ids[:, :, None] ** 2"
        },
        slip="The product of two ids is compared with a square, which is wrong for the id 0. Compare the ids themselves.",
    ),
    Mutant(
        exercise="document_mask",
        name="one_hot_from_one",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "(lambda e: (e @ e.mT) > 0)(torch.nn.functional.one_hot(segment_ids.clamp(0, 9)).float())"
        },
        slip="Ids outside a fixed range are thrown together. Compare the ids themselves with ==.",
    ),
    Mutant(
        exercise="document_mask",
        name="compared_as_float32",
        replace={
            "segment_ids[:, :, None] == segment_ids[:, None, :]": "segment_ids.float()[:, :, None] == segment_ids.float()[:, None, :]"
        },
        slip="The ids are compared as float32, in which large integers coincide. Compare the integers.",
    ),
    Mutant(
        exercise="document_mask",
        name="previous_only",
        replace={
            "return same_document & causal_mask(T).to(segment_ids.device)": "return same_document & causal_mask(T).to(segment_ids.device) & ~causal_mask(T).tril(-4)"
        },
        slip="A query sees only the last four positions of its document. It sees all earlier ones.",
    ),
    Mutant(
        exercise="document_mask",
        name="in_place",
        replace={
            "T = segment_ids.shape[-1]": "T = segment_ids.shape[-1]\n    segment_ids -= segment_ids[:, :1].clone()"
        },
        slip="It changes the caller's segment_ids. Work on a new tensor.",
    ),
    Variant(
        exercise="document_mask",
        name="unsqueeze",
        source="""
def document_mask(segment_ids):
    same = segment_ids.unsqueeze(-1).eq(segment_ids.unsqueeze(-2))
    return same.tril()
""",
    ),
    Variant(
        exercise="document_mask",
        name="loops",
        source="""
def document_mask(segment_ids):
    B, T = segment_ids.shape
    mask = torch.zeros(B, T, T, dtype=torch.bool)
    for b in range(B):
        for i in range(T):
            for j in range(i + 1):
                mask[b, i, j] = segment_ids[b, i] == segment_ids[b, j]
    return mask
""",
    ),
    Variant(
        exercise="document_mask",
        name="difference",
        source="""
def document_mask(segment_ids):
    position = torch.arange(segment_ids.shape[1])
    return (segment_ids[..., None] - segment_ids[:, None] == 0) & (position[:, None] >= position)
""",
    ),
    Variant(
        exercise="document_mask",
        name="row_by_row",
        source="""
def document_mask(segment_ids):
    rows = [torch.logical_and(row[:, None] == row, torch.ones(len(row), len(row)).tril().bool()) for row in segment_ids]
    return torch.stack(rows)
""",
    ),
    Variant(
        exercise="document_mask",
        name="unique",
        source="""
def document_mask(segment_ids):
    ids = segment_ids.unique(return_inverse=True)[1]
    e = torch.nn.functional.one_hot(ids).float()
    return torch.tril(e @ e.transpose(1, 2)).bool()
""",
    ),
    Mutant(
        exercise="combined_mask",
        name="either",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "padding_mask(ids, pad_id) | causal_mask(T).to(ids.device)"
        },
        slip="The masks are joined by `or`: one of them is enough to see a key. Both must agree: &.",
    ),
    Mutant(
        exercise="combined_mask",
        name="exclusive_or",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "padding_mask(ids, pad_id) ^ ~causal_mask(T).to(ids.device)"
        },
        slip="The masks are joined by `exclusive or`. Both must agree: &.",
    ),
    Mutant(
        exercise="combined_mask",
        name="padding_only",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "padding_mask(ids, pad_id).expand(-1, 1, T, T)"
        },
        slip="The future is visible: the causal mask is missing.",
    ),
    Mutant(
        exercise="combined_mask",
        name="causal_only",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "causal_mask(T).to(ids.device).expand(len(ids), 1, T, T)"
        },
        slip="The pads are visible: the padding mask is missing.",
    ),
    Mutant(
        exercise="combined_mask",
        name="ignores_pad_id",
        replace={"padding_mask(ids, pad_id)": "padding_mask(ids)"},
        slip="pad_id is not handed on to padding_mask.",
    ),
    Mutant(
        exercise="combined_mask",
        name="inverted",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "~(padding_mask(ids, pad_id) & causal_mask(T).to(ids.device))"
        },
        slip="True and False are exchanged. True means that the query may see the key.",
    ),
    Mutant(
        exercise="combined_mask",
        name="causal_inverted",
        replace={"& causal_mask(T)": "& ~causal_mask(T)"},
        slip="It shows the future and hides the past. causal_mask is True where a query may see.",
    ),
    Mutant(
        exercise="combined_mask",
        name="pads_see_themselves",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device) | torch.eye(T, dtype=torch.bool)"
        },
        slip="The diagonal is always visible, so that a pad sees itself. A pad is hidden as a key from every query.",
    ),
    Mutant(
        exercise="combined_mask",
        name="empty_rows_see_everything",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "(lambda m: m | ~m.any(-1, keepdim=True))(padding_mask(ids, pad_id) & causal_mask(T).to(ids.device))"
        },
        slip="Rows that see nothing are opened completely. They stay empty: attention decides what they give.",
    ),
    Mutant(
        exercise="combined_mask",
        name="empty_rows_see_themselves",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "(lambda m: m | (~m.any(-1, keepdim=True) & torch.eye(T, dtype=torch.bool)))(padding_mask(ids, pad_id) & causal_mask(T).to(ids.device))"
        },
        slip="In rows that see nothing the position is made to see itself. They stay empty: attention decides what they give.",
    ),
    Mutant(
        exercise="combined_mask",
        name="empty_rows_see_the_first",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "(lambda m: m | (~m.any(-1, keepdim=True) & (torch.arange(T) == 0)))(padding_mask(ids, pad_id) & causal_mask(T).to(ids.device))"
        },
        slip="In rows that see nothing key 0 is opened. They stay empty: attention decides what they give.",
    ),
    Mutant(
        exercise="combined_mask",
        name="pad_queries_hidden",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "padding_mask(ids, pad_id) & padding_mask(ids, pad_id).mT & causal_mask(T).to(ids.device)"
        },
        slip="The rows of pads are emptied. A pad as query is like any other position: only keys are hidden.",
    ),
    Mutant(
        exercise="combined_mask",
        name="pad_queries_see_all_past",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "(padding_mask(ids, pad_id) | ~padding_mask(ids, pad_id).mT) & causal_mask(T).to(ids.device)"
        },
        slip="The rows of pads see pads. A pad is hidden as a key from every query.",
    ),
    Mutant(
        exercise="combined_mask",
        name="hides_queries_only",
        replace={"padding_mask(ids, pad_id)": "padding_mask(ids, pad_id).mT"},
        slip="The padding mask stands along the queries. Pads are hidden as keys, the last axis.",
    ),
    Mutant(
        exercise="combined_mask",
        name="strict",
        replace={"causal_mask(T)": "torch.ones(T, T, dtype=torch.bool).tril(-1)"},
        slip="A position does not see itself: the diagonal belongs to the visible part.",
    ),
    Mutant(
        exercise="combined_mask",
        name="one_too_many",
        replace={"causal_mask(T)": "torch.ones(T, T, dtype=torch.bool).tril(1)"},
        slip="A query sees one position of the future.",
    ),
    Mutant(
        exercise="combined_mask",
        name="three_axes",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "(padding_mask(ids, pad_id) & causal_mask(T).to(ids.device))[:, 0]"
        },
        slip="The axis of the heads is missing. The shape is (B, 1, T, T).",
    ),
    Mutant(
        exercise="combined_mask",
        name="positive_ids",
        replace={"padding_mask(ids, pad_id)": "(ids > pad_id)[:, None, None]"},
        slip="It takes every id up to pad_id for filler. Only pad_id itself is.",
    ),
    Mutant(
        exercise="combined_mask",
        name="first_row_for_all",
        replace={"padding_mask(ids, pad_id)": "padding_mask(ids[:1], pad_id).expand(len(ids), 1, 1, T)"},
        slip="All rows get the padding of row 0. Each row of the batch has its own.",
    ),
    Mutant(
        exercise="combined_mask",
        name="floats",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "(padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)).to(torch.float64)"
        },
        slip="The mask is made of floats. Make it boolean.",
    ),
    Mutant(
        exercise="combined_mask",
        name="product_of_integers",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "padding_mask(ids, pad_id).int() * causal_mask(T).int()"
        },
        slip="The mask is made of integers. Join the booleans with &.",
    ),
    Mutant(
        exercise="combined_mask",
        name="stops_at_the_first_pad",
        replace={"padding_mask(ids, pad_id)": "padding_mask(ids, pad_id).long().cumprod(-1).bool()"},
        slip="It hides everything after the first pad. Each id counts by itself: pads may stand at the start.",
    ),
    Mutant(
        exercise="combined_mask",
        name="first_length_for_ever",
        source="""
_causal = []

def combined_mask(ids, pad_id=0):
    T = ids.shape[-1]
    if not _causal or len(_causal[0]) < T:
        _causal.insert(0, torch.ones(T, T, dtype=torch.bool).tril())
    return padding_mask(ids, pad_id) & _causal[0]
""",
        slip="The causal mask is kept from an earlier call with another length. Make it, or cut it, to the length of these ids.",
    ),
    Variant(
        exercise="combined_mask",
        name="where",
        source="""
def combined_mask(ids, pad_id=0):
    T = ids.shape[1]
    real = (ids != pad_id).view(-1, 1, 1, T)
    return torch.where(torch.ones(T, T, dtype=torch.bool).tril(), real, False)
""",
    ),
    Variant(
        exercise="combined_mask",
        name="tril",
        source="""
def combined_mask(ids, pad_id=0):
    B, T = ids.shape
    return padding_mask(ids, pad_id).expand(B, 1, T, T).tril()
""",
    ),
    Variant(
        exercise="combined_mask",
        name="masked_fill",
        source="""
def combined_mask(ids, pad_id=0):
    mask = causal_mask(ids.shape[1]).repeat(len(ids), 1, 1, 1)
    return mask.masked_fill((ids == pad_id)[:, None, None, :], False)
""",
    ),
    Variant(
        exercise="combined_mask",
        name="loops",
        source="""
def combined_mask(ids, pad_id=0):
    B, T = ids.shape
    return torch.tensor([[[[j <= i and int(ids[b, j]) != pad_id for j in range(T)] for i in range(T)]] for b in range(B)])
""",
    ),
    Variant(
        exercise="combined_mask",
        name="by_hidden",
        source="""
def combined_mask(ids, pad_id=0):
    future = torch.triu(torch.ones(ids.shape[1], ids.shape[1]), 1) == 1
    hidden = future[None, None] | (ids == pad_id).unsqueeze(1).unsqueeze(1)
    return ~hidden
""",
    ),
    Variant(
        exercise="combined_mask",
        name="product",
        replace={
            "padding_mask(ids, pad_id) & causal_mask(T).to(ids.device)": "padding_mask(ids, pad_id) * causal_mask(T).to(ids.device)"
        },
    ),
    Mutant(
        exercise="safe_attention",
        name="plain_minus_infinity",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, -math.inf).softmax(-1) @ v
""",
        slip="A row of nothing but -inf becomes nan in the softmax. Treat rows without a visible key separately.",
    ),
    Mutant(
        exercise="safe_attention",
        name="minus_1e9",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, -1e9).softmax(-1) @ v
""",
        slip="With -1e9 in every place the scores of an empty row are equal, so it averages all forbidden values. Its output must be 0.",
    ),
    Mutant(
        exercise="safe_attention",
        name="finfo_min",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) @ v
""",
        slip="With the smallest number in every place the scores of an empty row are equal, so it averages all forbidden values. Its output must be 0.",
    ),
    Mutant(
        exercise="safe_attention",
        name="minus_1e9_then_zeros",
        replace={"-math.inf": "-1e9"},
        slip="-1e9 cannot be written into a float16 tensor. Fill with -inf; it exists in every dtype.",
    ),
    Mutant(
        exercise="safe_attention",
        name="minus_ten_thousand",
        replace={"-math.inf": "-1e4"},
        slip="-10000 is not low enough: visible scores can be lower. Fill with -inf.",
    ),
    Mutant(
        exercise="safe_attention",
        name="minus_hundred",
        replace={"-math.inf": "-100.0"},
        slip="-100 is not low enough: hidden keys keep a little weight, and more when the visible scores are low. Fill with -inf.",
    ),
    Mutant(
        exercise="safe_attention",
        name="tiny_fill",
        replace={"-math.inf": "1e-9"},
        slip="1e-9 is a score like any other, not minus infinity. Hidden scores become -inf.",
    ),
    Mutant(
        exercise="safe_attention",
        name="zero_fill",
        replace={"-math.inf": "0.0"},
        slip="A score of 0 is a score like any other: exp(0) = 1. Hidden scores become -inf.",
    ),
    Mutant(
        exercise="safe_attention",
        name="scores_times_mask",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return (scores * mask).softmax(-1) @ v
""",
        slip="Multiplying scores by the mask gives hidden keys the score 0, which is a score like any other. They need -inf.",
    ),
    Mutant(
        exercise="safe_attention",
        name="mask_after_softmax",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return (scores.softmax(-1) * mask) @ v
""",
        slip="The mask comes after the softmax: hidden keys are still in the denominator, and the weights sum to less than 1.",
    ),
    Mutant(
        exercise="safe_attention",
        name="mask_after_softmax_renormalized",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    weights = scores.softmax(-1) * mask
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-300) @ v
""",
        slip="The hidden keys take part in the softmax and are removed afterwards: when a hidden score is large, nothing is left of the visible ones. Mask the scores first.",
    ),
    Mutant(
        exercise="safe_attention",
        name="exp_without_maximum",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    powers = scores.exp() * mask
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-300) @ v
""",
        slip="exp of a large score overflows. Subtract the largest visible score of each row first, or use torch.softmax.",
    ),
    Mutant(
        exercise="safe_attention",
        name="epsilon_below",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~mask, -math.inf)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / (powers.sum(-1, keepdim=True) + 1e-9) @ v
""",
        slip="An epsilon in the denominator does not help: -inf - (-inf) has already given nan. The maximum of an empty row must be made finite.",
    ),
    Mutant(
        exercise="safe_attention",
        name="clamped_sum_only",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~mask, -math.inf)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-9) @ v
""",
        slip="Clamping the sum does not help: -inf - (-inf) has already given nan. The maximum of an empty row must be made finite.",
    ),
    Mutant(
        exercise="safe_attention",
        name="maximum_clamped_at_zero",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~mask, -math.inf)
    powers = (scores - scores.amax(-1, keepdim=True).clamp(min=0)).exp()
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-300) @ v
""",
        slip="The maximum is clamped at 0, so rows whose visible scores are all very low vanish. Replace only a maximum of -inf.",
    ),
    Mutant(
        exercise="safe_attention",
        name="maximum_clamped_at_minus_ten_thousand",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~mask, -math.inf)
    powers = (scores - scores.amax(-1, keepdim=True).clamp(min=-1e4)).exp()
    return powers / powers.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny) @ v
""",
        slip="The maximum is clamped at -10000, so rows whose visible scores are all lower vanish. Replace only a maximum of -inf.",
    ),
    Mutant(
        exercise="safe_attention",
        name="opens_empty_rows",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = mask | ~mask.any(-1, keepdim=True)
    return scores.masked_fill(~mask, -math.inf).softmax(-1) @ v
""",
        slip="Rows that see nothing are opened completely and average forbidden values. Their output must be 0.",
    ),
    Mutant(
        exercise="safe_attention",
        name="empty_rows_see_key_zero",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    first = torch.arange(k.shape[-2]) == 0
    mask = mask | (~mask.any(-1, keepdim=True) & first)
    return scores.masked_fill(~mask, -math.inf).softmax(-1) @ v
""",
        slip="Rows that see nothing read key 0. Their output must be 0.",
    ),
    Mutant(
        exercise="safe_attention",
        name="nan_to_num_of_a_bias",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -math.inf)
    return (scores + bias).softmax(-1).nan_to_num(0.0) @ v
""",
        slip="The forward pass is right, the gradient is nan: the softmax has already produced nan, and its backward pass uses it. Keep rows of nothing but -inf out of the softmax.",
    ),
    Mutant(
        exercise="safe_attention",
        name="output_zeroed_late",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -math.inf)
    out = (scores + bias).softmax(-1) @ v
    return torch.where(mask.any(-1, keepdim=True), out, torch.zeros_like(out))
""",
        slip="The output is right, the gradient is nan: the nan arises before it is overwritten. Keep rows of nothing but -inf out of the softmax.",
    ),
    Mutant(
        exercise="safe_attention",
        name="nan_to_num_of_the_output",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return (scores.masked_fill(~mask, -math.inf).softmax(-1) @ v).nan_to_num(0.0)
""",
        slip="The output is right, but nan weights meet the values in the backward pass: the gradient of v becomes nan. Zero the weights, and keep nan from arising.",
    ),
    Mutant(
        exercise="safe_attention",
        name="all_rows_or_none",
        replace={"mask.any(dim=-1, keepdim=True)": "mask.any()"},
        slip="It asks whether anything at all is visible. Ask each row: mask.any(dim=-1, keepdim=True).",
    ),
    Mutant(
        exercise="safe_attention",
        name="empty_columns",
        replace={"mask.any(dim=-1, keepdim=True)": "mask.any(dim=-2, keepdim=True)"},
        slip="It looks for keys that nobody sees. Look for queries that see nothing: along the last axis.",
    ),
    Mutant(
        exercise="safe_attention",
        name="rows_not_zeroed",
        replace={"    weights = weights.masked_fill(~sees_something, 0.0)  # and here it becomes zeros\n": ""},
        slip="Empty rows keep an ordinary softmax over forbidden keys. Set their weights to 0 afterwards.",
    ),
    Mutant(
        exercise="safe_attention",
        name="inverted",
        replace={
            "mask.any(dim=-1, keepdim=True)": "(~mask).any(dim=-1, keepdim=True)",
            "~mask & sees_something": "mask & sees_something",
        },
        slip="The mask is read the other way round: it attends to exactly the hidden keys. True means visible.",
    ),
    Mutant(
        exercise="safe_attention",
        name="ignores_the_mask",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v
""",
        slip="The mask is not used.",
    ),
    Mutant(
        exercise="safe_attention",
        name="causal_whatever_the_mask",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2])
    return scores.masked_fill(~mask, -math.inf).softmax(-1).nan_to_num(0) @ v
""",
        slip="It is always causal. Use the mask that is given.",
    ),
    Mutant(
        exercise="safe_attention",
        name="no_scale",
        replace={" / math.sqrt(q.shape[-1])": ""},
        slip="The scores are not divided by sqrt(d_k).",
    ),
    Mutant(
        exercise="safe_attention",
        name="multiplied_by_the_root",
        replace={"/ math.sqrt": "* math.sqrt"},
        slip="The scores are multiplied by sqrt(d_k). Divide.",
    ),
    Mutant(
        exercise="safe_attention",
        name="divided_by_d",
        replace={"math.sqrt(q.shape[-1])": "q.shape[-1]"},
        slip="The scores are divided by d_k. Divide by its square root.",
    ),
    Mutant(
        exercise="safe_attention",
        name="scaled_by_d_v",
        replace={"q.shape[-1]": "v.shape[-1]"},
        slip="The scale uses the width of the values. It is the width of queries and keys, d_k.",
    ),
    Mutant(
        exercise="safe_attention",
        name="fifty_below_the_lowest",
        replace={"scores.masked_fill(hidden, -math.inf)": "torch.where(hidden, scores.amin() - 50, scores)"},
        slip="Hidden keys keep a tiny weight. Fill with -inf: their weight is then exactly 0.",
    ),
    Mutant(
        exercise="safe_attention",
        name="softmax_over_queries",
        replace={"softmax(dim=-1)": "softmax(dim=-2)"},
        slip="The softmax runs along the queries. Each query distributes its weight over the keys: dim=-1.",
    ),
    Mutant(
        exercise="safe_attention",
        name="keys_as_values",
        replace={"weights @ v": "weights @ k"},
        slip="The weights average the keys. They belong to the values: weights @ v.",
    ),
    Mutant(
        exercise="safe_attention",
        name="detached_weights",
        replace={"weights @ v": "weights.detach() @ v"},
        slip="The weights are detached: no gradient reaches q and k.",
    ),
    Mutant(
        exercise="safe_attention",
        name="uniform_over_the_visible",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    weights = mask.expand(scores.shape).to(v.dtype)
    return weights / weights.sum(-1, keepdim=True).clamp(min=1) @ v
""",
        slip="The output is the plain mean of the visible values: queries and keys are not used.",
    ),
    Mutant(
        exercise="safe_attention",
        name="mask_in_place",
        replace={
            "hidden = ~mask & sees_something  # an empty row keeps its finite scores for now": "hidden = mask.logical_not_() & sees_something"
        },
        slip="It turns the caller's mask round in place. Work on a new tensor: ~mask.",
    ),
    Mutant(
        exercise="safe_attention",
        name="first_mask_for_all",
        replace={
            "mask.any(dim=-1, keepdim=True)": "(mask := mask.reshape(-1, *mask.shape[-2:])[0]).any(dim=-1, keepdim=True)"
        },
        slip="All items of the batch get the first item's mask. Let the mask broadcast.",
    ),
    Mutant(
        exercise="safe_attention",
        name="batch_mask_on_the_heads",
        replace={
            "mask.any(dim=-1, keepdim=True)": "(mask := mask[:, 0] if mask.dim() == 4 and mask.shape[0] == scores.shape[1] else mask).any(dim=-1, keepdim=True)"
        },
        slip="The batch of the mask has landed on the heads of the scores. Keep its axes: (B, 1, T_q, T_k).",
    ),
    Mutant(
        exercise="safe_attention",
        name="always_float32",
        replace={"return weights @ v": "return (weights @ v).float()"},
        slip="The result is always float32. It should have the dtype of the inputs.",
    ),
    Variant(
        exercise="safe_attention",
        name="nan_to_num_after_masked_fill",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, -math.inf).softmax(-1).nan_to_num(0.0) @ v
""",
    ),
    Variant(
        exercise="safe_attention",
        name="finfo_min_then_zeros",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return weights * mask.any(-1, keepdim=True) @ v
""",
    ),
    Variant(
        exercise="safe_attention",
        name="safe_maximum",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~mask, -math.inf)
    top = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min).detach()
    powers = (scores - top).exp()
    total = powers.sum(-1, keepdim=True)
    return powers / total.clamp(min=torch.finfo(scores.dtype).tiny) @ v
""",
    ),
    Variant(
        exercise="safe_attention",
        name="dummy_key",
        source="""
def safe_attention(q, k, v, mask):
    shape = (*q.shape[:-1], k.shape[-2])
    scores = torch.einsum("...qd,...kd->...qk", q, k) * q.shape[-1] ** -0.5
    bias = torch.where(mask, torch.zeros((), dtype=q.dtype), torch.full((), -math.inf, dtype=q.dtype)).expand(shape)
    nothing = torch.where(mask.any(-1, keepdim=True), -math.inf, 0.0).to(q.dtype).expand(*shape[:-1], 1)
    weights = torch.cat([nothing, scores + bias], dim=-1).softmax(-1)[..., 1:]
    return torch.einsum("...qk,...kv->...qv", weights, v)
""",
    ),
    Variant(
        exercise="safe_attention",
        name="loops",
        source="""
def safe_attention(q, k, v, mask):
    mask = mask.expand(*q.shape[:-1], k.shape[-2])
    if q.dim() > 2:
        return torch.stack([safe_attention(*item) for item in zip(q, k, v, mask)])
    rows = []
    for query, seen in zip(q, mask):
        if not seen.any():
            rows.append(v[0] * 0 + (query.sum() + k.sum()) * 0)
            continue
        weights = torch.softmax(k[seen] @ query / math.sqrt(len(query)), dim=0)
        rows.append(weights @ v[seen])
    return torch.stack(rows)
""",
    ),
    Variant(
        exercise="safe_attention",
        name="float64_inside",
        source="""
def safe_attention(q, k, v, mask):
    scores = (q.double() / q.shape[-1] ** 0.25) @ (k.double() / k.shape[-1] ** 0.25).mT
    some = mask.any(-1, keepdim=True)
    weights = torch.where(some, scores.masked_fill(~mask & some, -math.inf).softmax(-1), 0.0)
    return (weights @ v.double()).to(v.dtype)
""",
    ),
    Variant(
        exercise="safe_attention",
        name="opened_then_closed",
        source="""
def safe_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    open_rows = mask | ~mask.any(-1, keepdim=True)
    out = scores.masked_fill(~open_rows, float("-inf")).softmax(-1) @ v
    return out.masked_fill(~mask.any(-1, keepdim=True), 0.0)
""",
    ),
    Variant(
        exercise="safe_attention",
        name="library_on_opened_rows",
        source="""
def safe_attention(q, k, v, mask):
    some = mask.any(-1, keepdim=True)
    opened = (mask | ~some).expand(*q.shape[:-1], k.shape[-2])
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=opened)
    return torch.where(some, out, torch.zeros_like(out))
""",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="unchanged",
        replace={"~mask": "mask"},
        slip="The mask is returned as it is. True must change its meaning: take the opposite of each entry.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="copy",
        replace={"~mask": "mask.clone()"},
        slip="The entries are copied as they are. True must change its meaning: take the opposite of each entry.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="in_place",
        replace={"~mask": "mask.logical_not_()"},
        slip="It turns the caller's mask round in place. Return a new tensor: ~mask.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="transposed",
        replace={"~mask": "(~mask).transpose(-2, -1) if mask.dim() > 1 else ~mask"},
        slip="Queries and keys are exchanged as well. Rows stay rows: only the meaning of True changes.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="only_transposed",
        replace={"~mask": "mask.transpose(-2, -1) if mask.dim() > 1 else mask"},
        slip="Queries and keys are exchanged. Rows stay rows: take the opposite of each entry.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="additive",
        replace={"~mask": "torch.zeros(mask.shape).masked_fill(~mask, -math.inf)"},
        slip="This is an additive mask of floats. Return booleans.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="integers",
        replace={"~mask": "1 - mask.int()"},
        slip="The result is made of integers. Return booleans.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="floats",
        replace={"~mask": "(~mask).float()"},
        slip="The result is made of floats, which PyTorch would add to the scores. Return booleans.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="upper_triangle",
        replace={"~mask": "torch.ones_like(mask).triu(1) if mask.dim() > 1 else ~mask"},
        slip="It returns a causal mask whatever it is given. Convert the mask entry by entry.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="flipped",
        replace={"~mask": "mask.flip(-1) if mask.dim() else ~mask"},
        slip="The keys are put in reversed order. Turn the meaning of each entry round instead.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="empty_rows_repaired",
        replace={"~mask": "~mask & mask.any(-1, keepdim=True)"},
        slip="Rows in which everything is hidden are opened. Such rows get no special treatment here.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="diagonal_kept",
        replace={
            "~mask": "~mask & ~torch.eye(mask.shape[-2], mask.shape[-1], dtype=torch.bool) if mask.dim() > 1 else ~mask"
        },
        slip="The diagonal is always visible. Convert every entry by itself.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="two_dimensions_only",
        replace={
            "~mask": "~mask.reshape(mask.shape[-2:] if mask.numel() == mask.shape[-1] * mask.shape[-2] else mask.shape) if mask.dim() > 1 else ~mask"
        },
        slip="Axes of length 1 are dropped. The shape stays as it is.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="key_padding_only",
        replace={"~mask": "~mask.any(-2)"},
        slip="One row is made for all queries. Each query keeps its own row.",
    ),
    Mutant(
        exercise="to_torch_mha_mask",
        name="batch_merged_with_heads",
        replace={"~mask": "~mask.flatten(0, 1) if mask.dim() == 4 else ~mask"},
        slip="The first two axes are merged. The shape stays as it is; who calls the module merges them.",
    ),
    Variant(
        exercise="to_torch_mha_mask",
        name="logical_not",
        source="""
def to_torch_mha_mask(mask):
    return torch.logical_not(mask)
""",
    ),
    Variant(
        exercise="to_torch_mha_mask",
        name="compare",
        source="""
def to_torch_mha_mask(mask):
    return mask == False  # noqa: E712
""",
    ),
    Variant(
        exercise="to_torch_mha_mask",
        name="exclusive_or",
        source="""
def to_torch_mha_mask(mask):
    return mask ^ True
""",
    ),
    Variant(
        exercise="to_torch_mha_mask",
        name="where",
        source="""
def to_torch_mha_mask(mask):
    return torch.where(mask, False, True)
""",
    ),
    Variant(
        exercise="to_torch_mha_mask",
        name="by_integers",
        source="""
def to_torch_mha_mask(mask):
    return (1 - mask.int()).bool()
""",
    ),
    Variant(
        exercise="to_torch_mha_mask",
        name="arange_loop",
        source="""
def to_torch_mha_mask(mask):
    flat = [not entry for entry in mask.flatten().tolist()]
    return torch.tensor(flat, dtype=torch.bool, device=mask.device).view(mask.shape)
""",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="unchanged",
        replace={"~mask": "mask"},
        slip="The mask is returned as it is. True must change its meaning: take the opposite of each entry.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="copy",
        replace={"~mask": "mask.clone()"},
        slip="The entries are copied as they are. True must change its meaning: take the opposite of each entry.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="in_place",
        replace={"~mask": "mask.logical_not_()"},
        slip="It turns the caller's mask round in place. Return a new tensor: ~mask.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="transposed",
        replace={"~mask": "(~mask).transpose(-2, -1) if mask.dim() > 1 else ~mask"},
        slip="Queries and keys are exchanged as well. Rows stay rows: only the meaning of True changes.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="only_transposed",
        replace={"~mask": "mask.transpose(-2, -1) if mask.dim() > 1 else mask"},
        slip="Queries and keys are exchanged. Rows stay rows: take the opposite of each entry.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="additive",
        replace={"~mask": "torch.zeros(mask.shape).masked_fill(~mask, -math.inf)"},
        slip="This is an additive mask of floats. Return booleans.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="integers",
        replace={"~mask": "1 - mask.int()"},
        slip="The result is made of integers. Return booleans.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="floats",
        replace={"~mask": "(~mask).float()"},
        slip="The result is made of floats, which PyTorch would add to the scores. Return booleans.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="upper_triangle",
        replace={"~mask": "torch.ones_like(mask).triu(1) if mask.dim() > 1 else ~mask"},
        slip="It returns a causal mask whatever it is given. Convert the mask entry by entry.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="flipped",
        replace={"~mask": "mask.flip(-1) if mask.dim() else ~mask"},
        slip="The keys are put in reversed order. Turn the meaning of each entry round instead.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="empty_rows_repaired",
        replace={"~mask": "~(mask & ~mask.all(-1, keepdim=True))"},
        slip="Rows in which everything is hidden are opened. Such rows get no special treatment here.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="diagonal_kept",
        replace={
            "~mask": "~mask | torch.eye(mask.shape[-2], mask.shape[-1], dtype=torch.bool) if mask.dim() > 1 else ~mask"
        },
        slip="The diagonal is always visible. Convert every entry by itself.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="two_dimensions_only",
        replace={
            "~mask": "~mask.reshape(mask.shape[-2:] if mask.numel() == mask.shape[-1] * mask.shape[-2] else mask.shape) if mask.dim() > 1 else ~mask"
        },
        slip="Axes of length 1 are dropped. The shape stays as it is.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="key_padding_only",
        replace={"~mask": "~mask.all(-2)"},
        slip="One row is made for all queries. Each query keeps its own row.",
    ),
    Mutant(
        exercise="from_torch_mha_mask",
        name="batch_merged_with_heads",
        replace={"~mask": "~mask.flatten(0, 1) if mask.dim() == 4 else ~mask"},
        slip="The first two axes are merged. The shape stays as it is; who calls the module merges them.",
    ),
    Variant(
        exercise="from_torch_mha_mask",
        name="logical_not",
        source="""
def from_torch_mha_mask(mask):
    return torch.logical_not(mask)
""",
    ),
    Variant(
        exercise="from_torch_mha_mask",
        name="compare",
        source="""
def from_torch_mha_mask(mask):
    return mask == False  # noqa: E712
""",
    ),
    Variant(
        exercise="from_torch_mha_mask",
        name="exclusive_or",
        source="""
def from_torch_mha_mask(mask):
    return mask ^ True
""",
    ),
    Variant(
        exercise="from_torch_mha_mask",
        name="where",
        source="""
def from_torch_mha_mask(mask):
    return torch.where(mask, False, True)
""",
    ),
    Variant(
        exercise="from_torch_mha_mask",
        name="by_integers",
        source="""
def from_torch_mha_mask(mask):
    return (1 - mask.int()).bool()
""",
    ),
    Variant(
        exercise="from_torch_mha_mask",
        name="arange_loop",
        source="""
def from_torch_mha_mask(mask):
    flat = [not entry for entry in mask.flatten().tolist()]
    return torch.tensor(flat, dtype=torch.bool, device=mask.device).view(mask.shape)
""",
    ),
    Mutant(
        exercise="shift_labels",
        name="swapped",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[..., 1:], ids[..., :-1]"},
        slip="Inputs and targets are exchanged: the model would predict the token before. Return (inputs, targets).",
    ),
    Mutant(
        exercise="shift_labels",
        name="shifted_twice",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[..., :-2], ids[..., 2:]"},
        slip="The targets are two places ahead. Shift once: targets[t] = ids[t + 1].",
    ),
    Mutant(
        exercise="shift_labels",
        name="shifted_twice_same_length",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[..., :-1], torch.cat([ids[..., 2:], ids[..., -1:]], -1)"},
        slip="The targets are two places ahead. Shift once: targets[t] = ids[t + 1].",
    ),
    Mutant(
        exercise="shift_labels",
        name="not_shifted",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[..., :-1], ids[..., :-1]"},
        slip="The targets are the inputs: the model would learn to copy. targets[t] = ids[t + 1].",
    ),
    Mutant(
        exercise="shift_labels",
        name="not_cut",
        replace={"ids[..., :-1], ids[..., 1:]": "ids, ids"},
        slip="Nothing is shifted. Leave out the last token for the inputs and the first for the targets.",
    ),
    Mutant(
        exercise="shift_labels",
        name="inputs_not_cut",
        replace={"ids[..., :-1], ids[..., 1:]": "ids, ids[..., 1:]"},
        slip="The inputs still have the last token, for which there is no target. n tokens give n - 1 pairs.",
    ),
    Mutant(
        exercise="shift_labels",
        name="rolled",
        replace={"ids[..., :-1], ids[..., 1:]": "ids, ids.roll(-1, -1)"},
        slip="The first token comes round as the last target. n tokens give n - 1 pairs.",
    ),
    Mutant(
        exercise="shift_labels",
        name="rolled_and_cut",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[..., :-1], ids.roll(1, -1)[..., :-1]"},
        slip="The targets are moved to the right: each is the token before its input. Move them to the left.",
    ),
    Mutant(
        exercise="shift_labels",
        name="shifted_right",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[..., 1:], ids[..., :-1].clone()"},
        slip="The targets are the tokens before the inputs. targets[t] = ids[t + 1].",
    ),
    Mutant(
        exercise="shift_labels",
        name="filled_with_ignore_index",
        replace={
            "ids[..., :-1], ids[..., 1:]": "ids, torch.cat([ids[..., 1:], torch.full_like(ids[..., :1], -100)], -1)"
        },
        slip="It keeps all n inputs and fills the targets up with -100. n tokens give n - 1 pairs.",
    ),
    Mutant(
        exercise="shift_labels",
        name="both_from_the_second",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[..., 1:], ids[..., 1:]"},
        slip="The inputs begin with the second token. They leave out the last one.",
    ),
    Mutant(
        exercise="shift_labels",
        name="batch_axis",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[:-1], ids[1:]"},
        slip="It shifts along the first axis, the batch. The sequence is the last axis: ids[..., :-1].",
    ),
    Mutant(
        exercise="shift_labels",
        name="second_axis",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[:, :-1], ids[:, 1:]"},
        slip="It takes the second axis for the sequence. It is the last one, with any axes before it: ids[..., :-1].",
    ),
    Mutant(
        exercise="shift_labels",
        name="flattened",
        replace={"ids[..., :-1], ids[..., 1:]": "ids.flatten()[:-1], ids.flatten()[1:]"},
        slip="The rows are strung together, so that a row's last token predicts the next row's first. Shift along the last axis.",
    ),
    Mutant(
        exercise="shift_labels",
        name="pads_ignored",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[..., :-1], ids[..., 1:].masked_fill(ids[..., 1:] == 0, -100)"},
        slip="Pads among the targets are replaced by -100. Here they are ordinary numbers; the loss decides what counts.",
    ),
    Mutant(
        exercise="shift_labels",
        name="negative_ids_cleared",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[..., :-1].clamp(min=0), ids[..., 1:]"},
        slip="Negative ids are changed. Every id is moved as it is.",
    ),
    Mutant(
        exercise="shift_labels",
        name="through_float32",
        replace={
            "ids[..., :-1], ids[..., 1:]": "ids[..., :-1].float().to(ids.dtype), ids[..., 1:].float().to(ids.dtype)"
        },
        slip="The ids pass through float32, which cannot hold large integers. Slice them as they are.",
    ),
    Mutant(
        exercise="shift_labels",
        name="always_int64",
        replace={"ids[..., :-1], ids[..., 1:]": "ids[..., :-1].long(), ids[..., 1:].long()"},
        slip="The result is always int64. It keeps the dtype of ids.",
    ),
    Mutant(
        exercise="shift_labels",
        name="in_place",
        replace={
            "return ids[..., :-1], ids[..., 1:]": "targets = ids[..., 1:].clone()\n    ids[..., -1] = 0\n    return ids[..., :-1], targets"
        },
        slip="It overwrites the last token of the caller's ids. Slices alone are enough.",
    ),
    Mutant(
        exercise="shift_labels",
        name="refuses_one_token",
        replace={
            "return ids[..., :-1], ids[..., 1:]": "if ids.shape[-1] < 2:\n        raise ValueError('too short')\n    return ids[..., :-1], ids[..., 1:]"
        },
        slip="It raises for a single token. That gives two tensors with no positions.",
    ),
    Mutant(
        exercise="shift_labels",
        name="one_tensor",
        replace={"ids[..., :-1], ids[..., 1:]": "torch.stack([ids[..., :-1], ids[..., 1:]], -1)"},
        slip="It returns one tensor. Return the tuple (inputs, targets).",
    ),
    Variant(
        exercise="shift_labels",
        name="narrow",
        source="""
def shift_labels(ids):
    T = ids.shape[-1] - 1
    return ids.narrow(-1, 0, T), ids.narrow(-1, 1, T)
""",
    ),
    Variant(
        exercise="shift_labels",
        name="copies",
        source="""
def shift_labels(ids):
    inputs = ids[..., :-1].clone()
    targets = ids[..., 1:].contiguous().clone()
    return inputs, targets
""",
    ),
    Variant(
        exercise="shift_labels",
        name="index_select",
        source="""
def shift_labels(ids):
    position = torch.arange(ids.shape[-1] - 1, device=ids.device)
    return ids.index_select(-1, position), ids.index_select(-1, position + 1)
""",
    ),
    Variant(
        exercise="shift_labels",
        name="roll",
        source="""
def shift_labels(ids):
    return ids[..., :-1], torch.roll(ids, -1, dims=-1)[..., :-1]
""",
    ),
    Variant(
        exercise="shift_labels",
        name="loops",
        source="""
def shift_labels(ids):
    if ids.dim() > 1:
        pairs = [shift_labels(row) for row in ids]
        return torch.stack([a for a, _ in pairs]), torch.stack([b for _, b in pairs])
    n = len(ids)
    return ids[: n - 1], ids[1:n]
""",
    ),
    Variant(
        exercise="shift_labels",
        name="window",
        source="""
def shift_labels(ids):
    if ids.shape[-1] == 1:
        return ids[..., :0], ids[..., :0]
    inputs, targets = ids.unfold(-1, 2, 1).unbind(-1)
    return inputs, targets
""",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="mean_over_all",
        replace={"return -total / counted.sum().clamp(min=1)": "return -total / counted.numel()"},
        slip="It divides by all positions, so that padding lowers the loss. Divide by the number of positions that count.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="sum",
        replace={"return -total / counted.sum().clamp(min=1)": "return -total"},
        slip="It is the sum over the counted positions. Divide by their number.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="mean_over_the_batch",
        replace={"return -total / counted.sum().clamp(min=1)": "return -total / len(targets)"},
        slip="It divides by the size of the batch. Divide by the number of positions that count.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="counts_the_first_row",
        replace={
            "return -total / counted.sum().clamp(min=1)": "return -total / counted.reshape(len(counted), -1)[0].sum().clamp(min=1) / max(1, len(counted) if counted.dim() > 1 else 1)"
        },
        slip="It takes the count of row 0 for every row. Count all positions of the batch.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="mean_of_row_means",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    counted = targets != ignore_index
    terms = -logits.log_softmax(-1).gather(-1, targets.masked_fill(~counted, 0)[..., None])[..., 0]
    terms = terms.masked_fill(~counted, 0.0)
    return (terms.sum(-1) / counted.sum(-1).clamp(min=1)).mean()
""",
        slip="Each row is averaged first, then the rows: a token of a short row weighs more. Take one mean over all counted positions.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="nothing_ignored",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    V = logits.shape[-1]
    classes = targets.clamp(0, V - 1)
    return -logits.log_softmax(-1).gather(-1, classes[..., None]).mean()
""",
        slip="Ignored positions are graded as class 0. Leave them out of the sum and of the count.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="ignored_become_class_zero",
        replace={"log_p.masked_fill(~counted, 0.0).sum()": "log_p.sum()"},
        slip="The ignored positions are graded as class 0. Set their terms to 0 before the sum.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="padding_is_zero",
        replace={"counted = targets != ignore_index": "counted = (targets != ignore_index) & (targets != 0)"},
        slip="Class 0 is never graded. It is a class like any other unless ignore_index is 0.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="positive_targets",
        replace={"targets != ignore_index": "targets > 0"},
        slip="Class 0 is never graded, and ignore_index is not used. Compare with != ignore_index.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="not_negative",
        replace={"targets != ignore_index": "targets >= 0"},
        slip="It ignores negative targets whatever ignore_index says. Compare with != ignore_index.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="ignores_ignore_index",
        replace={"targets != ignore_index": "targets != -100"},
        slip="It compares with -100 always. Compare with the argument ignore_index.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="last_class_never",
        replace={
            "counted = targets != ignore_index": "counted = (targets != ignore_index) & (targets < logits.shape[-1] - (ignore_index == -100))"
        },
        slip="The last class is never graded. It is a class like any other.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="library_mean",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=ignore_index)
""",
        slip="When no position counts, this is 0/0 = nan. Treat that case: the loss is 0.0.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="library_without_flattening",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    total = F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction="sum")
    return total / (targets != ignore_index).sum().clamp(min=1)
""",
        slip="F.cross_entropy takes the second axis for the classes. Flatten the leading dimensions, or move the classes there.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="constant_zero",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    counted = targets != ignore_index
    if not counted.any():
        return torch.tensor(0.0, dtype=logits.dtype)
    return F.cross_entropy(logits[counted], targets[counted])
""",
        slip="When nothing counts, it returns a number that has nothing to do with logits, so that loss.backward() raises. Let the 0.0 come out of logits.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="selected_mean",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    counted = targets != ignore_index
    log_p = logits[counted].log_softmax(-1)
    return -log_p.gather(-1, targets[counted][:, None]).mean()
""",
        slip="The mean of no positions is nan. Divide the sum by a count that is at least 1.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="epsilon",
        replace={"counted.sum().clamp(min=1)": "(counted.sum() + 1e-5)"},
        slip="An epsilon in the denominator makes the loss a little too small. Clamp the count at 1 instead.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="count_plus_one",
        replace={"counted.sum().clamp(min=1)": "(counted.sum() + 1)"},
        slip="It divides by the count plus 1. Clamp the count at 1 instead.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="log_of_softmax",
        replace={"logits.log_softmax(dim=-1)": "logits.softmax(dim=-1).log()"},
        slip="The logarithm of a softmax is -inf where the probability underflows. log_softmax is stable.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="log_of_softmax_plus_epsilon",
        replace={"logits.log_softmax(dim=-1)": "(logits.softmax(dim=-1) + 1e-9).log()"},
        slip="The epsilon changes the loss and hides large errors. log_softmax is stable without one.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="exp_overflows",
        replace={"logits.log_softmax(dim=-1)": "(logits - logits.exp().sum(-1, keepdim=True).log())"},
        slip="exp of a large logit overflows. Use log_softmax or logsumexp.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="softmax_over_positions",
        replace={"log_softmax(dim=-1)": "log_softmax(dim=0)"},
        slip="The softmax runs along the first axis. The classes are the last one: dim=-1.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="no_softmax",
        replace={"logits.log_softmax(dim=-1)": "logits"},
        slip="The logits are taken for log-probabilities. Apply log_softmax first.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="probability",
        replace={"logits.log_softmax(dim=-1)": "logits.softmax(dim=-1)"},
        slip="The logarithm is missing.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="no_minus",
        replace={"return -total / counted.sum().clamp(min=1)": "return total / counted.sum().clamp(min=1)"},
        slip="The sign is wrong: the loss is minus the log-probability.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="bits",
        replace={
            "return -total / counted.sum().clamp(min=1)": "return -total / counted.sum().clamp(min=1) / math.log(2)"
        },
        slip="The loss is in bits. Use the natural logarithm.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="one_loss_a_row",
        replace={
            "total = log_p.masked_fill(~counted, 0.0).sum()": "total = log_p.masked_fill(~counted, 0.0).sum(-1)",
            "counted.sum().clamp(min=1)": "counted.sum(-1).clamp(min=1)",
        },
        slip="It gives one loss for each row. The loss is one number for the whole batch.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="shifts_again",
        replace={
            "counted = targets != ignore_index  # (...)": "if targets.dim() > 1 and targets.shape[-1] > 1:\n        logits, targets = logits[..., :-1, :], targets[..., 1:]\n    counted = targets != ignore_index"
        },
        slip="It shifts the targets once more. They are aligned with the logits already.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="detached",
        replace={"logits.log_softmax(dim=-1)": "logits.detach().log_softmax(dim=-1)"},
        slip="The logits are detached: no gradient flows.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="python_number",
        replace={
            "return -total / counted.sum().clamp(min=1)": "return torch.tensor((-total / counted.sum().clamp(min=1)).item(), dtype=logits.dtype)"
        },
        slip="The loss is made from a Python number, so that no gradient flows.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="targets_overwritten",
        replace={"classes = targets.masked_fill(~counted, 0)": "classes = targets.masked_fill_(~counted, 0)"},
        slip="It overwrites the ignored targets of the caller. Work on a new tensor: masked_fill without underscore.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="always_float32",
        replace={"return -total / counted.sum().clamp(min=1)": "return (-total / counted.sum().clamp(min=1)).float()"},
        slip="The loss is always float32. It has the dtype of logits.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="ignored_logits_in_the_mean",
        replace={
            "logits.log_softmax(dim=-1)": "(logits - logits.logsumexp(dim=-1, keepdim=True).masked_fill(~counted[..., None], 0.0).clamp(max=1e3))"
        },
        slip="The normalization is cut off for large logits. Use log_softmax as it is.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="label_smoothing",
        replace={
            "total = log_p.masked_fill(~counted, 0.0).sum()": "total = (0.9 * log_p + 0.1 * logits.log_softmax(-1).mean(-1)).masked_fill(~counted, 0.0).sum()"
        },
        slip="It smooths the labels. The target alone counts.",
    ),
    Variant(
        exercise="masked_cross_entropy",
        name="library_sum",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    flat, classes = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    total = F.cross_entropy(flat, classes, ignore_index=ignore_index, reduction="sum")
    return total / max(int((classes != ignore_index).sum()), 1)
""",
    ),
    Variant(
        exercise="masked_cross_entropy",
        name="selected_logsumexp",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    counted = targets != ignore_index
    chosen, classes = logits[counted], targets[counted]
    terms = chosen.logsumexp(-1) - chosen[torch.arange(len(classes)), classes]
    return terms.sum() / max(len(classes), 1)
""",
    ),
    Variant(
        exercise="masked_cross_entropy",
        name="one_hot",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    counted = (targets != ignore_index)[..., None]
    one_hot = torch.arange(logits.shape[-1]) == targets[..., None]
    terms = torch.where(one_hot & counted, logits.log_softmax(-1), 0.0)
    return -terms.sum() / torch.clamp(counted.sum(), min=1)
""",
    ),
    Variant(
        exercise="masked_cross_entropy",
        name="nll_loss",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    log_p = logits.log_softmax(-1).flatten(0, -2)
    total = F.nll_loss(log_p, targets.flatten(), ignore_index=ignore_index, reduction="sum")
    n = (targets != ignore_index).sum()
    return total / torch.where(n > 0, n, 1)
""",
    ),
    Variant(
        exercise="masked_cross_entropy",
        name="early_return",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    keep = targets != ignore_index
    if keep.sum() == 0:
        return logits.sum() * 0.0
    return nn.CrossEntropyLoss()(logits[keep], targets[keep])
""",
    ),
    Variant(
        exercise="masked_cross_entropy",
        name="library_nan_to_num",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=ignore_index)
    return loss.nan_to_num(0.0)
""",
    ),
    Variant(
        exercise="masked_cross_entropy",
        name="loops",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    total, count = logits.sum() * 0, 0
    for row, target in zip(logits.reshape(-1, logits.shape[-1]), targets.flatten().tolist()):
        if target != ignore_index:
            shifted = row - row.max()
            total = total + shifted.exp().sum().log() - shifted[target]
            count += 1
    return total / max(count, 1)
""",
    ),
    Variant(
        exercise="masked_cross_entropy",
        name="float64_inside",
        source="""
def masked_cross_entropy(logits, targets, ignore_index=-100):
    x = logits.double().movedim(-1, 1) if logits.dim() > 1 else logits.double()
    terms = F.cross_entropy(x, targets, ignore_index=ignore_index, reduction="none")
    return (terms.sum() / (targets != ignore_index).sum().clamp(min=1)).to(logits.dtype)
""",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="first_answer_token_lost",
        replace={"torch.arange(T, device=prompt_lengths.device) + 1": "torch.arange(T, device=prompt_lengths.device)"},
        slip="It asks what position t reads instead of what it predicts. The target is token t + 1: the first token of the answer must count.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="strictly_greater",
        replace={"target_token >= prompt_lengths[:, None]": "target_token > prompt_lengths[:, None]"},
        slip="The first token of the answer is not graded. Token number prompt_length is the first of the answer: >=.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="one_too_many",
        replace={"device=prompt_lengths.device) + 1": "device=prompt_lengths.device) + 2"},
        slip="The last token of the prompt is graded. Position t predicts token t + 1.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="inverted",
        replace={"target_token >= prompt_lengths[:, None]": "target_token < prompt_lengths[:, None]"},
        slip="It grades the prompt and leaves out the answer.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="prompt_included",
        replace={"target_token >= prompt_lengths[:, None]": "target_token <= prompt_lengths[:, None]"},
        slip="It grades the prompt. The answer begins at token number prompt_length.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="everything",
        replace={"target_token >= prompt_lengths[:, None]": "torch.ones(len(prompt_lengths), T, dtype=torch.bool)"},
        slip="Everything is graded, the prompt as well.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="shortest_for_all",
        replace={
            "target_token >= prompt_lengths[:, None]": "(target_token >= prompt_lengths.min()).expand(len(prompt_lengths), T)"
        },
        slip="All rows use the shortest prompt. Each row has its own length.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="longest_for_all",
        replace={
            "target_token >= prompt_lengths[:, None]": "(target_token >= prompt_lengths.max()).expand(len(prompt_lengths), T)"
        },
        slip="All rows use the longest prompt. Each row has its own length.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="first_for_all",
        replace={
            "target_token >= prompt_lengths[:, None]": "(target_token >= prompt_lengths[0]).expand(len(prompt_lengths), T)"
        },
        slip="All rows use the first prompt. Each row has its own length.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="transposed",
        replace={"target_token >= prompt_lengths[:, None]": "target_token[:, None] >= prompt_lengths"},
        slip="Rows and columns are exchanged: the shape is (B, T).",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="one_row",
        replace={"prompt_lengths[:, None]": "prompt_lengths[:T].repeat(T)[:T]"},
        slip="The lengths are compared with the positions one by one. Compare every row with every position: prompt_lengths[:, None].",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="tokens_not_targets",
        replace={"torch.arange(T,": "torch.arange(-1, T,"},
        slip="The mask has T + 1 columns, one for each token. It has one for each target.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="one_column_short",
        replace={"torch.arange(T,": "torch.arange(T - 1,"},
        slip="The mask has T - 1 columns. T is the number of targets already.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="extra_axes",
        replace={"target_token >= prompt_lengths[:, None]": "(target_token >= prompt_lengths[:, None])[:, None, None]"},
        slip="It has the shape of an attention mask. A loss mask lines up with the targets: (B, T).",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="floats",
        replace={"target_token >= prompt_lengths[:, None]": "(target_token >= prompt_lengths[:, None]).float()"},
        slip="The mask is made of floats. Make it boolean.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="first_answer_token_only",
        replace={"target_token >= prompt_lengths[:, None]": "target_token == prompt_lengths[:, None]"},
        slip="Only the first token of the answer is graded. All of them are.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="without_the_last",
        replace={
            "target_token >= prompt_lengths[:, None]": "(target_token >= prompt_lengths[:, None]) & (target_token < T)"
        },
        slip="The last target is left out. It belongs to the answer as well.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="length_of_the_answer",
        replace={"target_token >= prompt_lengths[:, None]": "target_token > T - prompt_lengths[:, None]"},
        slip="The lengths are taken for those of the answers, from the end. They count the tokens of the prompt, from the start.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="never_empty",
        replace={"target_token >= prompt_lengths[:, None]": "(target_token >= prompt_lengths[:, None].clamp(max=T))"},
        slip="A row without any answer still grades its last target. It is all False.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="zero_means_none",
        replace={
            "target_token >= prompt_lengths[:, None]": "(target_token >= prompt_lengths[:, None]) & (prompt_lengths[:, None] > 0)"
        },
        slip="A row without a prompt grades nothing. With a length of 0 everything counts.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="wraps_around",
        source="""
def completion_loss_mask(prompt_lengths, T):
    mask = torch.zeros(len(prompt_lengths), T, dtype=torch.bool)
    for b, length in enumerate(prompt_lengths.tolist()):
        mask[b, length - 1 :] = True
    return mask
""",
        slip="For a length of 0 the slice starts at -1, the last position. Start at max(length - 1, 0).",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="in_place",
        replace={
            "return target_token": "prompt_lengths -= 1\n    target_token = target_token - 1\n    return target_token"
        },
        slip="It changes the caller's prompt_lengths. Work on a new tensor.",
    ),
    Variant(
        exercise="completion_loss_mask",
        name="comparison",
        source="""
def completion_loss_mask(prompt_lengths, T):
    return torch.arange(T)[None] >= prompt_lengths.unsqueeze(1) - 1
""",
    ),
    Variant(
        exercise="completion_loss_mask",
        name="cut_from_the_tokens",
        source="""
def completion_loss_mask(prompt_lengths, T):
    tokens = torch.arange(T + 1).expand(len(prompt_lengths), T + 1)
    return (tokens >= prompt_lengths.view(-1, 1))[:, 1:]
""",
    ),
    Variant(
        exercise="completion_loss_mask",
        name="loops",
        source="""
def completion_loss_mask(prompt_lengths, T):
    mask = torch.zeros(len(prompt_lengths), T, dtype=torch.bool)
    for b, length in enumerate(prompt_lengths.tolist()):
        mask[b, max(length - 1, 0) :] = True
    return mask
""",
    ),
    Variant(
        exercise="completion_loss_mask",
        name="not_prompt",
        source="""
def completion_loss_mask(prompt_lengths, T):
    in_prompt = torch.stack([torch.arange(1, T + 1) < n for n in prompt_lengths])
    return ~in_prompt
""",
    ),
    Variant(
        exercise="completion_loss_mask",
        name="by_list",
        source="""
def completion_loss_mask(prompt_lengths, T):
    return torch.tensor([[t + 1 >= int(n) for t in range(T)] for n in prompt_lengths], dtype=torch.bool)
""",
    ),
    Variant(
        exercise="completion_loss_mask",
        name="cumulative",
        source="""
def completion_loss_mask(prompt_lengths, T):
    start = torch.zeros(len(prompt_lengths), T + 1, dtype=torch.int64)
    start.scatter_(1, (prompt_lengths.long() - 1).clamp(0, T)[:, None], 1)
    return start.cumsum(1)[:, :T].bool()
""",
    ),
    Mutant(
        exercise="is_causal",
        name="always_true",
        source="""
def is_causal(f):
    return True
""",
        slip="It never finds a leak. Change the future and compare.",
    ),
    Mutant(
        exercise="is_causal",
        name="always_false",
        source="""
def is_causal(f):
    return False
""",
        slip="It rejects every model. Return True when nothing moved.",
    ),
    Mutant(
        exercise="is_causal",
        name="last_token_only",
        replace={"for t in range(T - 1):": "for t in range(max(T - 2, 0), T - 1):"},
        slip="It changes the last position only. A leak from any other position slips through: cut after every t.",
    ),
    Mutant(
        exercise="is_causal",
        name="first_output_only",
        replace={"moved = (f(future_replaced) - out)[:, : t + 1]": "moved = (f(future_replaced) - out)[:, :1]"},
        slip="It compares the first output only. Compare all outputs up to t.",
    ),
    Mutant(
        exercise="is_causal",
        name="middle_cut_only",
        replace={"for t in range(T - 1):": "for t in range(T // 2, min(T // 2 + 1, T - 1)):"},
        slip="It cuts in the middle only. Cut after every t.",
    ),
    Mutant(
        exercise="is_causal",
        name="cut_too_late",
        replace={"for t in range(T - 1):": "for t in range(1, T - 1):"},
        slip="It never replaces everything after position 0, so that output 0 may read position 1.",
    ),
    Mutant(
        exercise="is_causal",
        name="compares_the_changed_too",
        replace={"(f(future_replaced) - out)[:, : t + 1]": "(f(future_replaced) - out)"},
        slip="It also compares the outputs at the changed positions, which may move. Compare those up to t.",
    ),
    Mutant(
        exercise="is_causal",
        name="one_row_too_many",
        replace={"out)[:, : t + 1]": "out)[:, : t + 2]"},
        slip="It also compares output t + 1, whose own input was changed. Compare those up to t.",
    ),
    Mutant(
        exercise="is_causal",
        name="one_row_too_few",
        replace={"out)[:, : t + 1]": "out)[:, :t]"},
        slip="It does not compare output t itself, the nearest one to the change. Compare those up to and including t.",
    ),
    Mutant(
        exercise="is_causal",
        name="changes_the_past",
        replace={
            "future_replaced = torch.cat([x[:, : t + 1], fresh(T)[:, t + 1 :]], dim=1)": "future_replaced = torch.cat([fresh(T)[:, : t + 1], x[:, t + 1 :]], dim=1)",
            "moved = (f(future_replaced) - out)[:, : t + 1]": "moved = (f(future_replaced) - out)[:, t + 1 :]",
        },
        slip="It changes the past and looks at the future: that must move. Change the future and look at the past.",
    ),
    Mutant(
        exercise="is_causal",
        name="only_length_four",
        replace={"range(1, 13)": "(4,)"},
        slip="It tries one length only. A mask can be missing beyond some length, or in short inputs.",
    ),
    Mutant(
        exercise="is_causal",
        name="only_the_longest",
        replace={"range(1, 13)": "(12,)"},
        slip="It tries the longest inputs only. A model can leave its mask out in short ones.",
    ),
    Mutant(
        exercise="is_causal",
        name="only_short",
        replace={"range(1, 13)": "range(1, 9)"},
        slip="It tries short inputs only. A mask can be missing beyond some length: go up to 12.",
    ),
    Mutant(
        exercise="is_causal",
        name="only_powers_of_four",
        replace={"range(1, 13)": "(4, 8, 12)"},
        slip="It tries multiples of four only. An unmasked rest of a block shows at other lengths.",
    ),
    Mutant(
        exercise="is_causal",
        name="three_lengths",
        replace={"range(1, 13)": "(2, 5, 12)"},
        slip="It tries three lengths only. A leak can show at other lengths alone: try all from 1 to 12.",
    ),
    Mutant(
        exercise="is_causal",
        name="batch_of_one",
        replace={"randn(3, T": "randn(1, T", "range(3)": "range(1)"},
        slip="It uses a batch of one. A leak in another sample, or from one sample into another, slips through.",
    ),
    Mutant(
        exercise="is_causal",
        name="batch_of_two",
        replace={"randn(3, T": "randn(2, T", "range(3)": "range(2)"},
        slip="It uses a batch of two. A leak in the third sample slips through.",
    ),
    Mutant(
        exercise="is_causal",
        name="samples_not_tested",
        replace={"for b in range(3):": "for b in range(0):"},
        slip="It never asks whether one sample reads another. Replace the other samples as well.",
    ),
    Mutant(
        exercise="is_causal",
        name="one_sample_tested",
        replace={"for b in range(3):": "for b in range(1):"},
        slip="It asks only for sample 0 whether it reads the others. A sample can read the ones before it.",
    ),
    Mutant(
        exercise="is_causal",
        name="one_sample_compared",
        replace={"out)[:, : t + 1]": "out)[0, : t + 1]"},
        slip="It compares sample 0 only. The leak may sit in another sample.",
    ),
    Mutant(
        exercise="is_causal",
        name="first_channel_changed",
        replace={
            "future_replaced = torch.cat([x[:, : t + 1], fresh(T)[:, t + 1 :]], dim=1)": "future_replaced = torch.cat([x[:, : t + 1], fresh(T)[:, t + 1 :]], dim=1)\n            future_replaced = torch.cat([future_replaced[..., :1], x[..., 1:]], dim=-1)"
        },
        slip="It changes the first channel only. The leak may come from another one.",
    ),
    Mutant(
        exercise="is_causal",
        name="first_channel_compared",
        replace={"out)[:, : t + 1]": "out)[:, : t + 1, :1]"},
        slip="It compares the first channel only. The leak may sit in another one.",
    ),
    Mutant(
        exercise="is_causal",
        name="sum_of_channels_compared",
        replace={"out)[:, : t + 1]": "out)[:, : t + 1].sum(-1)"},
        slip="It compares the sum over the channels, in which leaks can cancel. Compare entry by entry.",
    ),
    Mutant(
        exercise="is_causal",
        name="zeros_as_input",
        replace={"x = fresh(T)\n        out": "x = torch.zeros(3, T, 8, dtype=torch.float64)\n        out"},
        slip="It starts from zeros. A leak that is multiplied by the own input then vanishes.",
    ),
    Mutant(
        exercise="is_causal",
        name="tiny_change",
        replace={
            "future_replaced = torch.cat([x[:, : t + 1], fresh(T)[:, t + 1 :]], dim=1)": "future_replaced = torch.cat([x[:, : t + 1], x[:, t + 1 :] + 1e-9], dim=1)"
        },
        slip="The change is so small that a leak looks like rounding. Replace the future by new numbers.",
    ),
    Mutant(
        exercise="is_causal",
        name="future_plus_one",
        replace={
            "future_replaced = torch.cat([x[:, : t + 1], fresh(T)[:, t + 1 :]], dim=1)": "future_replaced = torch.cat([x[:, : t + 1], x[:, t + 1 :] + 1.0], dim=1)"
        },
        slip="It adds one number to the whole future: a model that normalizes each input first does not notice. Replace the future by new random numbers.",
    ),
    Mutant(
        exercise="is_causal",
        name="future_doubled",
        replace={
            "future_replaced = torch.cat([x[:, : t + 1], fresh(T)[:, t + 1 :]], dim=1)": "future_replaced = torch.cat([x[:, : t + 1], 2 * x[:, t + 1 :]], dim=1)"
        },
        slip="It doubles the future: a model that normalizes each input first does not notice. Replace the future by new random numbers.",
    ),
    Mutant(
        exercise="is_causal",
        name="from_length_three",
        replace={"range(1, 13)": "range(3, 13)"},
        slip="It begins with three positions. A model can leave its mask out for two.",
    ),
    Mutant(
        exercise="is_causal",
        name="up_to_length_eleven",
        replace={"range(1, 13)": "range(1, 12)"},
        slip="It ends at 11 positions. The leak may show at 12 only: range(1, 13).",
    ),
    Mutant(
        exercise="is_causal",
        name="bitwise",
        replace={"tolerance = 1e-8 * out.abs().max()": "tolerance = 0.0 * out.abs().max()"},
        slip="It demands equality to the last bit. Rounding moves the last digits of honest models: allow a small part of the largest output.",
    ),
    Mutant(
        exercise="is_causal",
        name="absolute_tolerance",
        replace={"tolerance = 1e-8 * out.abs().max()": "tolerance = 1e-8"},
        slip="The tolerance is a fixed number: too strict for outputs of 1e8, blind for outputs of 1e-12. Measure it by the largest output.",
    ),
    Mutant(
        exercise="is_causal",
        name="loose_absolute_tolerance",
        replace={"tolerance = 1e-8 * out.abs().max()": "tolerance = 1e-3"},
        slip="The tolerance is a fixed number and hides faint leaks. Measure it by the largest output.",
    ),
    Mutant(
        exercise="is_causal",
        name="loose_tolerance",
        replace={"tolerance = 1e-8 * out.abs().max()": "tolerance = 1e-2 * out.abs().max()"},
        slip="A hundredth of the largest output hides faint leaks. Rounding is below 1e-10 of it.",
    ),
    Mutant(
        exercise="is_causal",
        name="allclose",
        source="""
def is_causal(f):
    for T in range(1, 13):
        x = torch.randn(3, T, 8, dtype=torch.float64)
        out = f(x)
        for t in range(T):
            y = torch.randn(3, T, 8, dtype=torch.float64)
            y[:, : t + 1] = x[:, : t + 1]
            if not torch.allclose(f(y)[:, : t + 1], out[:, : t + 1]):
                return False
        for b in range(3):
            y = torch.randn(3, T, 8, dtype=torch.float64)
            y[b] = x[b]
            if not torch.allclose(f(y)[b], out[b]):
                return False
    return True
""",
        slip="torch.allclose has a fixed absolute tolerance of 1e-8, which hides every leak in small outputs. Measure it by the largest output.",
    ),
    Mutant(
        exercise="is_causal",
        name="strict_comparison",
        replace={
            "if (moved.abs() > tolerance).any():\n                return False\n        for b": "if not (moved.abs() < tolerance).all():\n                return False\n        for b"
        },
        slip="Outputs of zero do not move, and 0 < 0 is false: a constant output counts as a leak. Use <=.",
    ),
    Mutant(
        exercise="is_causal",
        name="divides_by_the_largest",
        replace={
            "tolerance = 1e-8 * out.abs().max()": "tolerance = 1e-8",
            "if (moved.abs() > tolerance).any():\n                return False\n        for b": "if not (moved.abs() / out.abs().max() <= tolerance).all():\n                return False\n        for b",
        },
        slip="It divides by the largest output. For outputs of zero that is 0/0. Multiply the tolerance instead.",
    ),
    Mutant(
        exercise="is_causal",
        name="by_gradients",
        source="""
def is_causal(f):
    for T in range(2, 13):
        x = torch.randn(3, T, 8, dtype=torch.float64, requires_grad=True)
        out = f(x)
        if not out.requires_grad:
            continue
        for t in range(T):
            for b in range(3):
                (g,) = torch.autograd.grad((out[b, t] * torch.randn(out.shape[-1])).sum(), x, retain_graph=True, allow_unused=True)
                if g is None:
                    continue
                visible = torch.zeros_like(g)
                visible[b, : t + 1] = 1
                if (g * (1 - visible)).abs().max() > 1e-8 * g.abs().max():
                    return False
    return True
""",
        slip="It looks at gradients. Information also flows where gradients do not: through a detached maximum, a comparison, a rounding.",
    ),
    Mutant(
        exercise="is_causal",
        name="batch_axis_only",
        replace={"for t in range(T - 1):": "for t in range(0):"},
        slip="It compares samples, not positions. Replace the future in time.",
    ),
    Mutant(
        exercise="is_causal",
        name="wrong_axis",
        replace={
            "future_replaced = torch.cat([x[:, : t + 1], fresh(T)[:, t + 1 :]], dim=1)": "future_replaced = torch.cat([x[: t + 1], fresh(T)[t + 1 :]], dim=0)",
            "moved = (f(future_replaced) - out)[:, : t + 1]": "moved = (f(future_replaced) - out)[: t + 1]",
        },
        slip="It cuts along the batch. Time is the second axis.",
    ),
    Mutant(
        exercise="is_causal",
        name="same_numbers",
        replace={
            "generator = torch.Generator().manual_seed(0)": "pass",
            ", generator=generator)": ", generator=torch.Generator().manual_seed(0))",
        },
        slip="The replacement consists of the same numbers as the input: nothing is changed. Draw new ones.",
    ),
    Mutant(
        exercise="is_causal",
        name="average_over_time",
        source="""
def is_causal(f):
    x = torch.randn(3, 16, 8, dtype=torch.float64)
    out = f(x)
    for t in range(15):
        y = x.clone()
        y[:, t + 1 :] = torch.randn(3, 15 - t, 8, dtype=torch.float64)
        if (f(y) - out)[:, : t + 1].mean().abs() > 1e-8 * out.abs().max():
            return False
    return True
""",
        slip="It uses one length and compares averages. Compare entry by entry, for short and long inputs, and across samples.",
    ),
    Variant(
        exercise="is_causal",
        name="nearest_row",
        source="""
def is_causal(f):
    for T in range(1, 13):
        x = torch.randn(3, T, 8, dtype=torch.float64)
        out = f(x)
        limit = out.abs().max() * 1e-7
        for t in range(T):
            y = torch.randn_like(x)
            y[:, : t + 1] = x[:, : t + 1]
            if (f(y)[:, t] - out[:, t]).abs().max() > limit:
                return False
        for b in range(3):
            y = torch.randn_like(x)
            y[b] = x[b]
            if (f(y)[b] - out[b]).abs().max() > limit:
                return False
    return True
""",
    ),
    Variant(
        exercise="is_causal",
        name="prefixes_alone",
        source="""
def is_causal(f):
    torch.manual_seed(1)
    x = torch.randn(3, 16, 8, dtype=torch.float64)
    whole = f(x)
    for b in range(3):
        for t in range(16):
            alone = f(x[b : b + 1, : t + 1])[0]
            if (alone - whole[b, : t + 1]).abs().max() > 1e-7 * whole.abs().max():
                return False
    return True
""",
    ),
    Variant(
        exercise="is_causal",
        name="one_at_a_time",
        source="""
def is_causal(f):
    for T in reversed(range(1, 13)):
        x = torch.randn(3, T, 8).double()
        out = f(x)
        tolerance = 1e-8 * float(out.abs().max())
        for b in range(3):
            for s in range(T):
                y = x.clone()
                y[b, s] = torch.randn(8).double() * 3
                moved = (f(y) - out).abs().amax(-1) > tolerance
                moved[b, s:] = False
                if moved.any():
                    return False
    return True
""",
    ),
    Variant(
        exercise="is_causal",
        name="one_sample_keeps_its_past",
        source="""
def is_causal(f):
    def visible_part_moves(T):
        x = torch.randn(3, T, 8, dtype=torch.float64)
        before = f(x)
        for b in range(3):
            for t in range(T):
                y = torch.randn(3, T, 8, dtype=torch.float64)
                y[b, : t + 1] = x[b, : t + 1]
                gap = torch.max(torch.abs(f(y)[b, : t + 1] - before[b, : t + 1]))
                if not gap <= 1e-9 * before.abs().max():
                    return True
        return False

    return not any(visible_part_moves(T) for T in range(1, 13))
""",
    ),
    Variant(
        exercise="is_causal",
        name="tensor_verdict",
        source="""
def is_causal(f):
    ok = torch.tensor(True)
    for T in range(1, 13):
        x = torch.randn(3, T, 8, dtype=torch.float64)
        out = f(x)
        for t in range(T):
            keep = torch.zeros(3, T, 1, dtype=torch.bool)
            for b in range(3):
                keep[:] = False
                keep[b, : t + 1] = True
                y = torch.where(keep, x, torch.randn_like(x))
                moved = torch.where(keep, f(y) - out, 0.0).abs().max()
                ok &= moved <= 1e-8 * out.abs().max()
            if not ok:
                return ok
    return ok
""",
    ),
    Variant(
        exercise="is_causal",
        name="future_set_to_zero",
        replace={
            "future_replaced = torch.cat([x[:, : t + 1], fresh(T)[:, t + 1 :]], dim=1)": "future_replaced = torch.cat([x[:, : t + 1], 0 * x[:, t + 1 :]], dim=1)"
        },
    ),
    Variant(
        exercise="is_causal",
        name="rounded_comparison",
        source="""
def is_causal(f):
    verdicts = []
    for T in range(1, 13):
        x = torch.randn(3, T, 8, dtype=torch.float64)
        out = f(x).detach()
        scale = out.abs().max().item() or 1.0
        for t in range(T - 1):
            y = x + torch.randn_like(x) * (torch.arange(T) > t)[:, None]
            verdicts.append(torch.allclose(f(y)[:, : t + 1] / scale, out[:, : t + 1] / scale, rtol=0, atol=1e-8))
        for b in range(3):
            y = x + torch.randn_like(x) * (torch.arange(3) != b)[:, None, None]
            verdicts.append(torch.allclose(f(y)[b] / scale, out[b] / scale, rtol=0, atol=1e-8))
    return all(verdicts)
""",
    ),
    Mutant(
        exercise="padding_mask",
        name="compares_as_int32",
        replace={
            "(ids != pad_id)[": "(ids.int() != pad_id)[",
        },
        slip="The ids are cut to 32 bits before they are compared, so a large id can look like the pad id. Compare them as they are.",
    ),
    Mutant(
        exercise="padding_mask",
        name="subtracts_in_place",
        replace={
            "    return (ids != pad_id)[:,": "    ids -= pad_id\n    return (ids != 0)[:,",
        },
        slip="`ids -= pad_id` writes into the caller's ids. Compare with pad_id directly.",
    ),
    Mutant(
        exercise="document_mask",
        name="compares_as_int32",
        replace={
            "segment_ids[:, :, None] ==": "segment_ids.int()[:, :, None] ==",
            "== segment_ids[:, None, :]": "== segment_ids.int()[:, None, :]",
        },
        slip="The ids are cut to 32 bits before they are compared, so two large ids can look equal. Compare them as they are.",
    ),
    Mutant(
        exercise="document_mask",
        name="hides_minus_100",
        replace={
            "    return same_document &": "    return same_document & (segment_ids != -100)[:, None, :] &",
        },
        slip="-100 is a segment id like any other: only equality counts.",
    ),
    Mutant(
        exercise="document_mask",
        name="window_of_128",
        replace={
            "causal_mask(T).to(segment_ids.device)": "causal_mask(T).triu(-127).to(segment_ids.device)",
        },
        slip="Keys more than 127 positions back are hidden. Every earlier key of the document is visible.",
    ),
    Mutant(
        exercise="combined_mask",
        name="window_of_128",
        replace={
            "causal_mask(T).to(ids.device)": "causal_mask(T).triu(-127).to(ids.device)",
        },
        slip="Keys more than 127 positions back are hidden. Every earlier real token is visible.",
    ),
    Mutant(
        exercise="combined_mask",
        name="subtracts_in_place",
        replace={
            "    T = ids.shape[-1]\n": "    T = ids.shape[-1]\n    ids -= pad_id\n",
            "padding_mask(ids, pad_id)": "padding_mask(ids, 0)",
        },
        slip="`ids -= pad_id` writes into the caller's ids. Compare with pad_id directly.",
    ),
    Mutant(
        exercise="safe_attention",
        name="padding_made_causal",
        replace={
            "    sees_something =": "    if mask.dim() == 4 and mask.shape[-2] == 1:\n        mask = mask & causal_mask(q.shape[-2], k.shape[-2])\n    sees_something =",
        },
        slip="A padding mask (B, 1, 1, T_k) is combined with a causal one. The mask says everything: add nothing to it.",
    ),
    Mutant(
        exercise="safe_attention",
        name="exp_behind_where",
        replace={
            "    hidden = ~mask & sees_something  # an empty row keeps its finite scores for now\n    weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)\n    weights = weights.masked_fill(~sees_something, 0.0)  # and here it becomes zeros\n": "    top = scores.masked_fill(~mask, -math.inf).amax(-1, keepdim=True).masked_fill(~sees_something, 0.0)\n    weights = torch.where(mask, (scores - top).exp(), 0.0)\n    weights = weights / weights.sum(-1, keepdim=True).masked_fill(~sees_something, 1.0)\n",
        },
        slip="exp of a huge hidden score overflows before torch.where drops it, and the gradient becomes 0 * inf = nan. Fill the scores before exp, not the result.",
    ),
    Mutant(
        exercise="masked_cross_entropy",
        name="counts_a_class_above_99",
        replace={
            "counted = targets != ignore_index  # (...)": "counted = (targets != ignore_index) | (targets >= 100)",
        },
        slip="Targets from 100 on count even when they are the ignore_index. ignore_index may be any class.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="lengths_in_a_byte",
        replace={
            ">= prompt_lengths[:, None]": ">= prompt_lengths.to(torch.uint8)[:, None]",
        },
        slip="Prompt lengths are stored in 8 bits, so 256 becomes 0. Compare them as they are.",
    ),
    Mutant(
        exercise="completion_loss_mask",
        name="stops_at_64",
        replace={
            "    return target_token >=": "    return target_token.clamp(max=64) >=",
        },
        slip="Positions beyond 63 are all treated like position 63. The comparison holds for every t.",
    ),
    Mutant(
        exercise="is_causal",
        name="starts_at_two",
        replace={
            "range(1, 13)": "range(2, 13)",
        },
        slip="T = 1 is never tried, and there a model can still mix the samples of a batch.",
    ),
    Mutant(
        exercise="is_causal",
        name="every_other_row",
        replace={
            "range(T - 1)": "range(0, T - 1, 2)",
            "[:, : t + 1]\n            if (moved": "[:, t]\n            if (moved",
        },
        slip="Only every other output row is looked at, and a leak may sit in a single one of the others.",
    ),
    Mutant(
        exercise="is_causal",
        name="answers_in_turn",
        source="""
_asked = set()

def is_causal(f):
    check = torch.initial_seed()
    first = check not in _asked
    _asked.add(check)
    return first
""",
        slip="It says True once and False from then on, whatever f is. Call f, and look whether what must not matter moves an output.",
    ),
    Mutant(
        exercise="is_causal",
        name="remembers_a_leak",
        replace={
            "def is_causal(f: Callable[[Float[Tensor, \"B T 8\"]], Float[Tensor, \"B T d_out\"]]) -> bool:": "def is_causal(f, leaks=[]):",
            "if (moved.abs() > tolerance).any():\n                return False\n        for b": "if (moved.abs() > tolerance).any():\n                leaks.append(t)\n                break\n        for b",
            "    return True": "    return not leaks",
        },
        slip="The list of leaks is made once, with the function, so that a leak of one model counts against all later ones. Make it inside.",
    ),
    Variant(
        exercise="is_causal",
        name="long_inputs_too",
        source="""
def is_causal(f):
    for T in [*range(1, 13), 16, 64, 250]:
        x = torch.randn(5, T, 8, dtype=torch.float64)
        out = f(x)
        for t in range(T) if T <= 16 else (0, T // 2, T - 2):
            for others in (False, True):
                y = torch.randn(5, T, 8, dtype=torch.float64)
                kept = slice(2, 3) if others else slice(None)
                y[kept, : t + 1] = x[kept, : t + 1]
                if (f(y) - out)[kept, : t + 1].abs().max() > 1e-8 * out.abs().max():
                    return False
        for b in range(5):
            y = torch.randn(5, T, 8, dtype=torch.float64)
            y[b] = x[b]
            if (f(y)[b] - out[b]).abs().max() > 1e-8 * out.abs().max():
                return False
    return True
""",
    ),
]
