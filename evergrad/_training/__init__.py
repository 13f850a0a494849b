"""Runs: their settings, their folder, and the loop that can be left alone."""
