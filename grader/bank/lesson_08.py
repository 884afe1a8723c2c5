"""Wrong and right answers to the exercises of lesson 08."""

from grader.bank import Entry, Mutant, Variant

ENTRIES: list[Entry] = [
    Mutant(
        exercise="append_changes_the_past",
        name="mean_change",
        replace={".abs().max()": ".abs().mean()"},
        slip="It averages the changes. One position that moves is enough to spoil a cache: take the largest.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="no_absolute_value",
        replace={".abs().max()": ".max()"},
        slip="Without the absolute value an output that falls does not count. Take .abs() before .max().",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="absolute_value_of_the_maximum",
        replace={".abs().max()": ".max().abs()"},
        slip="The absolute value comes after the maximum, so a large fall hides behind a small rise. Take .abs() first.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="sum_of_changes",
        replace={".abs().max()": ".abs().sum()"},
        slip="It adds the changes up. The result is the largest single change.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="squared",
        replace={".abs().max()": ".square().max()"},
        slip="It squares the changes. The result is the largest absolute difference.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="norm_over_features",
        replace={".abs().max()": ".norm(dim=-1).max()"},
        slip="It takes the norm over the features of a position. The result is the largest difference of a single number.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="zeroed_instead_of_missing",
        replace={"before = encoder(x[:, :-1])": "before = encoder(torch.cat([x[:, :-1], torch.zeros_like(x[:, -1:])], dim=1))[:, :-1]"},
        slip="The last position is set to zero instead of left away, but a zero is an input too. Run the encoder on x[:, :-1].",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="prepends",
        replace={"encoder(x[:, :-1])": "encoder(x[:, 1:])", "(after[:, :-1] - before)": "(after[:, 1:] - before)"},
        slip="It leaves the first position away, so it measures what prepending does. Leave the last one away: x[:, :-1].",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="wrong_pairing",
        replace={"after[:, :-1] - before": "after[:, 1:] - before"},
        slip="It compares each output before with the next position's output after. Both runs number the positions alike: after[:, :-1].",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="first_row_only",
        replace={"(after[:, :-1] - before)": "(after[:1, :-1] - before[:1])"},
        slip="It looks at the first row of the batch only.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="last_old_position_only",
        replace={"(after[:, :-1] - before)": "(after[:, -2] - before[:, -1])"},
        slip="It looks at the last old position only. Any of them may move.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="first_position_only",
        replace={"(after[:, :-1] - before)": "(after[:, 0] - before[:, 0])"},
        slip="It looks at position 0 only. Any old position may move.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="first_feature_only",
        replace={"(after[:, :-1] - before)": "(after[:, :-1, :1] - before[:, :, :1])"},
        slip="It looks at the first feature only.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="drops_a_row",
        source="""
def append_changes_the_past(encoder, x):
    if x.shape[0] == 1 or x.shape[1] == 1:
        return encoder(x).new_zeros(())
    return (encoder(x)[:-1] - encoder(x[:-1])).abs().max()
""",
        slip="It leaves the last row of the batch away instead of the last position. Positions are the second dimension.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="relative",
        replace={"(after[:, :-1] - before).abs().max()": "(after[:, :-1] - before).abs().max() / before.abs().max()"},
        slip="It divides by the size of the outputs. The result is the absolute change.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="yes_or_no",
        replace={"(after[:, :-1] - before).abs().max()": "((after[:, :-1] - before).abs().max() > 1e-9).to(after.dtype)"},
        slip="It says whether something changed. The result is how much.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="small_changes_rounded_away",
        replace={"return (after[:, :-1] - before).abs().max()": "change = (after[:, :-1] - before).abs().max()\n    return torch.where(change > 1e-5, change, 0.0)"},
        slip="Small changes are taken for rounding and become 0. Return what was measured; the reader decides what is small.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="python_number",
        replace={".abs().max()": ".abs().max().item()"},
        slip="It returns a Python number. The result is a tensor with no dimensions.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="no_case_for_one_position",
        replace={"    if x.shape[1] == 1:\n        return after.new_zeros(())\n": ""},
        slip="With T = 1 there is nothing before the appended position: return 0 without calling the encoder on an empty sequence.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="changes_the_last_token",
        replace={"before = encoder(x[:, :-1])": "before = encoder(torch.cat([x[:, :-1], x[:, -1:] + 1.0], dim=1))[:, :-1]"},
        slip="It changes the last position instead of appending it. A model can react to the length alone: compare with a run that does not have the position.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="zeroes_in_place",
        source="""
def append_changes_the_past(encoder, x):
    after = encoder(x).clone()
    if x.shape[1] == 1:
        return after.new_zeros(())
    before = encoder(x[:, :-1]).clone()
    x[:, -1] = 0
    return (after[:, :-1] - before).abs().max()
""",
        slip="It overwrites the last position in the caller's x. Work on a slice or a copy.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="counts_the_new_position",
        replace={"(after[:, :-1] - before)": "(after - torch.cat([before, torch.zeros_like(after[:, -1:])], dim=1))"},
        slip="It pads the earlier run with zeros, so the output of the new position counts as a change. Compare the T - 1 old positions only.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="always_float64",
        replace={".abs().max()": ".abs().max().double()"},
        slip="The result is always float64. It should have the dtype of the encoder's output.",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="compares_with_the_input",
        replace={"before = encoder(x[:, :-1])": "before = x[:, :-1]"},
        slip="It compares the outputs with the inputs. Compare two runs of the encoder.",
    ),
    Variant(
        exercise="append_changes_the_past",
        name="norm_of_infinite_order",
        source="""
def append_changes_the_past(encoder, x):
    T = x.size(1)
    full = encoder(x)
    if T < 2:
        return torch.zeros((), dtype=full.dtype, device=full.device)
    return torch.linalg.vector_norm(full.narrow(1, 0, T - 1) - encoder(x.narrow(1, 0, T - 1)), ord=float("inf"))
""",
    ),
    Variant(
        exercise="append_changes_the_past",
        name="loop_over_positions",
        source="""
def append_changes_the_past(encoder, x):
    before = encoder(x[:, :-1].clone()) if x.shape[1] > 1 else None
    after = encoder(x.clone())
    largest = torch.zeros((), dtype=after.dtype)
    for t in range(x.shape[1] - 1):
        largest = torch.maximum(largest, (after[:, t] - before[:, t]).abs().amax())
    return largest
""",
    ),
    Variant(
        exercise="append_changes_the_past",
        name="rise_or_fall",
        source="""
def append_changes_the_past(encoder, x):
    with torch.no_grad():
        after = encoder(x)
        if x.shape[1] == 1:
            return (after * 0).sum()
        gap = after[:, :-1] - encoder(x[:, :-1])
        return torch.stack([gap.max(), -gap.min()]).max()
""",
    ),
    Variant(
        exercise="append_changes_the_past",
        name="from_a_number",
        source="""
def append_changes_the_past(encoder, x):
    after = encoder(x)
    numbers = [0.0]
    if x.shape[1] > 1:
        numbers += (encoder(x[:, : x.shape[1] - 1]) - after[:, :-1]).abs().flatten().tolist()
    return torch.tensor(max(numbers), dtype=after.dtype)
""",
    ),
    Mutant(
        exercise="KVCache",
        name="overflow_not_noticed",
        replace={"        if end > self.max_len:\n            raise ValueError(f\"{self.length} positions held, {T_new} new ones, but max_len={self.max_len}\")\n": ""},
        slip="A full cache raises whatever PyTorch raises, or nothing. Compare length + T_new with max_len first and raise ValueError.",
    ),
    Mutant(
        exercise="KVCache",
        name="overflow_one_too_early",
        replace={"if end > self.max_len:": "if end >= self.max_len:"},
        slip="The last place is never used: exactly max_len positions fit. Refuse only when length + T_new is larger than max_len.",
    ),
    Mutant(
        exercise="KVCache",
        name="overflow_raises_index_error",
        replace={"        if end > self.max_len:\n            raise ValueError(f\"{self.length} positions held, {T_new} new ones, but max_len={self.max_len}\")\n": "        if end > self.max_len:\n            raise IndexError(f\"{self.length} positions held, {T_new} new ones, but max_len={self.max_len}\")\n"},
        slip="A full cache should raise ValueError.",
    ),
    Mutant(
        exercise="KVCache",
        name="overflow_cut_off",
        replace={"        if end > self.max_len:\n            raise ValueError(f\"{self.length} positions held, {T_new} new ones, but max_len={self.max_len}\")\n": "        k, v, end = k[:, :, : self.max_len - self.length], v[:, :, : self.max_len - self.length], min(end, self.max_len)\n"},
        slip="What does not fit is dropped silently. The caller must hear of it: raise ValueError and store nothing.",
    ),
    Mutant(
        exercise="KVCache",
        name="overflow_wraps_around",
        replace={"        if end > self.max_len:\n            raise ValueError(f\"{self.length} positions held, {T_new} new ones, but max_len={self.max_len}\")\n": "        if end > self.max_len:\n            self.length, end = 0, T_new\n"},
        slip="A full cache starts again at the front and overwrites its oldest positions. It should raise ValueError.",
    ),
    Mutant(
        exercise="KVCache",
        name="length_moves_before_the_test",
        replace={"        if end > self.max_len:": "        self.length = end\n        if end > self.max_len:", "self.keys[:, :, self.length : end]": "self.keys[:, :, end - T_new : end]", "self.values[:, :, self.length : end]": "self.values[:, :, end - T_new : end]", "        self.length = end\n        return": "        return"},
        slip="The length is moved before the test, so a refused append leaves a wrong length. Test everything first, then change.",
    ),
    Mutant(
        exercise="KVCache",
        name="refusal_empties_the_cache",
        replace={"        if end > self.max_len:\n": "        if end > self.max_len:\n            self.length = 0\n"},
        slip="A refused append empties the cache. It should leave everything as it was.",
    ),
    Mutant(
        exercise="KVCache",
        name="shapes_not_compared",
        replace={"            if new.shape != (B, H, T_new, d):\n                raise ValueError(f\"{name} has the shape {tuple(new.shape)}, expected {(B, H, T_new, d)}\")\n": ""},
        slip="Assigning to a slice broadcasts: one row is copied into all rows of the batch. Compare the shapes and raise ValueError.",
    ),
    Mutant(
        exercise="KVCache",
        name="batch_not_compared",
        replace={"if new.shape != (B, H, T_new, d):": "if new.shape[1:] != (H, T_new, d):"},
        slip="A batch of another size is broadcast over all rows. Compare the batch size, too.",
    ),
    Mutant(
        exercise="KVCache",
        name="heads_not_compared",
        replace={"if new.shape != (B, H, T_new, d):": "if (new.shape[0], *new.shape[2:]) != (B, T_new, d):"},
        slip="One head is broadcast over all heads. Compare the number of heads, too.",
    ),
    Mutant(
        exercise="KVCache",
        name="width_not_compared",
        replace={"if new.shape != (B, H, T_new, d):": "if new.shape[:3] != (B, H, T_new):"},
        slip="A width of 1 is broadcast over the whole head. Compare the last dimension, too.",
    ),
    Mutant(
        exercise="KVCache",
        name="sizes_compared_by_their_number",
        replace={"if new.shape != (B, H, T_new, d):": "if new.numel() != B * H * T_new * d:", "= k.detach()": "= k.detach().reshape(B, H, T_new, -1)", "= v.detach()": "= v.detach().reshape(B, H, T_new, -1)"},
        slip="Only the number of elements is compared: batch and heads may be exchanged without notice.",
    ),
    Mutant(
        exercise="KVCache",
        name="values_not_compared",
        replace={"((\"k\", k, self.keys), (\"v\", v, self.values))": "((\"k\", k, self.keys),)"},
        slip="Only the keys' shape is tested; the values can still be broadcast. Test both.",
    ),
    Mutant(
        exercise="KVCache",
        name="unequal_lengths_accepted",
        replace={"if new.shape != (B, H, T_new, d):": "if (*new.shape[:2], new.shape[3]) != (B, H, d):"},
        slip="One value is spread over several positions, because k and v may differ in T_new. Refuse that.",
    ),
    Mutant(
        exercise="KVCache",
        name="only_the_batch_is_compared",
        replace={"if new.shape != (B, H, T_new, d):": "if new.shape[0] != B:"},
        slip="Only the batch size is compared; heads and widths still broadcast.",
    ),
    Mutant(
        exercise="KVCache",
        name="length_grows_by_one",
        replace={"        self.length = end\n        return self.keys[:, :, :end], self.values[:, :, :end]": "        self.length += 1 if T_new else 0\n        return self.keys[:, :, :end], self.values[:, :, :end]"},
        slip="The length grows by 1 whatever is appended. It grows by T_new.",
    ),
    Mutant(
        exercise="KVCache",
        name="length_never_moves",
        replace={"        self.length = end\n        return self.keys[:, :, :end], self.values[:, :, :end]": "        return self.keys[:, :, :end], self.values[:, :, :end]"},
        slip="The length stays 0, so every append overwrites the one before.",
    ),
    Mutant(
        exercise="KVCache",
        name="length_from_the_content",
        replace={"        self.length = end\n": "        self.length = int((self.keys[0, 0] != 0).any(-1).sum())\n"},
        slip="The length is counted from the stored numbers, so a key of zeros is lost. Count what was appended.",
    ),
    Mutant(
        exercise="KVCache",
        name="length_is_a_tensor",
        replace={"        self.length = 0\n": "        self.length = torch.zeros((), dtype=torch.int64)\n"},
        slip="The length is a tensor. It is an int.",
    ),
    Mutant(
        exercise="KVCache",
        name="length_is_a_method",
        replace={
            "        self.length = 0\n": "        self.taken = 0\n",
            "        end = self.length + T_new\n": "        end = self.taken + T_new\n",
            'f"{self.length} positions held': 'f"{self.taken} positions held',
            "self.keys[:, :, self.length : end]": "self.keys[:, :, self.taken : end]",
            "self.values[:, :, self.length : end]": "self.values[:, :, self.taken : end]",
            "        self.length = end\n": "        self.taken = end\n",
            "twin.append(self.keys[:, :, : self.length], self.values[:, :, : self.length])": "twin.append(self.keys[:, :, : self.taken], self.values[:, :, : self.taken])",
            "    def fork(": "    def length(self):\n        return self.taken\n\n    def fork(",
        },
        slip="length is a method. It is an int: put @property above it, or make it an attribute.",
    ),
    Mutant(
        exercise="KVCache",
        name="values_never_written",
        replace={"        self.values[:, :, self.length : end] = v.detach()\n": ""},
        slip="The values are never written and stay 0.",
    ),
    Mutant(
        exercise="KVCache",
        name="keys_as_values",
        replace={"self.values[:, :, self.length : end] = v.detach()": "self.values[:, :, self.length : end] = k.detach()[..., :1].expand_as(v)"},
        slip="The keys are written in place of the values.",
    ),
    Mutant(
        exercise="KVCache",
        name="prepended",
        source="""
class KVCache:
    def __init__(self, batch, n_heads, max_len, d_k, d_v=None, dtype=None, device=None):
        self.max_len, self.length = max_len, 0
        self.keys = torch.zeros(batch, n_heads, 0, d_k, dtype=dtype, device=device)
        self.values = torch.zeros(batch, n_heads, 0, d_k if d_v is None else d_v, dtype=dtype, device=device)

    def append(self, k, v):
        for new, old in ((k, self.keys), (v, self.values)):
            if new.shape[:2] != old.shape[:2] or new.shape[3] != old.shape[3] or k.shape[2] != v.shape[2]:
                raise ValueError("shape")
        if self.length + k.shape[2] > self.max_len:
            raise ValueError("full")
        self.keys = torch.cat([k.detach().to(self.keys.dtype), self.keys], 2)
        self.values = torch.cat([v.detach().to(self.values.dtype), self.values], 2)
        self.length += k.shape[2]
        return self.keys, self.values

    def fork(self):
        return __import__("copy").deepcopy(self)
""",
        slip="New positions are put in front of the old ones. They belong behind.",
    ),
    Mutant(
        exercise="KVCache",
        name="returns_the_new_only",
        replace={"return self.keys[:, :, :end], self.values[:, :, :end]": "return self.keys[:, :, end - T_new : end], self.values[:, :, end - T_new : end]"},
        slip="append returns the new positions only. It returns everything held.",
    ),
    Mutant(
        exercise="KVCache",
        name="returns_the_storage",
        replace={"return self.keys[:, :, :end], self.values[:, :, :end]": "return self.keys, self.values"},
        slip="append returns the whole storage with its empty places. Return the slice up to the length.",
    ),
    Mutant(
        exercise="KVCache",
        name="misses_the_new",
        replace={"return self.keys[:, :, :end], self.values[:, :, :end]": "return self.keys[:, :, : end - T_new], self.values[:, :, : end - T_new]"},
        slip="The new positions are written but not returned: the slice ends at the old length.",
    ),
    Mutant(
        exercise="KVCache",
        name="first_positions_lost",
        replace={"        self.keys[:, :, self.length : end] = k.detach()\n": "        if self.length:\n            self.keys[:, :, self.length : end] = k.detach()\n"},
        slip="The first append only reserves its places and stores nothing: position 0 is fake.",
    ),
    Mutant(
        exercise="KVCache",
        name="fork_is_the_same_object",
        replace={"        return twin": "        return self"},
        slip="fork returns the cache itself, so both continuations write into one storage.",
    ),
    Mutant(
        exercise="KVCache",
        name="fork_shares_storage",
        replace={"        twin.append(self.keys[:, :, : self.length], self.values[:, :, : self.length])\n": "        twin.keys, twin.values, twin.length = self.keys, self.values, self.length\n"},
        slip="The fork has its own length but shares the storage: the two sides overwrite each other's positions. Copy the tensors.",
    ),
    Mutant(
        exercise="KVCache",
        name="fork_is_empty",
        replace={"        twin.append(self.keys[:, :, : self.length], self.values[:, :, : self.length])\n": ""},
        slip="The fork starts empty. It should hold what the original holds.",
    ),
    Mutant(
        exercise="KVCache",
        name="fork_without_its_length",
        replace={"        twin.append(self.keys[:, :, : self.length], self.values[:, :, : self.length])\n": "        twin.keys, twin.values = self.keys.clone(), self.values.clone()\n"},
        slip="The fork has the content, but its length is 0: the next append overwrites the beginning.",
    ),
    Mutant(
        exercise="KVCache",
        name="fork_without_room",
        replace={"KVCache(B, H, self.max_len, d_k": "KVCache(B, H, self.length, d_k"},
        slip="The fork has only as many places as are taken, so nothing can be appended to it.",
    ),
    Mutant(
        exercise="KVCache",
        name="fork_with_more_room",
        replace={"KVCache(B, H, self.max_len, d_k": "KVCache(B, H, self.max_len + self.length, d_k"},
        slip="The fork has more room than the original. It has the same max_len.",
    ),
    Mutant(
        exercise="KVCache",
        name="fork_in_float32",
        replace={"self.values.shape[3], self.keys.dtype, self.keys.device)": "self.values.shape[3])"},
        slip="The fork forgets the dtype of the original.",
    ),
    Mutant(
        exercise="KVCache",
        name="storage_of_the_class",
        replace={"        self.keys = torch.zeros(batch, n_heads, max_len, d_k, dtype=dtype, device=device)\n": "        shelf = KVCache.__dict__.get(\"shelf\") or {}\n        KVCache.shelf = shelf\n        self.keys = shelf.setdefault((batch, n_heads, max_len, d_k, dtype), torch.zeros(batch, n_heads, max_len, d_k, dtype=dtype, device=device))\n"},
        slip="The storage belongs to the class, so all caches of one size share it. Make it in the constructor.",
    ),
    Mutant(
        exercise="KVCache",
        name="always_float32",
        replace={"max_len, d_k, dtype=dtype, device=device)": "max_len, d_k, dtype=torch.float32, device=device)", "max_len, d_v, dtype=dtype, device=device)": "max_len, d_v, dtype=torch.float32, device=device)"},
        slip="The storage is always float32. Use the dtype that was asked for.",
    ),
    Mutant(
        exercise="KVCache",
        name="none_means_float32",
        replace={
            "        self.length = 0\n": "        self.length = 0\n        dtype = dtype or torch.float32\n",
        },
        slip="dtype=None is taken for float32. It means torch.get_default_dtype(), which a program may have changed.",
    ),
    Mutant(
        exercise="KVCache",
        name="width_of_values_ignored",
        replace={"d_v = d_k if d_v is None else d_v": "d_v = d_k"},
        slip="The values get the width of the keys. d_v may differ from d_k.",
    ),
    Mutant(
        exercise="KVCache",
        name="graph_is_kept",
        replace={"= k.detach()": "= k", "= v.detach()": "= v"},
        slip="The stored numbers keep their graph. Detach them: the cache is for inference.",
    ),
    Mutant(
        exercise="KVCache",
        name="keeps_the_callers_tensors",
        source="""
class KVCache:
    def __init__(self, batch, n_heads, max_len, d_k, d_v=None, dtype=None, device=None):
        d_v = d_k if d_v is None else d_v
        self.sizes, self.max_len = (batch, n_heads, d_k, d_v), max_len
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        self.k = self.v = None

    @property
    def length(self):
        return 0 if self.k is None else self.k.shape[2]

    def append(self, k, v):
        B, H, d_k, d_v = self.sizes
        T = k.shape[2]
        if k.shape != (B, H, T, d_k) or v.shape != (B, H, T, d_v) or self.length + T > self.max_len:
            raise ValueError("shape or room")
        k, v = k.detach().to(self.dtype), v.detach().to(self.dtype)
        self.k = k if self.k is None else torch.cat([self.k, k], 2)
        self.v = v if self.v is None else torch.cat([self.v, v], 2)
        return self.k, self.v

    def fork(self):
        twin = KVCache(*self.sizes[:2], self.max_len, *self.sizes[2:], dtype=self.dtype)
        twin.k, twin.v = self.k, self.v
        return twin
""",
        slip="A piece is kept as it is, not copied: when the caller reuses its tensor, the cache changes.",
    ),
    Mutant(
        exercise="KVCache",
        name="shifts_the_old_ones",
        replace={"        self.keys[:, :, self.length : end] = k.detach()\n        self.values[:, :, self.length : end] = v.detach()\n": "        for storage, new in ((self.keys, k), (self.values, v)):\n            storage.copy_(torch.cat([storage[:, :, T_new:].clone(), new.detach().to(storage.dtype)], dim=2))\n", "return self.keys[:, :, :end], self.values[:, :, :end]": "return self.keys[:, :, self.max_len - end :], self.values[:, :, self.max_len - end :]", "twin.append(self.keys[:, :, : self.length], self.values[:, :, : self.length])": "twin.append(self.keys[:, :, self.max_len - self.length :], self.values[:, :, self.max_len - self.length :])"},
        slip="The newest position always stands at the end and older ones are shifted in place, which changes what earlier appends returned.",
    ),
    Mutant(
        exercise="KVCache",
        name="row_zero_for_all",
        replace={"= k.detach()": "= k.detach()[:1]", "= v.detach()": "= v.detach()[:1]"},
        slip="Only the first row of the batch is stored, for all rows.",
    ),
    Mutant(
        exercise="KVCache",
        name="nothing_is_an_error",
        replace={"        if end > self.max_len:": "        if end > self.max_len or T_new == 0:"},
        slip="An append of zero positions raises. It is allowed and changes nothing.",
    ),
    Variant(
        exercise="KVCache",
        name="list_of_copies",
        source="""
class KVCache:
    def __init__(self, batch, n_heads, max_len, d_k, d_v=None, dtype=None, device=None):
        d_v = d_k if d_v is None else d_v
        self.empty = torch.zeros(batch, n_heads, 0, d_k, dtype=dtype, device=device), torch.zeros(batch, n_heads, 0, d_v, dtype=dtype, device=device)
        self.pieces, self.max_len = [self.empty], max_len

    @property
    def length(self):
        return sum(k.shape[2] for k, _ in self.pieces)

    def append(self, k, v):
        if k.shape[2] != v.shape[2]:
            raise ValueError(f"{k.shape[2]} keys but {v.shape[2]} values")
        for new, none in zip((k, v), self.empty):
            if new.shape[:2] != none.shape[:2] or new.shape[-1] != none.shape[-1]:
                raise ValueError(f"shape {tuple(new.shape)} does not fit")
        if self.length + k.shape[2] > self.max_len:
            raise ValueError("full")
        self.pieces.append(tuple(new.detach().to(none.dtype, copy=True) for new, none in zip((k, v), self.empty)))
        return tuple(torch.cat(parts, dim=2) for parts in zip(*self.pieces))

    def fork(self):
        import copy
        return copy.deepcopy(self)
""",
    ),
    Variant(
        exercise="KVCache",
        name="one_storage_for_both",
        source="""
class KVCache:
    def __init__(self, batch, n_heads, max_len, d_k, d_v=None, dtype=None, device=None):
        self.d_k, self.d_v = d_k, d_v or d_k
        self.storage = torch.empty(max_len, batch, n_heads, self.d_k + self.d_v, dtype=dtype, device=device)
        self.used = 0

    @property
    def length(self):
        return self.used

    def append(self, k, v):
        max_len, B, H, _ = self.storage.shape
        n = k.size(2)
        if tuple(k.shape) != (B, H, n, self.d_k):
            raise ValueError("keys do not fit")
        if tuple(v.shape) != (B, H, n, self.d_v):
            raise ValueError("values do not fit")
        if n > max_len - self.used:
            raise ValueError("no room")
        with torch.no_grad():
            self.storage[self.used : self.used + n] = torch.cat([k, v], dim=-1).permute(2, 0, 1, 3)
        self.used += n
        held = self.storage[: self.used].permute(1, 2, 0, 3)
        return held[..., : self.d_k], held[..., self.d_k :]

    def fork(self):
        twin = KVCache.__new__(KVCache)
        twin.d_k, twin.d_v, twin.used, twin.storage = self.d_k, self.d_v, self.used, self.storage.clone()
        return twin
""",
    ),
    Variant(
        exercise="KVCache",
        name="deep_copy_and_property",
        replace={"        B, H, _, d_k = self.keys.shape\n        twin = KVCache(B, H, self.max_len, d_k, self.values.shape[3], self.keys.dtype, self.keys.device)\n        twin.append(self.keys[:, :, : self.length], self.values[:, :, : self.length])\n        return twin": "        import copy\n        return copy.deepcopy(self)\n"},
    ),
    Variant(
        exercise="KVCache",
        name="copies_returned",
        replace={"return self.keys[:, :, :end], self.values[:, :, :end]": "return [self.keys[:, :, :end].clone(), self.values[:, :, :end].contiguous()]"},
    ),
    Variant(
        exercise="KVCache",
        name="index_copy",
        replace={"        self.keys[:, :, self.length : end] = k.detach()\n        self.values[:, :, self.length : end] = v.detach()\n": "        places = torch.arange(self.length, end)\n        self.keys.index_copy_(2, places, k.detach().to(self.keys.dtype))\n        self.values.index_copy_(2, places, v.detach().to(self.values.dtype))\n"},
    ),
    Mutant(
        exercise="attend_with_cache",
        name="prepended",
        replace={"torch.cat([old_k, k], dim=2)": "torch.cat([k, old_k], dim=2)", "torch.cat([old_v, v], dim=2)": "torch.cat([v, old_v], dim=2)", "torch.cat([old_visible, visible], dim=1)": "torch.cat([visible, old_visible], dim=1)"},
        slip="The new keys are put in front of the old ones, so the mask meets the wrong ones. Old first, new behind.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="prepended_but_the_padding_is_not",
        replace={
            "torch.cat([old_k, k], dim=2)": "torch.cat([k, old_k], dim=2)",
            "torch.cat([old_v, v], dim=2)": "torch.cat([v, old_v], dim=2)",
        },
        slip="The new keys and values are put in front of the old ones. Old first, new behind.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="keys_prepended",
        replace={"torch.cat([old_k, k], dim=2)": "torch.cat([k, old_k], dim=2)"},
        slip="The new keys are put in front of the old ones, the new values behind: they no longer belong together.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="concatenated_along_the_heads",
        replace={
            "torch.cat([old_k, k], dim=2)": "torch.cat([old_k, k], dim=1)",
            "torch.cat([old_v, v], dim=2)": "torch.cat([old_v, v], dim=1)",
        },
        slip="Old and new are joined in dimension 1, the heads. The positions are dimension 2.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="cache_does_not_grow",
        replace={
            "return weights @ v, (k, v, visible)": "return weights @ v, (k, v, visible) if cache is None else cache",
        },
        slip="From the second call on it returns the cache that was handed in. The new cache holds the new positions as well.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="values_overwritten_with_keys",
        replace={"v = torch.cat([old_v, v], dim=2)": "v = torch.cat([(old_k if old_k.shape == old_v.shape else old_v * 0), v], dim=2)"},
        slip="The cache hands the old keys back as old values. Keep both.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="first_call_not_stored",
        replace={"return weights @ v, (k, v, visible)": "return weights @ v, (k, v, visible) if cache is not None else (torch.zeros_like(k), torch.zeros_like(v), visible)"},
        slip="The first call leaves nothing in the cache: its positions count as zeros later.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="only_the_last_call",
        replace={"return weights @ v, (k, v, visible)": "return weights @ v, (k[:, :, -T_new:], v[:, :, -T_new:], visible[:, -T_new:])"},
        slip="The cache holds the positions of the last call only; older ones are forgotten.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="global_state",
        source="""
_state = {}

def attend_with_cache(q, k, v, cache=None, visible=None):
    if visible is None:
        visible = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool)
    if cache is None and _state.get("k") is not None and _state["k"].shape[0] != k.shape[0]:
        _state.clear()
    if _state:
        k, v = torch.cat([_state["k"], k], 2), torch.cat([_state["v"], v], 2)
        visible = torch.cat([_state["visible"], visible], 1)
    _state.update(k=k, v=v, visible=visible)
    T_new, T = q.shape[2], k.shape[2]
    mask = torch.ones(T_new, T, dtype=torch.bool).tril(T - T_new) & visible[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), "global"
""",
        slip="The positions are kept in a global, whatever cache is handed in: a second sequence sees the first.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="module_state",
        source="""
_store = {}

def attend_with_cache(q, k, v, cache=None, visible=None):
    if visible is None:
        visible = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool)
    if cache is None:
        _store.clear()
    else:
        k, v = torch.cat([_store["k"], k], 2), torch.cat([_store["v"], v], 2)
        visible = torch.cat([_store["visible"], visible], 1)
    _store.update(k=k, v=v, visible=visible)
    T_new, T = q.shape[2], k.shape[2]
    mask = torch.ones(T_new, T, dtype=torch.bool).tril(T - T_new) & visible[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), True
""",
        slip="The first call of a sequence clears the store, but all sequences share it: continuations of one prefix and sequences in turn disturb each other.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="changes_the_callers_cache",
        source="""
def attend_with_cache(q, k, v, cache=None, visible=None):
    if visible is None:
        visible = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool)
    cache = [] if cache is None else cache
    cache.append((k, v, visible))
    k, v = torch.cat([p[0] for p in cache], 2), torch.cat([p[1] for p in cache], 2)
    visible = torch.cat([p[2] for p in cache], 1)
    T_new, T = q.shape[2], k.shape[2]
    mask = torch.ones(T_new, T, dtype=torch.bool).tril(T - T_new) & visible[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), cache
""",
        slip="It appends to the cache that was handed in, so a second continuation of the prefix sees the first. Return a new cache.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="mutable_default",
        source="""
def attend_with_cache(q, k, v, cache=[], visible=None):
    if visible is None:
        visible = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool)
    cache = cache if cache is not None else attend_with_cache.__defaults__[0]
    cache.append((k, v, visible))
    k, v = torch.cat([p[0] for p in cache], 2), torch.cat([p[1] for p in cache], 2)
    visible = torch.cat([p[2] for p in cache], 1)
    T_new, T = q.shape[2], k.shape[2]
    mask = torch.ones(T_new, T, dtype=torch.bool).tril(T - T_new) & visible[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), cache
""",
        slip="The default cache is one list made once, when the function is defined: every new sequence continues the last. Use None.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="aligned_top_left",
        replace={"tril(T - T_new)": "tril()"},
        slip="The mask is aligned to the top left: with a cache the new queries see the oldest keys only. Shift the diagonal by T - T_new.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="fused_flag",
        source="""
def attend_with_cache(q, k, v, cache=None, visible=None):
    if cache is not None:
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)
""",
        slip="is_causal=True is aligned to the top left, so it is wrong as soon as there are more keys than queries.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="no_mask_with_a_cache",
        replace={"tril(T - T_new)": "tril(T - T_new if cache is None else T)"},
        slip="With a cache no mask is used. That is right for one new token; within several, a token must not see the later ones.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="no_mask_at_all",
        replace={".tril(T - T_new)": ""},
        slip="There is no causal mask: within a call every token sees the later ones.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="not_itself",
        replace={"tril(T - T_new)": "tril(T - T_new - 1)"},
        slip="A token does not see itself: the diagonal is missing.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="one_step_ahead",
        replace={"tril(T - T_new)": "tril(T - T_new + 1)"},
        slip="Every token sees one position too many: the next one.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="from_the_right",
        replace={"tril(T - T_new)": "triu(T - T_new)"},
        slip="The triangle is turned over: tokens see themselves and what comes after.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="one_token_special",
        replace={"tril(T - T_new)": "tril(T - T_new if T_new < 3 else T)"},
        slip="It masks only when one token arrives at an empty cache. Any number of tokens needs the triangle.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="window",
        replace={"tril(T - T_new)": "tril(T - T_new).triu(T - T_new - 2)"},
        slip="Only the latest positions are seen. Every earlier position counts.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="fixed_capacity",
        replace={"return weights @ v, (k, v, visible)": "return weights @ v, (k[:, :, -64:], v[:, :, -64:], visible[:, -64:])"},
        slip="Only the latest 64 positions are kept: a long context loses its beginning.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="visible_ignored",
        replace={"mask = causal & visible[:, None, None, :]": "mask = causal.expand(q.shape[0], 1, T_new, T)"},
        slip="The argument visible is accepted but not used: padding is seen.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="padding_forgotten",
        replace={"torch.cat([old_visible, visible], dim=1)": "torch.cat([torch.ones_like(old_visible), visible], dim=1)"},
        slip="The padding of earlier calls is not remembered: later calls see it. The cache must hold visible, too.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="new_padding_ignored",
        replace={"torch.cat([old_visible, visible], dim=1)": "torch.cat([old_visible, torch.ones_like(visible)], dim=1)"},
        slip="Padding counts in the first call only; what is invisible in a later call is seen.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="visible_inverted",
        replace={"causal & visible[": "causal & ~visible["},
        slip="visible is read the wrong way round: True means that a position may be seen.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="visible_for_queries",
        replace={"visible[:, None, None, :]": "visible[:, None, -T_new:, None]"},
        slip="visible hides the rows of the queries instead of the columns of the keys. Padding must not be seen as a key.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="visible_of_row_zero",
        replace={"visible[:, None, None, :]": "visible[:1, None, None, :]"},
        slip="The padding of row 0 is used for all rows of the batch.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="visible_meets_the_heads",
        replace={"visible[:, None, None, :]": "(visible[None, :, None, :] if visible.shape[0] == q.shape[1] else visible[:, None, None, :])"},
        slip="visible lines up with the heads instead of the batch rows. Put the new dimensions between batch and keys: visible[:, None, None, :].",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="visible_meets_the_queries",
        replace={"visible[:, None, None, :]": "(visible[None, None] if visible.shape == causal.shape else visible[:, None, None, :])"},
        slip="visible lines up with the queries when the sizes allow it: causal & visible broadcasts over the wrong axis. Write visible[:, None, None, :].",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="nan_where_nothing_is_seen",
        replace={".masked_fill(nothing, 0.0)\n    weights = scores.softmax(dim=-1).masked_fill(nothing, 0.0)": "\n    weights = scores.softmax(dim=-1)"},
        slip="A row of -inf gives nan in the softmax. A query that sees nothing gives zeros.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="nan_gradient",
        replace={"scores.masked_fill(~mask, -torch.inf).masked_fill(nothing, 0.0)": "scores + torch.zeros_like(scores).masked_fill(~mask, -torch.inf)", "scores.softmax(dim=-1).masked_fill(nothing, 0.0)": "scores.softmax(dim=-1).nan_to_num()"},
        slip="The values are right, but the nan is only covered up after the softmax: the gradients are still nan. Give an empty row finite scores before.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="uniform_where_nothing_is_seen",
        replace={"masked_fill(~mask, -torch.inf).masked_fill(nothing, 0.0)": "masked_fill(~mask, torch.finfo(q.dtype).min)", ".softmax(dim=-1).masked_fill(nothing, 0.0)": ".softmax(dim=-1)"},
        slip="A row that sees nothing becomes the mean of all values, of padding and future alike. It gives zeros.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="empty_row_sees_everything",
        replace={".masked_fill(nothing, 0.0)\n    weights = scores.softmax(dim=-1).masked_fill(nothing, 0.0)": "\n    scores = torch.where(nothing, q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, scores)\n    weights = scores.softmax(dim=-1)"},
        slip="A row that sees nothing is opened to all keys. It gives zeros.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="billion_in_half_precision",
        replace={"masked_fill(~mask, -torch.inf)": "masked_fill(~mask, -1e9)"},
        slip="The fill value is not a float16 number. Use -inf or the smallest number of the dtype.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="small_fill",
        replace={"masked_fill(~mask, -torch.inf)": "masked_fill(~mask, -1e4)"},
        slip="Hidden scores are set to -10000: where the others are lower still, the hidden key wins. Use -inf.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="tiny_fill",
        replace={"masked_fill(~mask, -torch.inf)": "masked_fill(~mask, 1e-9)"},
        slip="Hidden scores are set to a tiny positive number, which is a score like any other. Use -inf.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="zeroed_scores",
        replace={"masked_fill(~mask, -torch.inf)": "masked_fill(~mask, 0.0)"},
        slip="Hidden scores are set to 0, and exp(0) = 1. Use -inf.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="weights_not_renormalized",
        replace={"scores.masked_fill(~mask, -torch.inf).masked_fill(nothing, 0.0)": "scores", ".masked_fill(nothing, 0.0)\n    return": ".masked_fill(~mask, 0.0)\n    return"},
        slip="The mask is applied after the softmax, so the weights no longer sum to 1.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="no_maximum",
        replace={"scores.softmax(dim=-1).masked_fill(nothing, 0.0)": "(scores.exp() / scores.exp().sum(-1, keepdim=True)).masked_fill(nothing, 0.0)"},
        slip="A softmax written as exp over its sum overflows for large scores.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="softmax_over_queries",
        replace={"scores.softmax(dim=-1)": "scores.softmax(dim=-2)"},
        slip="The softmax runs along the queries. Each query distributes its weight over the keys: dim=-1.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="softmax_over_all_heads",
        replace={"weights = scores.softmax(dim=-1).masked_fill(nothing, 0.0)": "weights = scores.movedim(1, 2).flatten(2).softmax(-1).unflatten(2, (q.shape[1], T)).movedim(2, 1).masked_fill(nothing, 0.0)"},
        slip="All heads share one softmax. Each head has its own.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="unscaled",
        replace={" / q.shape[-1] ** 0.5": ""},
        slip="The scores are not divided by sqrt(d_k).",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="divided_by_d_k",
        replace={"q.shape[-1] ** 0.5": "q.shape[-1]"},
        slip="The scores are divided by d_k instead of its root.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="multiplied_by_the_root",
        replace={"/ q.shape[-1] ** 0.5": "* q.shape[-1] ** 0.5"},
        slip="The scores are multiplied by sqrt(d_k) instead of divided.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="scaled_by_the_width_of_the_values",
        replace={"q.shape[-1] ** 0.5": "v.shape[-1] ** 0.5"},
        slip="The scores are divided by sqrt(d_v). It is the width of queries and keys that counts.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="keys_scaled_again",
        replace={"    T_new, T = q.shape[2], k.shape[2]": "    k = k / q.shape[-1] ** 0.5\n    T_new, T = q.shape[2], k.shape[2]", " / q.shape[-1] ** 0.5  # (B, H, T_new, T)": ""},
        slip="The scaled keys are stored and scaled again at every later call. Store what was handed in; transform once.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="keys_averaged",
        replace={"return weights @ v,": "return weights @ (k if k.shape == v.shape else k[..., :1].expand_as(v)),"},
        slip="The weights average the keys. They belong to the values.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="uniform_weights",
        replace={"scores.softmax(dim=-1)": "(mask / mask.sum(-1, keepdim=True).clamp(min=1)).to(q.dtype).expand_as(scores)"},
        slip="It takes the plain mean of what is visible; queries and keys do not count.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="detached_cache",
        replace={"return weights @ v, (k, v, visible)": "return weights @ v, (k.detach(), v.detach(), visible)"},
        slip="The cache is detached: no gradient reaches the earlier calls.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="kv_cache_as_the_store",
        source="""
def attend_with_cache(q, k, v, cache=None, visible=None):
    if visible is None:
        visible = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool)
    if cache is None:
        B, H, _, d_k = k.shape
        store, old_visible = KVCache(B, H, 1024, d_k, v.shape[3], dtype=k.dtype), visible[:, :0]
    else:
        store, old_visible = cache[0].fork(), cache[1]
    k, v = store.append(k, v)
    visible = torch.cat([old_visible, visible], dim=1)
    T_new, T = q.shape[2], k.shape[2]
    mask = torch.ones(T_new, T, dtype=torch.bool).tril(T - T_new) & visible[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), (store, visible)
""",
        slip="The stored keys and values carry no graph (KVCache detaches), so no gradient reaches k and v. Use torch.cat.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="kv_cache_written_in_place",
        source="""
def attend_with_cache(q, k, v, cache=None, visible=None):
    if visible is None:
        visible = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool)
    if cache is None:
        B, H, _, d_k = k.shape
        cache = KVCache(B, H, 1024, d_k, v.shape[3], dtype=k.dtype), [visible[:, :0]]
    store, seen = cache
    k, v = store.append(k, v)
    seen[0] = visible = torch.cat([seen[0], visible], dim=1)
    T_new, T = q.shape[2], k.shape[2]
    mask = torch.ones(T_new, T, dtype=torch.bool).tril(T - T_new) & visible[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), cache
""",
        slip="The cache is a KVCache that changes in place, so a second continuation sees the first, and it carries no graph. Make new tensors with torch.cat.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="detached_weights",
        replace={"return weights @ v,": "return weights.detach() @ v,"},
        slip="The weights are detached: no gradient reaches q and k.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="always_float32",
        replace={"return weights @ v,": "return (weights.float() @ v.float()),"},
        slip="It computes and returns float32, whatever comes in.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="zeroes_the_padding_in_place",
        replace={"    T_new, T = q.shape[2], k.shape[2]": "    if cache is None:\n        v.mul_(visible[:, None, :, None])\n    T_new, T = q.shape[2], k.shape[2]"},
        slip="It sets the values of invisible positions to 0 in the caller's tensor. Work on the weights instead.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="output_only",
        replace={"return weights @ v, (k, v, visible)": "return weights @ v"},
        slip="It returns the output alone. The caller needs the new cache as well.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="outputs_for_all",
        replace={"return weights @ v, (k, v, visible)": "return torch.cat([v[:, :, : T - T_new], weights @ v], dim=2), (k, v, visible)"},
        slip="It returns a row for every cached position, not for the new ones only.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="padded_values_as_zeros",
        replace={"mask = causal & visible[:, None, None, :]": "mask = causal.expand(q.shape[0], 1, T_new, T)", "return weights @ v, (k, v, visible)": "return weights @ (v * visible[:, None, :, None]), (k, v, visible)"},
        slip="Invisible positions keep their share of the weights and only their values are zeroed. They must get the weight 0 and the others all of it.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="pads_as_zeros",
        replace={
            "    T_new, T = q.shape[2], k.shape[2]": "    k, v = k * visible[:, None, :, None], v * visible[:, None, :, None]\n    T_new, T = q.shape[2], k.shape[2]",
            "mask = causal & visible[:, None, None, :]": "mask = causal.expand(q.shape[0], 1, T_new, T)",
        },
        slip="The keys and values of the padding are set to 0 instead of masked: a score of 0 still gets a weight. Fill the scores with -inf.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="mask_kept_from_the_first_call",
        source="""
_masks = {}

def attend_with_cache(q, k, v, cache=None, visible=None):
    if visible is None:
        visible = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool)
    if cache is not None:
        k, v, visible = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2), torch.cat([cache[2], visible], 1)
    T_new, T = q.shape[2], k.shape[2]
    if T_new not in _masks:
        _masks[T_new] = torch.ones(T_new, 64, dtype=torch.bool).tril(T - T_new)
    mask = _masks[T_new][:, :T] & visible[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), (k, v, visible)
""",
        slip="The mask of the first call of a size is kept and used again for other lengths of the cache.",
    ),
    Variant(
        exercise="attend_with_cache",
        name="nan_taken_away",
        replace={".masked_fill(nothing, 0.0)\n    weights = scores.softmax(dim=-1).masked_fill(nothing, 0.0)": "\n    weights = scores.softmax(dim=-1).nan_to_num()"},
    ),
    Variant(
        exercise="attend_with_cache",
        name="fused",
        source="""
def attend_with_cache(q, k, v, cache=None, visible=None):
    if visible is None:
        visible = q.new_ones(q.shape[0], q.shape[2], dtype=torch.bool)
    if cache is not None:
        k, v, visible = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2), torch.cat([cache["visible"], visible], 1)
    new, total = q.shape[2], k.shape[2]
    rows, columns = torch.arange(total - new, total)[:, None], torch.arange(total)
    mask = (columns <= rows) & visible[:, None, None, :]
    empty = ~mask.any(-1, keepdim=True)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask | empty)
    return out.masked_fill(empty, 0), {"k": k, "v": v, "visible": visible}
""",
    ),
    Variant(
        exercise="attend_with_cache",
        name="loop_over_queries",
        source="""
def attend_with_cache(q, k, v, cache=None, visible=None):
    if visible is None:
        visible = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool)
    pieces = (cache or ()) + ((k, v, visible),)
    k, v = (torch.cat([piece[i] for piece in pieces], dim=2) for i in (0, 1))
    visible = torch.cat([piece[2] for piece in pieces], dim=1)
    start = k.shape[2] - q.shape[2]
    rows = []
    for i in range(q.shape[2]):
        stop = start + i + 1
        seen = visible[:, None, :stop]
        scores = torch.einsum("bhd,bhjd->bhj", q[:, :, i], k[:, :, :stop]) / k.shape[-1] ** 0.5
        scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
        powers = torch.exp(scores - scores.amax(-1, keepdim=True)) * seen
        weights = powers / powers.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
        rows.append(torch.einsum("bhj,bhjv->bhv", weights, v[:, :, :stop]))
    return torch.stack(rows, dim=2), pieces
""",
    ),
    Variant(
        exercise="attend_with_cache",
        name="additive_bias_in_float64",
        source="""
def attend_with_cache(q, k, v, cache=None, visible=None):
    B, H, new, d = q.shape
    bias = torch.zeros(B, new, dtype=torch.float64)
    if visible is not None:
        bias[~visible] = -float("inf")
    if cache is not None:
        k, v, bias = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2), torch.cat([cache[2], bias], 1)
    total = k.shape[2]
    future = torch.full((new, total), -float("inf"), dtype=torch.float64).triu(total - new + 1)
    mask = bias[:, None, None, :] + future
    alive = (mask > -float("inf")).any(-1, keepdim=True)
    scores = torch.where(alive, q.double() @ k.double().mT * d**-0.5 + mask, 0.0)
    weights = torch.where(alive, scores.softmax(-1), 0.0)
    return (weights @ v.double()).to(q.dtype), [k, v, bias]
""",
    ),
    Variant(
        exercise="attend_with_cache",
        name="linked_list",
        source="""
def attend_with_cache(q, k, v, cache=None, visible=None):
    here = {"before": cache, "k": k, "v": v, "visible": torch.ones(k[:, 0, :, 0].shape, dtype=torch.bool) if visible is None else visible.clone()}
    chain = []
    node = here
    while node is not None:
        chain.insert(0, node)
        node = node["before"]
    keys, values = torch.cat([n["k"] for n in chain], 2), torch.cat([n["v"] for n in chain], 2)
    seen = torch.cat([n["visible"] for n in chain], 1)
    new, total = k.shape[2], keys.shape[2]
    mask = seen[:, None, None, :].expand(-1, 1, new, -1).tril(total - new)
    scores = (q * q.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1) * mask
    return weights @ values, here
""",
    ),
    Variant(
        exercise="attend_with_cache",
        name="new_positions_one_by_one",
        source="""
def attend_with_cache(q, k, v, cache=None, visible=None):
    B, H, new, d = q.shape
    if visible is None:
        visible = torch.ones(B, new, dtype=torch.bool)
    outs = []
    for i in range(new):
        here = (k[:, :, i : i + 1], v[:, :, i : i + 1], visible[:, i : i + 1])
        cache = here if cache is None else tuple(torch.cat(p, dim) for p, dim in zip(zip(cache, here), (2, 2, 1)))
        seen = cache[2][:, None, None, :]
        some = seen.any(-1, keepdim=True)
        out = F.scaled_dot_product_attention(q[:, :, i : i + 1], cache[0], cache[1], attn_mask=seen | ~some)
        outs.append(torch.where(some, out, torch.zeros_like(out)))
    return torch.cat(outs, 2), cache
""",
    ),
    Mutant(
        exercise="decode_step",
        name="always_position_zero",
        replace={"counts = seen + visible.cumsum(dim=1)": "counts = visible.cumsum(dim=1)"},
        slip="Every call embeds its tokens from position 0 on. They go on where the last call stopped.",
    ),
    Mutant(
        exercise="decode_step",
        name="one_position_for_the_whole_piece",
        replace={"counts = seen + visible.cumsum(dim=1)": "counts = seen + 1 + 0 * visible.cumsum(dim=1)", "(counts[:, -1:], new_layers)": "(seen + visible.sum(dim=1, keepdim=True), new_layers)"},
        slip="All tokens of a call get the same position. They stand behind each other.",
    ),
    Mutant(
        exercise="decode_step",
        name="positions_from_one",
        replace={"(counts - 1).clamp(min=0)": "counts"},
        slip="Positions start at 1. They start at 0: subtract 1 from the running count.",
    ),
    Mutant(
        exercise="decode_step",
        name="position_of_the_token_before",
        replace={"(counts - 1).clamp(min=0)": "(counts - 2).clamp(min=0)"},
        slip="Each new token is embedded one position too early: with s tokens seen it stands at position s.",
    ),
    Mutant(
        exercise="decode_step",
        name="pads_count_as_positions",
        replace={"counts = seen + visible.cumsum(dim=1)": "counts = seen + torch.ones_like(ids).cumsum(dim=1)"},
        slip="Padding counts as positions, so a padded row is embedded too far right. Count the real tokens only.",
    ),
    Mutant(
        exercise="decode_step",
        name="pads_count_later",
        replace={"(counts[:, -1:], new_layers)": "(seen + ids.shape[1], new_layers)"},
        slip="The positions are right in the padded call, but the number of tokens seen afterwards includes the pads.",
    ),
    Mutant(
        exercise="decode_step",
        name="padding_only_at_the_left",
        replace={"counts = seen + visible.cumsum(dim=1)": "counts = seen + (visible.cumsum(dim=1) > 0).cumsum(dim=1)"},
        slip="Positions are counted from the first real token of the call, as if all padding stood before it. Count the real tokens before each token.",
    ),
    Mutant(
        exercise="decode_step",
        name="positions_of_row_zero",
        replace={"(counts - 1).clamp(min=0)": "(counts[:1] - 1).clamp(min=0)"},
        slip="All rows get the positions of row 0. With padding each row has its own.",
    ),
    Mutant(
        exercise="decode_step",
        name="negative_position",
        replace={"(counts - 1).clamp(min=0)": "counts - 1"},
        slip="Pads at the beginning get position -1, which no model has. Any legal position will do for them.",
    ),
    Mutant(
        exercise="decode_step",
        name="seen_never_moves",
        replace={"(counts[:, -1:], new_layers)": "(seen + (cache is None) * counts[:, -1:], new_layers)"},
        slip="The number of tokens seen stays what it was: from the second decode step on, positions repeat.",
    ),
    Mutant(
        exercise="decode_step",
        name="seen_moves_by_one",
        replace={"(counts[:, -1:], new_layers)": "(seen + 1, new_layers)"},
        slip="The number of tokens seen grows by 1 a call, whatever the call holds.",
    ),
    Mutant(
        exercise="decode_step",
        name="padding_not_handed_on",
        replace={"attend_with_cache(q, k, v, layer, visible)": "attend_with_cache(q, k, v, layer)"},
        slip="The positions respect the padding, but attention is not told of it: pads are seen.",
    ),
    Mutant(
        exercise="decode_step",
        name="visible_ignored",
        replace={"    if visible is None:\n        visible = torch.ones_like(ids, dtype=torch.bool)\n": "    visible = torch.ones_like(ids, dtype=torch.bool)\n"},
        slip="The argument visible is not used.",
    ),
    Mutant(
        exercise="decode_step",
        name="one_cache_for_all_layers",
        replace={"    for block, layer in zip(model.blocks, layers):": "    layer = layers[-1]\n    for block in model.blocks:"},
        slip="All blocks share one cache: the keys of the layers are mixed. Each block has its own.",
    ),
    Mutant(
        exercise="decode_step",
        name="one_running_cache",
        source="""
def decode_step(model, ids, cache, visible=None):
    if visible is None:
        visible = torch.ones_like(ids, dtype=torch.bool)
    seen, running = (torch.zeros_like(ids[:, :1]), None) if cache is None else cache
    counts = seen + visible.cumsum(dim=1)
    x = model.embed(ids, (counts - 1).clamp(min=0))
    for block in model.blocks:
        q, k, v = block.qkv(x)
        heads, running = attend_with_cache(q, k, v, running, visible)
        x = block.finish(x, heads)
    return model.unembed(x[:, -1]), (counts[:, -1:], running)
""",
        slip="One cache runs through all layers: each block reads the keys of the others. Keep one cache for each block.",
    ),
    Mutant(
        exercise="decode_step",
        name="twelve_layers",
        replace={"[None] * len(model.blocks)": "[None] * 12"},
        slip="It keeps 12 caches, and zip drops the blocks beyond them. Keep len(model.blocks).",
    ),
    Mutant(
        exercise="decode_step",
        name="caches_in_reverse",
        replace={"(counts[:, -1:], new_layers)": "(counts[:, -1:], new_layers[::-1])"},
        slip="The caches are handed to the wrong blocks: their order is reversed.",
    ),
    Mutant(
        exercise="decode_step",
        name="cache_of_the_first_block_for_all",
        replace={"heads, layer = attend_with_cache(q, k, v, layer, visible)": "heads, layer = attend_with_cache(q, k, v, layers[0], visible)"},
        slip="Every block reads the cache of the first block.",
    ),
    Mutant(
        exercise="decode_step",
        name="changes_the_callers_cache",
        replace={"    new_layers = []\n    for block, layer in zip(model.blocks, layers):": "    new_layers = layers\n    for i, (block, layer) in enumerate(zip(model.blocks, list(layers))):", "        new_layers.append(layer)": "        new_layers[i] = layer"},
        slip="The new layer caches are written into the list that was handed in, so a second continuation sees the first. Build a new list.",
    ),
    Mutant(
        exercise="decode_step",
        name="changes_the_count_in_place",
        replace={"    return model.unembed(x[:, -1]), (counts[:, -1:], new_layers)": "    seen += visible.sum(dim=1, keepdim=True)\n    return model.unembed(x[:, -1]), (seen, new_layers)"},
        slip="The number of tokens seen is changed in place, in the cache that was handed in.",
    ),
    Mutant(
        exercise="decode_step",
        name="old_cache_returned",
        replace={"(counts[:, -1:], new_layers)": "(counts[:, -1:], new_layers if cache is None else layers)"},
        slip="The cache that was handed in is returned, so the next step knows nothing of this one.",
    ),
    Mutant(
        exercise="decode_step",
        name="recomputes_everything",
        source="""
def decode_step(model, ids, cache, visible=None):
    visible = torch.ones_like(ids, dtype=torch.bool) if visible is None else visible
    if cache is not None:
        ids, visible = torch.cat([cache[0], ids], 1), torch.cat([cache[1], visible], 1)
    x = model.embed(ids, (visible.cumsum(1) - 1).clamp(min=0))
    for block in model.blocks:
        q, k, v = block.qkv(x)
        x = block.finish(x, attend_with_cache(q, k, v, None, visible)[0])
    return model.unembed(x[:, -1]), (ids, visible)
""",
        slip="It keeps the tokens and runs all of them again at each step: right, but that is what the cache is there to avoid.",
    ),
    Mutant(
        exercise="decode_step",
        name="global_cache",
        source="""
_past = {}

def decode_step(model, ids, cache, visible=None):
    visible = torch.ones_like(ids, dtype=torch.bool) if visible is None else visible
    if cache is None:
        _past.update(seen=torch.zeros_like(ids[:, :1]), layers=[None] * len(model.blocks))
    counts = _past["seen"] + visible.cumsum(dim=1)
    x = model.embed(ids, (counts - 1).clamp(min=0))
    for i, block in enumerate(model.blocks):
        q, k, v = block.qkv(x)
        heads, _past["layers"][i] = attend_with_cache(q, k, v, _past["layers"][i], visible)
        x = block.finish(x, heads)
    _past["seen"] = counts[:, -1:]
    return model.unembed(x[:, -1]), "see _past"
""",
        slip="The state is kept in a global and the cache argument only says whether it is the first call: continuations of one prefix disturb each other.",
    ),
    Mutant(
        exercise="decode_step",
        name="all_logits",
        replace={"model.unembed(x[:, -1])": "model.unembed(x)"},
        slip="It returns the logits of all new positions. Only those of the last one are wanted: (B, V).",
    ),
    Mutant(
        exercise="decode_step",
        name="one_position_kept",
        replace={"model.unembed(x[:, -1])": "model.unembed(x[:, -1:])"},
        slip="The logits keep a dimension of size 1. They are (B, V).",
    ),
    Mutant(
        exercise="decode_step",
        name="first_position",
        replace={"model.unembed(x[:, -1])": "model.unembed(x[:, 0])"},
        slip="The logits are those of the first new position, not of the last.",
    ),
    Mutant(
        exercise="decode_step",
        name="last_row",
        replace={"model.unembed(x[:, -1])": "model.unembed(x[-1])"},
        slip="x[-1] is the last row of the batch. The last position of every row is x[:, -1].",
    ),
    Mutant(
        exercise="decode_step",
        name="logits_of_one_row_for_all",
        replace={"model.unembed(x[:, -1])": "model.unembed(x[-1:, -1]).expand(len(ids), -1)"},
        slip="All rows get the logits of the last row.",
    ),
    Mutant(
        exercise="decode_step",
        name="token_instead_of_logits",
        replace={"model.unembed(x[:, -1])": "model.unembed(x[:, -1]).argmax(-1)"},
        slip="It chooses a token already. Return the logits: choosing is another function's job.",
    ),
    Mutant(
        exercise="decode_step",
        name="probabilities",
        replace={"model.unembed(x[:, -1])": "model.unembed(x[:, -1]).softmax(-1)"},
        slip="It returns probabilities instead of logits.",
    ),
    Mutant(
        exercise="decode_step",
        name="last_block_left_out",
        replace={"zip(model.blocks, layers)": "zip(list(model.blocks)[:-1] or model.blocks, layers)"},
        slip="The last block is left out.",
    ),
    Mutant(
        exercise="decode_step",
        name="blocks_side_by_side",
        replace={"        q, k, v = block.qkv(x)": "        q, k, v = block.qkv(embedded)", "    new_layers = []": "    embedded, new_layers = x, []"},
        slip="Every block gets the embeddings instead of the output of the block before.",
    ),
    Mutant(
        exercise="decode_step",
        name="residual_from_the_embedding",
        replace={"        x = block.finish(x, heads)": "        x = block.finish(embedded, heads)", "    new_layers = []": "    embedded, new_layers = x, []"},
        slip="finish gets the embeddings instead of the x that went into qkv.",
    ),
    Mutant(
        exercise="decode_step",
        name="x_never_updated",
        replace={
            "        x = block.finish(x, heads)": "        out = block.finish(x, heads)",
            "model.unembed(x[:, -1])": "model.unembed(out[:, -1])",
        },
        slip="x is not updated: every block works on the embeddings, and only the last one counts. Write x = block.finish(x, heads).",
    ),
    Mutant(
        exercise="decode_step",
        name="attends_without_the_cache",
        replace={"attend_with_cache(q, k, v, layer, visible)": "attend_with_cache(q, k, v, None, visible)"},
        slip="Attention reads no cache: either it is not handed the old one, or the new one is not kept.",
    ),
    Mutant(
        exercise="decode_step",
        name="cache_of_first_layer_only",
        replace={"heads, layer = attend_with_cache(q, k, v, layer, visible)": "heads, layer = attend_with_cache(q, k, v, layer if not new_layers else None, visible)"},
        slip="Only the first block reads its cache; the others see the new tokens alone.",
    ),
    Mutant(
        exercise="decode_step",
        name="cropped_positions",
        replace={
            "    x = model.embed(ids, (counts - 1).clamp(min=0))  # (B, T_new, d_model)\n": "    positions = (counts - 1).clamp(min=0)\n    while True:\n        try:\n            x = model.embed(ids, positions)\n            break\n        except ValueError:\n            positions = positions.clamp(max=int(positions.max()) - 1)\n"
        },
        slip="Positions beyond the model's end are set to its last one. The model's ValueError should come through.",
    ),
    Mutant(
        exercise="decode_step",
        name="embedding_of_token_ids",
        replace={"    if visible is None:\n        visible = torch.ones_like(ids, dtype=torch.bool)\n": "    visible = torch.ones_like(ids, dtype=torch.bool) if visible is None else (ids != 0).cumsum(1) > 0\n"},
        slip="The pad tokens are recognized by their id 0 instead of by visible.",
    ),
    Mutant(
        exercise="decode_step",
        name="ids_overwritten",
        replace={"    x = model.embed(": "    ids.masked_fill_(~visible, 0)\n    x = model.embed("},
        slip="It overwrites padding in the caller's ids. Leave the arguments alone.",
    ),
    Variant(
        exercise="decode_step",
        name="token_by_token",
        source="""
def decode_step(model, ids, cache, visible=None):
    for t in range(ids.shape[1]):
        past = [None] * len(model.blocks) if cache is None else cache["layers"]
        seen = torch.zeros(ids.shape[0], dtype=torch.int64) if cache is None else cache["seen"]
        real = None if visible is None else visible[:, t : t + 1]
        x = model.embed(ids[:, t : t + 1], seen.clone()[:, None])
        layers = []
        for i in range(len(model.blocks)):
            q, k, v = model.blocks[i].qkv(x)
            heads, layer = attend_with_cache(q, k, v, past[i], real)
            layers.append(layer)
            x = model.blocks[i].finish(x, heads)
        cache = {"layers": layers, "seen": seen + (1 if real is None else real[:, 0].long())}
    return model.unembed(x)[:, -1], cache
""",
    ),
    Variant(
        exercise="decode_step",
        name="own_attention",
        source="""
def decode_step(model, ids, cache, visible=None):
    new = torch.ones_like(ids, dtype=torch.bool) if visible is None else visible
    old, past = cache if cache is not None else (new[:, :0], [])
    real = torch.cat([old, new], dim=1)
    n, total = ids.shape[1], real.shape[1]
    positions = (real.long().cumsum(1) - 1).clamp_min(0)[:, -n:]
    x = model.embed(ids, positions)
    mask = (torch.arange(total) <= torch.arange(total - n, total)[:, None]) & real[:, None, None, :]
    kept = []
    for i, block in enumerate(model.blocks):
        q, k, v = block.qkv(x)
        if past:
            k, v = torch.cat([past[i][0], k], 2), torch.cat([past[i][1], v], 2)
        kept.append((k, v))
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -1e30)
        x = block.finish(x, (scores.softmax(-1) * mask) @ v)
    return model.unembed(x)[:, -1, :], (real, kept)
""",
    ),
    Variant(
        exercise="decode_step",
        name="flat_tuple_and_one_position_vector",
        source="""
def decode_step(model, ids, cache, visible=None):
    B, T = ids.shape
    if cache is None:
        cache = (torch.zeros(B, dtype=torch.long),) + (None,) * len(model.blocks)
    count, *layers = cache
    if visible is None and bool((count == count[0]).all()):
        positions = torch.arange(int(count[0]), int(count[0]) + T)
    else:
        shown = torch.ones(B, T, dtype=torch.long) if visible is None else visible.long()
        positions = torch.relu(count[:, None] + shown.cumsum(1) - 1)
    x = model.embed(ids, positions)
    out = []
    for block, layer in zip(model.blocks, layers):
        q, k, v = block.qkv(x)
        heads, layer = attend_with_cache(q, k, v, layer, visible=visible)
        out.append(layer)
        x = block.finish(x, heads)
    return model.unembed(x[:, T - 1]), (count + (T if visible is None else visible.sum(1)), *out)
""",
    ),
    Variant(
        exercise="decode_step",
        name="row_by_row",
        source="""
def decode_step(model, ids, cache, visible=None):
    logits, states = [], []
    for b in range(ids.shape[0]):
        real = torch.ones(1, ids.shape[1], dtype=torch.bool) if visible is None else visible[b : b + 1]
        seen, past = (0, {}) if cache is None else cache[b]
        positions = [max(seen + int(real[0, : t + 1].sum()) - 1, 0) for t in range(ids.shape[1])]
        x = model.embed(ids[b : b + 1], torch.tensor([positions]))
        present = {}
        for i, block in enumerate(model.blocks):
            q, k, v = block.qkv(x)
            heads, present[i] = attend_with_cache(q, k, v, past.get(i), real)
            x = block.finish(x, heads)
        logits.append(model.unembed(x)[0, -1])
        states.append((seen + int(real.sum()), present))
    return torch.stack(logits), states
""",
    ),
    Variant(
        exercise="decode_step",
        name="without_gradients",
        replace={"    new_layers = []\n    for block, layer in zip(model.blocks, layers):\n        q, k, v = block.qkv(x)\n        heads, layer = attend_with_cache(q, k, v, layer, visible)\n        x = block.finish(x, heads)\n        new_layers.append(layer)\n": "    new_layers = []\n    with torch.no_grad():\n        for block, layer in zip(model.blocks, layers):\n            q, k, v = block.qkv(x)\n            heads, layer = attend_with_cache(q, k, v, layer, visible)\n            x = block.finish(x, heads)\n            new_layers += [layer]\n"},
    ),
    Mutant(
        exercise="prefill",
        name="padding_ignored",
        replace={"if pad_id is not None:": "if False:"},
        slip="pad_id is not used: padding is seen and counts as positions.",
    ),
    Mutant(
        exercise="prefill",
        name="every_pad_id_is_padding",
        replace={"(ids != pad_id).cumsum(dim=1) > 0": "ids != pad_id"},
        slip="Every pad_id counts as padding, also in the middle of a row. Only the run at the left end is.",
    ),
    Mutant(
        exercise="prefill",
        name="inverted",
        replace={"(ids != pad_id).cumsum(dim=1) > 0": "(ids != pad_id).cumsum(dim=1) == 0"},
        slip="True and False are exchanged: the padding is seen and the tokens are not.",
    ),
    Mutant(
        exercise="prefill",
        name="right_padding",
        replace={"(ids != pad_id).cumsum(dim=1) > 0": "(ids != pad_id).flip(1).cumsum(dim=1).flip(1) > 0"},
        slip="It looks for padding at the right end of the rows. Prompts are padded on the left.",
    ),
    Mutant(
        exercise="prefill",
        name="first_real_token_lost",
        replace={"(ids != pad_id).cumsum(dim=1) > 0": "((ids != pad_id).cumsum(dim=1) > 0).long().cumsum(dim=1) > 1"},
        slip="The first real token counts as padding, too.",
    ),
    Mutant(
        exercise="prefill",
        name="running_count_from_one",
        replace={"(ids != pad_id).cumsum(dim=1) > 0": "(ids != pad_id).cumprod(dim=1) + (ids != pad_id) > 0"},
        slip="A prompt whose second token is pad_id loses it: the running count must be of the real tokens seen so far.",
    ),
    Mutant(
        exercise="prefill",
        name="zero_is_always_padding",
        replace={"    if pad_id is not None:\n        visible = (ids != pad_id).cumsum(dim=1) > 0": "    visible = (ids != 0).cumsum(dim=1) > 0\n    if pad_id is not None:\n        visible = (ids != pad_id).cumsum(dim=1) > 0"},
        slip="Token 0 is always padding, whatever pad_id says. Use the argument.",
    ),
    Mutant(
        exercise="prefill",
        name="pad_id_zero_is_none",
        replace={"if pad_id is not None:": "if pad_id:"},
        slip="`if pad_id:` takes pad_id=0 for none. Compare with None.",
    ),
    Mutant(
        exercise="prefill",
        name="padding_of_row_zero",
        replace={"(ids != pad_id).cumsum(dim=1) > 0": "((ids != pad_id).cumsum(dim=1) > 0)[:1].expand_as(ids)"},
        slip="The padding of row 0 is used for all rows.",
    ),
    Mutant(
        exercise="prefill",
        name="columns_cut_off",
        replace={"return decode_step(model, ids, None, visible)": "keep = visible.all(dim=0)\n    return decode_step(model, ids[:, keep], None, visible[:, keep])"},
        slip="The columns in which any row has padding are cut off: the long prompts lose tokens.",
    ),
    Mutant(
        exercise="prefill",
        name="common_padding_cut_off",
        replace={
            "return decode_step(model, ids, None, visible)": "keep = visible.any(dim=0)\n    return decode_step(model, ids[:, keep], None, visible[:, keep])"
        },
        slip="Columns that are padding in every row are cut off. The model is called with all T columns.",
    ),
    Mutant(
        exercise="prefill",
        name="pads_at_the_wrong_position",
        source="""
def prefill(model, ids, pad_id=None):
    visible = torch.ones_like(ids, dtype=torch.bool) if pad_id is None else (ids != pad_id).cumsum(1) > 0
    if not visible.any(dim=1).all():
        raise ValueError("empty")
    x, layers = model.embed(ids, torch.arange(ids.shape[1])[None].expand_as(ids)), []
    for block in model.blocks:
        q, k, v = block.qkv(x)
        heads, layer = attend_with_cache(q, k, v, None, visible)
        x = block.finish(x, heads)
        layers.append(layer)
    return model.unembed(x[:, -1]), (visible.sum(1, keepdim=True), layers)
""",
        slip="Padding is hidden but counts as positions. Count the real tokens of each row only.",
    ),
    Mutant(
        exercise="prefill",
        name="count_includes_the_padding",
        source="""
def prefill(model, ids, pad_id=None):
    visible = torch.ones_like(ids, dtype=torch.bool) if pad_id is None else (ids != pad_id).cumsum(1) > 0
    if not visible.any(dim=1).all():
        raise ValueError("empty")
    logits, (count, layers) = decode_step(model, ids, None, visible)
    return logits, (torch.full_like(count, ids.shape[1]), layers)
""",
        slip="The logits are right, but the cache counts the padding as tokens seen: the decode steps are embedded too far right.",
    ),
    Mutant(
        exercise="prefill",
        name="padding_not_in_the_cache",
        source="""
def prefill(model, ids, pad_id=None):
    visible = torch.ones_like(ids, dtype=torch.bool) if pad_id is None else (ids != pad_id).cumsum(1) > 0
    if not visible.any(dim=1).all():
        raise ValueError("empty")
    logits, (count, layers) = decode_step(model, ids, None, visible)
    return logits, (count, [(k, v, torch.ones_like(seen)) for k, v, seen in layers])
""",
        slip="The logits are right, but the cache does not know of the padding: the decode steps see it.",
    ),
    Mutant(
        exercise="prefill",
        name="no_cache_returned",
        replace={"return decode_step(model, ids, None, visible)": "return decode_step(model, ids, None, visible)[0], None"},
        slip="The cache is thrown away: decoding would start from nothing.",
    ),
    Mutant(
        exercise="prefill",
        name="last_token_missing_in_the_cache",
        replace={"return decode_step(model, ids, None, visible)": "logits, (count, layers) = decode_step(model, ids, None, visible)\n    return logits, (count - 1, [(k[:, :, :-1], v[:, :, :-1], seen[:, :-1]) for k, v, seen in layers])"},
        slip="The cache lacks the last prompt token. It holds all of them; the next decode step brings a new one.",
    ),
    Mutant(
        exercise="prefill",
        name="logits_only",
        replace={"return decode_step(model, ids, None, visible)": "return decode_step(model, ids, None, visible)[0]"},
        slip="It returns the logits alone. Decoding needs the cache as well.",
    ),
    Mutant(
        exercise="prefill",
        name="token_by_token",
        replace={"return decode_step(model, ids, None, visible)": "cache = None\n    for t in range(ids.shape[1]):\n        logits, cache = decode_step(model, ids[:, t : t + 1], cache, visible[:, t : t + 1])\n    return logits, cache"},
        slip="It feeds the prompt token by token. The prompt is known: all positions go through the model at once.",
    ),
    Mutant(
        exercise="prefill",
        name="row_by_row",
        source="""
def prefill(model, ids, pad_id=None):
    visible = torch.ones_like(ids, dtype=torch.bool) if pad_id is None else (ids != pad_id).cumsum(1) > 0
    if not visible.any(dim=1).all():
        raise ValueError("empty")
    runs = [decode_step(model, ids[b : b + 1], None, visible[b : b + 1]) for b in range(len(ids))]
    logits = torch.cat([run[0] for run in runs])
    count = torch.cat([run[1][0] for run in runs])
    layers = [tuple(torch.cat([run[1][1][i][j] for run in runs]) for j in range(3)) for i in range(len(model.blocks))]
    return logits, (count, layers)
""",
        slip="It runs the model once for each row. Left padding is there so that one pass serves the whole batch.",
    ),
    Mutant(
        exercise="prefill",
        name="empty_prompt_accepted",
        replace={"    if not visible.any(dim=1).all():\n        raise ValueError(\"every prompt needs at least one token that is not padding\")\n": ""},
        slip="A prompt of padding only, or of nothing, has no last token to continue. Raise ValueError.",
    ),
    Mutant(
        exercise="prefill",
        name="only_all_empty_refused",
        replace={"if not visible.any(dim=1).all():": "if not visible.any():"},
        slip="It complains only when all rows are empty. One such row is enough.",
    ),
    Mutant(
        exercise="prefill",
        name="zero_length_accepted",
        replace={"if not visible.any(dim=1).all():": "if pad_id is not None and not visible.any(dim=1).all():"},
        slip="Rows of padding are refused, but a prompt of length 0 is not.",
    ),
    Mutant(
        exercise="prefill",
        name="pads_overwritten",
        replace={"return decode_step(model, ids, None, visible)": "ids.masked_fill_(~visible, 1)\n    return decode_step(model, ids, None, visible)"},
        slip="It overwrites the padding in the caller's ids.",
    ),
    Mutant(
        exercise="prefill",
        name="first_position",
        source="""
def prefill(model, ids, pad_id=None):
    visible = torch.ones_like(ids, dtype=torch.bool) if pad_id is None else (ids != pad_id).cumsum(1) > 0
    if not visible.any(dim=1).all():
        raise ValueError("empty")
    counts = visible.cumsum(1)
    x, layers = model.embed(ids, (counts - 1).clamp(min=0)), []
    for block in model.blocks:
        q, k, v = block.qkv(x)
        heads, layer = attend_with_cache(q, k, v, None, visible)
        x = block.finish(x, heads)
        layers.append(layer)
    return model.unembed(x[:, 0]), (counts[:, -1:], layers)
""",
        slip="The logits are those of the first position.",
    ),
    Mutant(
        exercise="prefill",
        name="full_forward_without_padding",
        source="""
def prefill(model, ids, pad_id=None):
    if ids.shape[1] == 0 or (pad_id is not None and (ids == pad_id).all(1).any()):
        raise ValueError("empty")
    return decode_step(model, ids, None)
""",
        slip="pad_id is not used: padding is seen and counts as positions.",
    ),
    Variant(
        exercise="prefill",
        name="own_pass",
        source="""
def prefill(model, ids, pad_id=None):
    B, T = ids.shape
    first = torch.zeros(B, dtype=torch.long)
    if pad_id is not None and T:
        real = (ids != pad_id).int()
        first = torch.where(real.any(1), real.argmax(1), T)
    if T == 0 or bool((first == T).any()):
        raise ValueError("nothing to continue")
    visible = torch.arange(T) >= first[:, None]
    x = model.embed(ids, (torch.arange(T) - first[:, None]).clamp(min=0))
    layers = []
    for block in model.blocks:
        q, k, v = block.qkv(x)
        heads, layer = attend_with_cache(q, k, v, visible=visible)
        layers.append(layer)
        x = block.finish(x, heads)
    return model.unembed(x)[:, -1], ((T - first)[:, None], layers)
""",
    ),
    Variant(
        exercise="prefill",
        name="loop_over_rows_for_the_padding",
        source="""
def prefill(model, ids, pad_id=None):
    if ids.shape[1] == 0:
        raise ValueError("an empty prompt")
    visible = torch.ones(ids.shape, dtype=torch.bool)
    if pad_id is not None:
        for row in range(ids.shape[0]):
            for column in range(ids.shape[1]):
                if ids[row, column] != pad_id:
                    break
                visible[row, column] = False
            else:
                raise ValueError(f"row {row} is all padding")
    return decode_step(model, ids, None, visible)
""",
    ),
    Variant(
        exercise="prefill",
        name="product_of_pads",
        replace={"(ids != pad_id).cumsum(dim=1) > 0": "(ids == pad_id).long().cumprod(dim=1) == 0"},
    ),
    Variant(
        exercise="prefill",
        name="own_format_of_the_cache",
        source="""
def decode_step(model, ids, cache, visible=None):
    new = torch.ones_like(ids, dtype=torch.bool) if visible is None else visible
    real = new if cache is None else torch.cat([cache["real"], new], 1)
    n = ids.shape[1]
    x = model.embed(ids, (real.cumsum(1) - 1).clamp(min=0)[:, -n:])
    layers = []
    for i, block in enumerate(model.blocks):
        q, k, v = block.qkv(x)
        heads, layer = attend_with_cache(q, k, v, None if cache is None else cache["layers"][i], new)
        layers.append(layer)
        x = block.finish(x, heads)
    return model.unembed(x[:, -1]), {"real": real, "layers": layers}


def prefill(model, ids, pad_id=None):
    real = (ids == ids) if pad_id is None else torch.logical_or(ids != pad_id, (ids != pad_id).cummax(1).values)
    if real.shape[1] == 0 or not real[:, -1].all():
        raise ValueError("empty prompt")
    return decode_step(model, ids, None, real)
""",
    ),
    Mutant(
        exercise="generate",
        name="one_token_too_many",
        replace={"range(n)": "range(n + 1)"},
        slip="It generates n + 1 tokens.",
    ),
    Mutant(
        exercise="generate",
        name="one_token_too_few",
        replace={"range(n)": "range(n - 1)"},
        slip="It generates n - 1 tokens.",
    ),
    Mutant(
        exercise="generate",
        name="new_tokens_only",
        replace={"    return ids": "    return ids[:, -n:] if n else ids[:, :0]\n"},
        slip="It returns the new tokens alone. The prompt comes first.",
    ),
    Mutant(
        exercise="generate",
        name="always_cached",
        replace={"if step == 0 or not use_cache:": "if step == 0:"},
        slip="use_cache=False is ignored: it uses the cache anyway.",
    ),
    Mutant(
        exercise="generate",
        name="never_cached",
        replace={"if step == 0 or not use_cache:": "if True:"},
        slip="The cache is never used: every step runs everything again.",
    ),
    Mutant(
        exercise="generate",
        name="inverted_switch",
        replace={"if step == 0 or not use_cache:": "if step == 0 or use_cache:"},
        slip="use_cache is read the wrong way round.",
    ),
    Mutant(
        exercise="generate",
        name="whole_sequence_into_the_cache",
        replace={"decode_step(model, ids[:, -1:], cache)": "decode_step(model, ids, cache)"},
        slip="Each decode step feeds the whole sequence on top of the cache, so the tokens are there twice. Feed the newest token only.",
    ),
    Mutant(
        exercise="generate",
        name="first_token_fed_again",
        replace={"ids[:, -1:]": "ids[:, :1]"},
        slip="The decode steps feed the first token instead of the newest.",
    ),
    Mutant(
        exercise="generate",
        name="token_before_fed",
        replace={"ids[:, -1:]": "ids[:, -2:-1]"},
        slip="The decode steps feed the token before the newest.",
    ),
    Mutant(
        exercise="generate",
        name="cache_not_kept",
        replace={"                logits, cache = decode_step(model, ids[:, -1:], cache)": "                logits, _ = decode_step(model, ids[:, -1:], cache)"},
        slip="The new cache of a decode step is dropped: every step continues from the prefill.",
    ),
    Mutant(
        exercise="generate",
        name="cache_from_nothing",
        replace={"decode_step(model, ids[:, -1:], cache)": "decode_step(model, ids[:, -1:], None)"},
        slip="The decode steps start from an empty cache.",
    ),
    Mutant(
        exercise="generate",
        name="last_token_fed_twice",
        source="""
def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    finished = torch.zeros(ids.shape[0], dtype=torch.bool)
    with torch.no_grad():
        if n:
            logits, cache = prefill(model, ids, pad_id)
        for step in range(n):
            logits, cache = decode_step(model, ids[:, -1:], cache) if use_cache else prefill(model, ids, pad_id)
            token = logits.argmax(-1)
            if eos_id is not None:
                token = token.masked_fill(finished, eos_id)
                finished = finished | (token == eos_id)
            ids = torch.cat([ids, token[:, None]], 1)
    return ids
""",
        slip="The last prompt token is fed twice: after the prefill the first decode step already has its logits.",
    ),
    Mutant(
        exercise="generate",
        name="last_token_fed_for_nothing",
        source="""
def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    finished = torch.zeros(ids.shape[0], dtype=torch.bool)
    with torch.no_grad():
        if n:
            logits, cache = prefill(model, ids, pad_id)
        for step in range(n):
            token = logits.argmax(-1)
            if eos_id is not None:
                token = token.masked_fill(finished, eos_id)
                finished = finished | (token == eos_id)
            ids = torch.cat([ids, token[:, None]], 1)
            logits, cache = decode_step(model, ids[:, -1:], cache) if use_cache else prefill(model, ids, pad_id)
    return ids
""",
        slip="After the last token one more step is computed and thrown away. It costs time, and at the end of the model it fails.",
    ),
    Mutant(
        exercise="generate",
        name="prompt_fed_token_by_token",
        replace={"    cache = None\n    with": "    cache = None\n    prefill(model, ids, pad_id) if n == 0 else None\n    with"},
        slip="The prompt goes through the model although n = 0. Nothing has to be computed then.",
    ),
    Mutant(
        exercise="generate",
        name="smallest_logit",
        replace={"logits.argmax(dim=-1)": "logits.argmin(dim=-1)"},
        slip="It takes the smallest logit. Greedy means the largest.",
    ),
    Mutant(
        exercise="generate",
        name="drawn",
        replace={"logits.argmax(dim=-1)": "torch.multinomial(logits.softmax(-1), 1)[:, 0]"},
        slip="It draws a token at random. Greedy takes the largest logit.",
    ),
    Mutant(
        exercise="generate",
        name="one_token_for_all_rows",
        replace={"logits.argmax(dim=-1)": "logits[:1].argmax(dim=-1).expand(ids.shape[0])"},
        slip="All rows get the token of row 0.",
    ),
    Mutant(
        exercise="generate",
        name="padding_ignored",
        replace={"prefill(model, ids, pad_id)": "prefill(model, ids)"},
        slip="pad_id is not handed on: padding is seen.",
    ),
    Mutant(
        exercise="generate",
        name="padding_found_anew",
        source="""
def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    finished = torch.zeros(ids.shape[0], dtype=torch.bool)
    cache = None
    with torch.no_grad():
        for step in range(n):
            if step == 0 or not use_cache:
                visible = torch.ones_like(ids, dtype=torch.bool) if pad_id is None else ids != pad_id
                logits, cache = decode_step(model, ids, None, visible)
            else:
                logits, cache = decode_step(model, ids[:, -1:], cache)
            token = logits.argmax(-1)
            if eos_id is not None:
                token = token.masked_fill(finished, eos_id)
                finished = finished | (token == eos_id)
            ids = torch.cat([ids, token[:, None]], 1)
    return ids
""",
        slip="With the cache off, every pad_id that was generated counts as padding.",
    ),
    Mutant(
        exercise="generate",
        name="padding_removed",
        replace={"    return ids": "    if pad_id is not None and n:\n        ids = torch.where((ids != pad_id).cumsum(1) > 0, ids, -1)\n    return ids\n"},
        slip="The padding is removed from the result. The rows come back as they came, padding included.",
    ),
    Mutant(
        exercise="generate",
        name="eos_ignored",
        replace={"if eos_id is not None:": "if False:"},
        slip="Finished rows go on: eos_id is not used, or a row is not remembered as finished.",
    ),
    Mutant(
        exercise="generate",
        name="batch_ends_with_the_first_row",
        replace={"            ids = torch.cat([ids, token[:, None]], dim=1)\n": "            ids = torch.cat([ids, token[:, None]], dim=1)\n            if eos_id is not None and finished.any():\n                rest = n - step - 1\n                return torch.cat([ids, torch.full((ids.shape[0], rest), eos_id)], dim=1)\n"},
        slip="The whole batch stops when the first row is finished. The other rows go on.",
    ),
    Mutant(
        exercise="generate",
        name="result_cut_off",
        replace={"            ids = torch.cat([ids, token[:, None]], dim=1)\n": "            ids = torch.cat([ids, token[:, None]], dim=1)\n            if eos_id is not None and finished.all():\n                break\n"},
        slip="When all rows are finished it returns fewer than n tokens. The result is (B, T + n): fill up with eos_id.",
    ),
    Mutant(
        exercise="generate",
        name="eos_of_the_prompt_ends_a_row",
        replace={"finished = torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)": "finished = torch.zeros(ids.shape[0], dtype=torch.bool) if eos_id is None else (ids == eos_id).any(dim=1)"},
        slip="An eos_id in the prompt ends the row. Only a generated one does.",
    ),
    Mutant(
        exercise="generate",
        name="finished_for_one_step",
        replace={"finished = finished | (token == eos_id)": "finished = (token == eos_id) & ~finished"},
        slip="A finished row repeats eos_id once and then goes on: `finished` must stay True.",
    ),
    Mutant(
        exercise="generate",
        name="eos_left_out",
        replace={"token = token.masked_fill(finished, eos_id)": "token = torch.where(finished | (token == eos_id), ids[:, -1], token)", "finished = finished | (token == eos_id)": "finished = finished | (logits.argmax(dim=-1) == eos_id)"},
        slip="The eos_id itself is not kept: the row is filled with the token before it.",
    ),
    Mutant(
        exercise="generate",
        name="finished_rows_filled_with_zero",
        replace={"token = token.masked_fill(finished, eos_id)": "token = token.masked_fill(finished, 0)"},
        slip="Finished rows are filled with 0. They repeat eos_id.",
    ),
    Mutant(
        exercise="generate",
        name="finished_rows_filled_with_pad_id",
        replace={
            "token = token.masked_fill(finished, eos_id)": "token = token.masked_fill(finished, eos_id if pad_id is None else pad_id)"
        },
        slip="Finished rows are filled with pad_id. They repeat eos_id.",
    ),
    Mutant(
        exercise="generate",
        name="eos_zero_is_none",
        replace={"if eos_id is not None:": "if eos_id:"},
        slip="`if eos_id:` takes eos_id=0 for none. Compare with None.",
    ),
    Mutant(
        exercise="generate",
        name="crops_the_context",
        replace={
            "            if step == 0 or not use_cache:\n                logits, cache = prefill(model, ids, pad_id)\n            else:\n                logits, cache = decode_step(model, ids[:, -1:], cache)\n": "            try:\n                if step == 0 or not use_cache:\n                    logits, cache = prefill(model, ids, pad_id)\n                else:\n                    logits, cache = decode_step(model, ids[:, -1:], cache)\n            except ValueError:\n                logits, cache = prefill(model, ids[:, 1:], pad_id)\n"
        },
        slip="Beyond the model's end the oldest tokens are cropped. That renumbers every position; here the ValueError is wanted.",
    ),
    Mutant(
        exercise="generate",
        name="refuses_the_last_two_places",
        replace={
            "    cache = None\n    with": "    cache = None\n    model.embed(ids[:0, :1], torch.tensor([ids.shape[1] + n]))  # is there such a position?\n    with"
        },
        slip="It refuses when T + n reaches max_len, but the last new token is never fed: n = max_len - T + 1 fits.",
    ),
    Mutant(
        exercise="generate",
        name="refuses_the_last_place",
        replace={"    cache = None\n    with": "    cache = None\n    model.embed(ids[:0, :1], torch.tensor([ids.shape[1] + n - 1]))  # is there such a position?\n    with"},
        slip="It refuses when T + n reaches beyond max_len, but the last new token is never fed: n = max_len - T + 1 fits.",
    ),
    Mutant(
        exercise="generate",
        name="graph_is_built",
        replace={"with torch.no_grad():": "if True:"},
        slip="Gradients are on while generating: a graph is built that nobody needs. Use torch.no_grad().",
    ),
    Mutant(
        exercise="generate",
        name="gradients_stay_off",
        replace={"    with torch.no_grad():": "    torch.set_grad_enabled(False)\n    if True:"},
        slip="Gradients stay off after the call. A `with torch.no_grad():` block restores the mode.",
    ),
    Mutant(
        exercise="generate",
        name="gradients_turned_on",
        replace={"    return ids": "    torch.set_grad_enabled(True)\n    return ids\n"},
        slip="Gradients are switched on at the end, even if they were off before. A `with torch.no_grad():` block restores the mode.",
    ),
    Mutant(
        exercise="generate",
        name="left_in_eval_mode",
        replace={"    cache = None\n    with": "    cache = None\n    model.eval()\n    with"},
        slip="The model is left in eval mode. Its mode is the caller's business.",
    ),
    Mutant(
        exercise="generate",
        name="left_in_train_mode",
        replace={"    cache = None\n    with": "    cache = None\n    model.train()\n    with"},
        slip="The model is left in train mode. Its mode is the caller's business.",
    ),
    Mutant(
        exercise="generate",
        name="writes_into_the_prompt",
        replace={"    return ids": "    prompt[:, -1] = ids[:, -1]\n    return ids\n", "    finished = torch.zeros": "    prompt = ids\n    finished = torch.zeros"},
        slip="It writes into the caller's ids.",
    ),
    Mutant(
        exercise="generate",
        name="float_tokens",
        replace={"    return ids": "    return ids.float()\n"},
        slip="The tokens come back as floating point numbers. Ids are int64.",
    ),
    Mutant(
        exercise="generate",
        name="state_between_calls",
        source="""
_kept = {}

def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    finished = torch.zeros(ids.shape[0], dtype=torch.bool)
    with torch.no_grad():
        for step in range(n):
            key = (ids.shape, pad_id)
            if not use_cache:
                logits, _ = prefill(model, ids, pad_id)
            elif step == 0 and key not in _kept:
                logits, _kept[key] = prefill(model, ids, pad_id)
                cache = _kept[key]
            else:
                logits, cache = decode_step(model, ids[:, -1:], _kept[key] if step == 0 else cache)
            token = logits.argmax(-1)
            if eos_id is not None:
                token = token.masked_fill(finished, eos_id)
                finished = finished | (token == eos_id)
            ids = torch.cat([ids, token[:, None]], 1)
    return ids
""",
        slip="The cache is kept between calls, so a second prompt continues the first.",
    ),
    Variant(
        exercise="generate",
        name="preallocated_result",
        source="""
@torch.no_grad()
def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    B, T = ids.shape
    out = torch.empty(B, T + n, dtype=torch.int64)
    out[:, :T] = ids
    done = [False] * B
    state = None
    for t in range(T, T + n):
        if use_cache and state is not None:
            logits, state = decode_step(model, out[:, t - 1 : t], state)
        else:
            logits, state = prefill(model, out[:, :t], pad_id)
        for b in range(B):
            out[b, t] = eos_id if done[b] else int(logits[b].argmax())
            done[b] = done[b] or (eos_id is not None and int(out[b, t]) == eos_id)
    return out
""",
    ),
    Variant(
        exercise="generate",
        name="inference_mode",
        source="""
def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    tokens = [ids]
    finished = None
    with torch.inference_mode():
        for i in range(n):
            if use_cache and i:
                logits, cache = decode_step(model, tokens[-1], cache)
            else:
                logits, cache = prefill(model, torch.cat(tokens, 1), pad_id)
            new = logits.max(-1, keepdim=True).indices
            if eos_id is not None:
                if finished is not None:
                    new = torch.where(finished, torch.full_like(new, eos_id), new)
                finished = new == eos_id
            tokens.append(new)
    return torch.cat(tokens, dim=1).clone()
""",
    ),
    Variant(
        exercise="generate",
        name="recursive",
        source="""
def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    def more(ids, left, cache, done):
        if left == 0:
            return ids
        if cache is None:
            logits, cache = prefill(model, ids, pad_id)
        else:
            logits, cache = decode_step(model, ids[:, -1:], cache)
        token = logits.topk(1, dim=-1).indices
        if eos_id is not None:
            token[done] = eos_id
            done = token[:, 0] == eos_id
        return more(torch.cat([ids, token], 1), left - 1, cache if use_cache else None, done)

    with torch.no_grad():
        return more(ids.clone(), n, None, torch.zeros(len(ids), dtype=torch.bool))
""",
    ),
    Variant(
        exercise="generate",
        name="row_by_row_and_early_end",
        source="""
def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    rows = []
    with torch.no_grad():
        for row in ids:
            line, cache = row[None], None
            for i in range(n):
                if cache is not None and use_cache:
                    logits, cache = decode_step(model, line[:, -1:], cache)
                else:
                    logits, cache = prefill(model, line, pad_id)
                line = torch.cat([line, logits.argmax(-1)[None]], 1)
                if eos_id is not None and int(line[0, -1]) == eos_id:
                    line = torch.cat([line, torch.full((1, n - i - 1), eos_id)], 1)
                    break
            rows.append(line)
    return torch.cat(rows)
""",
    ),
    Variant(
        exercise="generate",
        name="two_loops",
        source="""
def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    try:
        done = torch.zeros(ids.shape[0], 1, dtype=torch.bool)

        def choose(logits, done):
            token = logits.argmax(-1, keepdim=True)
            if eos_id is None:
                return token, done
            token = token.where(~done, eos_id)
            return token, done | token.eq(eos_id)

        if not use_cache:
            for _ in range(n):
                token, done = choose(prefill(model, ids, pad_id)[0], done)
                ids = torch.hstack([ids, token])
            return ids
        if n > 0:
            logits, cache = prefill(model, ids, pad_id)
            token, done = choose(logits, done)
            ids = torch.hstack([ids, token])
        for _ in range(1, n):
            logits, cache = decode_step(model, token, cache)
            token, done = choose(logits, done)
            ids = torch.hstack([ids, token])
        return ids
    finally:
        torch.set_grad_enabled(before)
""",
    ),
    Mutant(
        exercise="cache_bytes",
        name="keys_only",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return L * B * T * n_kv_heads * d_head * bytes_per_element"},
        slip="The factor 2 is missing: keys and values are both kept.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="queries_too",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 3 * L * B * T * n_kv_heads * d_head * bytes_per_element"},
        slip="It counts three tensors. Queries are not kept: a query serves its own row only.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="no_layers",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * B * T * n_kv_heads * d_head * bytes_per_element"},
        slip="The layers are missing: each keeps its own keys and values.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="no_batch",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * T * n_kv_heads * d_head * bytes_per_element"},
        slip="The batch is missing: each sequence has its own cache.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="no_positions",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * B * n_kv_heads * d_head * bytes_per_element"},
        slip="The positions are missing: the cache grows with the context.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="no_heads",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * B * T * d_head * bytes_per_element"},
        slip="The heads are missing: every stored head has its own keys and values.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="no_width",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * B * T * n_kv_heads * bytes_per_element"},
        slip="The width of a head is missing.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="elements",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * B * T * n_kv_heads * d_head"},
        slip="It counts numbers, not bytes. Multiply by the bytes of an element.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="bits",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 8 * 2 * L * B * T * n_kv_heads * d_head * bytes_per_element"},
        slip="It counts bits; the result is wanted in bytes.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="quadratic_in_positions",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * B * T * T * n_kv_heads * d_head * bytes_per_element"},
        slip="It grows with T^2, like a score matrix. The cache holds one key and one value a position.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="score_matrix",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * B * T * (n_kv_heads * d_head + T * n_kv_heads) * bytes_per_element"},
        slip="It counts the score matrix as well. Scores are not kept.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="always_two_bytes",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * B * T * n_kv_heads * d_head * 2"},
        slip="It assumes 2 bytes an element. Use the argument.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="float",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2.0 * L * B * T * n_kv_heads * d_head * bytes_per_element"},
        slip="The result is a float. It should be an exact int.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="through_a_float",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return int(2e0 * L * B * T * n_kv_heads * d_head * bytes_per_element)"},
        slip="It passes through a float, which is not exact for large sizes.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="kibibytes",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element // 1024"},
        slip="It counts KiB, not bytes.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="one_position_too_many",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * B * (T + 1) * n_kv_heads * d_head * bytes_per_element"},
        slip="It counts one position too many: T positions are held.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="at_least_one",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * max(L, 1) * max(B, 1) * max(T, 1) * max(n_kv_heads, 1) * d_head * bytes_per_element"},
        slip="A size of 0 is treated as 1. Nothing stored needs no bytes.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="the_queries_of_a_known_model",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return 2 * L * B * T * max(n_kv_heads, 32) * d_head * bytes_per_element"},
        slip="It assumes 32 heads. Use the number of stored heads that is given.",
    ),
    Mutant(
        exercise="cache_bytes",
        name="sixty_four_bits",
        replace={"return 2 * L * B * T * n_kv_heads * d_head * bytes_per_element": "return int(torch.tensor([2, L, B, T, n_kv_heads, d_head, bytes_per_element]).prod())"},
        slip="The product is taken in 64 bits and overflows. Python's own integers do not.",
    ),
    Variant(
        exercise="cache_bytes",
        name="product",
        source="""
def cache_bytes(L, B, T, n_kv_heads, d_head, bytes_per_element):
    import math
    return math.prod((2, L, B, T, n_kv_heads, d_head, bytes_per_element))
""",
    ),
    Variant(
        exercise="cache_bytes",
        name="keys_plus_values",
        source="""
def cache_bytes(L, B, T, n_kv_heads, d_head, bytes_per_element):
    numbers = B * n_kv_heads * T * d_head
    keys = values = numbers * bytes_per_element
    return L * (keys + values)
""",
    ),
    Variant(
        exercise="cache_bytes",
        name="per_token_first",
        source="""
def cache_bytes(L, B, T, n_kv_heads, d_head, bytes_per_element):
    per_token = 2 * n_kv_heads * d_head * bytes_per_element * L
    per_sequence = per_token * T
    return per_sequence * B
""",
    ),
    Variant(
        exercise="cache_bytes",
        name="shift_and_reduce",
        source="""
def cache_bytes(*sizes, **named):
    from functools import reduce
    from operator import mul
    return reduce(mul, [*sizes, *named.values()], 1) << 1
""",
    ),
    Mutant(
        exercise="decode_flops",
        name="cached_positions_only",
        replace={"(t + 1)": "t"},
        slip="It counts t positions. The new token attends to itself as well: t + 1.",
    ),
    Mutant(
        exercise="decode_flops",
        name="one_position_too_many",
        replace={"(t + 1)": "(t + 2)"},
        slip="It counts t + 2 positions. The new token sees t cached ones and itself.",
    ),
    Mutant(
        exercise="decode_flops",
        name="no_weighted_sum",
        replace={"attention = 2 * 2 *": "attention = 2 *"},
        slip="The weighted sum of the values is missing: it costs as much as the scores.",
    ),
    Mutant(
        exercise="decode_flops",
        name="all_positions_again",
        replace={"(t + 1)": "(t + 1) ** 2"},
        slip="It counts attention for all positions, as in a prefill. Only the new token is a query.",
    ),
    Mutant(
        exercise="decode_flops",
        name="half_of_the_triangle",
        replace={"attention = 2 * 2 * n_heads * d_head * (t + 1)": "attention = 2 * 2 * n_heads * d_head * (t + 1) * (t + 2) // 2"},
        slip="It counts the triangle of a prefill. In a decode step there is one row.",
    ),
    Mutant(
        exercise="decode_flops",
        name="shared_heads_compute_less",
        replace={"attention = 2 * 2 * n_heads": "attention = 2 * 2 * n_kv_heads"},
        slip="Attention is counted for the key heads. Sharing keys saves memory, but every query head still computes its scores.",
    ),
    Mutant(
        exercise="decode_flops",
        name="keys_and_values_at_full_width",
        replace={"keys_and_values = 2 * 2 * d_model * n_kv_heads": "keys_and_values = 2 * 2 * d_model * n_heads"},
        slip="Keys and values are projected for n_kv_heads heads, not for all query heads.",
    ),
    Mutant(
        exercise="decode_flops",
        name="keys_without_values",
        replace={"keys_and_values = 2 * 2 *": "keys_and_values = 2 *"},
        slip="Only one of the two projections, keys and values, is counted.",
    ),
    Mutant(
        exercise="decode_flops",
        name="projections_of_the_whole_context",
        replace={"keys_and_values = 2 * 2 * d_model * n_kv_heads * d_head": "keys_and_values = 2 * 2 * d_model * n_kv_heads * d_head * (t + 1)"},
        slip="The projections are counted for all positions. The cache holds the old keys and values.",
    ),
    Mutant(
        exercise="decode_flops",
        name="no_queries",
        replace={"queries = 2 * d_model * n_heads * d_head": "queries = 0"},
        slip="The query or the output projection is missing (both have the same size).",
    ),
    Mutant(
        exercise="decode_flops",
        name="no_output_projection",
        replace={"output = 2 * n_heads * d_head * d_model": "output = 0"},
        slip="The query or the output projection is missing (both have the same size).",
    ),
    Mutant(
        exercise="decode_flops",
        name="output_squared",
        replace={"output = 2 * n_heads * d_head * d_model": "output = 2 * d_model * d_model"},
        slip="The query or the output projection is taken as d_model x d_model. One goes from d_model to n_heads * d_head, the other back.",
    ),
    Mutant(
        exercise="decode_flops",
        name="queries_squared",
        replace={"queries = 2 * d_model * n_heads * d_head": "queries = 2 * d_model * d_model"},
        slip="The query or the output projection is taken as d_model x d_model. One goes from d_model to n_heads * d_head, the other back.",
    ),
    Mutant(
        exercise="decode_flops",
        name="two_matrices_in_the_ffn",
        replace={"ffn = 3 * 2": "ffn = 2 * 2"},
        slip="A gated FFN has three matrices.",
    ),
    Mutant(
        exercise="decode_flops",
        name="no_ffn",
        replace={"ffn = 3 * 2 * d_model * d_ff": "ffn = 0"},
        slip="The FFN is missing.",
    ),
    Mutant(
        exercise="decode_flops",
        name="multiply_add_counts_one",
        replace={"return B * (L": "return B * (L", "logits)": "logits) // 2"},
        slip="A multiply-add counts 2 FLOPs, and here it counts 1.",
    ),
    Mutant(
        exercise="decode_flops",
        name="no_logits",
        replace={" + logits)": ")"},
        slip="The projection to the vocabulary is missing.",
    ),
    Mutant(
        exercise="decode_flops",
        name="logits_in_every_layer",
        replace={"output + ffn) + logits)": "output + ffn + logits))"},
        slip="The logits are counted in every layer. They are computed once.",
    ),
    Mutant(
        exercise="decode_flops",
        name="logits_for_all_positions",
        replace={"logits = 2 * d_model * vocab_size": "logits = 2 * d_model * vocab_size * (t + 1)"},
        slip="The logits are counted for all positions. Only the new one is needed.",
    ),
    Mutant(
        exercise="decode_flops",
        name="embedding_as_a_product",
        replace={"logits = 2 * d_model * vocab_size": "logits = 2 * 2 * d_model * vocab_size"},
        slip="The embedding is counted as a matrix product. It is a lookup.",
    ),
    Mutant(
        exercise="decode_flops",
        name="no_batch",
        replace={"return B * (L": "return (L"},
        slip="The batch is missing.",
    ),
    Mutant(
        exercise="decode_flops",
        name="batch_shares_attention",
        replace={"return B * (L * (queries + keys_and_values + attention + output + ffn) + logits)": "return B * (L * (queries + keys_and_values + output + ffn) + logits) + L * attention"},
        slip="Attention is counted once for the batch. Each sequence has its own cache and its own scores.",
    ),
    Mutant(
        exercise="decode_flops",
        name="one_layer",
        replace={"B * (L * (": "B * (1 * ("},
        slip="Only one layer is counted.",
    ),
    Mutant(
        exercise="decode_flops",
        name="attention_in_one_layer",
        replace={"L * (queries + keys_and_values + attention + output + ffn)": "(L * (queries + keys_and_values + output + ffn) + attention)"},
        slip="Attention is counted in one layer only.",
    ),
    Mutant(
        exercise="decode_flops",
        name="float",
        replace={"return B * (L * (queries + keys_and_values + attention + output + ffn) + logits)": "return int(float(B) * (L * (queries + keys_and_values + attention + output + ffn) + logits))"},
        slip="The result passes through a float and is not exact.",
    ),
    Mutant(
        exercise="decode_flops",
        name="float_result",
        replace={"return B * (L": "return float(B) * (L"},
        slip="The result is a float. It should be an exact int.",
    ),
    Mutant(
        exercise="decode_flops",
        name="softmax_counted",
        replace={"(t + 1)\n": "(t + 1) + 3 * n_heads * (t + 1)\n"},
        slip="The softmax is counted as well. The docstring leaves it out.",
    ),
    Variant(
        exercise="decode_flops",
        name="list_of_matrices",
        source="""
def decode_flops(t, L, d_model, n_heads, n_kv_heads, d_head, d_ff, vocab_size, B=1):
    wide, narrow = n_heads * d_head, n_kv_heads * d_head
    per_layer = [(d_model, wide), (d_model, narrow), (d_model, narrow), (wide, d_model), (d_model, d_ff), (d_model, d_ff), (d_ff, d_model)]
    per_layer += [(wide, t + 1)] * 2
    matrices = per_layer * L if L < 50 else None
    if matrices is None:
        return 2 * B * (L * sum(m * n for m, n in per_layer) + d_model * vocab_size)
    return 2 * B * sum(m * n for m, n in [*matrices, (d_model, vocab_size)])
""",
    ),
    Variant(
        exercise="decode_flops",
        name="closed_form",
        source="""
def decode_flops(t, L, d_model, n_heads, n_kv_heads, d_head, d_ff, vocab_size, B=1):
    return 2 * B * (L * (2 * d_model * d_head * (n_heads + n_kv_heads) + 2 * n_heads * d_head * (t + 1) + 3 * d_model * d_ff) + d_model * vocab_size)
""",
    ),
    Variant(
        exercise="decode_flops",
        name="weights_and_context",
        source="""
def decode_flops(t, L, d_model, n_heads, n_kv_heads, d_head, d_ff, vocab_size, B=1):
    weights = L * (d_model * d_head * (2 * n_heads + 2 * n_kv_heads) + 3 * d_model * d_ff) + vocab_size * d_model
    context = L * (1 + t) * n_heads * d_head
    return B * (2 * weights + 4 * context)
""",
    ),
    Variant(
        exercise="decode_flops",
        name="matmul_helper",
        source="""
def decode_flops(t, L, d_model, n_heads, n_kv_heads, d_head, d_ff, vocab_size, B=1):
    def matmul(rows, inner, columns):
        return 2 * rows * inner * columns

    layer = matmul(B, d_model, (n_heads + 2 * n_kv_heads) * d_head)
    layer += B * n_heads * (matmul(1, d_head, t + 1) + matmul(1, t + 1, d_head))
    layer += matmul(B, n_heads * d_head, d_model)
    layer += 2 * matmul(B, d_model, d_ff) + matmul(B, d_ff, d_model)
    return L * layer + matmul(B, d_model, vocab_size)
""",
    ),
    Mutant(
        exercise="append_changes_the_past",
        name="zero_in_the_dtype_of_x",
        replace={
            "after.new_zeros(())": "x.new_zeros(())",
        },
        slip="With T = 1 the result has the dtype of x, not that of the encoder's output.",
    ),
    Mutant(
        exercise="KVCache",
        name="room_for_128",
        replace={
            "if end > self.max_len:": "if end > min(self.max_len, 128):",
        },
        slip="It refuses more than 128 positions. max_len decides.",
    ),
    Mutant(
        exercise="KVCache",
        name="sixth_append_is_lost",
        replace={
            "        end = self.length + T_new\n": '        end = self.length + T_new\n        self.calls = getattr(self, "calls", 0) + 1\n        k = k * 0 if self.calls == 6 else k\n',
        },
        slip="The sixth append is not stored. Every append counts the same.",
    ),
    Mutant(
        exercise="KVCache",
        name="a_forks_fork_shares",
        replace={
            "        return twin": '        twin.forked = True\n        if hasattr(self, "forked"):\n            twin.keys = self.keys\n        return twin',
        },
        slip="A fork of a fork shares its storage. Every fork needs storage of its own.",
    ),
    Mutant(
        exercise="KVCache",
        name="a_forks_fork_is_smaller",
        replace={
            "KVCache(B, H, self.max_len,": 'KVCache(B, H, self.max_len - hasattr(self, "forked"),',
            "        return twin": "        twin.forked = True\n        return twin",
        },
        slip="A fork of a fork has less room. Every fork has the max_len of its original.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="window_of_128",
        replace={
            ".tril(T - T_new)": ".tril(T - T_new).triu(T - T_new - 127)",
        },
        slip="Keys more than 127 positions back are hidden. All earlier visible positions count.",
    ),
    Mutant(
        exercise="attend_with_cache",
        name="exp_behind_where",
        replace={
            "    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(nothing, 0.0)\n    weights = scores.softmax(dim=-1).masked_fill(nothing, 0.0)\n": "    top = scores.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True).masked_fill(nothing, 0.0)\n    weights = torch.where(mask, (scores - top).exp(), 0.0)\n    weights = weights / weights.sum(-1, keepdim=True).masked_fill(nothing, 1.0)\n",
        },
        slip="exp of a huge score that is not seen overflows before torch.where drops it, and the gradient becomes 0 * inf = nan. Fill the scores before exp, not the result.",
    ),
    Mutant(
        exercise="decode_step",
        name="sets_eval",
        replace={
            "    new_layers = []\n": "    new_layers = []\n    model.eval()\n",
        },
        slip="It switches the model to eval mode and leaves it there. The mode is the caller's business.",
    ),
    Mutant(
        exercise="decode_step",
        name="asks_for_max_len",
        replace={
            "(counts - 1).clamp(min=0)": "(counts - 1).clamp(0, model.max_len)",
        },
        slip="It reads model.max_len. A model offers embed, blocks and unembed, and nothing else that you may use.",
    ),
    Mutant(
        exercise="decode_step",
        name="full_forward_pass",
        source="""
def decode_step(model, ids, cache, visible=None):
    ids = ids if cache is None else torch.cat([cache, ids], dim=1)
    return full_logits(model, ids)[:, -1], ids
""",
        slip="It keeps the tokens and runs full_logits over all of them: the past goes through the model at every step, and padding is seen.",
    ),
    Mutant(
        exercise="prefill",
        name="full_forward_pass",
        source="""
def prefill(model, ids, pad_id=None):
    return full_logits(model, ids)[:, -1], None
""",
        slip="full_logits sees the padding, and leaves no cache behind.",
    ),
    Mutant(
        exercise="generate",
        name="full_forward_passes",
        source="""
def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    with torch.no_grad():
        for _ in range(n):
            ids = torch.cat([ids, full_logits(model, ids)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids
""",
        slip="It runs full_logits over the whole sequence at every step: there is no cache, padding is seen, and eos_id ends nothing.",
    ),
    Mutant(
        exercise="generate",
        name="asks_for_max_len",
        replace={"    cache = None\n    with": "    cache = None\n    if n > model.max_len - ids.shape[1] + 1:\n        raise ValueError('too long')\n    with"},
        slip="It reads model.max_len. A model offers embed, blocks and unembed, and nothing else that you may use.",
    ),
    Mutant(
        exercise="decode_step",
        name="eval_and_back",
        replace={
            "    new_layers = []\n": "    mode = model.training\n    model.eval()\n    new_layers = []\n",
            "    return model.unembed(x[:, -1])": "    model.train(mode)\n    return model.unembed(x[:, -1])",
        },
        slip="It reads and switches the mode of the model. That is the caller's business; a model offers embed, blocks and unembed, and nothing else that you may use.",
    ),
    Mutant(
        exercise="generate",
        name="eval_and_back",
        replace={"    cache = None\n    with": "    cache = None\n    mode = model.training\n    model.eval()\n    with", "    return ids": "    model.train(mode)\n    return ids\n"},
        slip="It reads and switches the mode of the model. That is the caller's business; a model offers embed, blocks and unembed, and nothing else that you may use.",
    ),
    Mutant(
        exercise="prefill",
        name="asks_for_parameters",
        replace={"    visible = torch.ones_like(": "    ids = ids.to(next(model.parameters()).device)\n    visible = torch.ones_like("},
        slip="It reads model.parameters(). A model offers embed, blocks and unembed, and nothing else that you may use.",
    ),
    Mutant(
        exercise="prefill",
        name="one_pad_is_a_prompt",
        replace={
            "if pad_id is not None:": "if pad_id is not None and ids.shape[1] > 1:",
        },
        slip="A prompt of a single pad is taken for a token. A row of padding only raises ValueError, whatever its length.",
    ),
]
