"""Wrong and right answers to the exercises of lesson 01."""

from grader.bank import Entry, Mutant, Variant

STEP = "torch.tanh(x @ Wx + h @ Wh + b)"

ENTRIES: list[Entry] = [
    # ------------------------------------------------------------------------------------------------ rnn_step
    Mutant(
        exercise="rnn_step",
        name="matrices_swapped",
        replace={STEP: "torch.tanh(x @ Wh + h @ Wx + b)"},
        slip="The two matrices are exchanged. Wx belongs to the input x, Wh to the state h.",
    ),
    Mutant(
        exercise="rnn_step",
        name="matrices_swapped_if_square",
        replace={STEP: "torch.tanh(x @ Wh + h @ Wx + b) if Wx.shape == Wh.shape else torch.tanh(x @ Wx + h @ Wh + b)"},
        slip="With d_in = d_h the two matrices are exchanged: no shape complains. Wx belongs to x, Wh to h.",
    ),
    Mutant(
        exercise="rnn_step",
        name="no_bias",
        replace={STEP: "torch.tanh(x @ Wx + h @ Wh)"},
        slip="The bias b is never added. It belongs inside tanh, with the two products.",
    ),
    Mutant(
        exercise="rnn_step",
        name="bias_after_tanh",
        replace={STEP: "torch.tanh(x @ Wx + h @ Wh) + b"},
        slip="The bias is added after tanh. tanh goes around the whole sum, bias included.",
    ),
    Mutant(
        exercise="rnn_step",
        name="no_tanh",
        replace={STEP: "x @ Wx + h @ Wh + b"},
        slip="There is no tanh, so the step is linear and the state can grow without bound.",
    ),
    Mutant(
        exercise="rnn_step",
        name="tanh_on_the_recurrent_part",
        replace={STEP: "x @ Wx + torch.tanh(h @ Wh + b)"},
        slip="tanh is applied to the recurrent part alone. It goes around the whole sum.",
    ),
    Mutant(
        exercise="rnn_step",
        name="tanh_on_each_part",
        replace={STEP: "torch.tanh(x @ Wx + b) + torch.tanh(h @ Wh)"},
        slip="Two tanh are added, so a state can reach 2. Add first, then take one tanh of the sum.",
    ),
    Mutant(
        exercise="rnn_step",
        name="sigmoid",
        replace={STEP: "torch.sigmoid(x @ Wx + h @ Wh + b)"},
        slip="The squashing function is a sigmoid, with values in (0, 1). This cell uses tanh.",
    ),
    Mutant(
        exercise="rnn_step",
        name="clamped",
        replace={STEP: "(x @ Wx + h @ Wh + b).clamp(-1, 1)"},
        slip="The sum is cut off at -1 and 1 instead of going through tanh.",
    ),
    Mutant(
        exercise="rnn_step",
        name="residual",
        replace={STEP: "h + torch.tanh(x @ Wx + h @ Wh + b)"},
        slip="The old state is added to the new one. It enters only through h @ Wh, inside tanh.",
    ),
    Mutant(
        exercise="rnn_step",
        name="state_ignored",
        replace={STEP: "torch.tanh(x @ Wx + b)"},
        slip="The old state h is not used: without h @ Wh there is no recurrence.",
    ),
    Mutant(
        exercise="rnn_step",
        name="recurrent_matrix_transposed",
        replace={STEP: "torch.tanh(x @ Wx + h @ Wh.T + b)"},
        slip="Wh is transposed. Weights are stored as (inputs, outputs) and multiply from the right: h @ Wh.",
    ),
    Mutant(
        exercise="rnn_step",
        name="both_matrices_transposed_if_square",
        replace={STEP: "torch.tanh(x @ (Wx.T if Wx.shape == Wh.shape else Wx) + h @ Wh.T + b)"},
        slip="The matrices are transposed, as nn.Linear stores them. Here they are (inputs, outputs): x @ Wx, h @ Wh.",
    ),
    Mutant(
        exercise="rnn_step",
        name="state_detached",
        replace={STEP: "torch.tanh(x @ Wx + h.detach() @ Wh + b)"},
        slip="The old state is detached: the value is right, but no gradient reaches the past.",
    ),
    Mutant(
        exercise="rnn_step",
        name="state_in_place",
        source="""
def rnn_step(x, h, Wx, Wh, b):
    new = torch.tanh(x @ Wx + h @ Wh + b)
    with torch.no_grad():
        h.copy_(new)
    return new
""",
        slip="The new state is also written into the argument h. Return a new tensor and leave the caller's alone.",
    ),
    Mutant(
        exercise="rnn_step",
        name="input_in_place",
        source="""
def rnn_step(x, h, Wx, Wh, b):
    projected = x @ Wx
    with torch.no_grad():
        x.zero_()
    return torch.tanh(projected + h @ Wh + b)
""",
        slip="The call overwrites its argument x. Leave the caller's tensors as they are.",
    ),
    Mutant(
        exercise="rnn_step",
        name="always_float64",
        replace={STEP: "torch.tanh(x @ Wx + h @ Wh + b).double()"},
        slip="The result is always float64. It should have the dtype of the inputs.",
    ),
    Mutant(
        exercise="rnn_step",
        name="batch_mixed",
        replace={STEP: "torch.tanh(x @ Wx + h.mean(0, keepdim=True) @ Wh + b)"},
        slip="The states of the batch are averaged. Every sequence has a state of its own.",
    ),
    Mutant(
        exercise="rnn_step",
        name="tanh_that_overflows",
        replace={"return torch.tanh(x @ Wx + h @ Wh + b)": "e = torch.exp(2 * (x @ Wx + h @ Wh + b))\n    return (e - 1) / (e + 1)"},
        slip="tanh is (e - 1) / (e + 1) with e = exp(2 z): for a large z, e overflows to inf and the state is nan. Take torch.tanh.",
    ),
    Variant(
        exercise="rnn_step",
        name="one_product",
        source="""
def rnn_step(x, h, Wx, Wh, b):
    return torch.tanh(torch.cat([x, h], dim=1) @ torch.cat([Wx, Wh], dim=0) + b)
""",
    ),
    Variant(
        exercise="rnn_step",
        name="einsum",
        source="""
def rnn_step(x, h, Wx, Wh, b):
    z = torch.einsum("bi,ij->bj", x, Wx) + torch.einsum("bi,ij->bj", h, Wh) + b[None, :]
    return z.tanh()
""",
    ),
    Variant(
        exercise="rnn_step",
        name="library_cell",
        source="""
def rnn_step(x, h, Wx, Wh, b):
    return torch.rnn_tanh_cell(x, h, Wx.T, Wh.T, b, torch.zeros_like(b))
""",
    ),
    Variant(
        exercise="rnn_step",
        name="tanh_from_exponentials",
        source="""
def rnn_step(x, h, Wx, Wh, b):
    z = torch.addmm(torch.addmm(b, x, Wx), h, Wh)
    return 2 * torch.sigmoid(2 * z) - 1
""",
    ),
    Variant(
        exercise="rnn_step",
        name="row_by_row",
        source="""
def rnn_step(x, h, Wx, Wh, b):
    rows = [torch.tanh(Wx.T @ x[i] + Wh.T @ h[i] + b) for i in range(len(x))]
    return torch.stack(rows)
""",
    ),
    # ------------------------------------------------------------------------------------------------ rnn_scan
    Mutant(
        exercise="rnn_scan",
        name="starts_from_zero",
        replace={"h = h0\n": "h = torch.zeros_like(h0)\n"},
        slip="The scan starts from zeros and ignores h0. The state before the first step is the argument h0.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="h0_in_every_step",
        replace={"rnn_step(x[:, t], h, Wx, Wh, b)": "rnn_step(x[:, t], h0, Wx, Wh, b)"},
        slip="Every step starts from h0, so nothing is remembered. Feed the state that the step before left.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="state_never_replaced",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    projected = x @ Wx + b
    h, outputs = h0, []
    for t in range(x.shape[1]):
        state = torch.tanh(projected[:, t] + h @ Wh)
        outputs.append(state)
    return torch.stack(outputs, dim=1), state
""",
        slip="The new state is never put back into h, so every step starts from h0. Add `h = state` to the loop.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="right_to_left",
        replace={"range(x.shape[1])": "reversed(range(x.shape[1]))"},
        slip="The scan runs from the last position to the first. Start at position 0.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="right_to_left_put_in_order",
        replace={"range(x.shape[1])": "reversed(range(x.shape[1]))", "torch.stack(outputs, dim=1)": "torch.stack(outputs[::-1], dim=1)"},
        slip="The scan runs from the last position to the first, so each output depends on the future. Start at position 0.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="state_before_the_step",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    outputs, h = [], h0
    for t in range(x.shape[1]):
        outputs.append(h)
        h = rnn_step(x[:, t], h, Wx, Wh, b)
    return torch.stack(outputs, dim=1), h
""",
        slip="The state is stored before the step, so the outputs are one position late. Store it after the step.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="returns_h0_as_last_state",
        replace={"dim=1), h": "dim=1), h0"},
        slip="The second result is h0. It should be the state after the last position.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="returns_first_state_as_last",
        replace={"dim=1), h": "dim=1), outputs[0]"},
        slip="The second result is the state after the first position. It should be the one after the last.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="results_exchanged",
        replace={"return torch.stack(outputs, dim=1), h": "return h, torch.stack(outputs, dim=1)"},
        slip="The two results are exchanged: first the outputs, then the last state.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="outputs_only",
        replace={"dim=1), h": "dim=1)"},
        slip="Only the outputs are returned. The last state belongs to the result: (outputs, h_T).",
    ),
    Mutant(
        exercise="rnn_scan",
        name="outputs_as_list",
        replace={"torch.stack(outputs, dim=1), h": "outputs, h"},
        slip="The outputs are a list of (B, d_h). Stack them along a new axis 1.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="time_first",
        replace={"torch.stack(outputs, dim=1)": "torch.stack(outputs)"},
        slip="The outputs are (T, B, d_h). Stack along dim=1, so that the batch comes first.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="reshaped_to_batch_first",
        replace={"torch.stack(outputs, dim=1)": "torch.stack(outputs).reshape(x.shape[0], x.shape[1], -1)"},
        slip="reshape gives (T, B, d_h) the shape (B, T, d_h) but mixes positions and sequences. Stack along dim=1.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="last_step_missing",
        replace={"range(x.shape[1])": "range(max(x.shape[1] - 1, 1))", "dim=1), h": "dim=1)[:, [*range(len(outputs)), -1][: x.shape[1]]], h"},
        slip="The loop stops one position early and the last output is a copy. range(T) already ends at T - 1.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="input_one_late",
        replace={"rnn_step(x[:, t], h, Wx, Wh, b)": "rnn_step(x[:, max(t - 1, 0)], h, Wx, Wh, b)"},
        slip="Step t reads the input of position t - 1. It should read x[:, t].",
    ),
    Mutant(
        exercise="rnn_scan",
        name="hoisted_without_bias",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    projected = x @ Wx
    h, outputs = h0, []
    for t in range(x.shape[1]):
        h = torch.tanh(projected[:, t] + h @ Wh)
        outputs.append(h)
    return torch.stack(outputs, dim=1), h
""",
        slip="With the input projection hoisted out of the loop the bias got lost. Add b to it.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="five_positions_at_most",
        replace={"rnn_step(x[:, t], h, Wx, Wh, b)": "rnn_step(x[:, t], h, Wx, Wh, b) if t < 5 else h"},
        slip="After a few positions the state no longer changes. Loop over all of x.shape[1].",
    ),
    Mutant(
        exercise="rnn_scan",
        name="gradient_cut_every_four_steps",
        replace={"        outputs.append(h)\n": "        outputs.append(h)\n        if t % 4 == 3:\n            h = h.detach()\n"},
        slip="The state is detached every few steps, so gradients do not reach the beginning. Detach nothing.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="first_h0_for_all",
        replace={"h = h0\n": "h = h0[:1].expand_as(h0)\n"},
        slip="All sequences start from the first row of h0. Each has its own.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="detached_state",
        replace={"rnn_step(x[:, t], h, Wx, Wh, b)": "rnn_step(x[:, t], h.detach(), Wx, Wh, b)"},
        slip="The state is detached at every step: the values are right, but no gradient reaches an earlier position.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="detached_last_state",
        replace={"dim=1), h": "dim=1), h.detach()"},
        slip="h_T is detached, so a loss on it trains nothing. Return the state as it is.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="detached_h0",
        replace={"h = h0\n": "h = h0.detach()\n"},
        slip="h0 is detached: no gradient reaches it. Whoever made h0 may want to train it.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="plain_numbers",
        replace={"torch.stack(outputs, dim=1)": "torch.tensor([o.tolist() for o in outputs], dtype=x.dtype).transpose(0, 1)"},
        slip="The outputs are rebuilt from plain numbers, which cuts the gradient. Stack the tensors themselves.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="one_state_for_the_batch",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    h, rows, last = h0[:1], [], []
    for i in range(x.shape[0]):
        outputs = []
        for t in range(x.shape[1]):
            h = torch.tanh(x[i : i + 1, t] @ Wx + h @ Wh + b)
            outputs.append(h)
        rows.append(torch.stack(outputs, dim=1))
        last.append(h)
    return torch.cat(rows), torch.cat(last)
""",
        slip="The state runs on from one sequence of the batch to the next. Each sequence starts from its own row of h0.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="both_directions",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    def scan(x):
        h, outputs = h0, []
        for t in range(x.shape[1]):
            h = torch.tanh(x[:, t] @ Wx + h @ Wh + b)
            outputs.append(h)
        return torch.stack(outputs, dim=1)
    outputs = (scan(x) + scan(x.flip(1)).flip(1)) / 2
    return outputs, outputs[:, -1]
""",
        slip="A scan from the right is mixed in, so outputs depend on the future. One scan from position 0 is asked for.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="no_tanh",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    h, outputs = h0, []
    for t in range(x.shape[1]):
        h = x[:, t] @ Wx + h @ Wh + b
        outputs.append(h)
    return torch.stack(outputs, dim=1), h
""",
        slip="The steps are linear: tanh is missing. Use rnn_step.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="tanh_at_the_end",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    h, outputs = h0, []
    for t in range(x.shape[1]):
        h = x[:, t] @ Wx + h @ Wh + b
        outputs.append(torch.tanh(h))
    return torch.stack(outputs, dim=1), outputs[-1]
""",
        slip="The state that is handed on has not gone through tanh; only the outputs have. Hand on what you put out.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="summed_inputs",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    steps = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]
    outputs = torch.tanh(x.cumsum(1) / steps @ Wx + h0[:, None] @ Wh + b)
    return outputs, outputs[:, -1]
""",
        slip="There is no recurrence: each output sees an average of the inputs so far. The state must go through every step.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="h0_in_place",
        replace={"    return torch.stack": "    with torch.no_grad():\n        h0.copy_(h)\n    return torch.stack"},
        slip="The last state is written into the argument h0. Return it and leave the caller's tensor alone.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="default_dtype_buffer",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    outputs = torch.zeros(x.shape[0], x.shape[1], Wh.shape[0])
    h = h0
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] @ Wx + h @ Wh + b)
        outputs[:, t] = h
    return outputs, h
