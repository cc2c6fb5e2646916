"""Synthetic routing for models whose real routing is not at hand: statistics as published, tokens of no text."""
