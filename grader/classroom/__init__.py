"""A class with nbgrader: our parts of its course, plugged into its own seams.

Metadata, gradebook, formgrader, exchange, feedback and export are nbgrader's.
"""
