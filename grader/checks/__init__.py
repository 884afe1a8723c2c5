"""What a right answer is: pytest files, one a lesson, in the field's words.

`public/` holds the checks that a student gets, `hidden/` the rest. One class an exercise (`@exercise("softmax")`), one
named property a test, its docstring the title that a learner sees, one marker that says of what kind it is.
"""

import pytest


def exercise(name: str) -> pytest.MarkDecorator:
    """Marks a class of checks with the exercise that it judges."""
    return pytest.mark.exercise(name)
