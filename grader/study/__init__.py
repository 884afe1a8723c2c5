"""Studying alone: the learner's own copies of the course, the verbs in a notebook, what has been done so far."""
