"""Measurements of estimators: bias, noise, cosine to the exact gradient, and what a step costs."""
