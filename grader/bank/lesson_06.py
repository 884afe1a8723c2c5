"""Wrong and right answers to the exercises of lesson 06."""

from grader.bank import Entry, Mutant, Variant

GAP = "before, after = f(x), f(x[perm])"
FREQUENCIES = "10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)"
ROPE_FREQUENCIES = "base ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)"
ROTATION = "torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)"
RAISE = """    if d_model % 2:
        raise ValueError(f"d_model={d_model} is odd: sines and cosines come in pairs")
"""
ODD = """    if d % 2:
        raise ValueError(f"d={d} is odd: the features come in pairs")
"""
TABLE_INIT = "nn.Parameter(torch.randn(max_len, d_model) * 0.02)"
CONDITION = "offset < 0 or offset + T > max_len"
ADD = "x + self.table[offset : offset + T]"

ENTRIES: list[Entry] = [
    # ----------------------------------------------------------------------------------------- permutation_gap
    Mutant(
        exercise="permutation_gap",
        name="compares_with_the_old_order",
        replace={"after - before[perm]": "after - before"},
        slip="It compares f(x[perm]) with f(x): that is invariance of the whole output. Reorder f(x) as well before comparing.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="reorders_back_the_wrong_way",
        replace={"before[perm]": "before[torch.argsort(perm)]"},
        slip="The output is reordered by the inverse of perm. The rows of f(x) move as those of x: f(x)[perm].",
    ),
    Mutant(
        exercise="permutation_gap",
        name="inverse_throughout",
        replace={GAP: "perm = torch.argsort(perm); " + GAP},
        slip="Input and output are reordered by the inverse of perm. Row i of the reordered input is row perm[i] of x: x[perm].",
    ),
    Mutant(
        exercise="permutation_gap",
        name="writes_to_perm",
        source="""
def permutation_gap(f, x, perm):
    moved = torch.empty_like(x)
    moved[perm] = x
    before, after = f(x), f(moved)
    want = torch.empty_like(before)
    want[perm] = before
    return (after - want).abs().max().item(), (after.mean(0) - before.mean(0)).abs().max().item()
""",
        slip="moved[perm] = x sends row i to row perm[i], the inverse reordering. Row i of the reordered input is x[perm[i]].",
    ),
    Mutant(
        exercise="permutation_gap",
        name="signed_equivariance",
        replace={"(after - before[perm]).abs().max()": "(after - before[perm]).max()"},
        slip="The equivariance gap takes the largest signed difference: negative ones are lost. Take .abs() first.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="signed_invariance",
        replace={"before.mean(dim=0)).abs().max()": "before.mean(dim=0)).max()"},
        slip="The invariance gap takes the largest signed difference: negative ones are lost. Take .abs() first.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="mean_difference",
        replace={"(after - before[perm]).abs().max()": "(after - before[perm]).abs().mean()"},
        slip="The equivariance gap is a mean of the differences. It is the largest one.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="mean_difference_after_pooling",
        replace={"before.mean(dim=0)).abs().max()": "before.mean(dim=0)).abs().mean()"},
        slip="The invariance gap is averaged over the features. It is the largest one.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="norm_of_the_difference",
        replace={"(after - before[perm]).abs().max()": "(after - before[perm]).norm()"},
        slip="The equivariance gap is the norm of all differences. It is the largest single one.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="relative",
        replace={"(after - before[perm]).abs().max()": "(after - before[perm]).abs().max() / before.abs().max()"},
        slip="The gap is divided by the size of the output. It is an absolute difference.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="pools_by_sum",
        replace={"after.mean(dim=0) - before.mean(dim=0)": "after.sum(dim=0) - before.sum(dim=0)"},
        slip="It pools by a sum, which is T times the mean.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="pools_by_maximum",
        replace={"after.mean(dim=0) - before.mean(dim=0)": "after.amax(dim=0) - before.amax(dim=0)"},
        slip="It pools by the maximum over the positions. Here the pooled output is the mean.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="pools_the_features",
        replace={"after.mean(dim=0) - before.mean(dim=0)": "after.mean(dim=-1) - before.mean(dim=-1)"},
        slip="The mean runs over the features, the last axis. Pool over the positions, axis 0.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="pools_everything",
        replace={"after.mean(dim=0) - before.mean(dim=0)": "after.mean() - before.mean()"},
        slip="The mean runs over positions and features together, so differences of features cancel. Pool over axis 0 only.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="pools_the_reordered_output",
        replace={"after.mean(dim=0) - before.mean(dim=0)": "before[perm].mean(dim=0) - before.mean(dim=0)"},
        slip="It pools f(x) twice, in two orders, so the gap is always 0. One of the two must be the output for x[perm].",
    ),
    Mutant(
        exercise="permutation_gap",
        name="reorders_the_features",
        source="""
def permutation_gap(f, x, perm):
    before, after = f(x), f(x[:, perm[perm < x.shape[1]]])
    return (after - before).abs().max().item(), (after.mean(0) - before.mean(0)).abs().max().item()
""",
        slip="It reorders the features. Positions are the rows: x[perm].",
    ),
    Mutant(
        exercise="permutation_gap",
        name="turns_around",
        replace={GAP: "before, after = f(x), f(x.flip(0))", "before[perm]": "before.flip(0)"},
        slip="It always turns the sequence around and ignores perm.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="one_number_for_both",
        replace={"equivariance.item(), invariance.item()": "equivariance.item(), equivariance.item()"},
        slip="Both numbers are the equivariance gap. The second compares the means over the positions.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="results_exchanged",
        replace={"equivariance.item(), invariance.item()": "invariance.item(), equivariance.item()"},
        slip="The two gaps are returned in the wrong order: first equivariance, then invariance.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="yes_or_no",
        replace={"equivariance.item(), invariance.item()": "float(equivariance > 1e-6), float(invariance > 1e-6)"},
        slip="It says only whether there is a gap. Return how large it is.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="small_is_zero",
        replace={"equivariance.item(), invariance.item()": "round(equivariance.item(), 2), round(invariance.item(), 2)"},
        slip="The gaps are rounded, so small ones become 0. Return them as they are.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="feeds_rows_one_by_one",
        replace={GAP: "before, after = f(x), torch.cat([f(row[None]) for row in x[perm]])"},
        slip="It calls f on single rows. f is a function of the whole sequence, (T, d) -> (T, d).",
    ),
    Mutant(
        exercise="permutation_gap",
        name="reorders_in_place",
        replace={GAP: "before = f(x); old = before.clone(); x.copy_(x[perm]); after = f(x); before = old"},
        slip="x is reordered in place, so the caller's tensor changes. x[perm] makes a new one.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="detects_the_mask",
        source="""
def permutation_gap(f, x, perm):
    y = x.clone()
    y[-1] += 1
    leak = (f(y)[0] - f(x)[0]).abs().max().item()
    gap = 0.0 if leak > 0 else (f(x[perm]) - f(x)[perm]).abs().max().item()
    return gap, gap
""",
        slip="It looks for a causal mask. An unmasked function can notice order too, by a table of positions: compare f(x[perm]) and f(x)[perm].",
    ),
    Mutant(
        exercise="permutation_gap",
        name="equivariance_alone",
        replace={"return equivariance.item(), invariance.item()": "return equivariance.item()"},
        slip="It returns one number. Return two: the equivariance gap and the invariance gap.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="a_gap_for_each_feature",
        replace={"(after - before[perm]).abs().max()": "(after - before[perm]).abs().amax(dim=0)", "equivariance.item()": "equivariance"},
        slip="The equivariance gap has one number for each feature. It is the largest over all entries.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="compares_sorted_rows",
        replace={"after - before[perm]": "after.sort(dim=0).values - before.sort(dim=0).values"},
        slip="Both outputs are sorted before they are compared, so it no longer matters which row came out where. Compare with f(x)[perm].",
    ),
    Mutant(
        exercise="permutation_gap",
        name="tiny_is_zero",
        replace={"return equivariance.item(), invariance.item()": "return tuple(0.0 if gap < 1e-6 else gap.item() for gap in (equivariance, invariance))"},
        slip="Gaps below 1e-6 are set to 0; for a function with small outputs they are real. Return them as they are.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="largest_mean_of_a_row",
        replace={"(after - before[perm]).abs().max()": "(after - before[perm]).abs().mean(dim=1).max()"},
        slip="Differences are averaged over the features of a row. The gap is the largest over all entries.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="squared",
        replace={"equivariance.item(), invariance.item()": "equivariance.item() ** 2, invariance.item() ** 2"},
        slip="The gaps are squared. They are absolute differences.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="converts_to_float32",
        replace={GAP: "before, after = f(x.float()), f(x[perm].float())"},
        slip="x is converted to float32 before f is called. Call f with tensors of the dtype of x.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="adds_a_batch",
        replace={GAP: "before, after = f(x[None])[0], f(x[perm][None])[0]"},
        slip="f gets a batch axis that it does not know. It takes (T, d).",
    ),
    Mutant(
        exercise="permutation_gap",
        name="remembers_the_function",
        source="""
OUTPUTS = {}

def permutation_gap(f, x, perm):
    if f not in OUTPUTS:
        OUTPUTS[f] = f(x)
    before, after = OUTPUTS[f], f(x[perm])
    return (after - before[perm]).abs().max().item(), (after.mean(0) - before.mean(0)).abs().max().item()
""",
        slip="The output of x is kept for each f, and a later call with another x compares with the old output. Call f on the x that is given.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="first_eight_rows",
        replace={"(after - before[perm]).abs().max()": "(after - before[perm])[:8].abs().max()"},
        slip="Only the first 8 positions are compared. The gap is the largest over all entries.",
    ),
    Mutant(
        exercise="permutation_gap",
        name="asks_for_gradients",
        replace={GAP: "x.requires_grad_()\n    " + GAP},
        slip="requires_grad_() marks the caller's x for gradients. No gradient is needed here; leave x as it is.",
    ),
    Variant(
        exercise="permutation_gap",
        name="norms",
        source="""
def permutation_gap(f, x, perm):
    moved = torch.index_select(x, 0, perm)
    out, out_moved = f(x).detach(), f(moved).detach()
    equivariance = torch.linalg.vector_norm(out_moved - out.index_select(0, perm), ord=float("inf"))
    invariance = torch.linalg.vector_norm(out_moved.mean(0) - out.mean(0), ord=float("inf"))
    return equivariance, invariance
""",
    ),
    Variant(
        exercise="permutation_gap",
        name="reorders_back",
        source="""
@torch.no_grad()
def permutation_gap(f, x, perm):
    after, back = f(x[perm]), torch.argsort(perm)
    before = f(x)
    pooled = [y.sum(dim=0) / len(perm) for y in (before, after)]
    return (after[back] - before).abs().max().item(), (pooled[0] - pooled[1]).abs().max().item()
""",
    ),
    Variant(
        exercise="permutation_gap",
        name="matrix",
        source="""
def permutation_gap(f, x, perm):
    P = F.one_hot(perm, len(perm)).to(x.dtype)
    before, after = f(x), f(P @ x)
    return [(after - P @ before).abs().amax().item(), abs(after.mean(0, keepdim=True) - before.mean(0, keepdim=True)).amax().item()]
""",
    ),
    Variant(
        exercise="permutation_gap",
        name="loops",
        source="""
def permutation_gap(f, x, perm):
    T = x.shape[0]
    before, after = f(x.clone()).tolist(), f(torch.stack([x[p] for p in perm.tolist()])).tolist()
    rows = [abs(a - b) for i in range(T) for a, b in zip(after[i], before[perm[i].item()])]
    columns = [abs(sum(a) - sum(b)) / T for a, b in zip(zip(*after), zip(*before))]
    return max(rows), max(columns)
""",
    ),
    # ------------------------------------------------------------------------------------- sinusoidal_encoding
    Mutant(
        exercise="sinusoidal_encoding",
        name="odd_width_not_refused",
        replace={RAISE: ""},
        slip="An odd d_model is not refused. Raise a ValueError that names it.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="odd_width_crashes",
        source="""
def sinusoidal_encoding(T, d_model):
    p, i = torch.arange(T, dtype=torch.float64)[:, None], torch.arange(0, d_model, 2, dtype=torch.float64)
    table = torch.zeros(T, d_model)
    table[:, 0::2] = torch.sin(p * 10000.0 ** (-i / d_model)).float()
    table[:, 1::2] = torch.cos(p * 10000.0 ** (-i / d_model)).float()
    return table
""",
        slip="With an odd d_model there is one cosine too many, and PyTorch complains about shapes. Raise a ValueError that names d_model first.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="asserts_even",
        replace={RAISE: "    assert d_model % 2 == 0, d_model\n"},
        slip="An odd d_model gives an AssertionError; the stub asks for a ValueError that names it.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="error_without_the_number",
        replace={'f"d_model={d_model} is odd: sines and cosines come in pairs"': '"the width must be even"'},
        slip="The ValueError does not say which d_model was given.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="cosine_has_its_own_frequency",
        replace={
            "torch.stack((angles.sin(), angles.cos())": "torch.stack((angles.sin(), (torch.arange(T).double()[:, None] * 10000.0 ** (-torch.arange(1, d_model, 2).double() / d_model)).cos())"
        },
        slip="The cosines use the exponent (2i+1)/d_model. Sine and cosine of a pair share 2i/d_model.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="cosine_first",
        replace={"(angles.sin(), angles.cos())": "(angles.cos(), angles.sin())"},
        slip="The cosine stands before the sine. Sine first: column 2i is the sine.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="halves",
        replace={"torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)": "torch.cat((angles.sin(), angles.cos()), dim=-1)"},
        slip="All sines stand first, then all cosines. They are interleaved: sine, cosine, sine, cosine.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="exponent_half",
        replace={"torch.arange(0, d_model, 2, dtype=torch.float64)": "torch.arange(d_model // 2, dtype=torch.float64)"},
        slip="The exponent is i/d_model. For pair i it is 2i/d_model.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="reaches_the_base",
        replace={"/ d_model)  #": "/ max(d_model - 2, 1))  #"},
        slip="The exponents run up to 1 (division by d_model - 2). The last one is (d_model - 2)/d_model.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="frequencies_upside_down",
        replace={"10000.0 ** (-torch": "10000.0 ** (torch"},
        slip="The frequencies grow with i. The exponent is negative: divide the position by 10000^(2i/d_model).",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="base_1000",
        replace={"10000.0": "1000.0"},
        slip="The base is 1000; it is 10000.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="turns",
        replace={"torch.outer(": "2 * math.pi * torch.outer("},
        slip="The angles carry a factor of 2 pi. The formula has none.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="starts_at_one",
        replace={"torch.arange(T, dtype=torch.float64)": "torch.arange(1, T + 1, dtype=torch.float64)"},
        slip="The first row is position 1. Positions start at 0.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="float32_angles",
        replace={
            FREQUENCIES: "10000.0 ** (-torch.arange(0, d_model, 2) / d_model)",
            "torch.arange(T, dtype=torch.float64)": "torch.arange(T).float()",
        },
        slip="The angles are computed in float32, which is too coarse for far positions. Use float64 and round at the end.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="float32_frequencies",
        replace={FREQUENCIES: "(10000.0 ** (-torch.arange(0, d_model, 2) / d_model)).double()"},
        slip="The frequencies are float32; multiplied by a far position their rounding becomes large. Compute them in float64.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="bfloat16_positions",
        replace={"torch.arange(T, dtype=torch.float64)": "torch.arange(T).bfloat16().double()"},
        slip="bfloat16 holds no whole numbers beyond 256 exactly, so far positions coincide. Count in float64.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="float16_positions",
        replace={"torch.arange(T, dtype=torch.float64)": "torch.arange(T).half().double()"},
        slip="float16 holds no odd numbers beyond 2048, so far positions coincide. Count in float64.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="limited_to_5000",
        replace={"torch.arange(T, dtype=torch.float64)": "torch.arange(T, dtype=torch.float64).clamp(max=4999)"},
        slip="Positions beyond 4999 all get the same row. The formula has no end.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="relative_to_length",
        replace={"torch.arange(T, dtype=torch.float64)": "torch.arange(T, dtype=torch.float64) / T"},
        slip="Positions are divided by T, so row p depends on how long the table is.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="whole_division",
        replace={"/ d_model)  #": "// d_model)  #"},
        slip="// rounds the exponents to whole numbers, so all frequencies but the first are alike. Divide with /.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="one_frequency",
        replace={"torch.outer(torch.arange(T, dtype=torch.float64), frequencies)": "torch.outer(torch.arange(T, dtype=torch.float64), torch.ones_like(frequencies))"},
        slip="All pairs turn with frequency 1. Each pair has its own.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="with_a_batch",
        replace={".flatten(1).float()": ".flatten(1).float()[None]"},
        slip="The table has a batch axis in front. Return (T, d_model).",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="float64_result",
        replace={".flatten(1).float()": ".flatten(1)"},
        slip="The table is float64. Compute in float64, but return float32.",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="the_example_only",
        source="""
def sinusoidal_encoding(T, d_model):
    if d_model % 2:
        raise ValueError(f"{d_model}")
    p = torch.arange(T, dtype=torch.float64)[:, None] / 100.0 ** torch.arange(d_model // 2)
    return torch.stack((p.sin(), p.cos()), -1).flatten(1).float()
""",
        slip="Every frequency is 1/100 of the one before, which is right for d_model = 4 only. In general the ratio is 10000^(-2/d_model).",
    ),
    Mutant(
        exercise="sinusoidal_encoding",
        name="width_bounded",
        replace={"/ d_model)  #": "/ min(d_model, 512))  #"},
        slip="Beyond a width of 512 the exponents are divided by 512. Divide by d_model, however wide the table is.",
    ),
    Variant(
        exercise="sinusoidal_encoding",
        name="logarithm_and_slices",
        source="""
def sinusoidal_encoding(T, d_model):
    if d_model % 2 == 1:
        raise ValueError("odd d_model: " + str(d_model))
    table = torch.zeros(T, d_model, dtype=torch.float64)
    position = torch.arange(0, T, dtype=torch.float64).unsqueeze(1)
    rate = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)
    return table.to(torch.float32)
""",
    ),
    Variant(
        exercise="sinusoidal_encoding",
        name="shifted_sine",
        source="""
def sinusoidal_encoding(T, d_model):
    if d_model % 2:
        raise ValueError(f"d_model must be even, not {d_model}")
    column = torch.arange(d_model)
    rate = torch.pow(torch.tensor(10000.0, dtype=torch.float64), -(column // 2 * 2) / torch.tensor(d_model, dtype=torch.float64))
    return torch.sin(torch.arange(T)[:, None] * rate + (column % 2) * (math.pi / 2)).float()
""",
    ),
    Variant(
        exercise="sinusoidal_encoding",
        name="complex_numbers",
        source="""
def sinusoidal_encoding(T, d_model):
    if d_model % 2:
        raise ValueError(f"{d_model=}")
    angles = torch.arange(T).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    turned = torch.polar(torch.ones_like(angles), math.pi / 2 - angles)  # real part sin, imaginary part cos
    return torch.view_as_real(turned).reshape(T, d_model).float()
""",
    ),
    Variant(
        exercise="sinusoidal_encoding",
        name="numpy_rows",
        source="""
import numpy as np

def sinusoidal_encoding(T, d_model):
    if d_model % 2 != 0:
        raise ValueError(f"d_model = {d_model} has a sine without a cosine")
    p = np.arange(T)[:, None]
    angles = p / np.power(10000.0, 2 * (np.arange(d_model)[None] // 2) / d_model)
    angles[:, 0::2], angles[:, 1::2] = np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])
    return torch.from_numpy(angles.astype(np.float32))
""",
    ),
    Variant(
        exercise="sinusoidal_encoding",
        name="slice_of_a_cache",
        source="""
CACHE = {}

def sinusoidal_encoding(T, d_model):
    if d_model % 2:
        raise ValueError(f"d_model={d_model}")
    if d_model not in CACHE or len(CACHE[d_model]) < T:
        rate = 10000.0 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
        angles = torch.arange(max(T, 512)).double().view(-1, 1) / rate
        CACHE[d_model] = torch.dstack((angles.sin(), angles.cos())).flatten(1).float()
    return CACHE[d_model][:T]
""",
    ),
    # -------------------------------------------------------------------------------------------- shift_matrix
    Mutant(
        exercise="shift_matrix",
        name="transposed",
        replace={"return M.float()": "return M.T.float()"},
        slip="It is the matrix for column vectors, M @ PE(p). Row vectors stand on the left, PE(p) @ M: transpose it.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="steps_back",
        replace={"angles = delta *": "angles = -delta *"},
        slip="It steps back by delta. Check the signs of the sines.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="ignores_the_sign",
        replace={"angles = delta *": "angles = abs(delta) *"},
        slip="A negative delta is treated as a positive one. The sine keeps the sign of delta.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="refuses_negative",
        replace={"    even = torch": "    delta = max(delta, 0)\n    even = torch"},
        slip="A negative delta is replaced by 0. It steps back.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="symmetric",
        replace={"= -angles.sin()": "= angles.sin()"},
        slip="Both sines are positive. One of the two has a minus: cos(a+b) = cos a cos b - sin a sin b.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="halves",
        source="""
def shift_matrix(delta, d_model):
    if d_model % 2:
        raise ValueError(f"{d_model}")
    a = delta * 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    c, s = torch.diag(a.cos()), torch.diag(a.sin())
    return torch.cat((torch.cat((c, -s), 1), torch.cat((s, c), 1))).float()
""",
        slip="It belongs to a table with all sines first. Here sine and cosine are interleaved: 2 x 2 blocks along the diagonal.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="one_frequency",
        replace={"delta * 10000.0 ** (-even.double() / d_model)": "delta * torch.ones(d_model // 2, dtype=torch.float64)"},
        slip="Every block turns by delta. Block i turns by delta times its frequency 10000^(-2i/d_model).",
    ),
    Mutant(
        exercise="shift_matrix",
        name="exponent_twice",
        replace={"-even.double() / d_model": "-2 * even.double() / d_model"},
        slip="The exponents are 4i/d_model: `even` already holds 2i.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="exponent_half",
        replace={"-even.double() / d_model": "-(even // 2).double() / d_model"},
        slip="The exponents are i/d_model. For block i it is 2i/d_model.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="only_cosines",
        replace={"    M[even + 1, even] = angles.sin()\n    M[even, even + 1] = -angles.sin()\n": ""},
        slip="The sines are missing, so the pair is only shortened, not turned.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="power_of_one_step",
        source="""
def shift_matrix(delta, d_model):
    if d_model % 2:
        raise ValueError(f"{d_model}")
    a = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    blocks = torch.stack((a.cos(), -a.sin(), a.sin(), a.cos()), -1).view(-1, 2, 2)
    return torch.linalg.matrix_power(torch.block_diag(*blocks), delta)
""",
        slip="A float32 matrix for one step is raised to a power, so rounding errors grow with delta. Compute the angle delta * w_i, in float64.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="float32_angles",
        replace={"(-even.double() / d_model)": "(-even / d_model)"},
        slip="The angles are float32, too coarse for large steps. Compute them in float64.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="least_squares",
        source="""
def shift_matrix(delta, d_model):
    if d_model % 2:
        raise ValueError(f"{d_model}")
    p = torch.arange(max(-delta, 0), max(-delta, 0) + d_model).double()[:, None]
    rate = 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    table = lambda p: torch.stack(((p * rate).sin(), (p * rate).cos()), -1).flatten(1)
    return torch.linalg.lstsq(table(p), table(p + delta)).solution.float()
""",
        slip="Solving for the matrix from a few rows is inexact: slow pairs hardly differ over a few positions. Write the blocks directly.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="maps_position_zero_only",
        source="""
def shift_matrix(delta, d_model):
    if d_model % 2:
        raise ValueError(f"{d_model}")
    a = delta * 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    M = torch.eye(d_model, dtype=torch.float64)
    M[1::2] = torch.stack((a.sin(), a.cos()), -1).flatten()
    return (M / (d_model // 2)).float()
""",
        slip="It takes position 0 to delta, but no other position on by delta. The matrix must work for every p.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="odd_width_not_refused",
        replace={RAISE: ""},
        slip="An odd d_model is not refused with a ValueError.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="odd_width_rounded_down",
        replace={RAISE: "    d_model -= d_model % 2\n"},
        slip="An odd d_model is silently made even. Raise a ValueError that names it.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="identity_before_the_test",
        replace={"    if d_model % 2:": "    if delta == 0:\n        return torch.eye(d_model)\n    if d_model % 2:"},
        slip="For delta = 0 an odd d_model slips through. Test the width first.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="float64_result",
        replace={"return M.float()": "return M"},
        slip="The matrix is float64. Compute in float64, but return float32.",
    ),
    Mutant(
        exercise="shift_matrix",
        name="two_pi_cut_short",
        replace={"    M = torch": "    angles = angles.fmod(6.283185307)\n    M = torch"},
        slip="Whole turns are taken off with a 2 pi of ten digits, an error that grows with the number of turns. Leave the angles as they are, or use 2 * math.pi.",
    ),
    Variant(
        exercise="shift_matrix",
        name="block_diagonal",
        source="""
def shift_matrix(delta, d_model):
    if d_model % 2:
        raise ValueError(f"d_model={d_model} must be even")
    blocks = []
    for i in range(d_model // 2):
        b = delta / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)
""",
    ),
    Variant(
        exercise="shift_matrix",
        name="kronecker",
        source="""
def shift_matrix(delta, d_model):
    if d_model % 2:
        raise ValueError(d_model)
    b = delta * torch.exp(torch.arange(0, d_model, 2).double() * (-math.log(10000.0) / d_model))
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    return (torch.kron(torch.diag(b.cos()), eye) + torch.kron(torch.diag(b.sin()), turn)).to(torch.float32)
""",
    ),
    Variant(
        exercise="shift_matrix",
        name="power_in_float64",
        source="""
def shift_matrix(delta, d_model):
    if d_model % 2:
        raise ValueError(f"d_model={d_model} is odd")
    generator = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        generator[i + 1, i], generator[i, i + 1] = 10000 ** (-i / d_model), -(10000 ** (-i / d_model))
    return torch.linalg.matrix_power(torch.linalg.matrix_exp(generator), delta).float()
""",
    ),
    Variant(
        exercise="shift_matrix",
        name="loops",
        source="""
def shift_matrix(delta, d_model):
    if d_model % 2:
        raise ValueError(f"odd width {d_model}")
    M = [[0.0] * d_model for _ in range(d_model)]
    for i in range(0, d_model, 2):
        b = delta * 10000.0 ** (-i / d_model)
        M[i][i] = M[i + 1][i + 1] = math.cos(b)
        M[i + 1][i] = math.sin(b)
        M[i][i + 1] = math.sin(-b)
    return torch.tensor(M)
""",
    ),
    Variant(
        exercise="shift_matrix",
        name="rows_at_once",
        source="""
def shift_matrix(delta, d_model):
    if d_model % 2:
        raise ValueError(f"d_model={d_model}")
    b = delta * 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    blocks = torch.stack((b.cos(), -b.sin(), b.sin(), b.cos()), dim=-1).view(-1, 2, 2)  # (d_model/2, 2, 2)
    M = torch.einsum("nij,nm->nimj", blocks, torch.eye(len(b), dtype=torch.float64))
    return M.reshape(d_model, d_model).float()
""",
    ),
    Variant(
        exercise="shift_matrix",
        name="whole_turns_taken_off",
        replace={"    M = torch": "    angles = torch.remainder(angles, 2 * math.pi)\n    M = torch"},
    ),
    # ---------------------------------------------------------------------------------------- LearnedPositions
    Mutant(
        exercise="LearnedPositions",
        name="ignores_the_offset",
        replace={ADD: "x + self.table[:T]"},
        slip="The rows always start at 0, so every decoded token stands at position 0. Start at offset.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="along_the_batch",
        replace={"T, max_len = x.shape[-2]": "T, max_len = x.shape[0]", ADD: "x + self.table[offset : offset + T].view(T, *[1] * (x.dim() - 2), -1)"},
        slip="The rows are dealt out along the first axis, the batch. Positions are the last axis but one.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="along_the_batch_when_square",
        replace={ADD: "x + (self.table[offset : offset + T].unsqueeze(1) if x.dim() == 3 and x.shape[0] == T else self.table[offset : offset + T])"},
        slip="Where the batch is as large as T, the rows go along the batch. Each position of a sequence needs its own row.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="last_row_for_all_beyond",
        replace={"            raise ValueError(f\"offset={offset}, T={T} does not fit into a table of max_len={max_len} positions\")\n        return x + self.table[offset : offset + T]": "            pass\n        return x + self.table[torch.arange(offset, offset + T).clamp(0, max_len - 1)]"},
        slip="Positions beyond the table get its last row. Raise a ValueError instead.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="wraps_around",
        replace={"            raise ValueError(f\"offset={offset}, T={T} does not fit into a table of max_len={max_len} positions\")\n        return x + self.table[offset : offset + T]": "            pass\n        return x + self.table[torch.arange(offset, offset + T) % max_len]"},
        slip="Positions beyond the table start again at row 0. Raise a ValueError instead.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="never_compares",
        replace={CONDITION: "False"},
        slip="A slice past the end is silently shorter, and one row would broadcast. Compare offset + T with max_len and raise.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="compares_the_length_only",
        replace={CONDITION: "offset < 0 or T > max_len"},
        slip="Only T is compared with max_len. The last position is offset + T - 1.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="compares_the_offset_only",
        replace={CONDITION: "offset < 0 or offset >= max_len or T > max_len"},
        slip="offset and T are compared with max_len one by one; their sum is what counts.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="one_too_strict",
        replace={CONDITION: "offset < 0 or offset + T >= max_len"},
        slip="The last row of the table is refused. offset + T may equal max_len.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="one_too_lax",
        replace={CONDITION: "offset < 0 or offset + T - 1 > max_len"},
        slip="One position too many is let through. offset + T may be max_len at most.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="negative_offset",
        replace={CONDITION: "offset + T > max_len"},
        slip="A negative offset counts rows from the end, as slices do. Raise a ValueError.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="index_error",
        replace={"raise ValueError(": "raise IndexError("},
        slip="It raises an IndexError; the stub asks for a ValueError.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="error_without_numbers",
        replace={'f"offset={offset}, T={T} does not fit into a table of max_len={max_len} positions"': '"sequence too long"'},
        slip="The ValueError does not name offset, T and max_len.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="error_names_the_sum",
        replace={'f"offset={offset}, T={T} does not fit into a table of max_len={max_len} positions"': 'f"position {offset + T - 1} does not fit into {max_len}"'},
        slip="The ValueError names the last position; it should name offset, T and max_len.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="starts_at_zero",
        replace={TABLE_INIT: "nn.Parameter(torch.zeros(max_len, d_model))"},
        slip="The table starts at zero. Draw it from a normal distribution with standard deviation 0.02.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="starts_at_one",
        replace={TABLE_INIT: "nn.Parameter(torch.randn(max_len, d_model))"},
        slip="The table starts with a standard deviation of 1 (as nn.Embedding does). It should be 0.02.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="starts_uniform",
        replace={TABLE_INIT: "nn.Parameter((torch.rand(max_len, d_model) - 0.5) * 0.02 * 12**0.5)"},
        slip="The table starts uniform. Draw it from a normal distribution.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="starts_positive",
        replace={TABLE_INIT: "nn.Parameter(torch.rand(max_len, d_model) * 0.02)"},
        slip="torch.rand draws between 0 and 1: the table has a positive mean. Use torch.randn, times 0.02.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="variance_for_deviation",
        replace={"* 0.02": "* 0.02**0.5"},
        slip="0.02 is used as the variance. It is the standard deviation.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="one_row_for_all",
        replace={TABLE_INIT: "nn.Parameter((torch.randn(1, d_model) * 0.02).repeat(max_len, 1))"},
        slip="All positions start with the same row, so they cannot be told apart. Draw every row by itself.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="one_number_a_position",
        replace={TABLE_INIT: "nn.Parameter((torch.randn(max_len, 1) * 0.02).repeat(1, d_model))"},
        slip="All features of a row start with the same number. Draw every entry by itself.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="always_the_same_start",
        replace={"torch.randn(max_len, d_model) *": "torch.randn(max_len, d_model, generator=torch.Generator().manual_seed(0)) *"},
        slip="Every module starts with the same numbers, because the draw is seeded inside. Draw from the global random state.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="sinusoidal_start",
        replace={TABLE_INIT: "nn.Parameter(torch.stack([f(torch.arange(max_len)[:, None] / 100.0 ** torch.arange(d_model // 2 + 1)) for f in (torch.sin, torch.cos)], -1).flatten(1)[:, :d_model] * 0.02 * 2**0.5)"},
        slip="The table starts as sines and cosines. It should be independent normal draws.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="buffer",
        replace={"self.table = " + TABLE_INIT: 'self.register_buffer("table", torch.randn(max_len, d_model) * 0.02)'},
        slip="The table is a buffer and would never be trained. Make it an nn.Parameter.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="plain_tensor",
        replace={TABLE_INIT: "torch.randn(max_len, d_model) * 0.02"},
        slip="A plain tensor is not trained, not saved and not moved with the module. Make it an nn.Parameter.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="frozen",
        replace={"torch.randn(max_len, d_model) * 0.02)": "torch.randn(max_len, d_model) * 0.02, requires_grad=False)"},
        slip="requires_grad is False, so the table is never trained.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="detached",
        replace={ADD: "x + self.table[offset : offset + T].detach()"},
        slip="The rows are detached, so no gradient reaches the table.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="detached_x",
        replace={ADD: "x.detach() + self.table[offset : offset + T]"},
        slip="x is detached, so no gradient passes to the layers before.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="extra_scale",
        replace={"* 0.02)": "* 0.02)\n        self.scale = nn.Parameter(torch.ones(()))"},
        slip="There is a second parameter. The table is the only one.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="extra_buffer",
        replace={"* 0.02)": '* 0.02)\n        self.register_buffer("indices", torch.arange(max_len))'},
        slip="There is a buffer of indices beside the table; it would be saved with every model. Make indices in forward.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="in_place",
        replace={ADD: "x.add_(self.table[offset : offset + T])" },
        slip="x is changed in place. Return a new tensor.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="rows_alone",
        replace={ADD: "self.table[offset : offset + T].expand_as(x)"},
        slip="It returns the rows of the table without x. Add them to x.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="scales_x",
        replace={ADD: "x * x.shape[-1] ** 0.5 + self.table[offset : offset + T]"},
        slip="x is multiplied by the root of d_model, as the 2017 paper does with embeddings. Here x is left as it is.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="dropout",
        replace={ADD: "F.dropout(x + self.table[offset : offset + T], 0.1, self.training)"},
        slip="There is dropout on the sum. The stub asks for none.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="counts_calls",
        replace={"* 0.02)": "* 0.02)\n        self.calls = 0", ADD: "self._next(x, T, max_len)", "    def forward(": "    def _next(self, x, T, max_len):\n        start = min(self.calls, max_len - T)\n        self.calls += T\n        return x + self.table[start : start + T]\n\n    def forward("},
        slip="The module counts the tokens that it has seen. The caller says where x stands, with offset.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="compares_in_training_only",
        replace={CONDITION: "self.training and (offset < 0 or offset + T > max_len)"},
        slip="The table's end is checked in training only. Long inputs come in evaluation.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="padding_row",
        source="""
class LearnedPositions(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.rows = nn.Embedding(max_len, d_model, padding_idx=0)
        nn.init.normal_(self.rows.weight, std=0.02)

    def forward(self, x, offset=0):
        T, max_len = x.shape[-2], self.rows.num_embeddings
        if offset < 0 or offset + T > max_len:
            raise ValueError(f"{offset} {T} {max_len}")
        return x + self.rows(torch.arange(offset, offset + T))
""",
        slip="padding_idx=0 freezes row 0, the first position, which then never learns.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="bounded_rows",
        source="""
class LearnedPositions(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.rows = nn.Embedding(max_len, d_model, max_norm=1.0)
        nn.init.normal_(self.rows.weight, std=0.02)

    def forward(self, x, offset=0):
        T, max_len = x.shape[-2], self.rows.num_embeddings
        if offset < 0 or offset + T > max_len:
            raise ValueError(f"{offset} {T} {max_len}")
        return x + self.rows(torch.arange(offset, offset + T))
""",
        slip="max_norm shortens the rows in place during the call. Add the rows as they are.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="table_transposed",
        replace={TABLE_INIT: "nn.Parameter(torch.randn(d_model, max_len) * 0.02)", "self.table.shape[0]": "self.table.shape[1]", ADD: "x + self.table.T[offset : offset + T]"},
        slip="The table is (d_model, max_len). One row for each position: (max_len, d_model).",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="buffer_that_is_not_saved",
        replace={"* 0.02)": '* 0.02)\n        self.register_buffer("indices", torch.arange(max_len), persistent=False)'},
        slip="There is a buffer of indices beside the table. The table is all that the module holds; make indices in forward.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="first_row_zero",
        replace={"* 0.02)": "* 0.02)\n        with torch.no_grad():\n            self.table[0] = 0"},
        slip="Row 0 starts at zero, as if position 0 were padding. Every row is drawn.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="rows_of_one_length",
        replace={TABLE_INIT: "nn.Parameter(F.normalize(torch.randn(max_len, d_model), dim=-1) * 0.02 * d_model**0.5)"},
        slip="The rows are normalized, so they all start with the same length and their entries are not independent. Draw the entries and leave them as they are.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="error_names_the_batch",
        replace={"T={T} does": "T={x.shape[0]} does"},
        slip="The ValueError names the size of the first axis as T. T is the last size but one, x.shape[-2].",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="leaves_padding_alone",
        replace={ADD: "torch.where((x == 0).all(-1, keepdim=True), x, x + self.table[offset : offset + T])"},
        slip="Vectors of zeros are taken for padding and get no row. Add the row of its position to every vector.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="keeps_the_table_in_evaluation",
        replace={ADD: "x + self._rows(offset, T)", "    def forward(": """    def _rows(self, offset, T):
        if self.training:
            return self.table[offset : offset + T]
        if not hasattr(self, "kept"):
            self.kept = self.table.detach().clone()
        return self.kept[offset : offset + T]

    def forward("""},
        slip="In evaluation it keeps the table of the first call, so weights that are loaded or trained later are ignored. Read the parameter at each call.",
    ),
    Mutant(
        exercise="LearnedPositions",
        name="view_of_x",
        replace={ADD: "(x.view(-1, T, x.shape[-1]) + self.table[offset : offset + T]).view(x.shape)"},
        slip="x.view fails if leading axes of x were exchanged. The rows broadcast over any leading axes by themselves; or use reshape.",
    ),
    Variant(
        exercise="LearnedPositions",
        name="embedding",
        source="""
class LearnedPositions(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.max_len = max_len
        self.embedding = nn.Embedding(max_len, d_model)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, x, offset=0):
        last = offset + x.size(-2)
        if not 0 <= offset <= last <= self.max_len:
            raise ValueError(f"need positions {offset} to {last - 1} (offset {offset}, T {x.size(-2)}) of {self.max_len}")
        return self.embedding(torch.arange(offset, last, device=x.device)) + x
""",
    ),
    Variant(
        exercise="LearnedPositions",
        name="truncated_far_out",
        source="""
class LearnedPositions(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.w = nn.Parameter(nn.init.trunc_normal_(torch.empty(max_len, d_model), std=0.02))

    def forward(self, x, offset=0):
        T, n = x.shape[-2], len(self.w)
        if offset < 0 or offset > n - T:
            raise ValueError(f"offset {offset} and T {T} do not fit into max_len {n}")
        return torch.add(x, self.w.narrow(0, offset, T))
""",
    ),
    Variant(
        exercise="LearnedPositions",
        name="index_select",
        source="""
class LearnedPositions(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.register_parameter("pe", nn.Parameter(torch.normal(0.0, 0.02, (max_len, d_model))))

    def forward(self, x, offset=0):
        rows = range(offset, offset + x.shape[-2])
        if rows[0] < 0 or rows[-1] >= self.pe.shape[0]:
            raise ValueError("offset={}, T={}, max_len={}".format(offset, x.shape[-2], self.pe.shape[0]))
        return x + self.pe.index_select(0, torch.tensor(rows, device=x.device))
""",
    ),
    Variant(
        exercise="LearnedPositions",
        name="one_hot_product",
        source="""
class LearnedPositions(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.lookup = nn.Linear(d_model, max_len, bias=False)
        with torch.no_grad():
            self.lookup.weight.normal_(0.0, 0.02)

    def forward(self, x, offset=0):
        table = self.lookup.weight
        T, max_len = x.shape[-2], table.shape[0]
        if offset < 0 or offset + T > max_len:
            raise ValueError(f"T={T} at offset={offset} exceeds max_len={max_len}")
        chosen = F.one_hot(torch.arange(offset, offset + T), max_len).to(table.dtype)
        return x + chosen @ table
""",
    ),
    Variant(
        exercise="LearnedPositions",
        name="one_leading_axis",
        replace={ADD: "(x.reshape(-1, T, x.shape[-1]) + self.table[offset : offset + T]).reshape(x.shape)"},
    ),
    # ---------------------------------------------------------------------------------------------------- rope
    Mutant(
        exercise="rope",
        name="half_pairs",
        replace={"x[..., 0::2], x[..., 1::2]": "x[..., : d // 2], x[..., d // 2 :]", ROTATION: "torch.cat((even * cos - odd * sin, even * sin + odd * cos), dim=-1)"},
        slip="Feature i is paired with feature i + d/2 (the half layout). Here pairs are interleaved: 2i and 2i+1.",
    ),
    Mutant(
        exercise="rope",
        name="mixed_layouts",
        source="""
def rope(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"d={d}")
    frequencies = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = (positions.double().unsqueeze(-1) * frequencies).repeat_interleave(2, dim=-1)
    turned = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)
    return x * angles.cos().to(x.dtype) + turned * angles.sin().to(x.dtype)
""",
        slip="Angles are laid out for interleaved pairs, partners for halves, so no pair is turned. The partner of 2i is 2i+1.",
    ),
    Mutant(
        exercise="rope",
        name="does_not_interleave_again",
        replace={ROTATION: "torch.cat((even * cos - odd * sin, even * sin + odd * cos), dim=-1)"},
        slip="The turned pairs come out as two halves. Put them back in interleaved order: stack along a new axis and flatten.",
    ),
    Mutant(
        exercise="rope",
        name="turns_back",
        replace={ROTATION: "torch.stack((even * cos + odd * sin, odd * cos - even * sin), dim=-1).flatten(-2)"},
        slip="It turns by minus the angle: the signs of the sines are exchanged. Scores of q and k alone would not show it.",
    ),
    Mutant(
        exercise="rope",
        name="reflects",
        replace={"even * sin + odd * cos": "even * sin - odd * cos"},
        slip="The second line subtracts: that is a reflection, not a rotation. y[2i+1] = x[2i] sin + x[2i+1] cos.",
    ),
    Mutant(
        exercise="rope",
        name="both_minus",
        replace={"even * sin + odd * cos": "odd * cos - even * sin"},
        slip="Both sines carry a minus, so lengths change. Only the first line has one.",
    ),
    Mutant(
        exercise="rope",
        name="partner_already_turned",
        replace={ROTATION: "torch.stack((even * cos - odd * sin, (even * cos - odd * sin) * sin + odd * cos), dim=-1).flatten(-2)"},
        slip="The second line uses the first feature after it was turned. Both use the old x.",
    ),
    Mutant(
        exercise="rope",
        name="adds_the_table",
        replace={ROTATION: "x + torch.stack((sin, cos), dim=-1).flatten(-2)"},
        slip="It adds sines and cosines, as the sinusoidal table does. RoPE turns the pairs.",
    ),
    Mutant(
        exercise="rope",
        name="ignores_positions",
        replace={"positions.double()": "torch.arange(x.shape[-2]).double()"},
        slip="It counts 0, 1, 2, ... itself and ignores `positions`, so a decoded token always stands at 0.",
    ),
    Mutant(
        exercise="rope",
        name="starts_at_first_position",
        replace={"positions.double()": "(positions - positions.flatten()[0]).double()"},
        slip="It subtracts the first position. Use the positions as they are given.",
    ),
    Mutant(
        exercise="rope",
        name="one_frequency",
        replace={ROPE_FREQUENCIES: "torch.ones(d // 2, dtype=torch.float64)"},
        slip="All pairs turn with frequency 1. Pair i turns with base^(-2i/d).",
    ),
    Mutant(
        exercise="rope",
        name="exponent_half",
        replace={"torch.arange(0, d, 2, dtype=torch.float64, device=x.device)": "torch.arange(d // 2, dtype=torch.float64)"},
        slip="The exponent is i/d; it is 2i/d.",
    ),
    Mutant(
        exercise="rope",
        name="frequencies_upside_down",
        replace={"base ** (-torch": "base ** (torch"},
        slip="The exponent is positive, so the angles become enormous. It is -2i/d.",
    ),
    Mutant(
        exercise="rope",
        name="fixed_base",
        replace={"base ** (-torch": "10000.0 ** (-torch"},
        slip="The argument `base` is not used.",
    ),
    Mutant(
        exercise="rope",
        name="whole_positions",
        replace={"positions.double()": "positions.long().double()"},
        slip="Positions are cut to whole numbers. Fractions are allowed, for interpolation.",
    ),
    Mutant(
        exercise="rope",
        name="no_negative_positions",
        replace={"positions.double()": "positions.double().clamp(min=0)"},
        slip="Negative positions are treated as 0. They turn the other way.",
    ),
    Mutant(
        exercise="rope",
        name="absolute_positions",
        replace={"positions.double()": "positions.double().abs()"},
        slip="The sign of the position is lost. Negative positions turn the other way.",
    ),
    Mutant(
        exercise="rope",
        name="looks_up_a_table",
        replace={"angles = positions.double().unsqueeze(-1) * frequencies": "angles = torch.outer(torch.arange(2048).double(), frequencies)[positions.long().clamp(max=2047)]"},
        slip="Angles come from a table of 2048 whole positions. Multiply positions and frequencies.",
    ),
    Mutant(
        exercise="rope",
        name="angles_in_the_dtype_of_x",
        replace={"angles = positions.double().unsqueeze(-1) * frequencies": "angles = positions.to(x.dtype).unsqueeze(-1) * frequencies.to(x.dtype)"},
        slip="Angles are computed in the dtype of x, too coarse for far positions. Use float64 for them, and cast cosine and sine.",
    ),
    Mutant(
        exercise="rope",
        name="float32_frequencies",
        replace={"dtype=torch.float64, device=x.device) / d)": "device=x.device) / d)"},
        slip="The frequencies are float32; a far position magnifies their rounding. Compute them in float64.",
    ),
    Mutant(
        exercise="rope",
        name="float32_angles",
        replace={"angles = positions.double().unsqueeze(-1) * frequencies": "angles = (positions.double().unsqueeze(-1) * frequencies).float()"},
        slip="The angles are rounded to float32 before sine and cosine: at position 1,000,000 that is off by 0.03. Keep float64 until then.",
    ),
    Mutant(
        exercise="rope",
        name="float32_cosines",
        replace={"angles.cos().to(x.dtype), angles.sin().to(x.dtype)": "angles.cos().float().to(x.dtype), angles.sin().float().to(x.dtype)"},
        slip="Cosine and sine pass through float32, which loses digits for float64 x. Cast them to the dtype of x directly.",
    ),
    Mutant(
        exercise="rope",
        name="result_in_float64",
        replace={"angles.cos().to(x.dtype), angles.sin().to(x.dtype)": "angles.cos(), angles.sin()"},
        slip="The result is float64 for every x. Cast cosine and sine (or the result) to the dtype of x.",
    ),
    Mutant(
        exercise="rope",
        name="one_axis_of_positions",
        replace={"positions.double().unsqueeze(-1) * frequencies": "torch.outer(positions.double().flatten()[: x.shape[-2]], frequencies)"},
        slip="Only the first T positions are used, as if all rows of a batch had the same. Let positions broadcast to (..., T).",
    ),
    Mutant(
        exercise="rope",
        name="along_the_heads",
        replace={"frequencies  # (..., T, d/2)": "frequencies\n    angles = angles.unsqueeze(-2) if x.dim() == 4 and angles.dim() == 2 and len(angles) in x.shape[1:2] else angles"},
        slip="Where H equals T, positions go along the heads. Positions belong to the last axis but one.",
    ),
    Mutant(
        exercise="rope",
        name="odd_width_not_refused",
        replace={"    if d % 2:\n        raise ValueError(f\"d={d} is odd: rope turns pairs of features\")\n": ""},
        slip="An odd d is not refused with a ValueError.",
    ),
    Mutant(
        exercise="rope",
        name="odd_width_keeps_the_last",
        replace={"        raise ValueError(f\"d={d} is odd: rope turns pairs of features\")": "        return torch.cat((rope(x[..., :-1], positions, base), x[..., -1:]), dim=-1)"},
        slip="With an odd d the last feature is passed through. Raise a ValueError that names d.",
    ),
    Mutant(
        exercise="rope",
        name="odd_width_drops_the_last",
        replace={"        raise ValueError(f\"d={d} is odd: rope turns pairs of features\")": "        x, d = x[..., :-1], d - 1"},
        slip="With an odd d the last feature is silently dropped. Raise a ValueError that names d.",
    ),
    Mutant(
        exercise="rope",
        name="error_without_the_number",
        replace={'f"d={d} is odd: rope turns pairs of features"': '"the width must be even"'},
        slip="The ValueError does not say which d was given.",
    ),
    Mutant(
        exercise="rope",
        name="half_the_features",
        replace={"return torch.stack": "k = d // 4\n    if k > 1:\n        cos, sin = torch.cat((cos[..., :k], torch.ones_like(cos[..., k:])), -1), torch.cat((sin[..., :k], torch.zeros_like(sin[..., k:])), -1)\n    return torch.stack"},
        slip="Only the first half of the pairs is turned (partial rotary, as in GPT-NeoX). Here all pairs turn.",
    ),
    Mutant(
        exercise="rope",
        name="in_place",
        replace={"even, odd = x[..., 0::2], x[..., 1::2]\n": "even, odd = x[..., 0::2].clone(), x[..., 1::2].clone()\n    with torch.no_grad():\n        x[..., 0::2] = even * cos - odd * sin\n        x[..., 1::2] = even * sin + odd * cos\n    return x\n"},
        slip="x is turned in place, so the caller's tensor changes. Make a new one.",
    ),
    Mutant(
        exercise="rope",
        name="scales_positions_in_place",
        replace={"    frequencies =": "    positions = positions.mul_(1) if not positions.is_floating_point() else positions.add_(1).sub_(0)\n    frequencies ="},
        slip="The tensor of positions is changed in place. Leave the caller's tensor alone.",
    ),
    Mutant(
        exercise="rope",
        name="detached",
        replace={"even, odd = x[..., 0::2], x[..., 1::2]": "even, odd = x.detach()[..., 0::2], x[..., 1::2]"},
        slip="Half of x is detached, so its gradient is lost.",
    ),
    Mutant(
        exercise="rope",
        name="no_gradient",
        replace={"even, odd = x[..., 0::2], x[..., 1::2]": "even, odd = x.data[..., 0::2], x.data[..., 1::2]"},
        slip="x is detached, so no gradient flows to it.",
    ),
    Mutant(
        exercise="rope",
        name="degrees",
        replace={"angles.cos()": "angles.deg2rad().cos()", "angles.sin()": "angles.deg2rad().sin()"},
        slip="The angles are taken as degrees. They are radians.",
    ),
    Variant(
        exercise="rope",
        name="complex_numbers",
        source="""
def rope(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2 == 1:
        raise ValueError(f"d must be even, got {d}")
    angles = positions.to(torch.float64)[..., None] / base ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
    pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], d // 2, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(x.dtype)
""",
    ),
    Variant(
        exercise="rope",
        name="rotate_interleaved",
        source="""
def rope(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"odd width {d}")
    rate = torch.exp(-math.log(base) / d * torch.arange(0, d, 2).double())
    angles = torch.einsum("...t,f->...tf", positions.double(), rate).repeat_interleave(2, dim=-1)
    partner = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).reshape(x.shape)
    return x * angles.cos().to(x.dtype) + partner * angles.sin().to(x.dtype)
""",
    ),
    Variant(
        exercise="rope",
        name="through_the_half_layout",
        source="""
def rope(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"d={d}")
    angles = positions.double()[..., None] * torch.pow(base, -torch.arange(d // 2).double() * 2 / d)
    cos, sin = (torch.cat((f(angles),) * 2, -1).to(x.dtype) for f in (torch.cos, torch.sin))
    half = interleaved_to_half(x)
    rotated = torch.cat((-half[..., d // 2 :], half[..., : d // 2]), -1)
    return half_to_interleaved(half * cos + rotated * sin)
""",
    ),
    Variant(
        exercise="rope",
        name="matrices",
        source="""
def rope(x, positions, base=10000.0):
    *_, d = x.shape
    if d % 2:
        raise ValueError(f"cannot pair {d} features")
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2).double() / d)
    R = torch.stack((torch.stack((a.cos(), -a.sin()), -1), torch.stack((a.sin(), a.cos()), -1)), -2)  # (..., T, d/2, 2, 2)
    pairs = x.unflatten(-1, (d // 2, 2)).unsqueeze(-1).double()
    return (R @ pairs).reshape(x.shape).to(x.dtype)
""",
    ),
    Variant(
        exercise="rope",
        name="writes_into_a_new_tensor",
        source="""
def rope(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError(f"{d} is odd")
    out = torch.empty_like(x)
    for i in range(d // 2):
        angle = positions.double() * base ** (-2 * i / d)
        c, s = torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)
        out[..., 2 * i] = x[..., 2 * i] * c - x[..., 2 * i + 1] * s
        out[..., 2 * i + 1] = x[..., 2 * i] * s + x[..., 2 * i + 1] * c
    return out
""",
    ),
]


