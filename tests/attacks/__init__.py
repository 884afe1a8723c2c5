"""Hostile submissions as data, and the means to see whether they changed anything."""
