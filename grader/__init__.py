"""The learner's verbs: `from grader import check, hint, solution, progress`.

They are loaded when first used, so that `import grader` is instant and brings in nothing of the checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grader.study.verbs import check, hint, progress, solution

__all__ = ["check", "hint", "progress", "solution"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from grader.study import verbs

        return getattr(verbs, name)
    raise AttributeError(f"grader has no {name!r}; a notebook uses {', '.join(__all__)}")