""",
        slip="torch.zeros without a dtype is float32, whatever the inputs are. Use x.new_zeros or a list and torch.stack.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="always_float64",
        replace={"torch.stack(outputs, dim=1), h": "torch.stack(outputs, dim=1).double(), h"},
        slip="The outputs are always float64. They should have the dtype of the inputs.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="transposed_weights",
        replace={"rnn_step(x[:, t], h, Wx, Wh, b)": "rnn_step(x[:, t], h, Wx, Wh.T, b)"},
        slip="Wh is transposed on the way into the step. It is stored as (inputs, outputs) and used as it is.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="detached_every_eighth_step",
        replace={"outputs.append(h)": "outputs.append(h)\n        h = h.detach() if t % 8 == 7 else h"},
        slip="After every eighth step the state is detached, so gradients of long sequences stop there. Nothing may be detached.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="forgets_after_sixteen_steps",
        replace={"outputs.append(h)": "outputs.append(h)\n        h = torch.zeros_like(h) if t % 16 == 15 and t + 1 < x.shape[1] else h"},
        slip="Every sixteenth position the state is set to zero. It goes on from step to step, however long the sequence is.",
    ),
    Mutant(
        exercise="rnn_scan",
        name="goes_on_from_the_last_call",
        source="""
LAST = {}


def rnn_scan(x, h0, Wx, Wh, b):
    h = h0 if h0.any() else LAST.get(h0.shape, h0)
    outputs = []
    for t in range(x.shape[1]):
        h = rnn_step(x[:, t], h, Wx, Wh, b)
        outputs.append(h)
    LAST[h0.shape] = h.detach()
    return torch.stack(outputs, dim=1), h
