"""Wrong and right answers to the exercises of lesson 07."""

from collections.abc import Mapping

from grader.bank import Entry, Mutant, Variant, right, wrong

# ---------------------------------------------------------------------------------------------------- layer_norm

CENTERED = "x - x.mean(dim=-1, keepdim=True)"
VARIANCE = "centered.square().mean(dim=-1, keepdim=True)"
LN_RETURN = "return gain * centered / torch.sqrt(variance + eps) + bias"

LAYER_NORM: list[Entry] = [
    wrong(
        "layer_norm",
        "unbiased_variance",
        {VARIANCE: "x.var(dim=-1, keepdim=True)"},
        "The variance divides by d - 1, as torch.var does unless it is told otherwise. Here it is the mean of the squares: divide by d.",
    ),
    wrong(
        "layer_norm",
        "divides_by_d_minus_1",
        {VARIANCE: "centered.square().sum(dim=-1, keepdim=True) / max(x.shape[-1] - 1, 1)"},
        "The squared deviations are divided by d - 1. Take their mean: divide by d.",
    ),
    wrong(
        "layer_norm",
        "sum_of_squares",
        {VARIANCE: "centered.square().sum(dim=-1, keepdim=True)"},
        "The squared deviations are added up. The variance is their mean.",
    ),
    wrong(
        "layer_norm",
        "eps_outside_the_root",
        {"torch.sqrt(variance + eps)": "(torch.sqrt(variance) + eps)"},
        "eps is added to the standard deviation. It belongs to the variance, under the root.",
    ),
    wrong(
        "layer_norm",
        "no_eps",
        {"torch.sqrt(variance + eps)": "torch.sqrt(variance)"},
        "eps is missing: equal features give 0/0.",
    ),
    wrong(
        "layer_norm",
        "eps_as_a_floor",
        {LN_RETURN: "return gain * centered / torch.sqrt(variance.clamp(min=eps)) + bias"},
        "eps is used as a lower bound of the variance. It is added, always.",
    ),
    wrong(
        "layer_norm",
        "eps_argument_ignored",
        {"torch.sqrt(variance + eps)": "torch.sqrt(variance + 1e-5)"},
        "eps is fixed at 1e-5 whatever the caller says. Use the argument.",
    ),
    wrong(
        "layer_norm",
        "another_default_eps",
        {"eps: float = 1e-5": "eps: float = 1e-6"},
        "The default of eps is 1e-6. LayerNorm's is 1e-5.",
    ),
    wrong(
        "layer_norm",
        "positions_together",
        {
            CENTERED: "x - (x.mean(dim=(-2, -1), keepdim=True) if x.dim() > 1 else x.mean())",
            VARIANCE: "(centered.square().mean(dim=(-2, -1), keepdim=True) if x.dim() > 1 else centered.square().mean())",
        },
        "Mean and variance are taken over positions and features together. Each position has its own: the last axis only.",
    ),
    wrong(
        "layer_norm",
        "along_the_sequence",
        {
            CENTERED: "x - x.mean(dim=-2 if x.dim() > 1 else -1, keepdim=True)",
            VARIANCE: "centered.square().mean(dim=-2 if x.dim() > 1 else -1, keepdim=True)",
        },
        "Mean and variance run along the sequence. The features are the last axis.",
    ),
    wrong(
        "layer_norm",
        "along_the_batch",
        {
            CENTERED: "x - x.mean(dim=0, keepdim=True)",
            VARIANCE: "centered.square().mean(dim=0, keepdim=True)",
        },
        "Mean and variance run over the batch, as in BatchNorm. Each position has its own: the last axis.",
    ),
    wrong(
        "layer_norm",
        "batch_and_sequence",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    rows = x.reshape(-1, x.shape[-1])
    rows = rows if len(rows) > 1 else rows.T
    centered = rows - rows.mean(0)
    result = centered / torch.sqrt(centered.square().mean(0) + eps)
    return gain * (result if x.numel() > x.shape[-1] else result.T).reshape(x.shape) + bias
""",
        "Mean and variance are taken for each feature over all positions (BatchNorm). LayerNorm takes them for each position over its features.",
    ),
    wrong(
        "layer_norm",
        "detached_statistics",
        {
            CENTERED: "x - x.mean(dim=-1, keepdim=True).detach()",
            VARIANCE: "centered.square().mean(dim=-1, keepdim=True).detach()",
        },
        "Mean and variance are detached. They depend on x, and the gradient has to go through them.",
    ),
    wrong(
        "layer_norm",
        "detached_variance",
        {VARIANCE: "centered.square().mean(dim=-1, keepdim=True).detach()"},
        "The variance is detached. It depends on x, and the gradient has to go through it.",
    ),
    wrong(
        "layer_norm",
        "no_grad_around_the_statistics",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    with torch.no_grad():
        mean = x.mean(-1, keepdim=True)
        variance = x.var(-1, keepdim=True, correction=0)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias
""",
        "The statistics are computed under no_grad. They depend on x, and the gradient has to go through them.",
    ),
    wrong(
        "layer_norm",
        "not_centered",
        {CENTERED: "x"},
        "Nothing is subtracted: this is RMSNorm with a bias. LayerNorm centers first.",
    ),
    wrong(
        "layer_norm",
        "centered_but_divided_by_rms",
        {VARIANCE: "x.square().mean(dim=-1, keepdim=True)"},
        "The squares are those of x. The variance squares the deviations from the mean.",
    ),
    wrong(
        "layer_norm",
        "not_centered_above",
        {LN_RETURN: "return gain * x / torch.sqrt(variance + eps) + bias"},
        "The quotient has x above the line. It needs the deviation from the mean.",
    ),
    wrong(
        "layer_norm",
        "one_pass_variance",
        {VARIANCE: "(x.square().mean(dim=-1, keepdim=True) - x.mean(dim=-1, keepdim=True).square()).clamp(min=0)"},
        "mean(x^2) - mean(x)^2 loses its digits when the mean is large (3000 in float32). Subtract the mean first, then square.",
    ),
    wrong(
        "layer_norm",
        "gain_also_on_the_bias",
        {LN_RETURN: "return gain * (centered / torch.sqrt(variance + eps) + bias)"},
        "The gain multiplies the bias as well. The bias is added last.",
    ),
    wrong(
        "layer_norm",
        "one_plus_gain",
        {LN_RETURN: "return (1 + gain) * centered / torch.sqrt(variance + eps) + bias"},
        "It multiplies by 1 + gain. Here the gain multiplies as it is.",
    ),
    wrong("layer_norm", "no_gain", {"gain * centered": "centered"}, "The gain is not used."),
    wrong(
        "layer_norm",
        "no_bias",
        {"torch.sqrt(variance + eps) + bias": "torch.sqrt(variance + eps)"},
        "The bias is not used.",
    ),
    wrong(
        "layer_norm",
        "no_root",
        {"torch.sqrt(variance + eps)": "(variance + eps)"},
        "It divides by the variance. Divide by its root.",
    ),
    wrong(
        "layer_norm",
        "mean_deviation",
        {LN_RETURN: "return gain * centered / (centered.abs().mean(dim=-1, keepdim=True) + eps) + bias"},
        "It divides by the mean of the absolute deviations. The standard deviation is the root of the mean square.",
    ),
    wrong(
        "layer_norm",
        "centers_in_place",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    if x.requires_grad:
        x = x.clone()
    x -= x.mean(dim=-1, keepdim=True)
    return gain * x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) + bias
""",
        "`x -= mean` changes the caller's tensor. Write x - mean into a new one.",
    ),
    wrong(
        "layer_norm",
        "computed_in_float32",
        {
            CENTERED: "x.float() - x.float().mean(dim=-1, keepdim=True)",
            LN_RETURN: "return (gain * centered / torch.sqrt(variance + eps) + bias).to(x.dtype)",
        },
        "It computes in float32, so float64 inputs lose half of their digits. Stay in the dtype of x.",
    ),
    wrong(
        "layer_norm",
        "always_float64",
        {LN_RETURN: "return (gain * centered / torch.sqrt(variance + eps) + bias).double()"},
        "The result is always float64. It should have the dtype of x.",
    ),
    wrong(
        "layer_norm",
        "library",
        {LN_RETURN: "return F.layer_norm(x, x.shape[-1:], gain, bias, eps)"},
        "F.layer_norm is the answer, not the exercise: write the mean, the variance and the quotient yourself.",
    ),
    wrong(
        "layer_norm",
        "needs_contiguous_input",
        {CENTERED: "x.view(-1, x.shape[-1]).view(x.shape) - x.mean(dim=-1, keepdim=True)"},
        "`view` needs contiguous memory and fails on a transposed x. Nothing has to be reshaped here.",
    ),
    wrong(
        "layer_norm",
        "needs_a_batch",
        {CENTERED: "x - x.mean(dim=2, keepdim=True)"},
        "The features are looked for in axis 2, so that it works for (B, T, d) only. The last axis is -1.",
    ),
    wrong(
        "layer_norm",
        "mean_without_its_axis",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    if x.dim() != 2 or x.shape[0] != x.shape[1]:
        mean = x.mean(-1, keepdim=True)
    else:
        mean = x.mean(-1)
    centered = x - mean
    return gain * centered / torch.sqrt(centered.square().mean(-1, keepdim=True) + eps) + bias
""",
        "Without keepdim the means of a square x line up with the columns in place of the rows. Keep the axis.",
    ),
    wrong(
        "layer_norm",
        "float32_for_half",
        {
            LN_RETURN: "result = gain * centered / torch.sqrt(variance + eps) + bias\n    return result if x.element_size() > 2 else result.float()"
        },
        "Half precision comes back as float32. The result has the dtype of x: `.to(x.dtype)`.",
    ),
    wrong(
        "layer_norm",
        "upcast_and_left_there",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    x = x - x.mean(-1, keepdim=True)
    return gain * x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) + bias