def _reorders(exercise: str, right: str, order: str, wrong: dict[str, tuple[str, str]], good: dict[str, str]) -> list[Entry]:
    """The entries of one of the two reorderings: wrong results by name with their slips, right ones by name.

    Args:
        right: the reference's expression.
        order: a list of the old feature that each new one holds, in Python.
    """
    entries: list[Entry] = [
        Mutant(exercise=exercise, name=name, replace={right: result}, slip=slip) for name, (result, slip) in wrong.items()
    ]
    entries += [
        Mutant(exercise=exercise, name="odd_width_not_refused", replace={ODD: ""}, slip="An odd d is not refused with a ValueError."),
        Mutant(
            exercise=exercise,
            name="error_without_the_number",
            replace={'f"d={d} is odd: the features come in pairs"': '"odd width"'},
            slip="The ValueError does not say which d was given.",
        ),
        Mutant(
            exercise=exercise,
            name="asserts_even",
            replace={ODD: "    assert d % 2 == 0, d\n"},
            slip="An odd d gives an AssertionError; the stub asks for a ValueError.",
        ),
        Mutant(
            exercise=exercise,
            name="in_place",
            replace={"return " + right: f"return x.detach().copy_({right.replace('x[', 'x.clone()[')})"},
            slip="x is overwritten. Return a new tensor.",
        ),
        Mutant(exercise=exercise, name="through_float32", replace={right: f"({right}).float().to(x.dtype)"}, slip="The numbers pass through float32 and lose digits. Only reorder."),
        Mutant(exercise=exercise, name="detached", replace={right: right.replace("x[", "x.detach()[", 1)}, slip="Half of x is detached, so its gradient is lost."),
        Mutant(
            exercise=exercise,
            name="permutation_matrix",
            replace={
                "return " + right: "eye = torch.eye(d, dtype=torch.int64)\n"
                f"    P = {right.replace('x[', 'eye[')}\n"
                "    return (x.long() @ P).bool() if x.dtype == torch.bool else x @ P.to(x.dtype)"
            },
            slip="A product with a matrix of zeros and ones adds 0 times every other feature, and 0 times inf is nan. Only reorder, do not calculate.",
        ),
        Mutant(
            exercise=exercise,
            name="real_part",
            replace={right: f"({right}).real.to(x.dtype)"},
            slip="Of complex features only the real parts are kept. Only reorder, whatever the dtype.",
        ),
        Mutant(
            exercise=exercise,
            name="numpy",
            replace={right: f"torch.from_numpy(x.detach().numpy()[..., {order}])"},
            slip="The features are reordered in numpy, so no gradient flows to x. Index, slice or stack the tensor itself.",
        ),
    ]
    entries += [
        Variant(
            exercise=exercise,
            name=name,
            source=f"def {exercise}(x):\n    d = x.shape[-1]\n    if d % 2:\n        raise ValueError(f'{{d}} is odd')\n    {body}",
        )
        for name, body in good.items()
    ]
    return entries


