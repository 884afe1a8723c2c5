"""The checks that a student's kit carries. They need no reference: hand-computed cases and properties only."""
