"""The checks that a student's kit leaves out."""