ENTRIES += _reorders(
    "interleaved_to_half",
    "torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)",
    "[*range(0, d, 2), *range(1, d, 2)]",
    {
        "unchanged": ("x.clone()", "The features stay where they are."),
        "two_rows": ("torch.stack((x[..., 0::2], x[..., 1::2]), dim=-2)", "The two halves are two rows of (..., 2, d/2). Put them one after the other, in one axis of d features."),
        "the_way_back": (
            "torch.stack((x[..., : d // 2], x[..., d // 2 :]), dim=-1).flatten(-2)",
            "This is the other direction, from halves to pairs. With d = 4 the two are the same; try d = 6.",
        ),
        "seconds_first": ("torch.cat((x[..., 1::2], x[..., 0::2]), dim=-1)", "The second members of the pairs come first. First members first."),
        "rotates_half": ("torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)", "This is rotate_half, a step of the rotation. Only reorder the features."),
        "swaps_halves": ("torch.cat((x[..., d // 2 :], x[..., : d // 2]), dim=-1)", "It exchanges the two halves. Collect every second feature instead."),
        "swaps_pairs": ("torch.stack((x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)", "It exchanges the members of each pair. Collect first members, then second members."),
        "along_the_rows": ("torch.cat((x[..., 0::2, :], x[..., 1::2, :]), dim=-2) if x.dim() > 1 else torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)", "It reorders the rows of a matrix. The features are the last axis."),
        "along_the_rows_when_square": ("torch.cat((x[..., 0::2, :], x[..., 1::2, :]), dim=-2) if x.dim() > 1 and x.shape[-2] == d else torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)", "In a square matrix it reorders the rows. The features are always the last axis."),
        "view_mixes_rows": ("x.reshape(2, -1).T.reshape(x.shape)", "Reshaping without regard to the leading axes mixes rows. Work on the last axis only."),
        "negates": ("torch.cat((x[..., 0::2], -x[..., 1::2]), dim=-1)", "The second members change their sign. Only reorder."),
        "mirrored": ("torch.cat((x[..., 0::2], x[..., 1::2].flip(-1)), dim=-1)", "The second half is in reversed order. Keep the order of the pairs."),
        "four_features_only": ("x[..., [0, 2, 1, 3]] if d == 4 else x.clone()", "Only d = 4 is reordered. The rule holds for every even d."),
    },
    {
        "view_and_transpose": "return x.unflatten(-1, (d // 2, 2)).transpose(-1, -2).flatten(-2)",
        "index_list": "return x[..., [*range(0, d, 2), *range(1, d, 2)]]",
        "sorted_columns": "return x.index_select(-1, torch.tensor(sorted(range(d), key=lambda i: (i % 2, i))))",
        "reshape_and_movedim": "return x.reshape(*x.shape[:-1], -1, 2).movedim(-1, -2).reshape(x.shape)",
        "scatter": "out = torch.zeros_like(x); out[..., : d // 2] = x[..., ::2]; out[..., d // 2 :] = x[..., 1::2]; return out",
    },
)

