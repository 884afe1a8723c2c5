"""What a right answer is: pytest files, one a lesson, in the field's words.

`public/` holds the checks that a student gets, `hidden/` the rest. One class an exercise (`@exercise("softmax")`), one
named property a test, its docstring the title that a learner sees, one marker that says of what kind it is.
"""

import pytest

SOFTMAX = (
    "_softmax", "_log_softmax", "_safe_softmax", "_masked_softmax", "_sparse_softmax", "_sparse_log_softmax",
)  # fmt: skip
"""ATen operators behind every spelling of PyTorch's softmax."""

ATTENTION = ("_safe_softmax", "_scaled_dot_product_flash_attention_for_cpu")
"""ATen operators behind PyTorch's scaled_dot_product_attention on a CPU."""

NORMS = (
    "native_layer_norm", "native_batch_norm", "native_group_norm", "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training", "_batch_norm_with_update", "_batch_norm_no_update",
)  # fmt: skip
"""ATen operators behind PyTorch's norms that center."""

RMS_NORM = ("rms_norm", "_fused_rms_norm")
"""Every spelling of PyTorch's RMSNorm; on a CPU it is composed of elementary operators."""


def exercise(name: str, *, without: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Marks a class of checks with the exercise that it judges.

    Args:
        without: ATen operators that the answer may not call, because they are what the exercise asks to write: every
            check fails for an answer that does. The stub must say so.
    """
    return pytest.mark.exercise(name, without=without)