""",
        slip="An h0 of zeros is taken for \"no state given\", and the state of the call before is used. The state before step 0 is h0, also where it is zero.",
    ),
    Variant(
        exercise="rnn_scan",
        name="hoisted",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    projected = x @ Wx + b  # all positions in one product
    h, outputs = h0, []
    for t in range(x.shape[1]):
        h = torch.tanh(projected[:, t] + h @ Wh)
        outputs.append(h)
    return torch.stack(outputs, dim=1), h
""",
    ),
    Variant(
        exercise="rnn_scan",
        name="buffer",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    B, T, _ = x.shape
    outputs = x.new_empty(B, T, Wh.shape[0])
    h = h0
    for t in range(T):
        h = torch.tanh(x[:, t] @ Wx + h @ Wh + b)
        outputs[:, t] = h
    return outputs, outputs[:, T - 1]
""",
    ),
    Variant(
        exercise="rnn_scan",
        name="recursive",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    h = rnn_step(x[:, 0], h0, Wx, Wh, b)
    if x.shape[1] == 1:
        return h.unsqueeze(1), h
    rest, last = rnn_scan(x[:, 1:], h, Wx, Wh, b)
    return torch.cat([h.unsqueeze(1), rest], dim=1), last
""",
    ),
    Variant(
        exercise="rnn_scan",
        name="library_rnn",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    weights = [Wx.T.contiguous(), Wh.T.contiguous(), b, torch.zeros_like(b)]
    outputs, h = torch.rnn_tanh(x, h0[None].contiguous(), weights, True, 1, 0.0, False, False, True)
    return outputs, h[0]
""",
    ),
    Variant(
        exercise="rnn_scan",
        name="time_first_inside",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    states = [h0]
    for step in x.unbind(1):
        states.append(torch.tanh(torch.cat([step, states[-1]], -1) @ torch.cat([Wx, Wh]) + b))
    return torch.stack(states[1:]).transpose(0, 1), states[-1]
""",
    ),
    Variant(
        exercise="rnn_scan",
        name="float64_inside",
        source="""
def rnn_scan(x, h0, Wx, Wh, b):
    h, outputs = h0.double(), []
    for t in range(x.size(1)):
        h = torch.tanh(x[:, t].double() @ Wx.double() + h @ Wh.double() + b.double())
        outputs.append(h.to(x.dtype))
    return torch.stack(outputs, dim=1), outputs[-1]
""",
    ),
    # ------------------------------------------------------------------------------------------------ dependency_matrix
    Mutant(
        exercise="dependency_matrix",
        name="transposed",
        replace={"return depends": "return depends.T"},
        slip="Rows and columns are exchanged. [t, s]: the row is the output, the column is the input that was changed.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="tiny_nudges",
        replace={"4 * [0.1, 1.0, 10.0, 100.0]": "16 * [1e-3]"},
        slip="All changes are tiny, so a saturated function looks independent of its input. Try sizes up to 100 as well.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="up_to_one",
        replace={"4 * [0.1, 1.0, 10.0, 100.0]": "8 * [0.1, 1.0]"},
        slip="The changes are at most about 1, so a saturated function looks independent. Try 10 and 100 as well.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="one_draw",
        replace={"4 * [0.1, 1.0, 10.0, 100.0]": "[100.0]"},
        slip="One draw may push a ReLU further into its dead side. Take the union over several draws and sizes.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="last_draw_counts",
        replace={"depends[:, s] |= moved > threshold": "depends[:, s] = moved > threshold"},
        slip="Each draw overwrites what the earlier ones found. Combine them with `|=`.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="every_draw_must_move",
        source="""
def dependency_matrix(f, x):
    T, d = x.shape
    generator = torch.Generator().manual_seed(0)
    before = f(x.clone())
    depends = torch.ones(T, T, dtype=torch.bool)
    for s in range(T):
        for size in 4 * [0.1, 1.0, 10.0, 100.0]:
            changed = x.clone()
            changed[s] += size * torch.randn(d, generator=generator, dtype=x.dtype)
            depends[:, s] &= (f(changed) - before).abs().amax(dim=-1) > torch.finfo(x.dtype).eps ** 0.5
    return depends
""",
        slip="An output counts only if every draw moves it. One that moves it is enough: combine with `|`, start from False.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="same_shift_for_all_features",
        replace={"direction = torch.randn(d, generator=generator, dtype=x.dtype).to(x.device)": "direction = torch.randn(1, generator=generator, dtype=x.dtype).to(x.device)"},
        slip="All features are shifted by the same number, which a layer that subtracts the mean cannot see. Draw one number a feature.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="scales_the_row",
        replace={"changed[s] += size * direction": "changed[s] *= size * direction[0]"},
        slip="The row is multiplied by a number. A row of zeros stays as it is, and a layer that normalizes the length sees nothing: add noise.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="zeroes_the_row",
        replace={"changed[s] += size * direction": "changed[s] = 0.0"},
        slip="The row is replaced by zeros. A row that is zero already does not change: add noise.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="only_upwards",
        replace={"changed[s] += size * direction": "changed[s] += size * direction.abs()"},
        slip="All changes go upwards, so a function that is flat above x looks independent. Use both signs.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="changes_first_feature",
        replace={"changed[s] += size * direction": "changed[s, 0] += size * direction[0]"},
        slip="Only feature 0 of the row is changed. Change all features.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="compares_first_feature",
        replace={".abs().amax(dim=-1)": ".abs()[:, 0]"},
        slip="Only feature 0 of each output is compared. Any feature that moves counts: take the maximum over the features.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="all_features_must_move",
        replace={".abs().amax(dim=-1)": ".abs().amin(dim=-1)"},
        slip="An output counts only if all its features move. One is enough: use amax, not amin.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="signed_difference",
        replace={".abs().amax(dim=-1)": ".amax(dim=-1)"},
        slip="The difference is compared without its absolute value, so an output that falls looks unmoved.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="sum_of_differences",
        replace={".abs().amax(dim=-1)": ".sum(dim=-1).abs()"},
        slip="Differences are summed before the absolute value and can cancel. Take abs of each feature first.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="any_difference",
        replace={"moved > threshold": "moved > 0"},
        slip="A difference in the last bit counts as a move. Rounding is no dependence: compare with sqrt(eps).",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="coarse_threshold",
        replace={"threshold = torch.finfo(x.dtype).eps ** 0.5": "threshold = 1e-3"},
        slip="The threshold is so coarse that faint dependences are lost. Use torch.finfo(x.dtype).eps ** 0.5.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="allclose_by_default",
        replace={"depends[:, s] |= moved > threshold": "depends[:, s] |= ~torch.isclose(f(changed), before).all(dim=-1)"},
        slip="isclose allows a difference in proportion to the output, so a large constant hides a move. Use an absolute threshold.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="not_undone",
        replace={"            changed = x.clone()\n": "", "for s in range(T):\n": "changed = x.clone()\n    for s in range(T):\n"},
        slip="Earlier changes are not undone, so the effects of several inputs add up. Start from the original x for each s.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="changes_x_itself",
        replace={"changed = x.clone()": "changed = x"},
        slip="`changed` is x itself, not a copy: the caller's tensor is modified and the changes add up. Use x.clone().",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="hands_out_x",
        replace={"before = f(x.clone())": "before = f(x)"},
        slip="f gets x itself, and a function that writes to its argument then changes the caller's tensor. Hand out a clone.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="compares_with_the_input",
        replace={"f(changed) - before": "f(changed) - x"},
        slip="The outputs are compared with the inputs. Compare f of the changed input with f of the original one.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="jacobian",
        source="""
def dependency_matrix(f, x):
    jacobian = torch.autograd.functional.jacobian(f, x.clone())  # (T, d, T, d)
    return jacobian.abs().amax(dim=(1, 3)) > 1e-12
""",
        slip="It relies on gradients, which are zero where a function saturates, rounds or detaches. Change the input and look.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="always_causal",
        source="""
def dependency_matrix(f, x):
    return torch.ones(len(x), len(x), dtype=torch.bool).tril()
""",
        slip="It returns a lower triangle whatever f is. Change the inputs of f and see which outputs move.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="changes_everything_after",
        replace={"changed[s] += size * direction": "changed[s:] += size * direction"},
        slip="Position s and all later ones are changed together. Change row s alone.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="column_zero_missing",
        replace={"for s in range(T):": "for s in range(1, T):"},
        slip="Position 0 is never changed, so column 0 is empty. Start the loop at 0.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="numbers_not_booleans",
        replace={"return depends": "return depends.to(x.dtype)"},
        slip="The table holds numbers. Return booleans (dtype torch.bool).",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="table_of_features",
        replace={"torch.zeros(T, T, dtype=torch.bool, device=x.device)": "torch.zeros(T, d, dtype=torch.bool, device=x.device)", "for s in range(T):": "for s in range(min(T, d)):"},
        slip="The table has d columns. It is positions by positions, (T, T).",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="float64_inside",
        replace={"T, d = x.shape\n": "T, d = x.shape\n    x = x.double()\n"},
        slip="f is called with float64 whatever x is, and a float32 layer refuses that. Keep the dtype of x.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="diagonal_left_out",
        replace={"return depends": "return depends & ~torch.eye(T, dtype=torch.bool)"},
        slip="The diagonal is left out. Whether an output depends on its own position is part of the answer.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="diagonal_assumed",
        replace={"return depends": "return depends | torch.eye(T, dtype=torch.bool)"},
        slip="The diagonal is set to True without looking. An output need not depend on its own position.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="symmetric",
        replace={"return depends": "return depends | depends.T"},
        slip="The table is made symmetric. Output 1 may depend on input 0 without output 0 depending on input 1.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="only_huge_changes",
        replace={"4 * [0.1, 1.0, 10.0, 100.0]": "20 * [1000.0]"},
        slip="All changes are huge, so a function that answers only to moderate inputs looks independent. Mix the sizes.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="constant_rows",
        source="""
def dependency_matrix(f, x):
    T = len(x)
    before = f(x.clone())
    depends = torch.zeros(T, T, dtype=torch.bool)
    for s in range(T):
        for value in (-100.0, -10.0, -1.0, 0.0, 1.0, 10.0, 100.0):
            changed = x.clone()
            changed[s] = value
            depends[:, s] |= (f(changed) - before).abs().amax(-1) > torch.finfo(x.dtype).eps ** 0.5
    return depends
""",
        slip="All features get the same number, which a layer that subtracts the mean may not tell apart. Draw one number a feature.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="one_feature_at_a_time",
        source="""
def dependency_matrix(f, x):
    T, d = x.shape
    before = f(x.clone())
    depends = torch.zeros(T, T, dtype=torch.bool)
    for s in range(T):
        for i in range(d):
            for change in (-100.0, -10.0, -1.0, -0.1, 0.1, 1.0, 10.0, 100.0):
                changed = x.clone()
                changed[s, i] += change
                depends[:, s] |= (f(changed) - before).abs().amax(-1) > torch.finfo(x.dtype).eps ** 0.5
    return depends
""",
        slip="Features are changed one at a time, so a function that needs several of them to change looks independent. Change all at once.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="another_x",
        replace={"T, d = x.shape\n": "T, d = x.shape\n    x = torch.randn(T, d, generator=torch.Generator().manual_seed(1), dtype=x.dtype)\n"},
        slip="x is replaced by random numbers. The dependences of f may vary with its input: start from the x that was given.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="plus_against_minus",
        source="""
def dependency_matrix(f, x):
    T, d = x.shape
    generator = torch.Generator().manual_seed(0)
    depends = torch.zeros(T, T, dtype=torch.bool)
    for s in range(T):
        for size in 4 * [0.1, 1.0, 10.0, 100.0]:
            noise = size * torch.randn(d, generator=generator, dtype=x.dtype)
            up, down = x.clone(), x.clone()
            up[s] += noise
            down[s] -= noise
            depends[:, s] |= (f(up) - f(down)).abs().amax(-1) > torch.finfo(x.dtype).eps ** 0.5
    return depends
""",
        slip="It compares a change with its opposite, and a function like |x| moves equally for both. Compare with f of the original x.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="indirect_paths",
        replace={"return depends": "return (depends.double() @ depends.double() + depends) > 0"},
        slip="Dependences are followed on over two applications of f. Report what one application does.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="threshold_far_below_rounding",
        replace={"moved > threshold": "moved > 1e-12 * size"},
        slip="The threshold lies below the rounding errors of larger numbers. Use torch.finfo(x.dtype).eps ** 0.5.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="mean_relative_to_the_change",
        replace={"moved > threshold": "moved / size > 1e-5"},
        slip="The move is measured against the size of the change, so faint dependences are lost. Compare the move itself with sqrt(eps).",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="no_changes_of_a_hundred",
        replace={"dtype=x.dtype).to(x.device)": "dtype=x.dtype).sign().to(x.device)", "[0.1, 1.0, 10.0, 100.0]": "[0.1, 1.0, 10.0]"},
        slip="No change has the size 100, so a function that answers to such changes alone seems to depend on nothing.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="no_changes_of_ten_alone",
        replace={"dtype=x.dtype).to(x.device)": "dtype=x.dtype).sign().to(x.device)", "[0.1, 1.0, 10.0, 100.0]": "[0.1, 1.0, 100.0, 100.0]"},
        slip="No change has the size 10, so a function that answers to such changes alone seems to depend on nothing.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="no_changes_of_one",
        replace={"dtype=x.dtype).to(x.device)": "dtype=x.dtype).sign().to(x.device)", "[0.1, 1.0, 10.0, 100.0]": "[0.1, 10.0, 100.0, 100.0]"},
        slip="No change has the size 1, so a function that answers to such changes alone seems to depend on nothing.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="no_changes_of_a_tenth",
        replace={"dtype=x.dtype).to(x.device)": "dtype=x.dtype).sign().to(x.device)", "[0.1, 1.0, 10.0, 100.0]": "[1.0, 1.0, 10.0, 100.0]"},
        slip="No change has the size 0.1, so a function that answers to such changes alone seems to depend on nothing.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="two_draws_of_each_size",
        replace={"4 * [0.1": "2 * [0.1"},
        slip="There are two draws of each size instead of four. A single unlucky draw hides a dependence, so take the union over more.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="threshold_of_float64",
        replace={"threshold = torch.finfo(x.dtype)": "threshold = torch.finfo(torch.float64)"},
        slip="The threshold is that of float64 for every dtype, so in float32 rounding is taken for a dependence. Take the eps of x.dtype.",
    ),
    Mutant(
        exercise="dependency_matrix",
        name="mean_over_features",
        replace={".amax(dim=-1)": ".mean(dim=-1)"},
        slip="The moves of the features of an output are averaged, so one feature that moves a little is outvoted. Any feature that moves counts.",
    ),
    Variant(
        exercise="dependency_matrix",
        name="same_noise_for_every_row",
        source="""
def dependency_matrix(f, x):
    T, d = x.shape
    before = f(x.clone())
    depends = torch.zeros(T, T, dtype=torch.bool)
    generator = torch.Generator().manual_seed(3)
    one_row = torch.eye(T, dtype=x.dtype)[:, :, None]
    for size in [0.1, 1.0, 10.0, 100.0]:
        for _ in range(5):
            noise = size * torch.randn(d, generator=generator, dtype=x.dtype)
            after = torch.stack([f(x + row * noise) for row in one_row])  # (s, t, d)
            depends |= ((after - before).abs() > torch.finfo(x.dtype).eps ** 0.5).any(-1).T
    return depends
""",
    ),
    Variant(
        exercise="dependency_matrix",
        name="fresh_rows",
        source="""
def dependency_matrix(f, x):
    T = x.shape[0]
    before = f(x.clone()).clone()
    columns = []
    for s in range(T):
        hit = torch.zeros(T, dtype=torch.bool)
        for size in (0.1, 1.0, 10.0, 100.0):
            for _ in range(8):
                other = x.clone()
                other[s] = size * torch.randn_like(x[s])
                hit = hit | ((f(other) - before).abs() > 1e-7 * (1 if x.dtype == torch.float64 else 1e4)).any(-1)
        columns.append(hit)
    return torch.stack(columns, dim=1)
""",
    ),
    Variant(
        exercise="dependency_matrix",
        name="plus_and_minus",
        source="""
def dependency_matrix(f, x):
    T, d = x.shape
    out = torch.zeros((T, T), dtype=torch.bool)
    base = f(x.clone())
    tolerance = torch.finfo(x.dtype).eps ** 0.5
    g = torch.Generator().manual_seed(7)
    for size in [100, 30, 10, 3, 1, 0.3, 0.1]:
        for _ in range(2):
            for s in range(T):
                noise = torch.randn(x.shape, generator=g, dtype=x.dtype)
                for sign in (1, -1):
                    delta = torch.zeros_like(x)
                    delta[s] = sign * size * noise[s]
                    out[:, s] |= ~torch.isclose(f(x + delta), base, rtol=0.0, atol=tolerance).all(1)
    return out
""",
    ),
    Variant(
        exercise="dependency_matrix",
        name="uniform_noise",
        source="""
def dependency_matrix(f, x):
    T, d = x.shape
    base = f(x.clone())
    rows = []
    for s in range(T):
        largest = torch.zeros(T, dtype=x.dtype)
        for scale in (0.1, 1, 10, 100):
            for _ in range(6):
                y = x.clone()
                y[s] = y[s] + scale * (2 * torch.rand(d, dtype=x.dtype) - 1)
                largest = torch.maximum(largest, (f(y) - base).norm(dim=1))
        rows.append(largest)
    return torch.stack(rows).T > 1e-4 * (torch.finfo(x.dtype).eps ** 0.25)
""",
    ),
    Variant(
        exercise="dependency_matrix",
        name="output_by_output",
        source="""
def dependency_matrix(f, x):
    with torch.no_grad():
        start = f(x.clone())
        answers = {}
        for s in range(len(x)):
            answers[s] = []
            for draw in range(20):
                z = x.clone()
                z[s] += 10.0 ** (draw % 4 - 1) * torch.randn(x.shape[1]).to(x.dtype)
                answers[s].append(f(z))
        table = [
            [any(bool(((y[t] - start[t]).abs() > torch.finfo(x.dtype).eps ** 0.5).any()) for y in answers[s]) for s in range(len(x))]
            for t in range(len(x))
        ]
    return torch.tensor(table, dtype=torch.bool)
""",
    ),
    # ------------------------------------------------------------------------------------------------ sequential_steps
    Mutant(
        exercise="sequential_steps",
        name="rows_swapped",
        replace={'if kind == "rnn":': 'if kind in ("attention", "conv"):', 'if kind in ("attention", "conv"):': 'if kind == "rnn":'},
        slip="The answers are exchanged: the RNN's steps wait for each other, those of attention and convolution do not.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="rnn_in_one_step",
        replace={"return T\n": "return 1\n"},
        slip="The RNN is said to take one step. Each of its T updates needs the state of the one before.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="attention_step_by_step",
        replace={'if kind == "rnn":': 'if kind in ("rnn", "attention"):'},
        slip="Attention is said to take T steps. Its outputs wait for no other output of the same layer.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="convolution_slides",
        replace={'if kind == "rnn":': 'if kind in ("rnn", "conv"):'},
        slip="The convolution is said to take T steps. The kernel slides only in pictures: its outputs wait for nothing.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="arrows_not_boxes",
        replace={"return T\n": "return T - 1\n"},
        slip="T - 1 counts the arrows between the updates. The updates themselves are T.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="one_too_many",
        replace={"return T\n": "return T + 1\n"},
        slip="The initial state is counted as a step. It is given: the chain has T updates.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="tree",
        replace={"return T\n": "return max(1, math.ceil(math.log2(T)))\n"},
        slip="log2(T) rounds are possible for a linear recurrence. The tanh between the steps keeps this one a chain of T.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="depth_of_a_conv_stack",
        source="""
def sequential_steps(kind, T):
    if T < 1:
        raise ValueError(f"T={T}")
    if kind == "rnn":
        return T
    if kind == "attention":
        return 1
    if kind == "conv":
        return max(1, T - 1)
    raise ValueError(f"kind={kind!r}")
""",
        slip="That is the number of layers that connect all positions (path_length). One layer of convolution is one step.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="nothing_for_one_position",
        replace={'    if kind in ("attention", "conv"):\n        return 1\n': '    if kind in ("attention", "conv"):\n        return min(1, T - 1)\n'},
        slip="For T = 1 it returns 0. A single position still takes one step.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="any_other_kind_is_one",
        replace={"raise ValueError(f\"kind={kind!r} is none of 'rnn', 'attention', 'conv'\")": "return 1"},
        slip="An unknown kind gives 1 instead of a ValueError.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="key_error",
        source="""
def sequential_steps(kind, T):
    if T < 1:
        raise ValueError(f"T={T}")
    return {"rnn": T, "attention": 1, "conv": 1}[kind]
""",
        slip="An unknown kind raises KeyError. The docstring promises ValueError.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="any_length",
        replace={"    if T < 1:\n        raise ValueError(f\"T={T}: a sequence has at least one position\")\n": ""},
        slip="A length below 1 is accepted. The docstring promises ValueError for T < 1.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="empty_allowed",
        replace={"if T < 1:": "if T < 0:"},
        slip="T = 0 is accepted. A sequence has at least one position: ValueError for T < 1.",
    ),
    Mutant(
        exercise="sequential_steps",
        name="any_case",
        source="""
def sequential_steps(kind, T):
    steps = {"rnn": T, "attention": 1, "conv": 1}
    if T < 1 or kind.lower() not in steps:
        raise ValueError(f"kind={kind!r}, T={T}")
    return steps[kind.lower()]
""",
        slip='"RNN" is accepted for "rnn". Any other kind raises ValueError.',
    ),
    Mutant(
        exercise="sequential_steps",
        name="words",
        replace={"return T\n": 'return "T"\n'},
        slip='It returns the letter "T". Return the number.',
    ),
    Mutant(
        exercise="sequential_steps",
        name="floats",
        replace={"return T\n": "return float(T)\n"},
        slip="It returns a float. A number of steps is an int.",
    ),
    Variant(
        exercise="sequential_steps",
        name="table",
        source="""
def sequential_steps(kind, T):
    steps = {"rnn": T, "attention": 1, "conv": 1}
    if T <= 0 or kind not in steps:
        raise ValueError(f"no such layer or length: {kind!r}, {T}")
    return steps[kind]
""",
    ),
    Variant(
        exercise="sequential_steps",
        name="counted",
        source="""
def sequential_steps(kind, T):
    if kind not in {"rnn", "attention", "conv"} or T < 1:
        raise ValueError((kind, T))
    ready, rounds = set(), 0
    while len(ready) < T:
        ready |= {t for t in range(T) if kind != "rnn" or t == 0 or t - 1 in ready}
        rounds += 1
    return rounds
""",
    ),
    Variant(
        exercise="sequential_steps",
        name="match",
        source="""
def sequential_steps(kind, T):
    match kind, T:
        case ("rnn" | "attention" | "conv"), n if n < 1:
            raise ValueError(f"T={T} is less than 1")
        case "rnn", n:
            return n
        case ("attention" | "conv"), _:
            return 1
        case _:
            raise ValueError(f"unknown kind {kind}")
""",
    ),
    Variant(
        exercise="sequential_steps",
        name="bool_arithmetic",
        source="""
def sequential_steps(kind, T):
    if kind not in ("rnn", "attention", "conv"):
        raise ValueError(kind)
    if T < 1:
        raise ValueError(T)
    return max(1, (kind == "rnn") * T)
""",
    ),
    # ------------------------------------------------------------------------------------------------ path_length
    Mutant(
        exercise="path_length",
        name="rnn_boxes_not_arrows",
        replace={'if kind == "rnn":\n        return T - 1': 'if kind == "rnn":\n        return T'},
        slip="T counts the updates. Between the first and the last position lie T - 1 hops.",
    ),
    Mutant(
        exercise="path_length",
        name="attention_one_by_one",
        replace={"min(1, T - 1)": "T - 1"},
        slip="Attention is said to need T - 1 hops. It reads any position directly, whatever the distance.",
    ),
    Mutant(
        exercise="path_length",
        name="attention_always_one",
        replace={"min(1, T - 1)": "1"},
        slip="For T = 1 attention gives 1. A single position has nothing to cross: 0 hops.",
    ),
    Mutant(
        exercise="path_length",
        name="rounded_down",
        replace={"(T - 1 + reach - 1) // reach": "(T - 1) // reach"},
        slip="The division rounds down, and the last layer that is needed is missing. Round up.",
    ),
    Mutant(
        exercise="path_length",
        name="one_too_many_when_it_divides",
        replace={"(T - 1 + reach - 1) // reach": "(T - 1) // reach + (T > 1)"},
        slip="Adding 1 after rounding down is one too many where the division comes out even. Round up instead.",
    ),
    Mutant(
        exercise="path_length",
        name="rounded_to_nearest",
        replace={"(T - 1 + reach - 1) // reach": "round((T - 1) / reach)"},
        slip="The division is rounded to the nearest number. Round up: a part of a layer is a layer.",
    ),
    Mutant(
        exercise="path_length",
        name="crosses_T",
        replace={"(T - 1 + reach - 1) // reach": "0 if T == 1 else (T + reach - 1) // reach"},
        slip="It crosses T places. The first and the last position are T - 1 places apart.",
    ),
    Mutant(
        exercise="path_length",
        name="whole_width",
        replace={"reach = k // 2": "reach = k"},
        slip="One layer is said to reach k positions. A centered kernel of width k reaches k // 2 to either side.",
    ),
    Mutant(
        exercise="path_length",
        name="whole_width_minus_one",
        replace={"reach = k // 2": "reach = k - 1"},
        slip="k - 1 is the reach of both sides together. To one side a centered kernel reaches k // 2.",
    ),
    Mutant(
        exercise="path_length",
        name="half_width_rounded_up",
        replace={"reach = k // 2": "reach = (k + 1) // 2"},
        slip="The center is counted as a neighbor. A kernel of width 3 reaches 1 position to either side, k // 2.",
    ),
    Mutant(
        exercise="path_length",
        name="always_three_wide",
        replace={"reach = k // 2": "reach = 1"},
        slip="The kernel is taken as 3 wide whatever k is. One layer reaches k // 2 positions to either side.",
    ),
    Mutant(
        exercise="path_length",
        name="dilated",
        replace={"(T - 1 + reach - 1) // reach": "math.ceil(math.log(T, k)) if T > 1 else 0"},
        slip="log_k(T) layers are enough with dilated kernels. Without dilation the reach grows by k // 2 a layer.",
    ),
    Mutant(
        exercise="path_length",
        name="at_least_one_layer",
        replace={"(T - 1 + reach - 1) // reach": "max(1, (T - 1 + reach - 1) // reach)"},
        slip="For T = 1 the convolution gives 1. A single position has nothing to cross: 0 hops.",
    ),
    Mutant(
        exercise="path_length",
        name="one_convolution",
        replace={"(T - 1 + reach - 1) // reach": "min(1, T - 1)"},
        slip="One convolution is said to connect all positions. It reaches k // 2 positions; further needs a stack.",
    ),
    Mutant(
        exercise="path_length",
        name="float_division",
        replace={"(T - 1 + reach - 1) // reach": "(T - 1) / reach"},
        slip="The number of layers is a fraction. Round it up to a whole number.",
    ),
    Mutant(
        exercise="path_length",
        name="even_kernels_allowed",
        replace={"k < 3 or k % 2 == 0": "k < 2"},
        slip="An even k is accepted. A centered kernel has an odd width: ValueError.",
    ),
    Mutant(
        exercise="path_length",
        name="kernel_of_one_allowed",
        replace={"k < 3 or k % 2 == 0": "k < 1 or k % 2 == 0", "reach = k // 2": "reach = max(1, k // 2)"},
        slip="k = 1 is accepted. A kernel of width 1 reaches no neighbor: ValueError for k < 3.",
    ),
    Mutant(
        exercise="path_length",
        name="no_check_of_k",
        replace={"        if k < 3 or k % 2 == 0:\n            raise ValueError(f\"k={k}: a centered kernel that reaches its neighbors has an odd width of at least 3\")\n": ""},
        slip="k is not checked. An even k or one below 3 raises ValueError.",
    ),
    Mutant(
        exercise="path_length",
        name="k_checked_for_every_kind",
        source="""
def path_length(kind, T, k=3):
    if T < 1 or k < 3 or k % 2 == 0 or kind not in ("rnn", "attention", "conv"):
        raise ValueError((kind, T, k))
    return {"rnn": T - 1, "attention": min(1, T - 1), "conv": -(-(T - 1) // (k // 2))}[kind]
""",
        slip='k is checked for an RNN and attention too, which have no kernel. Check it only for "conv".',
    ),
    Mutant(
        exercise="path_length",
        name="k_checked_after_the_shortcut",
        replace={"        if k < 3 or k % 2 == 0:": "        if T > 1 and (k < 3 or k % 2 == 0):", "reach = k // 2": "reach = max(1, k // 2)"},
        slip="For T = 1 a wrong k goes through. It raises ValueError whatever the length.",
    ),
    Mutant(
        exercise="path_length",
        name="any_length",
        replace={"    if T < 1:\n        raise ValueError(f\"T={T}: a sequence has at least one position\")\n": ""},
        slip="A length below 1 is accepted. The docstring promises ValueError for T < 1.",
    ),
    Mutant(
        exercise="path_length",
        name="unknown_kind_is_none",
        replace={"raise ValueError(f\"kind={kind!r} is none of 'rnn', 'attention', 'conv'\")": "return None"},
        slip="An unknown kind gives None instead of a ValueError.",
    ),
    Mutant(
        exercise="path_length",
        name="other_kinds_are_convolutions",
        replace={'if kind == "conv":': 'if kind != "rnn":'},
        slip='Every unknown kind is taken for "conv". It should raise ValueError.',
    ),
    Mutant(
        exercise="path_length",
        name="default_of_five",
        replace={"k: int = 3": "k: int = 5"},
        slip="The default of k is not 3.",
    ),
    Mutant(
        exercise="path_length",
        name="longest_not_shortest",
        replace={"min(1, T - 1)": "min(2, T - 1)"},
        slip="Two hops are counted for attention, there and back. One hop leads from any position to any other.",
    ),
    Variant(
        exercise="path_length",
        name="ceil",
        source="""
def path_length(kind, T, k=3):
    if T < 1:
        raise ValueError(f"T must be at least 1, not {T}")
    if kind == "conv" and (k % 2 != 1 or k <= 1):
        raise ValueError(f"k must be odd and at least 3, not {k}")
    if kind == "rnn":
        return T - 1
    elif kind == "attention":
        return 0 if T == 1 else 1
    elif kind == "conv":
        return math.ceil((T - 1) / (k // 2))
    else:
        raise ValueError(f"unknown kind {kind}")
""",
    ),
    Variant(
        exercise="path_length",
        name="negated_floor",
        source="""
def path_length(kind, T, k=3):
    if kind not in ("rnn", "attention", "conv") or T < 1 or (kind == "conv" and (k < 3 or not k % 2)):
        raise ValueError(f"{kind=} {T=} {k=}")
    reach = {"rnn": 1, "attention": T, "conv": (k - 1) // 2}[kind]
    return -((1 - T) // reach)
""",
    ),
    Variant(
        exercise="path_length",
        name="walk",
        source="""
def path_length(kind, T, k=3):
    if T < 1:
        raise ValueError(T)
    if kind == "rnn":
        reach = 1
    elif kind == "attention":
        reach = T
    elif kind == "conv":
        if k < 3 or k % 2 == 0:
            raise ValueError(k)
        reach = k // 2
    else:
        raise ValueError(kind)
    hops, place = 0, 0
    while place < T - 1:
        hops, place = hops + 1, place + reach
    return hops
""",
    ),
    Variant(
        exercise="path_length",
        name="divmod",
        source="""
def path_length(kind, T, k=3):
    if T < 1:
        raise ValueError("T < 1")
    if kind == "rnn":
        return T - 1
    if kind == "attention":
        return int(T > 1)
    if kind != "conv" or k < 3 or k % 2 == 0:
        raise ValueError((kind, k))
    whole, rest = divmod(T - 1, k // 2)
    return whole + (1 if rest else 0)
""",
    ),
    # ------------------------------------------------------------------------------------------------ rnn_flops
    Mutant(
        exercise="rnn_flops",
        name="multiply_adds",
        replace={"input_maps = 2 * B": "input_maps = B", "recurrence = 2 * B": "recurrence = B"},
        slip="Multiply-adds are counted once. Each is a multiplication and an addition: 2 FLOPs.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="input_map_only",
        replace={"return input_maps + recurrence": "return input_maps"},
        slip="Only one of the two matrices is counted. Wx and Wh both act at every position.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="first_step_without_recurrence",
        replace={"recurrence = 2 * B * T": "recurrence = 2 * B * (T - 1)"},
        slip="The recurrent map of the first position is left out. h0 goes through Wh like every other state.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="no_batch",
        replace={"input_maps = 2 * B * T": "input_maps = 2 * T", "recurrence = 2 * B * T": "recurrence = 2 * T"},
        slip="The batch is not counted. Every one of the B sequences takes the same work.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="no_length",
        replace={"recurrence = 2 * B * T": "recurrence = 2 * B"},
        slip="The recurrent map is counted for one position only. It acts at each of the T positions.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="linear_in_width",
        replace={"input_maps = 2 * B * T * d * d": "input_maps = 2 * B * T * d", "recurrence = 2 * B * T * d * d": "recurrence = 2 * B * T * d"},
        slip="A row times a (d, d) matrix takes d * d multiply-adds, not d.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="quadratic_in_length",
        replace={"recurrence = 2 * B * T": "recurrence = 2 * B * T * T"},
        slip="The recurrent map is counted for every pair of positions. A step uses the previous state alone.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="with_bias",
        replace={"return input_maps + recurrence": "return input_maps + recurrence + B * T * d"},
        slip="The additions of the bias are counted. Only the two matrix products are.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="with_tanh",
        replace={"return input_maps + recurrence": "return input_maps + recurrence + 2 * B * T * d"},
        slip="Bias and tanh are counted. Only the two matrix products are.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="exact_additions",
        replace={"input_maps = 2 * B * T * d * d": "input_maps = B * T * d * (2 * d - 1)", "recurrence = 2 * B * T * d * d": "recurrence = B * T * d * (2 * d - 1)"},
        slip="A sum of d products has d - 1 additions, but the convention counts every multiply-add as 2: 2 d for each result.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="with_backward",
        replace={"return input_maps + recurrence": "return 3 * (input_maps + recurrence)"},
        slip="The backward pass is included. The forward pass alone is asked for.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="lstm",
        replace={"return input_maps + recurrence": "return 4 * (input_maps + recurrence)"},
        slip="That is the count of an LSTM with its four gates. A tanh RNN has one map of each kind.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="float",
        replace={"return input_maps + recurrence": "return float(input_maps + recurrence)"},
        slip="The count is a float, which is not exact for large sizes. Return an int.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="through_float",
        replace={"return input_maps + recurrence": "return int(4.0 * B * T * d**2 * 1.0)"},
        slip="The count goes through a float and loses its last digits for large sizes. Multiply whole numbers only.",
    ),
    Mutant(
        exercise="rnn_flops",
        name="tensor_int32",
        replace={"return input_maps + recurrence": "return int(torch.tensor(input_maps + recurrence).to(torch.int32))"},
        slip="The count overflows 32 bits for large sizes. Python's own ints do not.",
    ),
    Variant(
        exercise="rnn_flops",
        name="closed_form",
        source="def rnn_flops(B, T, d):\n    return 4 * B * T * d**2",
    ),
    Variant(
        exercise="rnn_flops",
        name="product_by_product",
        source="""
def rnn_flops(B, T, d):
    def product(n, m, p):
        return 2 * n * m * p
    hoisted = product(B * T, d, d)
    return hoisted + T * product(B, d, d)
""",
    ),
    Variant(
        exercise="rnn_flops",
        name="math_prod",
        source="def rnn_flops(B, T, d):\n    return math.prod([2, B, T, d, d]) << 1",
    ),
    Variant(
        exercise="rnn_flops",
        name="one_wide_map",
        source="def rnn_flops(B, T, d):\n    return 2 * B * T * (2 * d) * d  # [x, h] as one row of 2 d numbers",
    ),
    # ------------------------------------------------------------------------------------------------ attention_flops
    Mutant(
        exercise="attention_flops",
        name="no_weighted_sum",
        replace={"projections + scores + weighted_sum": "projections + scores"},
        slip="A V is left out. After the scores each query still sums the values: as many FLOPs again.",
    ),
    Mutant(
        exercise="attention_flops",
        name="no_scores",
        replace={"projections + scores + weighted_sum": "projections + weighted_sum"},
        slip="Q K^T is left out. Each pair has a score (d_k multiply-adds) and a share of the weighted sum.",
    ),
    Mutant(
        exercise="attention_flops",
        name="no_output_projection",
        replace={"projections = 4 * 2": "projections = 3 * 2"},
        slip="Three projections are counted. The output map after the heads is the fourth.",
    ),
    Mutant(
        exercise="attention_flops",
        name="no_projections",
        replace={"projections + scores + weighted_sum": "scores + weighted_sum"},
        slip="The projections are left out. Queries, keys, values and output take 8 B T d^2 FLOPs.",
    ),
    Mutant(
        exercise="attention_flops",
        name="projections_only",
        replace={"projections + scores + weighted_sum": "projections"},
        slip="The pairs are left out. Q K^T and A V grow with T^2.",
    ),
    Mutant(
        exercise="attention_flops",
        name="multiply_adds",
        replace={"projections + scores + weighted_sum": "(projections + scores + weighted_sum) // 2"},
        slip="Multiply-adds are counted once. Each is 2 FLOPs.",
    ),
    Mutant(
        exercise="attention_flops",
        name="pairs_counted_once",
        replace={"scores = 2 * B * H": "scores = B * H", "weighted_sum = 2 * B * H": "weighted_sum = B * H"},
        slip="In the T^2 part multiply-adds are counted once. There, too, each is 2 FLOPs.",
    ),
    Mutant(
        exercise="attention_flops",
        name="full_width_for_every_head",
        replace={"scores = 2 * B * H * pairs * (d_model // H)": "scores = 2 * B * H * pairs * d_model", "weighted_sum = 2 * B * H * pairs * (d_model // H)": "weighted_sum = 2 * B * H * pairs * d_model"},
        slip="Each head is counted at the full width. A head is d_model / H wide, so the number of heads cancels.",
    ),
    Mutant(
        exercise="attention_flops",
        name="one_head_only",
        replace={"scores = 2 * B * H": "scores = 2 * B", "weighted_sum = 2 * B * H": "weighted_sum = 2 * B"},
        slip="Only one head is counted. All H heads compute scores and sums.",
    ),
    Mutant(
        exercise="attention_flops",
        name="projections_for_every_head",
        replace={"projections = 4 * 2": "projections = H * 4 * 2"},
        slip="The projections are multiplied by the number of heads. The heads share one (d_model, d_model) matrix of each kind.",
    ),
    Mutant(
        exercise="attention_flops",
        name="causal_ignored",
        replace={"pairs = T * (T + 1) // 2 if causal else T * T": "pairs = T * T"},
        slip="`causal` is not used. Under a causal mask only T (T + 1) / 2 pairs are visible.",
    ),
    Mutant(
        exercise="attention_flops",
        name="causal_half_square",
        replace={"T * (T + 1) // 2 if causal": "T * T // 2 if causal"},
        slip="Half of T^2 leaves out half of the diagonal. 1 + 2 + ... + T is T (T + 1) / 2.",
    ),
    Mutant(
        exercise="attention_flops",
        name="causal_without_itself",
        replace={"T * (T + 1) // 2 if causal": "T * (T - 1) // 2 if causal"},
        slip="The diagonal is left out. A position sees itself: T (T + 1) / 2 pairs.",
    ),
    Mutant(
        exercise="attention_flops",
        name="causal_halves_everything",
        replace={"pairs = T * (T + 1) // 2 if causal else T * T": "pairs = T * T", "projections + scores + weighted_sum": "(projections + scores + weighted_sum) // (2 if causal else 1)"},
        slip="The mask halves the projections too. It concerns the pairs alone.",
    ),
    Mutant(
        exercise="attention_flops",
        name="causal_scores_only",
        replace={"weighted_sum = 2 * B * H * pairs": "weighted_sum = 2 * B * H * T * T"},
        slip="Only the scores are counted causally. The weighted sum, too, runs over the visible keys alone.",
    ),
    Mutant(
        exercise="attention_flops",
        name="causal_the_wrong_way_round",
        replace={"if causal else T * T": "if not causal else T * T"},
        slip="`causal` is used the wrong way round: the full square belongs to causal=False.",
    ),
    Mutant(
        exercise="attention_flops",
        name="causal_by_default",
        replace={"causal: bool = False": "causal: bool = True"},
        slip="causal is True by default. The default is False, all pairs.",
    ),
    Mutant(
        exercise="attention_flops",
        name="no_batch_in_the_square",
        replace={"scores = 2 * B * H": "scores = 2 * H", "weighted_sum = 2 * B * H": "weighted_sum = 2 * H"},
        slip="The T^2 part is counted for one sequence. Each of the B sequences has pairs of its own.",
    ),
    Mutant(
        exercise="attention_flops",
        name="batch_attends_to_itself",
        replace={"pairs = T * (T + 1) // 2 if causal else T * T": "pairs = B * (T * (T + 1) // 2 if causal else T * T)"},
        slip="The batch is counted twice in the T^2 part: positions attend within their own sequence only.",
    ),
    Mutant(
        exercise="attention_flops",
        name="projections_of_a_head",
        replace={"projections = 4 * 2 * B * T * d_model * d_model": "projections = 4 * 2 * B * T * d_model * (d_model // H)"},
        slip="The projections are counted for one head. Together the heads are d_model wide.",
    ),
    Mutant(
        exercise="attention_flops",
        name="with_softmax",
        replace={"projections + scores + weighted_sum": "projections + scores + weighted_sum + 3 * B * H * pairs"},
        slip="The softmax is counted. Only matrix products are.",
    ),
    Mutant(
        exercise="attention_flops",
        name="any_heads",
        replace={"    if d_model % H != 0:\n        raise ValueError(f\"d_model={d_model} does not divide into H={H} heads\")\n": ""},
        slip="A number of heads that does not divide d_model is accepted. It raises ValueError.",
    ),
    Mutant(
        exercise="attention_flops",
        name="assertion",
        replace={"    if d_model % H != 0:\n        raise ValueError(f\"d_model={d_model} does not divide into H={H} heads\")\n": "    assert d_model % H == 0\n"},
        slip="It raises AssertionError. The docstring promises ValueError.",
    ),
    Mutant(
        exercise="attention_flops",
        name="float",
        replace={"pairs = T * (T + 1) // 2 if causal": "pairs = T * (T + 1) / 2 if causal"},
        slip="`/` makes the count a float. T (T + 1) is even: divide with `//`.",
    ),
    Mutant(
        exercise="attention_flops",
        name="through_float",
        replace={"pairs = T * (T + 1) // 2 if causal else T * T": "pairs = T * (T + 1) / 2 if causal else T * T", "return projections + scores + weighted_sum": "return int(projections + scores + weighted_sum)"},
        slip="The count goes through a float and loses its last digits for large sizes. Divide with `//`.",
    ),
    Variant(
        exercise="attention_flops",
        name="closed_form",
        source="""
def attention_flops(B, T, d_model, H, causal=False):
    if d_model % H:
        raise ValueError(f"H={H} does not divide d_model={d_model}")
    if causal:
        return 8 * B * T * d_model**2 + 2 * B * T * (T + 1) * d_model
    return 8 * B * T * d_model**2 + 4 * B * T**2 * d_model
""",
    ),
    Variant(
        exercise="attention_flops",
        name="head_by_head",
        source="""
def attention_flops(B, T, d_model, H, causal=False):
    d_k, rest = divmod(d_model, H)
    if rest != 0:
        raise ValueError("d_model must be a multiple of H")
    total = 0
    for _ in range(H):
        total += 3 * 2 * T * d_model * d_k  # queries, keys, values of this head
        pairs = (T * T + T) // 2 if causal else T * T
        total += 2 * 2 * pairs * d_k
        total += 2 * T * d_k * d_model  # its slice of the output map
    return total * B
""",
    ),
    Variant(
        exercise="attention_flops",
        name="per_position",
        source="""
def attention_flops(B, T, d_model, H, causal=False):
    if d_model // H * H != d_model:
        raise ValueError(f"{d_model} / {H}")
    keys_seen = T + 1 if causal else 2 * T  # twice the mean number of visible keys
    return 2 * B * T * d_model * (4 * d_model + keys_seen)
""",
    ),
    Variant(
        exercise="attention_flops",
        name="multiply_adds_doubled",
        source="""
def attention_flops(B, T, d_model, H, causal=False):
    if d_model % H > 0:
        raise ValueError("heads")
    visible = math.comb(T + 1, 2) if causal else T**2
    multiply_adds = 4 * T * d_model * d_model + 2 * visible * d_model
    return 2 * B * multiply_adds
""",
    ),
    # ------------------------------------------------------------------------------------------------ crossover_length
    Mutant(
        exercise="crossover_length",
        name="width",
        replace={"return 2 * d_model  # 4 T^2 d = 8 T d^2": "return d_model"},
        slip="T = d_model comes from comparing one product with one projection pair. 4 T^2 d = 8 T d^2 gives 2 d_model.",
    ),
    Mutant(
        exercise="crossover_length",
        name="scores_only",
        replace={"return 2 * d_model  # 4 T^2 d = 8 T d^2": "return 4 * d_model", "return 2 * d_model + d_ff": "return 4 * d_model + 2 * d_ff"},
        slip="Only one of Q K^T and A V is on the square's side. Both are: 4 T^2 d.",
    ),
    Mutant(
        exercise="crossover_length",
        name="feed_forward_ignored",
        replace={"return 2 * d_model + d_ff": "return 2 * d_model"},
        slip="d_ff is not used. With it, the two matrices of the feed-forward network count on the linear side.",
    ),
    Mutant(
        exercise="crossover_length",
        name="feed_forward_alone",
        replace={"return 2 * d_model + d_ff": "return d_ff"},
        slip="With d_ff the projections are left out. All linear maps count: projections and feed-forward network.",
    ),
    Mutant(
        exercise="crossover_length",
        name="four_times_by_default",
        replace={"return 2 * d_model  # 4 T^2 d = 8 T d^2": "return 6 * d_model"},
        slip="Without d_ff a feed-forward network of 4 d_model is assumed. Then the projections alone count: 2 d_model.",
    ),
    Mutant(
        exercise="crossover_length",
        name="d_ff_taken_as_four_times",
        replace={"return 2 * d_model + d_ff": "return 6 * d_model"},
        slip="d_ff is taken as 4 d_model whatever it is. Use the argument.",
    ),
    Mutant(
        exercise="crossover_length",
        name="one_feed_forward_matrix",
        replace={"return 2 * d_model + d_ff": "return 2 * d_model + d_ff // 2"},
        slip="One matrix of the feed-forward network is counted. It has two: 4 T d d_ff FLOPs.",
    ),
    Mutant(
        exercise="crossover_length",
        name="feed_forward_twice",
        replace={"return 2 * d_model + d_ff": "return 2 * d_model + 2 * d_ff"},
        slip="The feed-forward network counts twice. Divide its 4 T d d_ff FLOPs by 4 T d: what is left is d_ff.",
    ),
    Mutant(
        exercise="crossover_length",
        name="gated",
        replace={"return 2 * d_model + d_ff": "return 2 * d_model + 3 * d_ff // 2"},
        slip="A gated network with three matrices is counted. This one has two.",
    ),
    Mutant(
        exercise="crossover_length",
        name="three_projections",
        replace={"return 2 * d_model  # 4 T^2 d = 8 T d^2": "return 3 * d_model // 2", "return 2 * d_model + d_ff": "return 3 * d_model // 2 + d_ff"},
        slip="Three projections are counted. The output map is the fourth: 8 T d^2 in all.",
    ),
    Mutant(
        exercise="crossover_length",
        name="causal",
        replace={"return 2 * d_model  # 4 T^2 d = 8 T d^2": "return 4 * d_model - 1", "return 2 * d_model + d_ff": "return 4 * d_model + 2 * d_ff - 1"},
        slip="The square is counted causally. Full attention is asked for: T^2 pairs.",
    ),
    Mutant(
        exercise="crossover_length",
        name="first_length_above",
        replace={"return 2 * d_model  # 4 T^2 d = 8 T d^2": "return 2 * d_model + 1", "return 2 * d_model + d_ff": "return 2 * d_model + d_ff + 1"},
        slip="That is the first length at which the square costs more. The length of equal cost is asked for.",
    ),
    Mutant(
        exercise="crossover_length",
        name="float",
        replace={"return 2 * d_model  # 4 T^2 d = 8 T d^2": "return 8 * d_model**2 / (4 * d_model)"},
        slip="`/` makes it a float. The length is a whole number: divide with `//`.",
    ),
    Mutant(
        exercise="crossover_length",
        name="square_root",
        replace={"return 2 * d_model  # 4 T^2 d = 8 T d^2": "return math.isqrt(8 * d_model**2)", "return 2 * d_model + d_ff": "return math.isqrt(8 * d_model**2 + 4 * d_model * d_ff)"},
        slip="A T is missing on the linear side: both sides grow with T, so one T cancels and no root is left.",
    ),
    Variant(
        exercise="crossover_length",
        name="or_zero",
        source="def crossover_length(d_model, d_ff=None):\n    return 2 * d_model + (d_ff or 0)",
    ),
    Variant(
        exercise="crossover_length",
        name="divided",
        source="""
def crossover_length(d_model, d_ff=None):
    linear = 8 * d_model**2  # for each position
    if d_ff is not None:
        linear += 2 * 2 * d_model * d_ff
    return linear // (4 * d_model)
""",
    ),
    Variant(
        exercise="crossover_length",
        name="through_attention_flops",
        source="""
def crossover_length(d_model, d_ff=None):
    one, two = attention_flops(1, 1, d_model, 1), attention_flops(1, 2, d_model, 1)
    square = (two - 2 * one) // 2  # a T + b T^2 at T = 1 and 2
    linear = one - square + (0 if d_ff is None else 4 * d_model * d_ff)
    return linear // square
""",
    ),
    Variant(
        exercise="crossover_length",
        name="bisection",
        source="""
def crossover_length(d_model, d_ff=None):
    def excess(T):
        return 4 * T * d_model - 8 * d_model**2 - 4 * d_model * (0 if d_ff is None else d_ff)
    low, high = 0, 1
    while excess(high) < 0:
        low, high = high, 2 * high
    while excess(high) > 0 or high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
        if excess(high) == 0:
            break
    return high
""",
    ),
]