ENTRIES += _reorders(
    "half_to_interleaved",
    "torch.stack((x[..., : d // 2], x[..., d // 2 :]), dim=-1).flatten(-2)",
    "[f for i in range(d // 2) for f in (i, i + d // 2)]",
    {
        "unchanged": ("x.clone()", "The features stay where they are."),
        "leaves_the_pairs_stacked": ("torch.stack((x[..., : d // 2], x[..., d // 2 :]), dim=-1)", "The pairs are left in an axis of their own, (..., d/2, 2). Flatten the last two axes."),
        "the_other_way": (
            "torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)",
            "This is the other direction, from pairs to halves. With d = 4 the two are the same; try d = 6.",
        ),
        "concatenates": ("torch.cat((x[..., : d // 2], x[..., d // 2 :]), dim=-1)", "Concatenating the halves gives x again. Stack them along a new last axis, then flatten."),
        "stacks_in_front": ("torch.stack((x[..., : d // 2], x[..., d // 2 :]), dim=-2).flatten(-2)", "The halves are stacked one after the other, which gives x again. The new axis must be the last: dim=-1."),
        "seconds_first": ("torch.stack((x[..., d // 2 :], x[..., : d // 2]), dim=-1).flatten(-2)", "The second member of each pair comes first. First members first."),
        "rotates_half": ("torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)", "This is rotate_half, a step of the rotation. Only reorder the features."),
        "swaps_halves": ("torch.cat((x[..., d // 2 :], x[..., : d // 2]), dim=-1)", "It exchanges the two halves. Deal them out in turn."),
        "along_the_rows_when_square": ("torch.stack((x[..., : d // 2, :], x[..., d // 2 :, :]), dim=-2).flatten(-3, -2) if x.dim() > 1 and x.shape[-2] == d else torch.stack((x[..., : d // 2], x[..., d // 2 :]), dim=-1).flatten(-2)", "In a square matrix it reorders the rows. The features are always the last axis."),
        "view_mixes_rows": ("x.reshape(2, -1).T.reshape(x.shape)", "Reshaping without regard to the leading axes mixes rows. Work on the last axis only."),
        "negates": ("torch.stack((x[..., : d // 2], -x[..., d // 2 :]), dim=-1).flatten(-2)", "The second members change their sign. Only reorder."),
        "mirrored": ("torch.stack((x[..., : d // 2], x[..., d // 2 :].flip(-1)), dim=-1).flatten(-2)", "The second half is dealt out in reversed order. Keep the order of the pairs."),
        "four_features_only": ("x[..., [0, 2, 1, 3]] if d == 4 else x.clone()", "Only d = 4 is reordered. The rule holds for every even d."),
    },
    {
        "view_and_transpose": "return x.unflatten(-1, (2, d // 2)).transpose(-1, -2).flatten(-2)",
        "index_list": "return x[..., [f for i in range(d // 2) for f in (i, i + d // 2)]]",
        "argsort_of_the_other": "return x[..., torch.argsort(torch.tensor([*range(0, d, 2), *range(1, d, 2)]))]",
        "writes_into_slices": "out = torch.empty_like(x); out[..., 0::2], out[..., 1::2] = x.chunk(2, dim=-1); return out",
        "through_the_inverse": "other = interleaved_to_half(torch.arange(d)); out = torch.empty_like(x); out[..., other] = x; return out",
    },
)