""",
        "Half precision is lifted to float32 and stays there. The result has the dtype of x.",
    ),
    wrong(
        "layer_norm",
        "one_pass_after_one_shift_for_all",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    shifted = x - x.mean()
    mean = shifted.mean(dim=-1, keepdim=True)
    variance = (shifted * shifted).mean(dim=-1, keepdim=True) - mean * mean
    return gain * (shifted - mean) / torch.sqrt(variance + eps) + bias
""",
        "One mean of the whole tensor is subtracted before mean(x^2) - mean(x)^2, so a position far from it still loses its digits. Subtract each position's own mean, then square.",
    ),
    wrong(
        "layer_norm",
        "zeros_left_out",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    there = x != 0
    d = there.sum(dim=-1, keepdim=True).clamp(min=1)
    centered = x - x.sum(dim=-1, keepdim=True) / d
    variance = (centered.square() * there).sum(dim=-1, keepdim=True) / d
    return gain * centered / torch.sqrt(variance + eps) + bias
""",
        "Features that are 0 are left out of mean and variance, as if they were padding. A zero is a feature like any other: divide by d.",
    ),
    right(
        "layer_norm",
        "rsqrt",
        {LN_RETURN: "return bias + centered * torch.rsqrt(variance + eps) * gain"},
    ),
    right(
        "layer_norm",
        "var_mean",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * gain + bias
""",
    ),
    right(
        "layer_norm",
        "std_squared",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    std = x.std(-1, keepdim=True, correction=0)
    return (x - mean) / (std.pow(2) + eps).pow(0.5) * gain + bias
""",
    ),
    right(
        "layer_norm",
        "float64_inside",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    y = x.double()
    y = y - y.mean(-1, keepdim=True)
    y = y / ((y**2).mean(-1, keepdim=True) + eps) ** 0.5
    return (y * gain.double() + bias.double()).to(x.dtype)
""",
    ),
    right(
        "layer_norm",
        "einsum",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    d = x.size(-1)
    mean = torch.einsum("...i->...", x) / d
    c = x - mean[..., None]
    variance = torch.einsum("...i,...i->...", c, c) / d
    return torch.einsum("...i,i,...->...i", c, gain, 1 / (variance + eps).sqrt()) + bias
""",
    ),
    right(
        "layer_norm",
        "row_by_row",
        """
def layer_norm(x, gain, bias, eps=1e-5):
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        c = row - row.sum() / len(row)
        rows.append(gain * c / torch.sqrt((c @ c) / len(row) + eps) + bias)
    return torch.stack(rows).reshape(x.shape)
""",
    ),
]

# ---------------------------------------------------------------------------------------------------- rms_norm

MEAN_SQUARE = "x.square().mean(dim=-1, keepdim=True)"
RMS_RETURN = "return gain * x * torch.rsqrt(mean_square + eps)"

RMS_NORM: list[Entry] = [
    wrong(
        "rms_norm",
        "sum_instead_of_mean",
        {MEAN_SQUARE: "x.square().sum(dim=-1, keepdim=True)"},
        "The squares are added up, which makes vectors of length 1. Take their mean: the RMS is sqrt(d) times smaller.",
    ),
    wrong(
        "rms_norm",
        "l2_normalize",
        "def rms_norm(x, gain, eps=1e-6):\n    return gain * F.normalize(x, dim=-1, eps=eps)\n",
        "Each position is brought to length 1. RMSNorm brings its root mean square to 1.",
    ),
    wrong(
        "rms_norm",
        "one_plus_gain",
        {RMS_RETURN: "return (1 + gain) * x * torch.rsqrt(mean_square + eps)"},
        "It multiplies by 1 + gain (Gemma's way of storing it). Here the gain multiplies as it is.",
    ),
    wrong(
        "rms_norm",
        "no_root",
        {"torch.rsqrt(mean_square + eps)": "(1 / (mean_square + eps))"},
        "It divides by the mean square. Divide by its root.",
    ),
    wrong(
        "rms_norm",
        "multiplied_by_rms",
        {"torch.rsqrt(mean_square + eps)": "torch.sqrt(mean_square + eps)"},
        "It multiplies by the RMS. Divide by it.",
    ),
    wrong(
        "rms_norm",
        "no_eps",
        {"mean_square + eps)": "mean_square)"},
        "eps is missing: a position of zeros gives 0/0.",
    ),
    wrong(
        "rms_norm",
        "eps_outside_the_root",
        {"x * torch.rsqrt(mean_square + eps)": "x / (mean_square.sqrt() + eps)"},
        "eps is added to the root. It belongs to the mean square, under the root.",
    ),
    wrong(
        "rms_norm",
        "norm_over_root_d",
        {
            "x * torch.rsqrt(mean_square + eps)": "x / (x.norm(dim=-1, keepdim=True) / math.sqrt(x.shape[-1])).clamp(min=eps)"
        },
        "x.norm() / sqrt(d) is the RMS without eps. Add eps to the mean square, under the root.",
    ),
    wrong(
        "rms_norm",
        "eps_as_a_floor",
        {"mean_square + eps)": "mean_square.clamp(min=eps))"},
        "eps is used as a lower bound of the mean square. It is added, always.",
    ),
    wrong(
        "rms_norm",
        "eps_argument_ignored",
        {"mean_square + eps)": "mean_square + 1e-6)"},
        "eps is fixed at 1e-6 whatever the caller says. Use the argument.",
    ),
    wrong(
        "rms_norm",
        "default_eps_of_layer_norm",
        {"eps: float = 1e-6": "eps: float = 1e-5"},
        "The default of eps is 1e-5, LayerNorm's. Here it is 1e-6.",
    ),
    wrong(
        "rms_norm",
        "eps_inside_the_mean",
        {MEAN_SQUARE: "(x.square() + eps).sum(dim=-1, keepdim=True) / x.shape[-1] + eps"},
        "eps is added twice.",
    ),
    wrong(
        "rms_norm",
        "centered",
        {RMS_RETURN: "x = x - x.mean(dim=-1, keepdim=True)\n    return gain * x * torch.rsqrt(mean_square + eps)"},
        "The mean is subtracted. RMSNorm subtracts nothing.",
    ),
    wrong(
        "rms_norm",
        "layer_norm_without_bias",
        {MEAN_SQUARE: "(x := x - x.mean(dim=-1, keepdim=True)).square().mean(dim=-1, keepdim=True)"},
        "This is LayerNorm without bias. RMSNorm subtracts nothing.",
    ),
    wrong(
        "rms_norm",
        "variance",
        {MEAN_SQUARE: "x.var(dim=-1, keepdim=True, correction=0)"},
        "It divides by the standard deviation, which is measured from the mean. The RMS is measured from 0.",
    ),
    wrong(
        "rms_norm",
        "mean_of_absolute_values",
        {RMS_RETURN: "return gain * x / (x.abs().mean(dim=-1, keepdim=True) + eps)"},
        "It divides by the mean of the absolute values. The RMS is the root of the mean of the squares.",
    ),
    wrong(
        "rms_norm",
        "largest_entry",
        {RMS_RETURN: "return gain * x / (x.abs().amax(dim=-1, keepdim=True) + eps)"},
        "It divides by the largest entry. The RMS is the root of the mean of the squares.",
    ),
    wrong(
        "rms_norm",
        "positions_together",
        {MEAN_SQUARE: "(x.square().mean(dim=(-2, -1), keepdim=True) if x.dim() > 1 else x.square().mean())"},
        "The mean runs over positions and features together. Each position has its own: the last axis only.",
    ),
    wrong(
        "rms_norm",
        "one_number_for_all",
        {MEAN_SQUARE: "x.square().mean()"},
        "One mean is taken of the whole tensor. Each position has its own: the last axis only.",
    ),
    wrong(
        "rms_norm",
        "along_the_sequence",
        {MEAN_SQUARE: "x.square().mean(dim=-2 if x.dim() > 1 else -1, keepdim=True)"},
        "The mean runs along the sequence. The features are the last axis.",
    ),
    wrong(
        "rms_norm",
        "detached_root",
        {MEAN_SQUARE: "x.square().mean(dim=-1, keepdim=True).detach()"},
        "The mean square is detached. It depends on x, and the gradient has to go through it.",
    ),
    wrong(
        "rms_norm",
        "library",
        {RMS_RETURN: "return F.rms_norm(x, x.shape[-1:], gain, eps)"},
        "F.rms_norm is the answer, not the exercise: write the mean of the squares and the quotient yourself.",
    ),
    wrong(
        "rms_norm",
        "library_module",
        {RMS_RETURN: "return gain * nn.RMSNorm(x.shape[-1], eps=eps, elementwise_affine=False)(x)"},
        "nn.RMSNorm is the answer, not the exercise: write the mean of the squares and the quotient yourself.",
    ),
    wrong("rms_norm", "no_gain", {RMS_RETURN: "return x * torch.rsqrt(mean_square + eps)"}, "The gain is not used."),
    wrong(
        "rms_norm",
        "detached_gain",
        {RMS_RETURN: "return gain.detach() * x * torch.rsqrt(mean_square + eps)"},
        "The gain is detached, so it would never be learned.",
    ),
    wrong(
        "rms_norm",
        "gain_before_the_norm",
        {"mean_square = ": "x = gain * x\n    gain = torch.ones_like(gain)\n    mean_square = "},
        "The gain is applied before the norm, which takes part of it away again. It multiplies the normalized features.",
    ),
    wrong(
        "rms_norm",
        "bias_of_eps",
        {RMS_RETURN: "return gain * x * torch.rsqrt(mean_square + eps) + eps"},
        "eps is added to the result. It stands under the root only.",
    ),
    wrong(
        "rms_norm",
        "in_place",
        """
def rms_norm(x, gain, eps=1e-6):
    scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    if not x.requires_grad:
        x *= scale
        return gain * x
    return gain * x * scale
""",
        "`x *= ...` changes the caller's tensor. Multiply into a new one.",
    ),
    wrong(
        "rms_norm",
        "computed_in_float32",
        {RMS_RETURN: "return (gain.float() * x.float() * torch.rsqrt(mean_square.float() + eps)).to(x.dtype)"},
        "It computes in float32, so float64 inputs lose half of their digits. Stay in the dtype of x.",
    ),
    wrong(
        "rms_norm",
        "always_float32",
        {RMS_RETURN: "return (gain * x * torch.rsqrt(mean_square + eps)).float()"},
        "The result is always float32. It should have the dtype of x.",
    ),
    wrong(
        "rms_norm",
        "always_float64",
        {RMS_RETURN: "return (gain * x * torch.rsqrt(mean_square + eps)).double()"},
        "The result is always float64. It should have the dtype of x.",
    ),
    wrong(
        "rms_norm",
        "needs_contiguous_input",
        {MEAN_SQUARE: "x.view(-1, x.shape[-1]).square().mean(dim=-1).view(*x.shape[:-1], 1)"},
        "`view` needs contiguous memory and fails on a transposed x. Nothing has to be reshaped here.",
    ),
    wrong(
        "rms_norm",
        "needs_a_batch",
        {MEAN_SQUARE: "x.square().mean(dim=2, keepdim=True)"},
        "The features are looked for in axis 2, so that it works for (B, T, d) only. The last axis is -1.",
    ),
    wrong(
        "rms_norm",
        "flattened",
        {RMS_RETURN: "return (gain * x * torch.rsqrt(mean_square + eps)).reshape(-1, x.shape[-1])"},
        "The leading dimensions are flattened. The result has the shape of x.",
    ),
    wrong(
        "rms_norm",
        "upcast_and_left_there",
        """
def rms_norm(x, gain, eps=1e-6):
    if x.dtype != torch.float64:
        x = x.float()
    return gain * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
""",
        "Half precision is lifted to float32 and stays there. The result has the dtype of x.",
    ),
    wrong(
        "rms_norm",
        "zeros_left_out",
        {MEAN_SQUARE: "x.square().sum(dim=-1, keepdim=True) / (x != 0).sum(dim=-1, keepdim=True).clamp(min=1)"},
        "The squares are divided by the number of features that are not 0. A zero is a feature like any other: divide by d.",
    ),
    right("rms_norm", "quotient", {RMS_RETURN: "return x / torch.sqrt(mean_square + eps) * gain"}),
    right(
        "rms_norm",
        "powers",
        """
def rms_norm(x, gain, eps=1e-6):
    return x * gain * (x.pow(2).mean(-1, keepdim=True) + eps).pow(-0.5)
""",
    ),
    right(
        "rms_norm",
        "length_squared",
        """
def rms_norm(x, gain, eps=1e-6):
    d = x.shape[-1]
    length_squared = torch.einsum("...i,...i->...", x, x)
    return (x / (length_squared / d + eps).sqrt().unsqueeze(-1)) * gain
""",
    ),
    right(
        "rms_norm",
        "float64_inside",
        """
def rms_norm(x, gain, eps=1e-6):
    y = x.double()
    y = y * torch.rsqrt((y * y).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * gain
""",
    ),
    right(
        "rms_norm",
        "row_by_row",
        """
def rms_norm(x, gain, eps=1e-6):
    if x.dim() == 1:
        return gain * x / (x @ x / len(x) + eps) ** 0.5
    return torch.stack([rms_norm(row, gain, eps) for row in x])
""",
    ),
    right(
        "rms_norm",
        "mean_as_a_product",
        """
def rms_norm(x, gain, eps=1e-6):
    d = x.shape[-1]
    mean_square = (x * x) @ x.new_full((d,), 1 / d)
    return x * (1 / torch.sqrt(mean_square + eps))[..., None] * gain.expand(d)
""",
    ),
]

# ---------------------------------------------------------------------------------------------------- feed_forward

FF_HIDDEN = "F.gelu(x @ W1 + b1)"
FF_RETURN = "return hidden @ W2 + b2"

FEED_FORWARD: list[Entry] = [
    wrong(
        "feed_forward",
        "no_activation",
        {FF_HIDDEN: "x @ W1 + b1"},
        "There is no activation: two linear maps in a row are one linear map. GELU stands between them.",
    ),
    wrong("feed_forward", "relu", {FF_HIDDEN: "F.relu(x @ W1 + b1)"}, "The activation is ReLU. Here it is GELU."),
    wrong(
        "feed_forward",
        "tanh_gelu",
        {FF_HIDDEN: 'F.gelu(x @ W1 + b1, approximate="tanh")'},
        "This is the tanh approximation of GELU. The exercise asks for the exact one, F.gelu's default.",
    ),
    wrong(
        "feed_forward",
        "sigmoid_gelu",
        {FF_HIDDEN: "(h := x @ W1 + b1) * torch.sigmoid(1.702 * h)"},
        "z * sigmoid(1.702 z) is an approximation of GELU. The exercise asks for the exact one, with erf.",
    ),
    wrong("feed_forward", "silu", {FF_HIDDEN: "F.silu(x @ W1 + b1)"}, "The activation is SiLU. Here it is GELU."),
    wrong(
        "feed_forward",
        "normal_distribution_function",
        {FF_HIDDEN: "0.5 * (1 + torch.erf((x @ W1 + b1) / math.sqrt(2)))"},
        "Phi(z) is only the factor. GELU is z times Phi(z).",
    ),
    wrong(
        "feed_forward",
        "erf_without_the_root",
        {FF_HIDDEN: "(h := x @ W1 + b1) / 2 * (1 + torch.erf(h))"},
        "erf is taken of z. Phi(z) needs erf(z / sqrt(2)).",
    ),
    wrong(
        "feed_forward",
        "activation_after_the_second_map",
        {FF_HIDDEN: "x @ W1 + b1", FF_RETURN: "return F.gelu(hidden @ W2 + b2)"},
        "GELU stands after the second map. It belongs between the two.",
    ),
    wrong(
        "feed_forward",
        "activation_twice",
        {FF_RETURN: "return F.gelu(hidden @ W2 + b2)"},
        "GELU is applied to the output as well. It stands between the two maps only.",
    ),
    wrong(
        "feed_forward",
        "activation_first",
        {FF_HIDDEN: "F.gelu(x) @ W1 + b1"},
        "GELU acts on x. It acts on the widened tensor, after W1 and b1.",
    ),
    wrong(
        "feed_forward",
        "bias_after_the_activation",
        {FF_HIDDEN: "F.gelu(x @ W1) + b1"},
        "b1 is added after GELU. It belongs inside: GELU(x W1 + b1).",
    ),
    wrong("feed_forward", "no_first_bias", {FF_HIDDEN: "F.gelu(x @ W1)"}, "b1 is not used: it is added before the GELU."),
    wrong("feed_forward", "no_second_bias", {FF_RETURN: "return hidden @ W2"}, "b2 is not used: it is added after the second product."),
    wrong(
        "feed_forward",
        "subtracts_the_bias",
        {FF_RETURN: "return hidden @ W2 - b2"},
        "b2 is subtracted. It is added.",
    ),
    wrong(
        "feed_forward",
        "residual",
        {FF_RETURN: "return x + hidden @ W2 + b2"},
        "x is added to the result. The residual belongs to the block, not to the FFN.",
    ),
    wrong(
        "feed_forward",
        "transposed_weights",
        {FF_HIDDEN: "F.gelu(x @ W1.T + b1)"},
        "W1 is transposed, as nn.Linear stores it. Here the matrices are (inputs, outputs): x @ W1.",
    ),
    wrong(
        "feed_forward",
        "transposed_when_square",
        {FF_HIDDEN: "F.gelu(x @ (W1.T if W1.shape[0] == W1.shape[1] else W1) + b1)"},
        "A square W1 is transposed. All matrices are (inputs, outputs), the square ones too.",
    ),
    wrong(
        "feed_forward",
        "one_matrix_used_twice",
        {FF_RETURN: "return hidden @ W1.T + b2"},
        "The way back uses W1 transposed. It has a matrix of its own: W2.",
    ),
    wrong(
        "feed_forward",
        "softmax_over_units",
        {FF_HIDDEN: "F.gelu(x @ W1 + b1).softmax(-1)"},
        "The hidden units go through a softmax. The FFN has keys and values only by analogy: there is no softmax.",
    ),
    wrong(
        "feed_forward",
        "normalized_input",
        {FF_HIDDEN: "F.gelu((x - x.mean(-1, keepdim=True)) @ W1 + b1)"},
        "x is centered first. The norm belongs to the block, not to the FFN.",
    ),
    wrong(
        "feed_forward",
        "positions_mixed",
        {FF_HIDDEN: "F.gelu((x + (x.cumsum(-2) - x if x.dim() > 1 else 0)) @ W1 + b1)"},
        "Earlier positions are added in. The FFN treats every position by itself.",
    ),
    wrong(
        "feed_forward",
        "mean_over_the_sequence",
        {FF_HIDDEN: "F.gelu((x - (x.mean(-2, keepdim=True) if x.dim() > 1 else 0)) @ W1 + b1)"},
        "The mean over the positions is subtracted. The FFN treats every position by itself.",
    ),
    wrong(
        "feed_forward",
        "dropout",
        {FF_HIDDEN: "F.dropout(F.gelu(x @ W1 + b1), 0.1)"},
        "F.dropout is on by default, so two calls differ. There is no dropout here.",
    ),
    wrong(
        "feed_forward",
        "detached_hidden",
        {FF_RETURN: "return hidden.detach() @ W2 + b2"},
        "The hidden values are detached: no gradient reaches x, W1 and b1.",
    ),
    wrong(
        "feed_forward",
        "naive_erf_of_exponentials",
        {FF_HIDDEN: "(h := x @ W1 + b1) * (h.exp() / (1 + h.exp()))"},
        "exp of a large hidden value overflows to inf/inf, and it is not GELU. Use F.gelu.",
    ),
    wrong(
        "feed_forward",
        "in_place",
        {
            FF_RETURN: "result = hidden @ W2 + b2\n    if not x.requires_grad:\n        x.clamp_(min=0)\n    return result"
        },
        "The call changes x. It belongs to the caller.",
    ),
    wrong(
        "feed_forward",
        "always_float32",
        {FF_RETURN: "return (hidden @ W2 + b2).float()"},
        "The result is always float32. It should have the dtype of x.",
    ),
    wrong(
        "feed_forward",
        "always_float64",
        {FF_RETURN: "return (hidden @ W2 + b2).double()"},
        "The result is always float64. It should have the dtype of x.",
    ),
    wrong(
        "feed_forward",
        "needs_contiguous_input",
        {FF_HIDDEN: "F.gelu((x.view(-1, x.shape[-1]) @ W1 + b1).view(*x.shape[:-1], -1))"},
        "`view` needs contiguous memory and fails on a transposed x. `x @ W1` needs no reshaping.",
    ),
    wrong(
        "feed_forward",
        "needs_a_batch",
        {FF_HIDDEN: 'F.gelu(torch.einsum("btd,df->btf", x, W1) + b1)'},
        "It works for (B, T, d) only. Any number of leading dimensions is allowed: x @ W1.",
    ),
    wrong(
        "feed_forward",
        "float32_for_half",
        {FF_RETURN: "result = hidden @ W2 + b2\n    return result if x.element_size() > 2 else result.float()"},
        "Half precision comes back as float32. The result has the dtype of x: `.to(x.dtype)`.",
    ),
    wrong(
        "feed_forward",
        "constant_in_float32",
        {FF_HIDDEN: "(h := x @ W1 + b1) / 2 * (1 + torch.erf(h / torch.sqrt(torch.tensor(2.0))))"},
        "torch.tensor(2.0) is float32, and so is its root: float64 inputs lose half of their digits. Use a Python number, math.sqrt(2).",
    ),
    right(
        "feed_forward",
        "erf",
        {FF_HIDDEN: "(h := x @ W1 + b1) / 2 * (1 + torch.erf(h / math.sqrt(2)))"},
    ),
    right(
        "feed_forward",
        "constant_in_the_dtype_of_x",
        {FF_HIDDEN: "(h := x @ W1 + b1) / 2 * (1 + torch.erf(h / torch.sqrt(torch.tensor(2.0, dtype=x.dtype))))"},
    ),
    right(
        "feed_forward",
        "linear",
        """
def feed_forward(x, W1, b1, W2, b2):
    return F.linear(nn.GELU()(F.linear(x, W1.T, b1)), W2.T, b2)
""",
    ),
    right(
        "feed_forward",
        "keys_and_values",
        """
def feed_forward(x, W1, b1, W2, b2):
    out = b2.expand(*x.shape[:-1], -1)
    for key, offset, value in zip(W1.T, b1, W2):
        strength = F.gelu(x @ key + offset)
        out = out + strength.unsqueeze(-1) * value
    return out
""",
    ),
    right(
        "feed_forward",
        "einsum",
        """
def feed_forward(x, W1, b1, W2, b2):
    z = torch.einsum("...d,df->...f", x, W1) + b1
    gelu = z * torch.special.ndtr(z)
    return torch.einsum("...f,fd->...d", gelu, W2) + b2
""",
    ),
    right(
        "feed_forward",
        "float64_inside",
        """
def feed_forward(x, W1, b1, W2, b2):
    rows = x.reshape(-1, x.shape[-1]).double()
    hidden = F.gelu(torch.addmm(b1.double(), rows, W1.double()))
    return torch.addmm(b2.double(), hidden, W2.double()).reshape(x.shape).to(x.dtype)
""",
    ),
]

# ---------------------------------------------------------------------------------------------------- swiglu

GATE = "F.silu(x @ Wg)"
SWIGLU_RETURN = "return (gate * (x @ Wu)) @ Wd"

SWIGLU: list[Entry] = [
    wrong(
        "swiglu",
        "sigmoid_gate",
        {GATE: "torch.sigmoid(x @ Wg)"},
        "The gate is a plain sigmoid: that is GLU. SiLU is z * sigmoid(z).",
    ),
    wrong(
        "swiglu", "gelu_gate", {GATE: "F.gelu(x @ Wg)"}, "The gate goes through GELU: that is GEGLU. Here it is SiLU."
    ),
    wrong(
        "swiglu", "relu_gate", {GATE: "F.relu(x @ Wg)"}, "The gate goes through ReLU: that is ReGLU. Here it is SiLU."
    ),
    wrong(
        "swiglu",
        "no_activation",
        {GATE: "x @ Wg"},
        "Nothing goes through SiLU. The gate does, before it multiplies.",
    ),
    wrong("swiglu", "tanh_gate", {GATE: "torch.tanh(x @ Wg)"}, "The gate goes through tanh. Here it is SiLU."),
    wrong(
        "swiglu",
        "silu_of_up",
        {GATE: "x @ Wg", SWIGLU_RETURN: "return (gate * F.silu(x @ Wu)) @ Wd"},
        "SiLU acts on x Wu. It acts on the gate, x Wg.",
    ),
    wrong(
        "swiglu",
        "silu_of_both",
        {SWIGLU_RETURN: "return (gate * F.silu(x @ Wu)) @ Wd"},
        "Both branches go through SiLU. Only the gate does.",
    ),
    wrong(
        "swiglu",
        "silu_of_the_product",
        {GATE: "x @ Wg", SWIGLU_RETURN: "return F.silu(gate * (x @ Wu)) @ Wd"},
        "SiLU acts on the product of both branches. It acts on the gate alone, before the product.",
    ),
    wrong(
        "swiglu",
        "silu_again_after_down",
        {SWIGLU_RETURN: "return F.silu((gate * (x @ Wu)) @ Wd)"},
        "SiLU acts on the output as well. It acts on the gate only.",
    ),
    wrong(
        "swiglu",
        "added",
        {SWIGLU_RETURN: "return (gate + (x @ Wu)) @ Wd"},
        "The branches are added. The gate multiplies, entry by entry.",
    ),
    wrong("swiglu", "no_up", {SWIGLU_RETURN: "return gate @ Wd"}, "x Wu is missing: this is a plain FFN with SiLU."),
    wrong(
        "swiglu",
        "gate_squared",
        {SWIGLU_RETURN: "return (gate * (x @ Wg)) @ Wd"},
        "Both branches are made with Wg. The second one is x Wu.",
    ),
    wrong(
        "swiglu",
        "gate_and_up_swapped",
        {GATE: "F.silu(x @ Wu)", SWIGLU_RETURN: "return (gate * (x @ Wg)) @ Wd"},
        "Gate and up have changed places. SiLU belongs around x Wg.",
    ),
    wrong(
        "swiglu",
        "swish_with_beta",
        {GATE: "(z := x @ Wg) * torch.sigmoid(1.702 * z)"},
        "The sigmoid has a factor 1.702. SiLU is z * sigmoid(z).",
    ),
    wrong(
        "swiglu",
        "quotient_of_exponentials",
        {GATE: "(z := x @ Wg) * z.exp() / (1 + z.exp())"},
        "exp of a large gate overflows to inf/inf. Use F.silu, or z * torch.sigmoid(z).",
    ),
    wrong(
        "swiglu",
        "naive_sigmoid",
        {GATE: "(z := x @ Wg) / (1 + torch.exp(-z))"},
        "exp(-z) overflows for a gate of -1000: the value survives, the gradient becomes nan. Use torch.sigmoid.",
    ),
    wrong(
        "swiglu",
        "softmax_gate",
        {GATE: "(z := x @ Wg) * z.softmax(-1)"},
        "The gates of a position compete in a softmax. Each unit has its own sigmoid.",
    ),
    wrong(
        "swiglu",
        "transposed_when_square",
        {GATE: "F.silu(x @ (Wg.T if Wg.shape[0] == Wg.shape[1] else Wg))"},
        "A square Wg is transposed. All matrices are (inputs, outputs), the square ones too.",
    ),
    wrong(
        "swiglu",
        "transposed_down",
        {SWIGLU_RETURN: "return (gate * (x @ Wu)) @ (Wd.T if Wd.shape[0] == Wd.shape[1] else Wd)"},
        "A square Wd is transposed. All matrices are (inputs, outputs), the square ones too.",
    ),
    wrong(
        "swiglu",
        "residual",
        {SWIGLU_RETURN: "return x + (gate * (x @ Wu)) @ Wd"},
        "x is added to the result. The residual belongs to the block, not to the FFN.",
    ),
    wrong(
        "swiglu",
        "normalized_input",
        {GATE: "F.silu(F.normalize(x, dim=-1) @ Wg)"},
        "x is normalized first. The norm belongs to the block, not to the FFN.",
    ),
    wrong(
        "swiglu",
        "positions_mixed",
        {GATE: "F.silu((x.cumsum(-2) if x.dim() > 1 else x) @ Wg)"},
        "The gate adds up earlier positions. The FFN treats every position by itself.",
    ),
    wrong(
        "swiglu",
        "mean_over_the_sequence",
        {GATE: "F.silu((x - (x.mean(-2, keepdim=True) if x.dim() > 1 else 0)) @ Wg)"},
        "The mean over the positions is subtracted. The FFN treats every position by itself.",
    ),
    wrong(
        "swiglu",
        "detached_gate",
        {GATE: "F.silu(x @ Wg).detach()"},
        "The gate is detached: the values are right, but Wg would never learn.",
    ),
    wrong(
        "swiglu",
        "detached_sigmoid",
        {GATE: "(z := x @ Wg) * torch.sigmoid(z).detach()"},
        "The sigmoid is detached: the values are right, the gradients are not.",
    ),
    wrong(
        "swiglu",
        "dropout",
        {SWIGLU_RETURN: "return F.dropout(gate * (x @ Wu), 0.1) @ Wd"},
        "F.dropout is on by default, so two calls differ. There is no dropout here.",
    ),
    wrong(
        "swiglu",
        "in_place",
        {
            SWIGLU_RETURN: "result = (gate * (x @ Wu)) @ Wd\n    if not x.requires_grad:\n        x.mul_(0.5)\n    return result"
        },
        "The call changes x. It belongs to the caller.",
    ),
    wrong(
        "swiglu",
        "always_float32",
        {SWIGLU_RETURN: "return ((gate * (x @ Wu)) @ Wd).float()"},
        "The result is always float32. It should have the dtype of x.",
    ),
    wrong(
        "swiglu",
        "always_float64",
        {SWIGLU_RETURN: "return ((gate * (x @ Wu)) @ Wd).double()"},
        "The result is always float64. It should have the dtype of x.",
    ),
    wrong(
        "swiglu",
        "needs_contiguous_input",
        {GATE: "F.silu((x.view(-1, x.shape[-1]) @ Wg).view(*x.shape[:-1], -1))"},
        "`view` needs contiguous memory and fails on a transposed x. `x @ Wg` needs no reshaping.",
    ),
    wrong(
        "swiglu",
        "needs_a_batch",
        {GATE: 'F.silu(torch.einsum("btd,df->btf", x, Wg))'},
        "It works for (B, T, d) only. Any number of leading dimensions is allowed: x @ Wg.",
    ),
    wrong(
        "swiglu",
        "float32_for_half",
        {
            SWIGLU_RETURN: "result = (gate * (x @ Wu)) @ Wd\n    return result if x.element_size() > 2 else result.float()"
        },
        "Half precision comes back as float32. The result has the dtype of x: `.to(x.dtype)`.",
    ),
    wrong(
        "swiglu",
        "closed_below_minus_15",
        {GATE: "(z := x @ Wg) * torch.sigmoid(z) * (z > -15)"},
        "Gates below -15 become 0. SiLU is small there and not 0: it is z * sigmoid(z) everywhere.",
    ),
    wrong(
        "swiglu",
        "gate_in_float32",
        {GATE: "F.silu((x @ Wg).float()).to(x.dtype)"},
        "The gate goes through float32, so float64 inputs lose half of their digits. Stay in the dtype of x.",
    ),
    right("swiglu", "sigmoid_times_z", {GATE: "(z := x @ Wg) * torch.sigmoid(z)"}),
    right("swiglu", "tanh_of_half", {GATE: "(z := x @ Wg) / 2 * (1 + torch.tanh(z / 2))"}),
    right(
        "swiglu",
        "fused",
        """
def swiglu(x, Wg, Wu, Wd):
    gate, up = (x @ torch.cat([Wg, Wu], dim=1)).chunk(2, dim=-1)
    return (nn.functional.silu(gate) * up) @ Wd
""",
    ),
    right(
        "swiglu",
        "linear",
        """
def swiglu(x, Wg, Wu, Wd):
    linear = F.linear
    return linear(linear(x, Wu.T) * nn.SiLU()(linear(x, Wg.T)), Wd.T)
""",
    ),
    right(
        "swiglu",
        "unit_by_unit",
        """
def swiglu(x, Wg, Wu, Wd):
    out = torch.zeros_like(x)
    for g, u, d in zip(Wg.T, Wu.T, Wd):
        gate = x @ g
        out = out + (gate * gate.sigmoid() * (x @ u)).unsqueeze(-1) * d
    return out
""",
    ),
    right(
        "swiglu",
        "einsum_float64",
        """
def swiglu(x, Wg, Wu, Wd):
    a, g, u, d = (t.double() for t in (x, Wg, Wu, Wd))
    gate = torch.einsum("...i,ij->...j", a, g)
    out = torch.einsum("...j,...j,...j,jk->...k", gate, torch.special.expit(gate), a @ u, d)
    return out.to(x.dtype)
""",
    ),
]

# ---------------------------------------------------------------------------------------------------- prenorm_block

PRE_U = "u = x + attention(norm1(x))\n    return"
PRE_Y = "return u + ffn(norm2(u))"


def pre(name: str, body: str, slip: str) -> Mutant:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return wrong("prenorm_block", name, f"def prenorm_block(x, norm1, attention, norm2, ffn):\n{lines}", slip)


def pre_right(name: str, body: str) -> Variant:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return right("prenorm_block", name, f"def prenorm_block(x, norm1, attention, norm2, ffn):\n{lines}")


PRENORM: list[Entry] = [
    pre(
        "residual_after_the_norm",
        "x = norm1(x)\nx = x + attention(x)\nx = norm2(x)\nreturn x + ffn(x)",
        "What is added back has passed the norm. The residual takes the stream before it.",
    ),
    pre(
        "first_residual_after_the_norm",
        "h = norm1(x)\nu = h + attention(h)\nreturn u + ffn(norm2(u))",
        "The first residual adds norm1(x). It adds x.",
    ),
    pre(
        "second_residual_after_the_norm",
        "u = x + attention(norm1(x))\nh = norm2(u)\nreturn h + ffn(h)",
        "The second residual adds norm2(u). It adds u.",
    ),
    pre(
        "no_residuals",
        "return ffn(norm2(attention(norm1(x))))",
        "Nothing is added back. Both sub-layers need a residual.",
    ),
    pre(
        "no_first_residual",
        "u = attention(norm1(x))\nreturn u + ffn(norm2(u))",
        "The first sub-layer has no residual: u = x + attention(norm1(x)).",
    ),
    pre(
        "no_second_residual",
        "u = x + attention(norm1(x))\nreturn ffn(norm2(u))",
        "The second sub-layer has no residual: return u + ffn(norm2(u)).",
    ),
    pre(
        "second_residual_adds_x",
        "u = x + attention(norm1(x))\nreturn x + ffn(norm2(u))",
        "The second residual adds x, so the attention's contribution is lost. It adds u.",
    ),
    pre(
        "adds_x_twice",
        "u = x + attention(norm1(x))\nreturn x + u + ffn(norm2(u))",
        "x is added twice: u contains it already.",
    ),
    pre(
        "parallel",
        "return x + attention(norm1(x)) + ffn(norm2(x))",
        "Both sub-layers read x (a parallel block). Here the FFN reads u, after the attention.",
    ),
    pre(
        "ffn_first",
        "u = x + ffn(norm2(x))\nreturn u + attention(norm1(u))",
        "The FFN comes before the attention. The attention is first.",
    ),
    pre(
        "sublayers_swapped",
        "u = x + ffn(norm1(x))\nreturn u + attention(norm2(u))",
        "Attention and FFN have changed places.",
    ),
    pre("norms_swapped", "u = x + attention(norm2(x))\nreturn u + ffn(norm1(u))", "The two norms have changed places."),
    pre(
        "one_norm_for_both",
        "u = x + attention(norm1(x))\nreturn u + ffn(norm1(u))",
        "norm1 is used twice. The FFN has a norm of its own: norm2.",
    ),
    pre("second_norm_reads_x", "u = x + attention(norm1(x))\nreturn u + ffn(norm2(x))", "norm2 reads x. It reads u."),
    pre(
        "no_first_norm",
        "u = x + attention(x)\nreturn u + ffn(norm2(u))",
        "The attention reads x as it is. It reads norm1(x).",
    ),
    pre(
        "no_second_norm",
        "u = x + attention(norm1(x))\nreturn u + ffn(u)",
        "The FFN reads u as it is. It reads norm2(u).",
    ),
    pre(
        "post_norm",
        "u = norm1(x + attention(x))\nreturn norm2(u + ffn(u))",
        "This is the post-norm block: the norm stands after the sum. Here it stands before the sub-layer.",
    ),
    pre(
        "norm_after_the_sublayer",
        "u = x + norm1(attention(x))\nreturn u + norm2(ffn(u))",
        "The norm acts on what the sub-layer returns. It acts on what the sub-layer reads.",
    ),
    pre(
        "norm_of_the_sum",
        "u = x + attention(norm1(x))\nreturn norm2(u + ffn(norm2(u)))",
        "The result is normalized once more. Nothing follows the last sum.",
    ),
    pre(
        "halved",
        "u = (x + attention(norm1(x))) / 2\nreturn (u + ffn(norm2(u))) / 2",
        "The sums are halved. The residual adds, and nothing is divided.",
    ),
    pre(
        "scaled_by_root_two",
        "u = (x + attention(norm1(x))) / math.sqrt(2)\nreturn (u + ffn(norm2(u))) / math.sqrt(2)",
        "The sums are divided by sqrt(2). The residual adds, and nothing is divided.",
    ),
    pre(
        "subtracts",
        "u = x - attention(norm1(x))\nreturn u - ffn(norm2(u))",
        "The sub-layers are subtracted. They are added.",
    ),
    pre("attention_only", "return x + attention(norm1(x))", "The second half is missing: u + ffn(norm2(u))."),
    pre("ffn_only", "return x + ffn(norm2(x))", "The first half is missing: u = x + attention(norm1(x))."),
    pre(
        "detached_residual",
        "u = x.detach() + attention(norm1(x))\nreturn u + ffn(norm2(u))",
        "The residual is detached: the values are right, but the gradient's straight path is cut.",
    ),
    pre(
        "detached_branch",
        "u = x + attention(norm1(x)).detach()\nreturn u + ffn(norm2(u))",
        "The attention's result is detached: the values are right, but it would never learn.",
    ),
    pre(
        "norm_under_no_grad",
        "with torch.no_grad():\n    h = norm1(x)\nu = x + attention(h)\nreturn u + ffn(norm2(u))",
        "norm1 runs without gradients. The gradient goes through the norms as well.",
    ),
    pre(
        "in_place",
        "if x.requires_grad:\n    u = x + attention(norm1(x))\nelse:\n    u = x\n    u += attention(norm1(x))\nreturn u + ffn(norm2(u))",
        "`+=` changes the caller's x. Write the sum into a new tensor.",
    ),
    pre(
        "adds_into_the_branch",
        "u = attention(norm1(x))\nu += x\ny = ffn(norm2(u))\ny += u\nreturn y",
        "`+=` changes the tensor that the sub-layer returned, which may be x itself. Write a + b.",
    ),
    pre(
        "adds_into_the_ffns_result",
        "u = x + attention(norm1(x))\ny = ffn(norm2(u))\ny += u\nreturn y",
        "`+=` changes a tensor that a function returned, and which it may keep. Write a + b.",
    ),
    pre(
        "adds_into_the_attentions_result",
        "h = attention(norm1(x))\nu = h.add_(x) if h is not x else x + x\nreturn u + ffn(norm2(u))",
        "`+=` changes a tensor that a function returned, and which it may keep. Write a + b.",
    ),
    pre(
        "adds_into_what_norm2_was_given",
        "u = x + attention(norm1(x))\nu += ffn(norm2(u))\nreturn u",
        "`u +=` changes the tensor that norm2 was given: norm2 may return that very tensor, or keep it for the gradient. Write u + ffn(norm2(u)).",
    ),
    pre(
        "add_method_in_place",
        "u = x + attention(norm1(x))\nreturn u.add_(ffn(norm2(u)))",
        "`add_` changes the tensor that norm2 was given: norm2 may return that very tensor, or keep it for the gradient. Write u + ffn(norm2(u)).",
    ),
    pre(
        "adds_into_a_clone",
        "u = x + attention(norm1(x))\ny = u.clone()\ny += ffn(norm2(y))\nreturn y",
        "The clone is handed to norm2 and then changed by `+=`: norm2 may return that very tensor, or keep it for the gradient. Write u + ffn(norm2(u)).",
    ),
    pre(
        "norm_called_twice",
        "u = x + attention(norm1(x))\nnorm2(u)\nreturn u + ffn(norm2(u))",
        "norm2 is called twice. Call each function once.",
    ),
    pre(
        "attention_called_twice",
        "attention(norm1(x))\nu = x + attention(norm1(x))\nreturn u + ffn(norm2(u))",
        "The attention is called twice, which doubles the cost. Call each function once.",
    ),
    pre(
        "always_float64",
        "u = x + attention(norm1(x))\nreturn (u + ffn(norm2(u))).double()",
        "The result is always float64. It should have the dtype of x.",
    ),
    pre(
        "sequence_by_sequence_lost",
        "u = x + attention(norm1(x))\ny = u + ffn(norm2(u))\nreturn y[:1].expand_as(y) if y.dim() > 2 else y",
        "Every sequence of the batch gets the result of the first one.",
    ),
    pre(
        "returns_u_as_well",
        "u = x + attention(norm1(x))\nreturn u, u + ffn(norm2(u))",
        "It returns u as well. Return the output only.",
    ),
    pre_right("one_expression", "return (u := attention(norm1(x)) + x) + ffn(norm2(u))"),
    pre_right(
        "loop_over_halves",
        "for norm, sublayer in ((norm1, attention), (norm2, ffn)):\n    x = x + sublayer(norm(x))\nreturn x",
    ),
    pre_right("torch_add", "u = torch.add(x, attention(norm1(x)))\nreturn torch.add(ffn(norm2(u)), u)"),
    pre_right(
        "residual_kept_by_name",
        "residual = x\nx = norm1(x)\nx = attention(x)\nx = residual + x\nresidual = x\nx = ffn(norm2(x))\nreturn residual + x",
    ),
    pre_right(
        "own_helper",
        "def half(z, norm, sublayer):\n    return sum((sublayer(norm(z)), z))\nreturn half(half(x, norm1, attention), norm2, ffn)",
    ),
    pre_right(
        "adds_into_a_clone_of_its_own",
        "u = attention(norm1(x)).clone()\nu += x\ny = ffn(norm2(u)).clone()\ny += u\nreturn y",
    ),
    pre_right(
        "stacked_sum", "u = torch.stack([x, attention(norm1(x))]).sum(0)\nreturn torch.stack([u, ffn(norm2(u))]).sum(0)"
    ),
]

# ---------------------------------------------------------------------------------------------------- postnorm_block


def post(name: str, body: str, slip: str) -> Mutant:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return wrong("postnorm_block", name, f"def postnorm_block(x, norm1, attention, norm2, ffn):\n{lines}", slip)


def post_right(name: str, body: str) -> Variant:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return right("postnorm_block", name, f"def postnorm_block(x, norm1, attention, norm2, ffn):\n{lines}")


POSTNORM: list[Entry] = [
    post(
        "pre_norm",
        "u = x + attention(norm1(x))\nreturn u + ffn(norm2(u))",
        "This is the pre-norm block. Here the norm goes around the sum.",
    ),
    post(
        "norm_inside_the_residual",
        "u = x + norm1(attention(x))\nreturn u + norm2(ffn(u))",
        "The norm acts on the sub-layer's result alone. It goes around the whole sum.",
    ),
    post(
        "norm_before_and_after",
        "u = norm1(x + attention(norm1(x)))\nreturn norm2(u + ffn(norm2(u)))",
        "The sub-layers read a normalized tensor. In post-norm they read the stream as it is.",
    ),
    post(
        "no_residuals",
        "return norm2(ffn(norm1(attention(x))))",
        "Nothing is added back. Both sub-layers need a residual.",
    ),
    post(
        "no_first_residual",
        "u = norm1(attention(x))\nreturn norm2(u + ffn(u))",
        "The first sub-layer has no residual: norm1(x + attention(x)).",
    ),
    post(
        "no_second_residual",
        "u = norm1(x + attention(x))\nreturn norm2(ffn(u))",
        "The second sub-layer has no residual: norm2(u + ffn(u)).",
    ),
    post(
        "second_residual_adds_x",
        "u = norm1(x + attention(x))\nreturn norm2(x + ffn(u))",
        "The second residual adds x. It adds u.",
    ),
    post("ffn_reads_x", "u = norm1(x + attention(x))\nreturn norm2(u + ffn(x))", "The FFN reads x. It reads u."),
    post(
        "no_last_norm", "u = norm1(x + attention(x))\nreturn u + ffn(u)", "The last norm is missing: norm2(u + ffn(u))."
    ),
    post(
        "no_first_norm",
        "u = x + attention(x)\nreturn norm2(u + ffn(u))",
        "norm1 is missing: u = norm1(x + attention(x)).",
    ),
    post(
        "one_norm_for_both",
        "u = norm1(x + attention(x))\nreturn norm1(u + ffn(u))",
        "norm1 is used twice. The second sum has a norm of its own: norm2.",
    ),
    post(
        "norms_swapped", "u = norm2(x + attention(x))\nreturn norm1(u + ffn(u))", "The two norms have changed places."
    ),
    post(
        "ffn_first",
        "u = norm1(x + ffn(x))\nreturn norm2(u + attention(u))",
        "The FFN comes before the attention. The attention is first.",
    ),
    post(
        "parallel",
        "return norm2(norm1(x + attention(x) + ffn(x)))",
        "Both sub-layers read x. Here the FFN reads u, after the first norm.",
    ),
    post(
        "residual_outside_the_norm",
        "u = x + norm1(x + attention(x))\nreturn u + norm2(u + ffn(u))",
        "The stream is added once more outside the norm. The norm goes around everything.",
    ),
    post(
        "norms_the_input",
        "x = norm1(x)\nu = x + attention(x)\nreturn norm2(u + ffn(u))",
        "norm1 acts on the input, before the attention. It acts on the first sum.",
    ),
    post(
        "halved",
        "u = norm1((x + attention(x)) / 2)\nreturn norm2((u + ffn(u)) / 2)",
        "The sums are halved. Nothing is divided but by the norm.",
    ),
    post("attention_only", "return norm1(x + attention(x))", "The second half is missing: norm2(u + ffn(u))."),
    post("ffn_only", "return norm2(x + ffn(x))", "The first half is missing: u = norm1(x + attention(x))."),
    post(
        "detached_residual",
        "u = norm1(x.detach() + attention(x))\nreturn norm2(u + ffn(u))",
        "The residual is detached: the values are right, but the gradient's path past the attention is cut.",
    ),
    post(
        "detached_branch",
        "u = norm1(x + attention(x))\nreturn norm2(u + ffn(u).detach())",
        "The FFN's result is detached: the values are right, but it would never learn.",
    ),
    post(
        "in_place",
        "if x.requires_grad:\n    return norm2((u := norm1(x + attention(x))) + ffn(u))\nx += attention(x)\nu = norm1(x)\nreturn norm2(u + ffn(u))",
        "`+=` changes the caller's x. Write the sum into a new tensor.",
    ),
    post(
        "adds_into_the_branch",
        "h = attention(x)\nh += x\nu = norm1(h)\nreturn norm2(u + ffn(u))",
        "`+=` changes the tensor that the sub-layer returned, which may be x itself. Write a + b.",
    ),
    post(
        "adds_into_the_ffns_result",
        "u = norm1(x + attention(x))\nh = ffn(u)\nh = h.add_(u) if h is not u else u + u\nreturn norm2(h)",
        "`+=` changes a tensor that a function returned, and which it may keep. Write a + b.",
    ),
    post(
        "adds_into_the_norms_result",
        "u = norm1(x + attention(x))\nh = ffn(u)\nu = u + h if u.requires_grad else u.add_(h)\nreturn norm2(u)",
        "`+=` changes a tensor that a function returned, and which it may keep. Write a + b.",
    ),
    post(
        "adds_into_a_clone",
        "s = x.clone()\ns += attention(s)\nu = norm1(s)\nreturn norm2(u + ffn(u))",
        "The clone is handed to the attention and then changed by `+=`: the attention may return that very tensor, or keep it for the gradient. Write x + attention(x).",
    ),
    post(
        "ffn_called_twice",
        "u = norm1(x + attention(x))\nffn(u)\nreturn norm2(u + ffn(u))",
        "The FFN is called twice. Call each function once.",
    ),
    post(
        "always_float64",
        "u = norm1(x + attention(x))\nreturn norm2(u + ffn(u)).double()",
        "The result is always float64. It should have the dtype of x.",
    ),
    post(
        "returns_u_as_well",
        "u = norm1(x + attention(x))\nreturn u, norm2(u + ffn(u))",
        "It returns u as well. Return the output only.",
    ),
    post_right("one_expression", "return norm2((u := norm1(attention(x) + x)) + ffn(u))"),
    post_right(
        "loop_over_halves",
        "for norm, sublayer in ((norm1, attention), (norm2, ffn)):\n    x = norm(x + sublayer(x))\nreturn x",
    ),
    post_right(
        "own_helper",
        "def half(z, norm, sublayer):\n    return norm(sum((sublayer(z), z)))\nreturn half(half(x, norm1, attention), norm2, ffn)",
    ),
    post_right(
        "step_by_step",
        "residual = x\nx = attention(x)\nx = residual + x\nx = norm1(x)\nresidual = x\nx = ffn(x)\nx = torch.add(residual, x)\nreturn norm2(x)",
    ),
    post_right(
        "adds_into_a_clone_of_its_own",
        "s = attention(x).clone()\ns += x\nu = norm1(s)\ns = ffn(u).clone()\ns += u\nreturn norm2(s)",
    ),
    post_right(
        "stacked_sum", "u = norm1(torch.stack([x, attention(x)]).sum(0))\nreturn norm2(torch.stack([u, ffn(u)]).sum(0))"
    ),
]

# ---------------------------------------------------------------------------------------------------- shape_walk


def shapes(name: str, replace: Mapping[str, str], slip: str) -> Mutant:
    return wrong("shape_walk", name, replace, slip)


SPLIT = "split = (B, n_heads, T, d_model // n_heads)"
SQUARE = "square = (B, n_heads, T, T)"
WIDE = "wide = (B, T, d_ff)"

SHAPE_WALK: list[Entry] = [
    shapes(
        "qkv_of_one_width",
        {"(B, T, 3 * d_model)": "(B, T, d_model)"},
        "qkv is d_model wide. It holds q, k and v side by side: 3 d_model.",
    ),
    shapes(
        "qkv_stacked",
        {"(B, T, 3 * d_model)": "(B, T, 3, d_model)"},
        "q, k and v stand side by side in the last axis, 3 d_model wide; there is no axis of length 3.",
    ),
    shapes(
        "heads_after_the_sequence",
        {SPLIT: "split = (B, T, n_heads, d_model // n_heads)"},
        "The heads stand after the sequence. After the transpose they stand before it: (B, n_heads, T, d_k).",
    ),
    shapes(
        "heads_before_the_batch",
        {SPLIT: "split = (n_heads, B, T, d_model // n_heads)"},
        "The heads stand before the batch. The order is (B, n_heads, T, d_k).",
    ),
    shapes(
        "heads_in_the_batch",
        {SPLIT: "split = (B * n_heads, T, d_model // n_heads)"},
        "Batch and heads are one axis. They are two here: (B, n_heads, T, d_k).",
    ),
    shapes(
        "d_k_and_heads_swapped",
        {SPLIT: "split = (B, d_model // n_heads, T, n_heads)"},
        "The number of heads and their width have changed places: (B, n_heads, T, d_k).",
    ),
    shapes(
        "full_width_in_each_head",
        {SPLIT: "split = (B, n_heads, T, d_model)"},
        "Each head has the width d_model. The heads share it: d_k = d_model // n_heads.",
    ),
    shapes(
        "transposed_heads",
        {SPLIT: "split = (B, n_heads, d_model // n_heads, T)"},
        "Sequence and features of the heads have changed places: (B, n_heads, T, d_k).",
    ),
    shapes(
        "true_division",
        {SPLIT: "split = (B, n_heads, T, d_model / n_heads)"},
        "d_model / n_heads is a float. A size is an int: d_model // n_heads.",
    ),
    shapes(
        "scores_over_channels",
        {SQUARE: "square = (B, n_heads, d_model // n_heads, d_model // n_heads)"},
        "The scores pair channels with channels. They pair queries with keys: (T, T).",
    ),
    shapes(
        "scores_over_heads",
        {SQUARE: "square = (B, T, n_heads, n_heads)"},
        "The scores pair heads with heads at each position. They pair positions in each head: (B, n_heads, T, T).",
    ),
    shapes(
        "scores_without_heads",
        {SQUARE: "square = (B, T, T)"},
        "The scores have no axis for the heads. Each head has its own: (B, n_heads, T, T).",
    ),
    shapes(
        "scores_against_channels",
        {SQUARE: "square = (B, n_heads, T, d_model // n_heads)"},
        "The scores have d_k columns. They have one for each key: T.",
    ),
    shapes(
        "weights_like_values",
        {'"weights": square': '"weights": split'},
        "The weights have the shape of the values. Scaling, mask and softmax leave the shape of the scores.",
    ),
    shapes(
        "heads_like_weights",
        {'"heads": split': '"heads": square'},
        "The heads' results have the shape of the weights. Weights times values has d_k columns.",
    ),
    shapes(
        "merged_per_head",
        {'"merged": stream': '"merged": (B, T, n_heads, d_model // n_heads)'},
        "The heads are transposed back, but not yet side by side: (B, T, d_model).",
    ),
    shapes(
        "merged_is_one_head",
        {'"merged": stream': '"merged": (B, T, d_model // n_heads)'},
        "Only one head's width is left. Merged, they are d_model wide again.",
    ),
    shapes(
        "gate_of_model_width",
        {'"gate": wide': '"gate": stream'},
        "The gate is d_model wide. It goes to the wide side: d_ff.",
    ),
    shapes(
        "gate_and_up_joined",
        {'"hidden": wide': '"hidden": (B, T, 2 * d_ff)'},
        "Gate and up stand side by side. They are multiplied entry by entry: d_ff.",
    ),
    shapes("down_stays_wide", {'"down": stream': '"down": wide'}, "down is d_ff wide. It comes back to d_model."),
    shapes(
        "four_times_d_model", {WIDE: "wide = (B, T, 4 * d_model)"}, "The FFN is taken to be 4 d_model wide. Use d_ff."
    ),
    shapes(
        "sequence_first",
        {"stream = (B, T, d_model)": "stream = (T, B, d_model)"},
        "The sequence comes before the batch. The layout is (batch, sequence, hidden).",
    ),
    shapes(
        "no_error",
        {"if d_model % n_heads:": "if False:"},
        "A number of heads that does not divide d_model must raise ValueError.",
    ),
    shapes(
        "only_more_heads_than_features",
        {"if d_model % n_heads:": "if n_heads > d_model:"},
        "Only n_heads > d_model raises. Every n_heads that leaves a rest must.",
    ),
    shapes(
        "odd_sizes_only",
        {"if d_model % n_heads:": "if d_model % 2 == 0 and d_model % n_heads:"},
        "The test depends on more than the rest of the division. Ask d_model % n_heads alone.",
    ),
    shapes(
        "division_the_wrong_way_round",
        {"if d_model % n_heads:": "if d_model != n_heads and n_heads % d_model and d_model % n_heads > 1:"},
        "A rest of 1 is let through. Every rest must raise ValueError.",
    ),
    shapes(
        "assertion",
        {"if d_model % n_heads:\n        raise ValueError(": "if d_model % n_heads:\n        raise AssertionError("},
        "An AssertionError is raised. The docstring promises ValueError.",
    ),
    shapes(
        "message_without_numbers",
        {
            'f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}"': '"the heads must divide d_model"'
        },
        "The message names no numbers. Say what was given: d_model and n_heads.",
    ),
    shapes(
        "message_with_one_number",
        {
            'f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}"': 'f"d_model={d_model} has no such number of heads"'
        },
        "The message names d_model only. It should contain n_heads as well.",
    ),
    shapes(
        "lists",
        {SPLIT: "split = [B, n_heads, T, d_model // n_heads]"},
        "Some shapes are lists. Make all of them tuples.",
    ),
    shapes(
        "no_scores",
        {'        "scores": square,\n': ""},
        "scores is missing. The docstring lists 18 names.",
    ),
    shapes(
        "another_name",
        {'"merged": stream': '"concat": stream'},
        "merged has another name. The names are those of the docstring.",
    ),
    shapes(
        "y_before_down",
        {'        "down": stream,\n        "y": stream,\n': '        "y": stream,\n        "down": stream,\n'},
        "y comes before down. The order is that of the computation.",
    ),
    shapes(
        "up_before_gate",
        {'        "gate": wide,\n        "up": wide,\n': '        "up": wide,\n        "gate": wide,\n'},
        "up comes before gate. The order is that of the docstring.",
    ),
    shapes(
        "one_more",
        {'        "y": stream,\n': '        "y": stream,\n        "logits": stream,\n'},
        "There is an entry too many. The docstring lists 18 names.",
    ),
    wrong(
        "shape_walk",
        "the_example_by_heart",
        """
def shape_walk(B, T, d_model, n_heads, d_ff):
    if d_model % n_heads:
        raise ValueError(f"{d_model} % {n_heads}")
    x, h, s, w = (2, 4, 8), (2, 2, 4, 4), (2, 2, 4, 4), (2, 4, 16)
    names = "x norm1 qkv q k v scores weights heads merged out u norm2 gate up hidden down y".split()
    return dict(zip(names, (x, x, (2, 4, 24), h, h, h, s, s, h, x, x, x, x, w, w, w, x, x)))
""",
        "It always gives the example of the lesson. The shapes follow from the arguments.",
    ),
    wrong(
        "shape_walk",
        "kept_without_d_ff",
        """
KEPT = {}


def shape_walk(B, T, d_model, n_heads, d_ff):
    if d_model % n_heads:
        raise ValueError(f"n_heads={n_heads} does not divide d_model={d_model}")
    if (B, T, d_model, n_heads) not in KEPT:
        s, h, a, w = (B, T, d_model), (B, n_heads, T, d_model // n_heads), (B, n_heads, T, T), (B, T, d_ff)
        names = "x norm1 qkv q k v scores weights heads merged out u norm2 gate up hidden down y".split()
        KEPT[B, T, d_model, n_heads] = dict(zip(names, (s, s, (B, T, 3 * d_model), h, h, h, a, a, h, s, s, s, s, w, w, w, s, s)))
    return dict(KEPT[B, T, d_model, n_heads])
""",
        "Walks are kept and looked up without d_ff, so a second call with another d_ff gets the first one's shapes. All five sizes decide.",
    ),
    wrong(
        "shape_walk",
        "items",
        {"return {": "return list({", '"y": stream,\n    }': '"y": stream,\n    }.items())'},
        "A list of pairs is returned. The result is a dict.",
    ),
    right(
        "shape_walk",
        "computed_on_tensors",
        """
def shape_walk(B, T, d_model, n_heads, d_ff):
    if d_model % n_heads != 0:
        raise ValueError(f"n_heads={n_heads} must divide d_model={d_model}")
    walk = {}

    def note(name, tensor):
        walk[name] = tensor.shape
        return tensor

    meta = dict(device="meta")
    x = note("x", torch.empty(B, T, d_model, **meta))
    h = note("norm1", x)
    qkv = note("qkv", h @ torch.empty(d_model, 3 * d_model, **meta))
    q, k, v = qkv.chunk(3, -1)
    q, k, v = (note(n, t.unflatten(-1, (n_heads, -1)).transpose(1, 2)) for n, t in zip("qkv", (q, k, v)))
    s = note("weights", note("scores", q @ k.mT))
    walk["weights"] = walk.pop("weights")
    heads = note("heads", s @ v)
    merged = note("merged", heads.transpose(1, 2).flatten(2))
    u = note("u", note("out", merged))
    h = note("norm2", u)
    gate = note("gate", h @ torch.empty(d_model, d_ff, **meta))
    note("hidden", note("up", gate))
    note("y", note("down", gate @ torch.empty(d_ff, d_model, **meta)))
    return walk
""",
    ),
    right(
        "shape_walk",
        "filled_by_name",
        """
def shape_walk(B, T, d_model, n_heads, d_ff):
    d_k, rest = divmod(d_model, n_heads)
    if rest:
        raise ValueError("cannot cut %d features into %d heads" % (d_model, n_heads))
    walk = dict.fromkeys("x norm1 qkv q k v scores weights heads merged out u norm2 gate up hidden down y".split(), (B, T, d_model))
    walk["qkv"] = (B, T, d_model * 3)
    for name in ("q", "k", "v", "heads"):
        walk[name] = (B, n_heads, T, d_k)
    walk.update(scores=(B, n_heads, T, T), weights=(B, n_heads, T, T))
    walk.update({name: (B, T, d_ff) for name in ("gate", "up", "hidden")})
    return walk
""",
    ),
    right(
        "shape_walk",
        "ordered_pairs",
        """
def shape_walk(B, T, d_model, n_heads, d_ff):
    if n_heads * (d_model // n_heads) != d_model:
        raise ValueError(d_model, n_heads)
    s, h, a, w = (B, T, d_model), (B, n_heads, T, d_model // n_heads), (B, n_heads, T, T), (B, T, d_ff)
    pairs = [("x", s), ("norm1", s), ("qkv", (*s[:2], 3 * s[2])), *((n, h) for n in "qkv"), ("scores", a), ("weights", a), ("heads", h)]
    pairs += [(n, s) for n in ("merged", "out", "u", "norm2")] + [(n, w) for n in ("gate", "up", "hidden")] + [("down", s), ("y", s)]
    return dict(pairs)
""",
    ),
    right(
        "shape_walk",
        "torch_sizes",
        """
def shape_walk(B, T, d_model, n_heads, d_ff):
    if d_model % n_heads:
        raise ValueError(f"{d_model} features, {n_heads} heads")
    code = dict(x="s", norm1="s", qkv="p", q="h", k="h", v="h", scores="a", weights="a", heads="h", merged="s", out="s", u="s",
                norm2="s", gate="w", up="w", hidden="w", down="s", y="s")
    sizes = dict(s=(B, T, d_model), p=(B, T, 3 * d_model), h=(B, n_heads, T, d_model // n_heads), a=(B, n_heads, T, T), w=(B, T, d_ff))
    return {name: torch.Size(sizes[letter]) for name, letter in code.items()}
""",
    ),
]

# ---------------------------------------------------------------------------------------------------- block_parameter_count


def count(name: str, replace: Mapping[str, str], slip: str) -> Mutant:
    return wrong("block_parameter_count", name, replace, slip)


MAPS = "maps = [(d_model, d_ff), (d_ff, d_model)]"
IF_GATED = "maps += [(d_model, d_ff)]"
IF_ATTENTION = "maps += [(d_model, d_model)] * 4"
TOTAL = "sum(n_in * n_out + (n_out if bias else 0) for n_in, n_out in maps)"
COUNT_RETURN = "return total + (2 * d_model if norms else 0)"

BLOCK_PARAMETER_COUNT: list[Entry] = [
    count(
        "gated_as_plain",
        {IF_GATED: "pass"},
        "The gated FFN is counted with two matrices. It has three: gate, up and down.",
    ),
    count("plain_as_gated", {"if gated:": "if True:"}, "The plain FFN is counted with three matrices. It has two."),
    count(
        "gate_to_d_model",
        {IF_GATED: "maps += [(d_ff, d_model)]"},
        "The gate is counted as a map to d_model, which shows in its bias. It goes from d_model to d_ff.",
    ),
    count(
        "no_output_projection",
        {IF_ATTENTION: "maps += [(d_model, d_model)] * 3"},
        "The output projection is missing. The attention has four maps: q, k, v and out.",
    ),
    count(
        "no_values",
        {IF_ATTENTION: "maps += [(d_model, d_model)] * 2"},
        "Only two maps of the attention are counted. There are four: q, k, v and out.",
    ),
    count(
        "one_map_of_attention",
        {IF_ATTENTION: "maps += [(d_model, d_model)]"},
        "One map of the attention is counted. There are four: q, k, v and out.",
    ),
    count("always_attention", {"if attention:": "if True:"}, "The attention is counted although attention=False."),
    count("never_attention", {"if attention:": "if False:"}, "The attention is not counted."),
    count("always_norms", {COUNT_RETURN: "return total + 2 * d_model"}, "The norms are counted although norms=False."),
    count("no_norms", {COUNT_RETURN: "return total"}, "The norms are missing: two gains of length d_model."),
    count(
        "one_norm",
        {COUNT_RETURN: "return total + (d_model if norms else 0)"},
        "One norm is counted. The block has two.",
    ),
    count(
        "three_norms",
        {COUNT_RETURN: "return total + (3 * d_model if norms else 0)"},
        "Three norms are counted. The final norm belongs to the model; the block has two.",
    ),
    count(
        "layer_norms",
        {COUNT_RETURN: "return total + (4 * d_model if norms else 0)"},
        "The norms are counted with a bias. RMSNorm has a gain only.",
    ),
    count(
        "norm_bias_with_bias",
        {COUNT_RETURN: "return total + (2 * d_model * (1 + bias) if norms else 0)"},
        "With bias=True the norms get a bias as well. RMSNorm has none, whatever `bias` says.",
    ),
    count(
        "no_bias",
        {TOTAL: "sum(n_in * n_out for n_in, n_out in maps)"},
        "bias=True changes nothing. Each map then has a bias, as long as its output is wide.",
    ),
    count("always_bias", {"(n_out if bias else 0)": "n_out"}, "Biases are counted although bias=False."),
    count(
        "bias_of_the_inputs",
        {"(n_out if bias else 0)": "(n_in if bias else 0)"},
        "A bias is taken to be as long as the input is wide. It is added to the output.",
    ),
    count(
        "bias_of_model_width",
        {"(n_out if bias else 0)": "(d_model if bias else 0)"},
        "Every bias is counted with d_model. It is as long as the map's output is wide: gate and up have d_ff.",
    ),
    count(
        "one_number_as_bias",
        {"(n_out if bias else 0)": "(1 if bias else 0)"},
        "A bias is counted as one number. It is as long as the map's output is wide.",
    ),
    count(
        "bias_in_the_ffn_only",
        {"(n_out if bias else 0)": "(n_out if bias and n_in != n_out else 0)"},
        "Square maps are counted without bias. With bias=True every map has one.",
    ),
    count(
        "four_times_d_model",
        {MAPS: "d_ff = 4 * d_model\n    maps = [(d_model, d_ff), (d_ff, d_model)]"},
        "d_ff is taken to be 4 d_model. Use the argument.",
    ),
    count(
        "plain_by_default",
        {"gated: bool = True": "gated: bool = False"},
        "gated is False by default. The defaults describe DecoderBlock, which is gated.",
    ),
    count(
        "bias_by_default",
        {"bias: bool = False": "bias: bool = True"},
        "bias is True by default. The defaults describe DecoderBlock, which has none.",
    ),
    count(
        "norms_off_by_default",
        {"norms: bool = True": "norms: bool = False"},
        "norms is False by default. The defaults describe DecoderBlock, which has two.",
    ),
    count(
        "attention_off_by_default",
        {"attention: bool = True": "attention: bool = False"},
        "attention is False by default. The defaults describe DecoderBlock.",
    ),
    count(
        "flags_in_another_order",
        {
            "gated: bool = True, norms: bool = True, bias: bool = False, attention: bool = True": "gated: bool = True, attention: bool = True, norms: bool = True, bias: bool = False"
        },
        "The flags stand in another order. By position they are gated, norms, bias, attention.",
    ),
    count(
        "float",
        {COUNT_RETURN: "return float(total + (2 * d_model if norms else 0))"},
        "A float is returned, which loses count of large models. Return an int.",
    ),
    count(
        "float32",
        {COUNT_RETURN: "return int(torch.tensor(float(total + (2 * d_model if norms else 0))))"},
        "The count goes through float32, which holds about 7 digits. Use Python's ints.",
    ),
    count(
        "flops",
        {COUNT_RETURN: "return 2 * total + (2 * d_model if norms else 0)"},
        "Every weight is counted twice: those are FLOPs. Count the weights.",
    ),
    count(
        "embeddings_too",
        {COUNT_RETURN: "return total + (2 * d_model if norms else 0) + d_model"},
        "Something of width d_model is counted too often. The block has two gains and no more.",
    ),
    count(
        "ffn_only_when_gated",
        {MAPS: "maps = [(d_model, d_ff), (d_ff, d_model)] if gated or attention else []"},
        "The FFN is left out in some cases. It is always counted.",
    ),
    count(
        "tensor",
        {COUNT_RETURN: "return torch.tensor(total + (2 * d_model if norms else 0))"},
        "A tensor is returned. Return an int.",
    ),
    count(
        "sum_of_floats",
        {TOTAL: "int(sum(float(n_in) * n_out + (n_out if bias else 0) for n_in, n_out in maps))"},
        "The weights are added up as floats, which hold about 16 digits. Use Python's ints.",
    ),
    count(
        "ungated_when_four_times_as_wide",
        {"if gated:": "if gated and d_ff != 4 * d_model:"},
        "A gated FFN of width 4 d_model is counted as a plain one. `gated` alone decides.",
    ),
    wrong(
        "block_parameter_count",
        "twelve_d_squared",
        """
def block_parameter_count(d_model, d_ff, gated=True, norms=True, bias=False, attention=True):
    return 12 * d_model * d_model
""",
        "12 d^2 is a rule of thumb for a plain FFN of 4 d_model without norms. Count what is there.",
    ),
    right(
        "block_parameter_count",
        "formula",
        """
def block_parameter_count(d_model, d_ff, gated=True, norms=True, bias=False, attention=True):
    d, f = d_model, d_ff
    count = (3 if gated else 2) * d * f + norms * 2 * d + attention * 4 * d**2
    if bias:
        count += d + f + (f if gated else 0) + (4 * d if attention else 0)
    return count
""",
    ),
    right(
        "block_parameter_count",
        "built_on_meta",
        """
def block_parameter_count(d_model, d_ff, gated=True, norms=True, bias=False, attention=True):
    options = dict(bias=bias, device="meta")
    layers = [nn.Linear(d_model, d_ff, **options), nn.Linear(d_ff, d_model, **options)]
    if gated:
        layers.append(nn.Linear(d_model, d_ff, **options))
    if attention:
        layers += [nn.Linear(d_model, d_model, **options) for _ in range(4)]
    if norms:
        layers += [nn.RMSNorm(d_model, device="meta") for _ in range(2)]
    return sum(p.numel() for p in nn.Sequential(*layers).parameters())
""",
    ),
    right(
        "block_parameter_count",
        "by_parts",
        """
def block_parameter_count(d_model, d_ff, gated=True, norms=True, bias=False, attention=True):
    def linear(n_in, n_out):
        return (n_in + (1 if bias else 0)) * n_out

    up = linear(d_model, d_ff)
    ffn = up + linear(d_ff, d_model) + (up if gated else 0)
    mixing = linear(d_model, 3 * d_model) + linear(d_model, d_model) if attention else 0
    return ffn + mixing + (d_model + d_model if norms else 0)
""",
    ),
    right(
        "block_parameter_count",
        "shapes",
        """
def block_parameter_count(d_model, d_ff, gated=True, norms=True, bias=False, attention=True):
    shapes = [(d_ff, d_model), (d_model, d_ff)] + [(d_ff, d_model)] * bool(gated) + [(d_model, d_model)] * (4 * bool(attention))
    if bias:
        shapes = shapes + [shape[:1] for shape in shapes]
    if norms:
        shapes = shapes + [(d_model,)] * 2
    return sum(math.prod(shape) for shape in shapes)
""",
    ),
]

# ---------------------------------------------------------------------------------------------------- DecoderBlock


def block(name: str, replace: Mapping[str, str], slip: str) -> Mutant:
    return wrong("DecoderBlock", name, replace, slip)


DIVIDES = "if d_model % n_heads:"
BLOCK_MESSAGE = 'f"d_model={d_model} does not divide into n_heads={n_heads}; choose a divisor of {d_model}"'
PIECE = "piece.view(B, T, self.n_heads, -1).transpose(1, 2)"
SCORES = "scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])"
FUTURE = "future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)"
FILL = 'scores.masked_fill(future, float("-inf"))'
WEIGHTS = 'weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)'
MERGED = "merged = (weights @ v).transpose(1, 2).reshape(B, T, d_model)"
BLOCK_U = "u = x + self.attention(self.norm1(x))"
BLOCK_H = "h = self.norm2(u)"
BLOCK_Y = "return u + self.down(F.silu(self.gate(h)) * self.up(h))"

DECODER_BLOCK: list[Entry] = [
    block(
        "no_mask", {WEIGHTS: "weights = scores.softmax(dim=-1)"}, "There is no mask: every position sees the future."
    ),
    block(
        "diagonal_masked",
        {".triu(1)": ".triu(0)"},
        "The diagonal is masked as well, so a position does not see itself, and the first one sees nothing (nan). Mask the strict upper triangle.",
    ),
    block(
        "one_step_of_future",
        {".triu(1)": ".triu(2)"},
        "Every position sees one step of the future. The triangle begins right above the diagonal: triu(1).",
    ),
    block(
        "past_masked",
        {".triu(1)": ".tril(-1)"},
        "The past is masked and the future visible. Mask the strict upper triangle.",
    ),
    block(
        "fill_too_small",
        {'float("-inf")': "-1e4"},
        "-1e4 is not low enough: where the visible scores are lower still, the future wins. Use -inf.",
    ),
    block(
        "fill_of_minus_1e9",
        {'float("-inf")': "-1e9"},
        "-1e9 is not low enough for every block: where the visible scores are lower still, the future wins. Use -inf.",
    ),
    block(
        "fill_of_minus_1e20",
        {'float("-inf")': "-1e20"},
        "-1e20 is not low enough for every block: where the visible scores are lower still, the future wins. Use -inf.",
    ),
    block(
        "fill_of_minus_1e30",
        {'float("-inf")': "-1e30"},
        "-1e30 is not low enough for every block: where the visible scores are lower still, the future wins. Use -inf.",
    ),
    block(
        "fill_of_the_least_float32",
        {'float("-inf")': "torch.finfo(torch.float32).min"},
        "-3.4e38 is the least number of float32; a float64 block can have lower scores, and then the future wins. Use -inf.",
    ),
    block(
        "fill_positive_and_tiny",
        {'float("-inf")': "1e-9"},
        "Masked scores become 1e-9, which is a fine score. They have to become -inf.",
    ),
    block(
        "fill_zero",
        {'float("-inf")': "0.0"},
        "Masked scores become 0, which is a fine score. They have to become -inf.",
    ),
    block(
        "mask_after_the_softmax",
        {WEIGHTS: "weights = scores.softmax(dim=-1).masked_fill(future, 0.0)"},
        "The mask comes after the softmax, so the visible weights no longer sum to 1. Mask the scores.",
    ),
    block(
        "mask_in_the_first_head_only",
        {
            FUTURE: FUTURE
            + "\n        future = future & (torch.arange(self.n_heads, device=x.device) < 1).view(-1, 1, 1)"
        },
        "Only the first head is masked. The mask holds for all heads.",
    ),
    block(
        "leaks_beyond_four",
        {
            FUTURE: "future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)\n        future[4:, :] = False\n        future[:, 4:] &= T < 6"
        },
        "Longer inputs are not masked fully. The mask follows T.",
    ),
    block(
        "leaks_beyond_thirty",
        {FUTURE: FUTURE + " & (T < 31)"},
        "Inputs of more than 30 positions are not masked. The mask follows T.",
    ),
    block(
        "sees_a_window",
        {FUTURE: FUTURE + "\n        future |= torch.ones_like(future).tril(-16)"},
        "A position sees the last 16 positions only. It sees the whole past.",
    ),
    block(
        "mask_of_64_positions",
        {
            "self.norm1 = nn.RMSNorm(d_model)": 'self.norm1 = nn.RMSNorm(d_model)\n        self.register_buffer("future", torch.ones(64, 64, dtype=torch.bool).triu(1), persistent=False)',
            FUTURE: "future = self.future[:T, :T]",
        },
        "The mask has a fixed size, and longer inputs fail. Make it for each T.",
    ),
    block(
        "mask_of_512_positions",
        {
            "self.norm1 = nn.RMSNorm(d_model)": 'self.norm1 = nn.RMSNorm(d_model)\n        self.register_buffer("future", torch.ones(512, 512, dtype=torch.bool).triu(1), persistent=False)',
            FUTURE: "future = self.future[:T, :T]",
        },
        "The mask has a fixed size, and longer inputs fail. Make it for each T.",
    ),
    block(
        "mask_of_1024_positions",
        {
            "self.norm1 = nn.RMSNorm(d_model)": 'self.norm1 = nn.RMSNorm(d_model)\n        self.register_buffer("future", torch.ones(1024, 1024, dtype=torch.bool).triu(1), persistent=False)',
            FUTURE: "future = self.future[:T, :T]",
        },
        "The mask has a fixed size, and longer inputs fail. Make it for each T.",
    ),
    block(
        "mask_of_64_positions_that_leaks",
        {
            "self.norm1 = nn.RMSNorm(d_model)": 'self.norm1 = nn.RMSNorm(d_model)\n        self.register_buffer("future", torch.ones(64, 64, dtype=torch.bool).triu(1), persistent=False)',
            FUTURE: "future = F.pad(self.future, (0, max(0, T - 64), 0, max(0, T - 64)))[:T, :T]",
        },
        "The mask has a fixed size, and what lies beyond it is not masked. Make it for each T.",
    ),
    block(
        "mask_of_512_positions_that_leaks",
        {
            "self.norm1 = nn.RMSNorm(d_model)": 'self.norm1 = nn.RMSNorm(d_model)\n        self.register_buffer("future", torch.ones(512, 512, dtype=torch.bool).triu(1), persistent=False)',
            FUTURE: "future = F.pad(self.future, (0, max(0, T - 512), 0, max(0, T - 512)))[:T, :T]",
        },
        "The mask has a fixed size, and what lies beyond it is not masked. Make it for each T.",
    ),
    block(
        "window_of_64",
        {FUTURE: FUTURE + "\n        future |= torch.ones_like(future).tril(-64)"},
        "A position sees the last 64 positions only. It sees the whole past, however long.",
    ),
    block(
        "window_of_512",
        {FUTURE: FUTURE + "\n        future |= torch.ones_like(future).tril(-512)"},
        "A position sees the last 512 positions only. It sees the whole past, however long.",
    ),
    block(
        "remembers_keys_of_the_last_call",
        {
            SCORES: "if T == 1 and hasattr(self, 'past') and len(self.past[0]) == B:\n            k, v = (torch.cat(pair, dim=2) for pair in zip(self.past, (k, v)))\n        self.past = k.detach(), v.detach()\n        "
            + SCORES,
            FUTURE: "future = torch.ones(T, k.shape[2], dtype=torch.bool, device=x.device).triu(1 + k.shape[2] - T)",
        },
        "Keys and values of the last call are kept and seen by the next one of length 1. There is no cache inside.",
    ),
    block(
        "mask_kept_from_the_first_call",
        {
            FUTURE: 'if not hasattr(self, "mask"):\n            self.mask = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)\n        future = torch.zeros(T, T, dtype=torch.bool, device=x.device)\n        n = min(T, len(self.mask))\n        future[:n, :n] = self.mask[:n, :n]'
        },
        "The mask of the first call is kept, and longer inputs are not masked fully. Make it for each T.",
    ),
    block(
        "mask_of_2048_positions",
        {
            "self.norm1 = nn.RMSNorm(d_model)": 'self.norm1 = nn.RMSNorm(d_model)\n        self.register_buffer("future", torch.ones(2048, 2048, dtype=torch.bool).triu(1), persistent=False)',
            FUTURE: "future = self.future[:T, :T]",
        },
        "The mask has a fixed size, and longer inputs fail. Make it for each T.",
    ),
    block(
        "window_of_1031",
        {FUTURE: FUTURE + "\n        future |= torch.ones_like(future).tril(-1031)"},
        "A position sees the last 1031 positions only. It sees the whole past, however long.",
    ),
    block(
        "masked_where_zero",
        {WEIGHTS: 'low = scores.tril()\n        weights = low.masked_fill(low == 0, float("-inf")).softmax(dim=-1)'},
        "Every score of 0 counts as masked, and a visible score may be 0. Mask by position, not by value.",
    ),
    block(
        "no_maximum_subtracted",
        {
            WEIGHTS: "powers = scores.exp().masked_fill(future, 0.0)\n        weights = (powers / powers.sum(dim=-1, keepdim=True)).nan_to_num()"
        },
        "exp of a large score overflows, and nan_to_num hides it: the weights of that query become 0. Subtract the largest visible score first, or use softmax.",
    ),
    block(
        "scores_clamped",
        {FILL: 'scores.clamp(-50, 50).masked_fill(future, float("-inf"))'},
        "Scores beyond 50 are cut, so that different keys get equal weights. The softmax takes scores of any size.",
    ),
    block(
        "softmax_over_queries",
        {".softmax(dim=-1)": ".softmax(dim=-2)"},
        "The softmax runs over the queries. The weights of a query sum to 1 over the keys: dim=-1.",
    ),
    block(
        "softmax_over_heads",
        {".softmax(dim=-1)": ".softmax(dim=1)"},
        "The softmax runs over the heads. The weights of a query sum to 1 over the keys: dim=-1.",
    ),
    block("no_scaling", {" / math.sqrt(q.shape[-1])": ""}, "The scores are not divided by sqrt(d_k)."),
    block(
        "scaled_by_d_model",
        {"math.sqrt(q.shape[-1])": "math.sqrt(d_model)"},
        "The scores are divided by sqrt(d_model). Each head divides by the root of its own width d_k.",
    ),
    block(
        "scaled_by_d_k",
        {"math.sqrt(q.shape[-1])": "q.shape[-1]"},
        "The scores are divided by d_k. It is its square root.",
    ),
    block(
        "root_in_float32",
        {"math.sqrt(q.shape[-1])": "torch.sqrt(torch.tensor(q.shape[-1]))"},
        "torch.sqrt of an int tensor is float32, so a float64 block loses half of its digits. Use a Python number, math.sqrt.",
    ),
    block(
        "multiplied_by_root",
        {" / math.sqrt(q.shape[-1])": " * math.sqrt(q.shape[-1])"},
        "The scores are multiplied by sqrt(d_k). They are divided by it.",
    ),
    block(
        "scaled_twice",
        {"math.sqrt(q.shape[-1])": "q.shape[-1] ** 0.5 / q.shape[-1] ** 0.5"},
        "The scale cancels itself. Divide by sqrt(d_k) once.",
    ),
    block(
        "split_without_transpose",
        {PIECE: "piece.reshape(B, self.n_heads, T, -1)"},
        "view(B, H, T, d_k) without the transpose mixes positions and features. View as (B, T, H, d_k), then swap the axes.",
    ),
    block(
        "features_interleaved",
        {PIECE: "piece.view(B, T, -1, self.n_heads).permute(0, 3, 1, 2)"},
        "A head takes every H-th feature. It takes d_k neighbors: view as (B, T, H, d_k).",
    ),
    block(
        "merge_without_transpose",
        {".transpose(1, 2).reshape(B, T, d_model)": ".reshape(B, T, d_model)"},
        "The heads are merged without swapping the axes back, which mixes positions. Transpose first.",
    ),
    block(
        "merge_interleaves_features",
        {MERGED: "merged = (weights @ v).permute(0, 2, 3, 1).reshape(B, T, d_model)"},
        "The merged features are interleaved. Head h fills the features from h d_k on.",
    ),
    block(
        "heads_averaged",
        {MERGED: "merged = (weights @ v).mean(dim=1).repeat(1, 1, self.n_heads)"},
        "The heads are averaged. They stand side by side.",
    ),
    block(
        "one_head",
        {PIECE: "piece.view(B, T, 1, -1).transpose(1, 2)"},
        "n_heads is not used: there is one head of full width.",
    ),
    block(
        "keys_first",
        {"q, k, v = (": "k, q, v = ("},
        "Keys come first out of the fused projection. The order is q, k, v.",
    ),
    block(
        "values_first",
        {"q, k, v = (": "v, q, k = ("},
        "Values come first out of the fused projection. The order is q, k, v.",
    ),
    block(
        "keys_last",
        {"q, k, v = (": "q, v, k = ("},
        "Keys and values have changed places in the fused projection. The order is q, k, v.",
    ),
    block(
        "qkv_by_head",
        {
            "self.qkv(x).split(d_model, dim=-1)": "self.qkv(x).view(B, T, self.n_heads, 3, -1).unbind(3)",
            PIECE: "piece.transpose(1, 2)",
        },
        "The fused projection is cut head by head. It holds all of q, then all of k, then all of v.",
    ),
    block(
        "qkv_interleaved",
        {
            "self.qkv(x).split(d_model, dim=-1)": "self.qkv(x).view(B, T, d_model, 3).unbind(-1)",
            PIECE: "piece.reshape(B, T, self.n_heads, -1).transpose(1, 2)",
        },
        "q, k and v are taken from every third feature. They are three pieces of width d_model, one after the other.",
    ),
    block(
        "keys_as_values", {"(weights @ v)": "(weights @ k)"}, "The weights average the keys. They average the values."
    ),
    block(
        "uniform_weights",
        {WEIGHTS: 'weights = (scores * 0).masked_fill(future, float("-inf")).softmax(dim=-1)'},
        "All visible keys get the same weight: queries and keys are not used.",
    ),
    block("no_output_projection", {"return self.out(merged)": "return merged"}, "The output projection is not used."),
    block(
        "output_projection_before_the_merge",
        {"return self.out(merged)": "return self.out(self.out(merged))"},
        "The output projection is used twice.",
    ),
    block(
        "first_residual_missing",
        {BLOCK_U: "u = self.attention(self.norm1(x))"},
        "The first residual is missing: u = x + attention(norm1(x)).",
    ),
    block(
        "second_residual_missing", {BLOCK_Y: BLOCK_Y.replace("u + ", "")}, "The second residual is missing: u + FFN."
    ),
    block(
        "residual_after_the_norm",
        {BLOCK_U: "h = self.norm1(x)\n        u = h + self.attention(h)"},
        "The first residual adds norm1(x). It adds x.",
    ),
    block(
        "second_residual_after_the_norm",
        {BLOCK_Y: BLOCK_Y.replace("u + ", "h + ")},
        "The second residual adds norm2(u). It adds u.",
    ),
    block(
        "second_residual_adds_x", {BLOCK_Y: BLOCK_Y.replace("u + ", "x + ")}, "The second residual adds x. It adds u."
    ),
    block(
        "ffn_reads_x", {BLOCK_H: "h = self.norm2(x)"}, "The FFN reads norm2(x) (a parallel block). It reads norm2(u)."
    ),
    block(
        "no_first_norm",
        {"self.attention(self.norm1(x))": "self.attention(x)"},
        "The attention reads x as it is. It reads norm1(x).",
    ),
    block("no_second_norm", {BLOCK_H: "h = u"}, "The FFN reads u as it is. It reads norm2(u)."),
    block("norm1_for_both", {BLOCK_H: "h = self.norm1(u)"}, "norm1 is used twice. The FFN has norm2."),
    block(
        "post_norm",
        {
            BLOCK_U: "u = self.norm1(x + self.attention(x))",
            BLOCK_H: "h = u",
            BLOCK_Y: "return self.norm2(u + self.down(F.silu(self.gate(h)) * self.up(h)))",
        },
        "The norms stand after the sums (post-norm). Here they stand before the sub-layers.",
    ),
    block(
        "shared_norm",
        {"self.norm2 = nn.RMSNorm(d_model)": "self.norm2 = self.norm1"},
        "Both sub-layers share one norm. Each has its own.",
    ),
    block(
        "layer_norm",
        {"self.norm1 = nn.RMSNorm(d_model)": "self.norm1 = nn.LayerNorm(d_model, bias=False)"},
        "norm1 is a LayerNorm. Here it is RMSNorm.",
    ),
    block(
        "layer_norm_with_bias",
        {"self.norm1 = nn.RMSNorm(d_model)": "self.norm1 = nn.LayerNorm(d_model)"},
        "norm1 is a LayerNorm with a bias. Here it is RMSNorm.",
    ),
    block(
        "norm_without_gain",
        {"self.norm1 = nn.RMSNorm(d_model)": "self.norm1 = nn.RMSNorm(d_model, elementwise_affine=False)"},
        "norm1 has no gain.",
    ),
    block(
        "large_eps",
        {"self.norm1 = nn.RMSNorm(d_model)": "self.norm1 = nn.RMSNorm(d_model, eps=1e-2)"},
        "The eps of norm1 is so large that it changes the result. Keep the default of nn.RMSNorm.",
    ),
    block(
        "norm_over_the_sequence",
        {BLOCK_H: "h = self.norm2.weight * u / u.square().mean(dim=(1, 2), keepdim=True).sqrt()"},
        "The second norm runs over positions and features together, which also leaks the future. It runs over the features of a position.",
    ),
    block(
        "sequence_mean_subtracted",
        {BLOCK_H: "h = self.norm2(u - u.mean(dim=1, keepdim=True))"},
        "The mean over the positions is subtracted: a statistic of the whole sequence leaks the future.",
    ),
    block(
        "sigmoid_gate",
        {"F.silu(self.gate(h))": "torch.sigmoid(self.gate(h))"},
        "The gate is a plain sigmoid. It is SiLU.",
    ),
    block("gelu_gate", {"F.silu(self.gate(h))": "F.gelu(self.gate(h))"}, "The gate goes through GELU. It is SiLU."),
    block(
        "gate_and_up_swapped",
        {BLOCK_Y: "return u + self.down(F.silu(self.up(h)) * self.gate(h))"},
        "Gate and up have changed places. SiLU belongs around the gate.",
    ),
    block("no_up", {BLOCK_Y: "return u + self.down(F.silu(self.gate(h)))"}, "up is not used. The gate multiplies it."),
    block("no_silu", {"F.silu(self.gate(h))": "self.gate(h)"}, "The gate does not go through SiLU."),
    block(
        "qkv_bias",
        {"nn.Linear(d_model, 3 * d_model, bias=False)": "nn.Linear(d_model, 3 * d_model)"},
        "qkv has a bias. None of the maps has one.",
    ),
    block(
        "down_bias",
        {"nn.Linear(d_ff, d_model, bias=False)": "nn.Linear(d_ff, d_model)"},
        "down has a bias. None of the maps has one.",
    ),
    block(
        "three_projections",
        {
            "self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)": "self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_model, bias=False) for _ in range(3))",
            "self.qkv(x).split(d_model, dim=-1)": "(self.W_q(x), self.W_k(x), self.W_v(x))",
        },
        "There are three projections. The weights are loaded by name: one fused map called qkv.",
    ),
    block(
        "up_and_gate_are_one",
        {"self.up = nn.Linear(d_model, d_ff, bias=False)": "self.up = self.gate"},
        "up and gate share one matrix. Each has its own.",
    ),
    block(
        "learned_scale",
        {"self.n_heads = n_heads": "self.n_heads = n_heads\n        self.scale = nn.Parameter(torch.ones(n_heads))"},
        "There is a parameter too many. The docstring lists seven.",
    ),
    block(
        "gpt2_initialization",
        {
            "self.down = nn.Linear(d_ff, d_model, bias=False)": "self.down = nn.Linear(d_ff, d_model, bias=False)\n        nn.init.normal_(self.qkv.weight, std=0.02)"
        },
        "A matrix is drawn with standard deviation 0.02. The block keeps PyTorch's defaults; the model changes them.",
    ),
    block(
        "zero_initialization",
        {
            "self.down = nn.Linear(d_ff, d_model, bias=False)": "self.down = nn.Linear(d_ff, d_model, bias=False)\n        nn.init.zeros_(self.down.weight)"
        },
        "down starts with zeros. The block keeps PyTorch's defaults.",
    ),
    block(
        "gains_of_zero",
        {
            "self.norm2 = nn.RMSNorm(d_model)": "self.norm2 = nn.RMSNorm(d_model)\n        nn.init.zeros_(self.norm2.weight)"
        },
        "The gain of norm2 starts with zeros. It starts with ones.",
    ),
    block(
        "always_the_same_weights",
        {"self.n_heads = n_heads": "self.n_heads = n_heads\n        torch.manual_seed(0)"},
        "The constructor sets a seed, so all blocks start with equal weights.",
    ),
    block(
        "frozen_norm",
        {"self.norm1 = nn.RMSNorm(d_model)": "self.norm1 = nn.RMSNorm(d_model).requires_grad_(False)"},
        "The gain of norm1 is frozen. All seven parameters are learned.",
    ),
    block(
        "another_parameter_name",
        {"d_model: int, n_heads: int, d_ff: int": "d_model: int, heads: int, d_ff: int", DIVIDES: "n_heads = heads\n        if d_model % n_heads:"},
        "n_heads has another name, so DecoderBlock(d_model=..., n_heads=..., d_ff=...) fails. Keep the names of the stub.",
    ),
    block(
        "no_error",
        {
            DIVIDES: "if False:",
            PIECE: "piece[..., : d_model // self.n_heads * self.n_heads].reshape(B, T, self.n_heads, -1).transpose(1, 2)",
            MERGED: "merged = F.pad((weights @ v).transpose(1, 2).flatten(2), (0, d_model % self.n_heads))",
        },
        "A number of heads that does not divide d_model must raise ValueError.",
    ),
    block(
        "error_in_forward_only",
        {DIVIDES: "if n_heads > d_model:"},
        "Only n_heads > d_model raises in the constructor. Every rest of the division must.",
    ),
    block(
        "assertion",
        {"raise ValueError(": "raise AssertionError("},
        "An AssertionError is raised. The docstring promises ValueError.",
    ),
    block(
        "message_without_numbers",
        {BLOCK_MESSAGE: '"the heads must divide d_model"'},
        "The message names no numbers. Say what was given: d_model and n_heads.",
    ),
    block(
        "detached_attention",
        {BLOCK_U: "u = x + self.attention(self.norm1(x)).detach()"},
        "The attention is detached: the values are right, but it would never learn.",
    ),
    block(
        "detached_weights",
        {"(weights @ v)": "(weights.detach() @ v)"},
        "The attention weights are detached: queries and keys would never learn.",
    ),
    block(
        "detached_residual",
        {BLOCK_U: "u = x.detach() + self.attention(self.norm1(x))"},
        "The residual is detached: the gradient's straight path is cut.",
    ),
    block(
        "residual_in_place",
        {
            BLOCK_U: "u = x if not x.requires_grad else x.clone()\n        with torch.no_grad() if not x.requires_grad else torch.enable_grad():\n            u += self.attention(self.norm1(x))"
        },
        "`+=` changes the caller's x. Write the sum into a new tensor.",
    ),
    block(
        "dropout",
        {"return self.out(merged)": "return F.dropout(self.out(merged), 0.1, self.training)"},
        "There is dropout in training mode. This block has none.",
    ),
    block(
        "positions_inside",
        {
            BLOCK_U: "x = x + torch.arange(x.shape[1], dtype=x.dtype, device=x.device)[:, None] / 10\n        u = x + self.attention(self.norm1(x))"
        },
        "Position numbers are added inside the block. It has no positions; the model adds them.",
    ),
    block(
        "sequences_mixed",
        {MERGED: "merged = (weights @ v.mean(dim=0, keepdim=True)).transpose(1, 2).reshape(B, T, d_model)"},
        "The values are averaged over the batch. Every sequence is by itself.",
    ),
    block(
        "first_sequence_for_all",
        {MERGED: "merged = (weights[:1] @ v).transpose(1, 2).reshape(B, T, d_model)"},
        "All sequences use the weights of the first one.",
    ),
    block(
        "float32_inside",
        {BLOCK_Y: "return u + self.down((F.silu(self.gate(h)) * self.up(h)).float().to(u.dtype))"},
        "A part is computed in float32, so a float64 block loses half of its digits.",
    ),
    block(
        "always_float32",
        {BLOCK_Y: "return (u + self.down(F.silu(self.gate(h)) * self.up(h))).float()"},
        "The output is always float32. It has the dtype of x.",
    ),
    block(
        "always_float64",
        {BLOCK_Y: "return (u + self.down(F.silu(self.gate(h)) * self.up(h))).double()"},
        "The output is always float64. It has the dtype of x.",
    ),
    block(
        "needs_contiguous_input",
        {BLOCK_U: "u = x.view(-1).view(x.shape) + self.attention(self.norm1(x))"},
        "`view` needs contiguous memory and fails on a transposed x.",
    ),
    block(
        "last_position_only",
        {BLOCK_Y: "return (u + self.down(F.silu(self.gate(h)) * self.up(h)))[:, -1:]"},
        "Only the last position is returned. The block returns all.",
    ),
    block(
        "returns_the_weights_too",
        {BLOCK_Y: "return u + self.down(F.silu(self.gate(h)) * self.up(h)), u"},
        "A pair is returned. Return the output only.",
    ),
    right(
        "DecoderBlock",
        "sdpa",
        {
            SCORES: "heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
            FUTURE: "",
            WEIGHTS: "",
            "(weights @ v)": "heads",
        },
    ),
    right("DecoderBlock", "large_negative_number", {'float("-inf")': "torch.finfo(x.dtype).min"}),
    right(
        "DecoderBlock",
        "additive_mask",
        {
            WEIGHTS: 'weights = (scores + torch.full((T, T), float("-inf"), device=x.device, dtype=x.dtype).triu(1)).softmax(dim=-1)'
        },
    ),
    right(
        "DecoderBlock",
        "through_prenorm_block",
        {
            BLOCK_U: "ffn = lambda h: self.down(F.silu(self.gate(h)) * self.up(h))",
            BLOCK_H: "",
            BLOCK_Y: "return prenorm_block(x, self.norm1, self.attention, self.norm2, ffn)",
        },
    ),
    right(
        "DecoderBlock",
        "mask_as_a_persistent_buffer_that_grows",
        {
            "self.norm1 = nn.RMSNorm(d_model)": 'self.norm1 = nn.RMSNorm(d_model)\n        self.register_buffer("future", torch.ones(4, 4, dtype=torch.bool).triu(1))',
            FUTURE: "if T > len(self.future):\n            self.future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)\n        future = self.future[:T, :T]",
        },
    ),
    right(
        "DecoderBlock",
        "eps_of_layer_norm",
        {
            "self.norm1 = nn.RMSNorm(d_model)": "self.norm1 = nn.RMSNorm(d_model, eps=1e-5)",
            "self.norm2 = nn.RMSNorm(d_model)": "self.norm2 = nn.RMSNorm(d_model, eps=1e-5)",
        },
    ),
    right(
        "DecoderBlock",
        "root_in_the_dtype_of_x",
        {"math.sqrt(q.shape[-1])": "torch.tensor(q.shape[-1], dtype=x.dtype).sqrt()"},
    ),
    right(
        "DecoderBlock",
        "maximum_subtracted",
        {
            WEIGHTS: 'seen = scores.masked_fill(future, float("-inf"))\n        powers = (seen - seen.amax(dim=-1, keepdim=True).detach()).exp()\n        weights = powers / powers.sum(dim=-1, keepdim=True)'
        },
    ),
    right(
        "DecoderBlock",
        "own_norm_with_its_own_eps",
        """
class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return rms_norm(x, self.weight)


class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError(f"n_heads ({n_heads}) must divide d_model ({d_model})")
        self.H = n_heads
        self.norm1, self.norm2 = Norm(d_model), Norm(d_model)
        for name, n_in, n_out in (("down", d_ff, d_model), ("up", d_model, d_ff), ("gate", d_model, d_ff), ("out", d_model, d_model), ("qkv", d_model, 3 * d_model)):
            setattr(self, name, nn.Linear(n_in, n_out, bias=False))

    def forward(self, x):
        qkv = self.qkv(self.norm1(x))
        q, k, v = torch.einsum("bt(c)->bt(c)".replace("(c)", "c"), qkv).unflatten(-1, (3, self.H, -1)).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        T = x.shape[1]
        seen = torch.arange(T)[:, None] >= torch.arange(T)
        weights = torch.where(seen.to(x.device), scores, scores.new_tensor(-float("inf"))).softmax(-1)
        x = x + self.out(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))
        h = self.norm2(x)
        gate = self.gate(h)
        return x + self.down(self.up(h) * gate * gate.sigmoid())
""",
    ),
    right(
        "DecoderBlock",
        "head_by_head",
        """
class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        if d_model % n_heads:
            raise ValueError(f"{d_model} features cannot be shared by {n_heads} heads")
        super().__init__()
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.norm1, self.norm2 = nn.RMSNorm(d_model), nn.RMSNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model, False), nn.Linear(d_model, d_model, False)
        self.gate, self.up = nn.Linear(d_model, d_ff, False), nn.Linear(d_model, d_ff, False)
        self.down = nn.Linear(d_ff, d_model, False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=2)
        outs = []
        for h in range(self.n_heads):
            own = slice(h * self.d_k, h * self.d_k + self.d_k)
            scores = q[:, :, own] @ k[:, :, own].mT / self.d_k**0.5
            powers = (scores - scores.amax(-1, keepdim=True).detach()).exp().tril()
            rows = []
            for t in range(x.shape[1]):
                rows.append(scores[:, t : t + 1, : t + 1].softmax(-1) @ v[:, : t + 1, own])
            outs.append(torch.cat(rows, dim=1))
        u = x + self.out(torch.cat(outs, dim=-1))
        return u + swiglu(self.norm2(u), self.gate.weight.T, self.up.weight.T, self.down.weight.T)
""",
    ),
    right(
        "DecoderBlock",
        "functional",
        """
class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model = {d_model}, n_heads = {n_heads}")
        self.d_model, self.n_heads = d_model, n_heads
        self.norm2, self.norm1 = (nn.RMSNorm(d_model, eps=1e-5) for _ in range(2))
        shapes = dict(qkv=(d_model, 3 * d_model), out=(d_model, d_model), gate=(d_model, d_ff), up=(d_model, d_ff), down=(d_ff, d_model))
        for name, shape in shapes.items():
            self.add_module(name, nn.Linear(*shape, bias=False))

    def forward(self, x):
        h = F.rms_norm(x, (self.d_model,), self.norm1.weight)
        q, k, v = (h @ W.T for W in self.qkv.weight.split(self.d_model))
        split = lambda t: torch.stack(t.chunk(self.n_heads, dim=-1), dim=1)
        T = x.shape[1]
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        heads = F.scaled_dot_product_attention(split(q), split(k), split(v), attn_mask=mask)
        u = x + torch.cat(heads.unbind(1), dim=-1) @ self.out.weight.T
        h = self.norm2(u)
        gate, up = F.linear(h, torch.cat([self.gate.weight, self.up.weight])).split(self.gate.out_features, -1)
        return u + (F.silu(gate) * up) @ self.down.weight.T
""",
    ),
    right(
        "DecoderBlock",
        "float64_softmax_inside",
        {WEIGHTS: 'weights = scores.double().masked_fill(future, float("-inf")).softmax(dim=-1).to(x.dtype)'},
    ),
]

# ---------------------------------------------------------------------------------------------------- TinyGPT


def model(name: str, replace: Mapping[str, str], slip: str) -> Mutant:
    return wrong("TinyGPT", name, replace, slip)


TIED = "self.head.weight = self.tokens.weight  # tied"
MAKE_BLOCKS = "self.blocks = nn.ModuleList([DecoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)])"
INIT = "nn.init.normal_(parameter, std=0.02)"
IF_MATRIX = "if parameter.dim() == 2:  # the gains of the norms are vectors"
EMBED = "x = self.tokens(ids) + self.positions.weight[:T]"
LOOP = "for block in self.blocks:\n            x = block(x)"
LOGITS = "return self.head(self.norm(x))"
TOO_LONG = "if T > max_len:"
LENGTH_MESSAGE = 'f"T={T} tokens are more than max_len={max_len}; shorten the input"'

TINY_GPT: list[Entry] = [
    model("not_tied", {TIED: "pass"}, "The head has a matrix of its own. It shares tokens.weight."),
    model(
        "tied_by_copying",
        {TIED: "self.head.weight.data = self.tokens.weight.data.clone()"},
        "The head gets a copy of the token table, which drifts away with the first step. Assign the parameter: self.head.weight = self.tokens.weight.",
    ),
    model(
        "tied_by_copying_at_the_end",
        {
            "for parameter in self.parameters():": "self.head.weight = nn.Parameter(self.tokens.weight.detach().clone())\n        for parameter in self.parameters():"
        },
        "The head is given a new parameter with copied values. Assign the parameter itself.",
    ),
    model(
        "tie_broken_by_initialization",
        {INIT: INIT + "\n        self.head.weight = nn.Parameter(self.tokens.weight.detach().clone())"},
        "The initialization gives the head a parameter of its own again. Keep head.weight the same parameter as tokens.weight.",
    ),
    model(
        "tied_data_only",
        {TIED: "self.head.weight.data = self.tokens.weight.data"},
        "Head and table are two parameters over one memory: the optimizer counts two and updates twice. Assign the parameter.",
    ),
    model(
        "head_detached",
        {LOGITS: "return F.linear(self.norm(x), self.head.weight.detach())"},
        "The head's matrix is detached: the table learns from its use at the bottom only. Both uses have gradients.",
    ),
    model(
        "table_detached",
        {EMBED: "x = self.tokens.weight.detach()[ids] + self.positions.weight[:T]"},
        "The looked-up rows are detached: the table learns from its use in the head only. Both uses have gradients.",
    ),
    model(
        "head_bias",
        {"self.head = nn.Linear(d_model, vocab_size, bias=False)": "self.head = nn.Linear(d_model, vocab_size)"},
        "The head has a bias. It has none.",
    ),
    model(
        "no_final_norm",
        {LOGITS: "return self.head(x)"},
        "The final norm is not used. Pre-norm blocks leave the stream as large as it has grown.",
    ),
    model(
        "final_layer_norm",
        {"self.norm = nn.RMSNorm(d_model)": "self.norm = nn.LayerNorm(d_model, bias=False)"},
        "The final norm is a LayerNorm. Here it is RMSNorm.",
    ),
    model(
        "large_eps",
        {"self.norm = nn.RMSNorm(d_model)": "self.norm = nn.RMSNorm(d_model, eps=1e-1)"},
        "The eps of the final norm is so large that it changes the result. Keep the default of nn.RMSNorm.",
    ),
    model(
        "norm_before_the_blocks",
        {EMBED: "x = self.norm(self.tokens(ids) + self.positions.weight[:T])", LOGITS: "return self.head(x)"},
        "The norm stands before the blocks. It stands after them.",
    ),
    model(
        "norm_before_and_after",
        {EMBED: "x = self.norm(self.tokens(ids) + self.positions.weight[:T])"},
        "The stream is normalized before the blocks as well. Only the end is.",
    ),
    model(
        "norm_after_every_block",
        {LOOP: "for block in self.blocks:\n            x = self.norm(block(x))"},
        "The final norm is used after every block. It is used once, at the end.",
    ),
    model("no_positions", {EMBED: "x = self.tokens(ids)"}, "The positions are not added."),
    model(
        "positions_from_one",
        {
            EMBED: "x = self.tokens(ids) + self.positions((torch.arange(T, device=ids.device) + 1).clamp(max=max_len - 1))"
        },
        "Positions are counted from 1. They start at 0.",
    ),
    model(
        "positions_backwards",
        {"self.positions.weight[:T]": "self.positions.weight[:T].flip(0)"},
        "Positions are counted from the end. Position 0 is the first token.",
    ),
    model(
        "positions_from_the_end_of_the_table",
        {"self.positions.weight[:T]": "self.positions.weight[-T:]"},
        "The last rows of the table are used. Positions start at row 0.",
    ),
    model(
        "one_position_for_all",
        {"self.positions.weight[:T]": "self.positions.weight[:1]"},
        "Every token gets the position 0. Token t gets row t.",
    ),
    model(
        "positions_of_the_ids",
        {EMBED: "x = self.tokens(ids) + self.positions(ids % max_len)"},
        "The position table is read with the ids. It is read with 0 ... T - 1.",
    ),
    model(
        "positions_multiplied",
        {"self.tokens(ids) + self": "self.tokens(ids) * self"},
        "The position vectors are multiplied in. They are added.",
    ),
    model(
        "positions_in_every_block",
        {LOOP: "for block in self.blocks:\n            x = block(x + self.positions.weight[:T])"},
        "The positions are added again before every block. They are added once.",
    ),
    model(
        "positions_detached",
        {"self.positions.weight[:T]": "self.positions.weight[:T].detach()"},
        "The positions are detached: they would never be learned.",
    ),
    model(
        "scaled_embedding",
        {"self.tokens(ids) + self": "self.tokens(ids) * math.sqrt(self.norm.weight.numel()) + self"},
        "The token vectors are multiplied by sqrt(d_model), as in the paper of 2017. Here they are not.",
    ),
    model(
        "one_shared_block",
        {MAKE_BLOCKS: "self.blocks = nn.ModuleList([DecoderBlock(d_model, n_heads, d_ff)] * n_layers)"},
        "[block] * n_layers is one block, n_layers times: all layers share their weights. Make a new one each time.",
    ),
    model(
        "shared_then_copied_names",
        {
            MAKE_BLOCKS: MAKE_BLOCKS
            + "\n        for block in self.blocks[1:]:\n            block.qkv = self.blocks[0].qkv"
        },
        "All blocks share one qkv. Each has weights of its own.",
    ),
    model(
        "one_block_too_few",
        {"for _ in range(n_layers)": "for _ in range(max(1, n_layers - 1))"},
        "There is one block too few.",
    ),
    model(
        "three_blocks_at_most",
        {"for block in self.blocks:": "for block in self.blocks[:3]:"},
        "Blocks beyond the third are not run. Run all of them.",
    ),
    model(
        "six_blocks_at_most",
        {"for block in self.blocks:": "for block in self.blocks[:6]:"},
        "Blocks beyond the sixth are not run. Run all of them.",
    ),
    model("first_block_only", {LOOP: "x = self.blocks[0](x)"}, "Only the first block is run."),
    model(
        "blocks_backwards",
        {"for block in self.blocks:": "for block in reversed(self.blocks):"},
        "The blocks run from the last to the first.",
    ),
    model("every_block_twice", {LOOP: LOOP.replace("block(x)", "block(block(x))")}, "Every block is run twice."),
    model(
        "residual_around_blocks",
        {LOOP: LOOP.replace("block(x)", "x + block(x)")},
        "x is added once more around each block, which has its own residuals.",
    ),
    model(
        "blocks_read_the_embedding",
        {LOOP: "first = x\n        for block in self.blocks:\n            x = block(first)"},
        "Every block reads the embedding. A block reads the output of the one below.",
    ),
    model(
        "blocks_in_a_list",
        {MAKE_BLOCKS: MAKE_BLOCKS.replace("nn.ModuleList(", "list(")},
        "The blocks stand in a plain list, so their parameters are not registered. Use nn.ModuleList.",
    ),
    model(
        "heads_fixed",
        {MAKE_BLOCKS: MAKE_BLOCKS.replace("n_heads", "1 if d_model % n_heads == 0 else n_heads")},
        "The blocks get one head whatever n_heads says.",
    ),
    model(
        "heads_repaired",
        {MAKE_BLOCKS: "n_heads = math.gcd(d_model, n_heads)\n        " + MAKE_BLOCKS},
        "A number of heads that does not divide is replaced silently. It must raise ValueError, as DecoderBlock does.",
    ),
    model(
        "no_limit",
        {
            TOO_LONG: "if False:",
            "self.positions.weight[:T]": "F.pad(self.positions.weight, (0, 0, 0, max(0, T - max_len)))[:T]",
        },
        "Longer inputs than max_len are accepted. They must raise ValueError.",
    ),
    model(
        "positions_wrap_around",
        {
            TOO_LONG: "if False:",
            "self.positions.weight[:T]": "self.positions(torch.arange(T, device=ids.device) % max_len)",
        },
        "Positions start again at 0 after max_len. Longer inputs must raise ValueError.",
    ),
    model(
        "cuts_long_inputs",
        {TOO_LONG: "if T > max_len:\n            ids, T = ids[:, -max_len:], max_len\n        if False:"},
        "Long inputs are cut silently. They must raise ValueError.",
    ),
    model("limit_off_by_one", {TOO_LONG: "if T >= max_len:"}, "max_len tokens are refused. One more is too many."),
    model(
        "limit_one_too_high",
        {
            TOO_LONG: "if T > max_len + 1:",
            "self.positions.weight[:T]": "F.pad(self.positions.weight, (0, 0, 0, 1))[:T]",
        },
        "max_len + 1 tokens are accepted. max_len is the most.",
    ),
    model(
        "no_limit_in_eval_mode",
        {
            TOO_LONG: "if T > max_len and self.training:",
            "self.positions.weight[:T]": "self.positions(torch.arange(T, device=ids.device).clamp(max=max_len - 1))",
        },
        "Longer inputs than max_len are refused in training mode only. They must always raise ValueError.",
    ),
    model(
        "index_error",
        {TOO_LONG: "if False:", "self.positions.weight[:T]": "self.positions(torch.arange(T, device=ids.device))"},
        "An input that is too long ends in an IndexError of the table. Test T first and raise ValueError.",
    ),
    model(
        "limit_by_assertion",
        {"raise ValueError(": "raise AssertionError("},
        "An AssertionError is raised. The docstring promises ValueError.",
    ),
    model(
        "message_without_numbers",
        {LENGTH_MESSAGE: '"the input is too long"'},
        "The message names no numbers. Say what was given: T and max_len.",
    ),
    model(
        "default_initialization",
        {INIT: "pass"},
        "PyTorch's default initialization is left: embeddings with standard deviation 1 make a confident, wrong model. Draw every matrix with 0.02.",
    ),
    model(
        "linear_maps_only",
        {"for parameter in self.parameters():": "for parameter in self.blocks.parameters():"},
        "The tables keep their standard deviation of 1. Draw them with 0.02 as well.",
    ),
    model(
        "tables_only",
        {"for parameter in self.parameters():": "for parameter in (self.tokens.weight, self.positions.weight):"},
        "Only the tables are drawn with 0.02. The linear maps of the blocks are too.",
    ),
    model(
        "no_positions_initialization",
        {IF_MATRIX: "if parameter.dim() == 2 and parameter.shape[0] != max_len:"},
        "The position table keeps its standard deviation of 1. Draw it with 0.02 as well.",
    ),
    model(
        "ten_times_too_large",
        {INIT: "nn.init.normal_(parameter, std=0.2)"},
        "The standard deviation is 0.2. It is 0.02.",
    ),
    model(
        "variance_for_deviation",
        {INIT: "nn.init.normal_(parameter, std=0.02**0.5)"},
        "0.02 is taken for the variance. It is the standard deviation.",
    ),
    model(
        "uniform",
        {INIT: "nn.init.uniform_(parameter, -0.02, 0.02)"},
        "The numbers are uniform between -0.02 and 0.02. Draw them from a normal distribution with standard deviation 0.02.",
    ),
    model(
        "uniform_with_the_right_spread",
        {INIT: "nn.init.uniform_(parameter, -0.02 * math.sqrt(3), 0.02 * math.sqrt(3))"},
        "The numbers are uniform: their standard deviation is right, but they should come from a normal distribution.",
    ),
    model(
        "signs_only",
        {INIT: "nn.init.normal_(parameter, std=0.02).data.sign_().mul_(0.02)"},
        "Every number is 0.02 or -0.02. Draw them from a normal distribution.",
    ),
    model(
        "uniform_maps_normal_tables",
        {
            INIT: "nn.init.normal_(parameter, std=0.02)\n        for parameter in self.blocks.parameters():\n            if parameter.dim() == 2:\n                nn.init.uniform_(parameter, -0.0346, 0.0346)"
        },
        "The linear maps are drawn from a uniform distribution. Draw all matrices from a normal one.",
    ),
    model("shifted", {INIT: "nn.init.normal_(parameter, mean=0.02, std=0.02)"}, "The mean is 0.02. It is 0."),
    model(
        "zeros",
        {INIT: "nn.init.zeros_(parameter)"},
        "The matrices are zeros: all logits are equal, and nothing can tell the tokens apart.",
    ),
    model(
        "gpt2_residual_scaling",
        {
            INIT: INIT
            + "\n        for block in self.blocks:\n            nn.init.normal_(block.down.weight, std=0.02 / math.sqrt(2 * n_layers))"
        },
        "The matrices that write into the stream are drawn smaller, as in GPT-2. Here all have 0.02.",
    ),
    model("gains_too", {IF_MATRIX: "if True:"}, "The gains of the norms are drawn as well. They stay 1."),
    model(
        "seed_in_the_constructor",
        {"self.norm = nn.RMSNorm(d_model)": "self.norm = nn.RMSNorm(d_model)\n        torch.manual_seed(0)"},
        "The constructor sets a seed, so all models start with equal weights.",
    ),
    model(
        "generator_of_its_own",
        {
            "self.norm = nn.RMSNorm(d_model)": "self.norm = nn.RMSNorm(d_model)\n        generator = torch.Generator()\n        generator.seed()",
            INIT: "nn.init.normal_(parameter, std=0.02, generator=generator)",
        },
        "The matrices come from a generator of the model's own, so torch.manual_seed does not decide them. Draw from torch's global generator.",
    ),
    model(
        "drawn_by_numpy",
        {
            INIT: "import numpy as np\n                parameter.data.copy_(torch.from_numpy(np.random.normal(0, 0.02, tuple(parameter.shape))))"
        },
        "numpy draws the matrices, so torch.manual_seed does not decide them. Draw from torch's global generator.",
    ),
    model(
        "blocks_copied_after_the_draw",
        {
            INIT: INIT
            + "\n        import copy\n        self.blocks = nn.ModuleList([copy.deepcopy(self.blocks[0]) for _ in self.blocks])"
        },
        "All blocks start as copies of the first one. Every matrix of every block is drawn by itself.",
    ),
    model(
        "blocks_copied_from_one",
        {
            MAKE_BLOCKS: "import copy\n        first = DecoderBlock(d_model, n_heads, d_ff)\n        for parameter in first.parameters():\n            if parameter.dim() == 2:\n                nn.init.normal_(parameter, std=0.02)\n        self.blocks = nn.ModuleList([copy.deepcopy(first) for _ in range(n_layers)])",
            "for parameter in self.parameters():": "for parameter in (self.tokens.weight, self.positions.weight):",
        },
        "One block is drawn and copied n_layers times. Every matrix of every block is drawn by itself.",
    ),
    model(
        "gate_and_up_start_equal",
        {
            INIT: INIT
            + "\n        for block in self.blocks:\n            block.up.weight.data.copy_(block.gate.weight)"
        },
        "up starts as a copy of gate. Every matrix is drawn by itself.",
    ),
    model(
        "positions_start_as_tokens",
        {
            INIT: INIT
            + "\n        n = min(vocab_size, max_len)\n        self.positions.weight.data[:n] = self.tokens.weight.data[:n]"
        },
        "The position table starts as a copy of the token table. Every matrix is drawn by itself.",
    ),
    model(
        "token_0_starts_at_zero",
        {INIT: INIT + "\n        self.tokens.weight.data[0] = 0"},
        "Row 0 of the token table starts with zeros, as for padding. There is no padding: every row is drawn.",
    ),
    model(
        "position_0_starts_at_zero",
        {INIT: INIT + "\n        self.positions.weight.data[0] = 0"},
        "Row 0 of the position table starts with zeros. Every row is drawn.",
    ),
    model(
        "another_parameter_name",
        {
            "vocab_size: int, d_model: int, n_heads: int, n_layers: int": "V: int, d_model: int, n_heads: int, n_layers: int",
            "self.tokens = nn.Embedding(vocab_size, d_model)": "vocab_size = V\n        self.tokens = nn.Embedding(vocab_size, d_model)",
        },
        "vocab_size has another name, so TinyGPT(vocab_size=..., ...) fails. Keep the names of the stub.",
    ),
    model(
        "ids_as_bytes",
        {"self.tokens(ids)": "self.tokens(ids.to(torch.uint8).long())"},
        "The ids go through 8-bit numbers, so 256 becomes 0. Look up the ids as they are.",
    ),
    model(
        "ids_as_short_ints",
        {"self.tokens(ids)": "self.tokens(ids.short().long() % self.tokens.num_embeddings)"},
        "The ids go through 16-bit numbers, so a vocabulary of more than 32,768 tokens is not looked up right. Look up the ids as they are.",
    ),
    model(
        "frozen_positions",
        {
            "self.norm = nn.RMSNorm(d_model)": "self.norm = nn.RMSNorm(d_model)\n        self.positions.requires_grad_(False)"
        },
        "The position table is frozen. It is learned.",
    ),
    model(
        "probabilities",
        {LOGITS: "return self.head(self.norm(x)).softmax(dim=-1)"},
        "Probabilities are returned. Return the logits, before any softmax.",
    ),
    model(
        "log_probabilities",
        {LOGITS: "return self.head(self.norm(x)).log_softmax(dim=-1)"},
        "Log-probabilities are returned. Return the logits, before any softmax.",
    ),
    model(
        "scaled_logits",
        {LOGITS: "return self.head(self.norm(x)) / math.sqrt(x.shape[-1])"},
        "The logits are divided by sqrt(d_model). They are the plain products.",
    ),
    model(
        "last_position_only",
        {LOGITS: "return self.head(self.norm(x[:, -1:]))"},
        "Only the last position has logits. Every position has.",
    ),
    model(
        "hidden_states",
        {LOGITS: "return self.norm(x)"},
        "The final vectors are returned. The head turns them into logits.",
    ),
    model(
        "loss_returned_too",
        {LOGITS: "return self.head(self.norm(x)), None"},
        "A pair is returned. Return the logits only.",
    ),
    model(
        "embedding_dropout",
        {EMBED: "x = F.dropout(self.tokens(ids) + self.positions.weight[:T], 0.1, self.training)"},
        "There is dropout in training mode. This model has none.",
    ),
    model(
        "pooled_leak",
        {LOOP: "for block in self.blocks:\n            x = block(x)\n        x = x + x.mean(dim=1, keepdim=True)"},
        "The mean over all positions is added: the future leaks.",
    ),
    model(
        "leaks_when_long",
        {LOOP: LOOP + "\n        x = x + (x.mean(dim=1, keepdim=True) if T > 16 else 0)"},
        "In long inputs the mean over all positions is added: the future leaks.",
    ),
    model(
        "forgets_the_beginning",
        {LOOP: LOOP.replace("block(x)", "torch.cat([block(x[:, :16]), block(x[:, 16:])], dim=1)")},
        "Long inputs are cut in pieces that do not see each other. Every token sees its whole past.",
    ),
    model(
        "bidirectional",
        {EMBED: "x = self.tokens(ids) + self.positions.weight[:T]\n        x = x + self.tokens(ids.roll(-1, dims=1))"},
        "The next token is mixed in: every position reads its own answer.",
    ),
    model(
        "changes_the_ids",
        {LOGITS: "ids.zero_()\n        return self.head(self.norm(x))"},
        "The call changes the ids. They belong to the caller.",
    ),
    model(
        "always_float32",
        {LOGITS: "return self.head(self.norm(x)).float()"},
        "The logits are always float32. They have the dtype of the parameters.",
    ),
    model(
        "always_float64",
        {LOGITS: "return self.head(self.norm(x)).double()"},
        "The logits are always float64. They have the dtype of the parameters.",
    ),
    model(
        "first_sequence_for_all",
        {EMBED: "x = self.tokens(ids[:1]).expand(len(ids), -1, -1) + self.positions.weight[:T]"},
        "All sequences are taken to be the first one.",
    ),
    model(
        "other_names",
        {
            "self.norm = nn.RMSNorm(d_model)": "self.norm_f = nn.RMSNorm(d_model)",
            LOGITS: "return self.head(self.norm_f(x))",
        },
        "The final norm has another name. Weights are loaded by name: call it norm.",
    ),
    model(
        "single_tokens_go_on_counting",
        {
            EMBED: "start = getattr(self, 'seen', 0) if T == 1 else 0\n        start = start if start + T <= max_len else 0\n        self.seen = start + T\n        x = self.tokens(ids) + self.positions.weight[start : start + T]"
        },
        "A call goes on counting positions where the last one ended. Every call starts at position 0.",
    ),
    model(
        "goes_on_counting_in_eval_mode",
        {
            EMBED: "start = getattr(self, 'seen', 0) if T == 1 and not self.training else 0\n        start = start if start + T <= max_len else 0\n        self.seen = start + T\n        x = self.tokens(ids) + self.positions.weight[start : start + T]"
        },
        "A call goes on counting positions where the last one ended. Every call starts at position 0.",
    ),
    model(
        "leaks_beyond_512",
        {LOOP: LOOP + "\n        x = x + (x.mean(dim=1, keepdim=True) if T > 512 else 0)"},
        "In long inputs the mean over all positions is added: the future leaks.",
    ),
    model(
        "pieces_of_512",
        {LOOP: LOOP.replace("block(x)", "torch.cat([block(piece) for piece in x.split(512, dim=1)], dim=1)")},
        "Long inputs are cut in pieces that do not see each other. Every token sees its whole past.",
    ),
    model(
        "positions_clamped_at_512",
        {"self.positions.weight[:T]": "self.positions(torch.arange(T, device=ids.device).clamp(max=512))"},
        "Positions beyond 512 all get the same vector. Token t gets row t.",
    ),
    model(
        "positions_kept_from_the_first_call",
        {
            EMBED: 'if not hasattr(self, "kept"):\n            self.kept = self.positions.weight[:T].detach()\n        x = self.tokens(ids) + self.kept[:T]'
        },
        "The position vectors of the first call are kept: longer inputs fail, and training does not reach them.",
    ),
    model(
        "position_rows_kept_for_the_next_call",
        {
            EMBED: "if len(getattr(self, 'rows', ())) != T:\n            self.rows = self.positions.weight[:T].clone()\n        x = self.tokens(ids) + self.rows"
        },
        "The position rows of a call are kept for the next one of the same length, so a changed table is not seen. Read the table in every call.",
    ),
    model(
        "positions_kept_in_eval_mode",
        {
            EMBED: "if self.training:\n            rows = self.positions.weight\n        else:\n            if not hasattr(self, 'kept'):\n                self.kept = self.positions.weight.detach().clone()\n            rows = self.kept\n        x = self.tokens(ids) + rows[:T]"
        },
        "In evaluation mode the table of the first call is kept, so weights that are loaded later are not seen. Read the table in every call.",
    ),
    right(
        "TinyGPT",
        "positions_by_lookup",
        {"self.positions.weight[:T]": "self.positions(torch.arange(T, device=ids.device))"},
    ),
    right("TinyGPT", "table_takes_the_heads_weight", {TIED: "self.tokens.weight = self.head.weight"}),
    right("TinyGPT", "head_as_a_product", {LOGITS: "return self.norm(x) @ self.tokens.weight.T"}),
    right(
        "TinyGPT",
        "initialized_by_apply",
        """
class TinyGPT(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, d_ff, max_len):
        super().__init__()
        self.max_len = max_len
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.tokens.weight = self.head.weight
        self.positions = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList()
        while len(self.blocks) < n_layers:
            self.blocks.append(DecoderBlock(d_model, n_heads, d_ff))
        self.norm = nn.RMSNorm(d_model)
        self.apply(self._init)

    @staticmethod
    def _init(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            with torch.no_grad():
                module.weight.copy_(0.02 * torch.randn_like(module.weight))

    def forward(self, ids):
        batch, length = ids.size()
        if not length <= self.max_len:
            raise ValueError("got %d tokens, at most %d are allowed" % (length, self.max_len))
        x = F.embedding(ids, self.tokens.weight)
        x = x + self.positions(torch.arange(length, device=ids.device).expand(batch, -1))
        for i in range(len(self.blocks)):
            x = self.blocks[i](x)
        return F.linear(self.norm(x), self.head.weight)
""",
    ),
    right(
        "TinyGPT",
        "sequential_blocks",
        {
            MAKE_BLOCKS: "self.blocks = nn.Sequential(*(DecoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)))",
            LOOP: "x = self.blocks(x)",
        },
    ),
    right(
        "TinyGPT",
        "one_hot_lookup",
        {
            EMBED: "one_hot = F.one_hot(ids, self.tokens.num_embeddings).to(self.norm.weight.dtype)\n        x = one_hot @ self.tokens.weight + self.positions.weight[:T].unsqueeze(0)"
        },
    ),
    right(
        "TinyGPT",
        "position_numbers_as_a_buffer",
        {
            "self.norm = nn.RMSNorm(d_model)": 'self.norm = nn.RMSNorm(d_model)\n        self.register_buffer("numbers", torch.arange(max_len))',
            "self.positions.weight[:T]": "self.positions(self.numbers[:T])",
        },
    ),
    right("TinyGPT", "eps_of_layer_norm", {"self.norm = nn.RMSNorm(d_model)": "self.norm = nn.RMSNorm(d_model, eps=1e-5)"}),
    right("TinyGPT", "truncated_normal", {INIT: "nn.init.trunc_normal_(parameter, std=0.02)"}),
]

ENTRIES: list[Entry] = [
    *LAYER_NORM,
    *RMS_NORM,
    *FEED_FORWARD,
    *SWIGLU,
    *PRENORM,
    *POSTNORM,
    *SHAPE_WALK,
    *DECODER_BLOCK,
    *BLOCK_PARAMETER_COUNT,
    *TINY_GPT,
]