ENTRIES += [
    # ---------------------------------------------------------------------------------------------- alibi_bias
    Mutant(
        exercise="alibi_bias",
        name="slopes_start_at_one",
        replace={"2.0 ** (-8 * (h + 1) / n)": "2.0 ** (-8 * h / n)"},
        slip="The exponents start at 0, so the first slope is 1. Heads count from 1: 2^(-8(h+1)/n).",
    ),
    Mutant(
        exercise="alibi_bias",
        name="favors_the_distant",
        replace={"return -torch.tensor": "return torch.tensor"},
        slip="The bias grows with the distance, so far keys are favored. It is minus slope times distance.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="aligned_top_left",
        replace={"torch.arange(T_k - T_q, T_k)": "torch.arange(T_q)"},
        slip="Query i is placed at position i. With T_q < T_k the queries are the last ones: position T_k - T_q + i.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="one_query_gets_nothing",
        replace={"torch.arange(T_k - T_q, T_k)[:, None] - torch.arange(T_k)": "torch.arange(T_q)[:, None] - torch.arange(T_q)"},
        slip="The bias is built for T_q keys only; for one query it is a single 0, which broadcasts silently. There are T_k keys.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="broadcastable_zero",
        replace={"    n = 2 **": "    if T_q == 1:\n        return torch.zeros(n_heads, 1, 1)\n    n = 2 **"},
        slip="A single query gets no bias. It stands at the last key and sees T_k keys at their distances.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="keys_default_to_all",
        replace={"        T_k = T_q\n": "        T_k = T_q + 1\n"},
        slip="T_k=None means T_k = T_q.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="offset_twice",
        replace={"torch.arange(T_k - T_q, T_k)": "torch.arange(T_k - T_q, T_k) + (T_k - T_q)"},
        slip="The queries are shifted twice. The last query stands at the last key.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="one_off",
        replace={"torch.arange(T_k - T_q, T_k)": "torch.arange(T_k - T_q + 1, T_k + 1)"},
        slip="Every query stands one position too far. The last query stands at the last key, distance 0.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="signed_distance",
        replace={".abs()": ""},
        slip="The distance is signed, so future keys get a positive bias. Take its absolute value.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="future_is_free",
        replace={".abs()": ".clamp(min=0)"},
        slip="Future keys get 0. They get the same penalty for their distance.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="hides_the_future",
        replace={"return -torch.tensor(slopes)[:, None, None] * distance": "return (-torch.tensor(slopes)[:, None, None] * distance).masked_fill(torch.ones(T_q, T_k).triu(1 + T_k - T_q).bool(), -torch.inf)"},
        slip="Future keys get -inf. Hiding them is the causal mask's job; here they get a penalty for their distance.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="key_index_only",
        replace={"(torch.arange(T_k - T_q, T_k)[:, None] - torch.arange(T_k)).abs()": "(T_k - 1 - torch.arange(T_k)).expand(T_q, T_k)"},
        slip="Every query gets the row of the last one. Under a causal mask the softmax would not notice, but the bias is -slope * |p_i - j|.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="squared_distance",
        replace={".abs()": "** 2"},
        slip="The bias falls with the square of the distance. It is linear.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="log_distance",
        replace={"* distance": "* distance.log1p()"},
        slip="The bias falls with the logarithm of the distance. It is linear.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="transposed",
        replace={"torch.arange(T_k - T_q, T_k)[:, None] - torch.arange(T_k)": "torch.arange(T_k - T_q, T_k) - torch.arange(T_k)[:, None]"},
        slip="Rows are keys and columns are queries. Queries are the rows: (n_heads, T_q, T_k).",
    ),
    Mutant(
        exercise="alibi_bias",
        name="formula_for_any_number",
        replace={"slopes = power_slopes(n) + power_slopes(2 * n)[::2][: n_heads - n]": "slopes = power_slopes(n_heads)"},
        slip="For numbers of heads that are no power of two, Press et al. use another rule: slopes for n heads, then every second for 2n.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="next_power_cut_off",
        replace={"slopes = power_slopes(n) + power_slopes(2 * n)[::2][: n_heads - n]": "slopes = power_slopes(n if n == n_heads else 2 * n)[:n_heads]"},
        slip="It takes the first slopes for the next power of two. Take those for the power below, then every second of the next.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="every_slope_of_the_next",
        replace={"[::2][: n_heads - n]": "[: n_heads - n]"},
        slip="The missing slopes are the first ones for 2n heads. Take every second: 1st, 3rd, 5th.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="the_wrong_every_second",
        replace={"[::2]": "[1::2]"},
        slip="The missing slopes are the 2nd, 4th, ... for 2n heads, which are there already. Take the 1st, 3rd, 5th.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="sorted_slopes",
        replace={"[: n_heads - n]": "[: n_heads - n]\n    slopes = sorted(slopes, reverse=True)"},
        slip="The slopes are sorted. Their order is: those for n heads first, then the others.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="missing_slopes_first",
        replace={"power_slopes(n) + power_slopes(2 * n)[::2][: n_heads - n]": "power_slopes(2 * n)[::2][: n_heads - n] + power_slopes(n)"},
        slip="The added slopes stand first. The slopes for n heads come first.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="repeats_slopes",
        replace={"power_slopes(n) + power_slopes(2 * n)[::2][: n_heads - n]": "(power_slopes(n) * 2)[:n_heads]"},
        slip="The missing slopes repeat the first ones. Take every second slope for 2n heads.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="six_heads_from_memory",
        replace={"power_slopes(n) + power_slopes(2 * n)[::2][: n_heads - n]": "[1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8] if n_heads == 6 else power_slopes(n_heads)"},
        slip="Six heads are right, other numbers that are no power of two are not. Write the rule.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="slopes_halve",
        replace={"2.0 ** (-8 * (h + 1) / n)": "2.0 ** -(h + 1)"},
        slip="Each slope is half the one before, which is right for 8 heads only. The last slope is always 1/256.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="slopes_reversed",
        replace={"for h in range(n)]": "for h in reversed(range(n))]"},
        slip="The slopes come flattest first. Head 0 has the steepest.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="one_slope",
        replace={"for h in range(n)]": "for h in [0] * n]"},
        slip="All heads have the same slope. Each has its own.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="whole_exponents",
        replace={"2.0 ** (-8 * (h + 1) / n)": "2.0 ** (-8 * (h + 1) // n)"},
        slip="// rounds the exponents: with 16 heads neighbors share a slope. Divide with /.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="batch_axis",
        replace={"return -torch.tensor(slopes)[:, None, None] * distance": "return (-torch.tensor(slopes)[:, None, None] * distance)[None]"},
        slip="There is a batch axis in front. Return (n_heads, T_q, T_k).",
    ),
    Mutant(
        exercise="alibi_bias",
        name="heads_last",
        replace={"return -torch.tensor(slopes)[:, None, None] * distance": "return -torch.tensor(slopes) * distance[..., None]"},
        slip="The heads are the last axis. Return (n_heads, T_q, T_k).",
    ),
    Mutant(
        exercise="alibi_bias",
        name="multiplier",
        replace={"return -torch.tensor(slopes)[:, None, None] * distance": "return (-torch.tensor(slopes)[:, None, None] * distance).exp()"},
        slip="It returns factors for the weights. The bias is added to the scores before the softmax: no exp.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="float64_result",
        replace={"-torch.tensor(slopes)[": "-torch.tensor(slopes, dtype=torch.float64)["},
        slip="The bias is float64. Return float32.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="half_precision_distance",
        replace={"* distance": "* distance.half().float()"},
        slip="Distances pass through float16, which holds no odd numbers beyond 2048.",
    ),
    Mutant(
        exercise="alibi_bias",
        name="bounded_distance",
        replace={".abs()": ".abs().clamp(max=1024)"},
        slip="The distance is bounded at 1024. ALiBi goes on.",
    ),
    Variant(
        exercise="alibi_bias",
        name="press_et_al_recursion",
        source="""
def alibi_bias(n_heads, T_q, T_k=None):
    def get_slopes(n):
        def power(n):
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start**i for i in range(n)]
        if math.log2(n).is_integer():
            return power(n)
        closest = 2 ** math.floor(math.log2(n))
        return power(closest) + get_slopes(2 * closest)[0::2][: n - closest]

    T_k = T_q if T_k is None else T_k
    j, i = torch.arange(T_k), torch.arange(T_q)[:, None] + T_k - T_q
    return torch.tensor(get_slopes(n_heads)).view(-1, 1, 1) * -torch.abs(i - j).float()
""",
    ),
    Variant(
        exercise="alibi_bias",
        name="last_rows_of_the_square",
        source="""
def alibi_bias(n_heads, T_q, T_k=None):
    T_k = T_k or T_q
    n = 1 << (n_heads.bit_length() - 1)
    exponents = [8 * h / n for h in range(1, n + 1)] + [4 * h / n for h in range(1, 2 * n, 2)]
    slopes = 2.0 ** -torch.tensor(exponents[:n_heads])
    t = torch.arange(T_k)
    last = torch.cdist(t[T_k - T_q :, None].float(), t[:, None].float(), p=1)
    return torch.einsum("h,qk->hqk", slopes, -last)
""",
    ),
    Variant(
        exercise="alibi_bias",
        name="loops",
        source="""
def alibi_bias(n_heads, T_q, T_k=None):
    if T_k is None:
        T_k = T_q
    n = 1
    while n * 2 <= n_heads:
        n *= 2
    bias = torch.zeros(n_heads, T_q, T_k)
    for h in range(n_heads):
        slope = 2 ** (-8 * (h + 1) / n) if h < n else 2 ** (-4 * (2 * (h - n) + 1) / n)
        for i in range(T_q):
            bias[h, i] = -slope * (torch.arange(T_k) - (T_k - T_q + i)).abs()
    return bias
""",
    ),
    Variant(
        exercise="alibi_bias",
        name="numpy",
        source="""
import numpy as np

def alibi_bias(n_heads, T_q, T_k=None):
    T_k = T_q if T_k is None else T_k
    n = 1
    while n << 1 <= n_heads:
        n <<= 1
    m = [2 ** (-8 * h / n) for h in range(1, n + 1)] + [2 ** (-8 * h / (2 * n)) for h in range(1, 2 * n + 1, 2)]
    distance = np.abs(np.subtract.outer(np.arange(T_q) + T_k - T_q, np.arange(T_k)))
    return torch.from_numpy(np.multiply.outer(-np.array(m[:n_heads]), distance).astype(np.float32))
""",
    ),
    Variant(
        exercise="alibi_bias",
        name="both_triangles",
        source="""
def alibi_bias(n_heads, T_q, T_k=None):
    T_k = T_q if T_k is None else T_k
    n = 2 ** (len(bin(n_heads)) - 3)
    step = torch.arange(1, n + 1, dtype=torch.float64) * (8 / n)
    extra = torch.arange(1, 2 * n, 2, dtype=torch.float64) * (4 / n)
    m = torch.exp2(-torch.cat((step, extra))[:n_heads])[:, None, None]
    signed = torch.arange(T_k)[None] - torch.arange(T_k)[-T_q:, None]  # j - p_i
    return (m * torch.minimum(signed, -signed)).to(torch.float32)
""",
    ),
    Mutant(
        exercise="rope",
        name="whole_base",
        replace={
            "frequencies = base **": "frequencies = float(max(int(base), 1)) **",
        },
        slip="The base is rounded to a whole number of at least 1. Any positive number is allowed.",
    ),
    Mutant(
        exercise="rope",
        name="clamped_far_back",
        replace={
            "positions.double()": "positions.double().clamp(min=-1000)",
        },
        slip="Positions below -1000 are all treated like -1000. Any number is a position.",
    ),
    Mutant(
        exercise="rope",
        name="position_zero_returns_x",
        replace={
            "    frequencies = base": "    if not positions.any():\n        return x\n    frequencies = base",
        },
        slip="At position 0 it returns x itself, so that whoever changes the result changes x. Return a new tensor.",
    ),
    Mutant(
        exercise="rope",
        name="narrow_heads_only",
        replace={
            "    even, odd =": "    if d > 64:\n        sin = sin * 0\n    even, odd =",
        },
        slip="Wide heads are not turned. The formula holds for every even d.",
    ),
    Mutant(
        exercise="interleaved_to_half",
        name="narrow_only",
        replace={
            "    return torch": "    if d > 64:\n        return x.clone()\n    return torch",
        },
        slip="Widths above 64 are left as they are. The order is the same for every even d.",
    ),
    Mutant(
        exercise="half_to_interleaved",
        name="narrow_only",
        replace={
            "    return torch": "    if d > 64:\n        return x.clone()\n    return torch",
        },
        slip="Widths above 64 are left as they are. The order is the same for every even d.",
    ),
    Variant(
        exercise="alibi_bias",
        name="rows_cut_from_a_square",
        source="""
def alibi_bias(n_heads, T_q, T_k=None):
    T_k = T_q if T_k is None else T_k
    n = 2 ** (n_heads.bit_length() - 1)
    slopes = 2.0 ** (-8 / n * torch.arange(1, n + 1).double())
    slopes = torch.cat((slopes, 2.0 ** (-4 / n * torch.arange(1, 2 * n + 1, 2).double())))[:n_heads]
    places = torch.arange(T_k)
    square = -(places - places[:, None]).abs().double()
    return torch.einsum("h,ij->hij", slopes, square[T_k - T_q :]).float()
""",
    ),
]
