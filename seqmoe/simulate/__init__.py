"""Traces, systems and a clock: what would have hit, and how long it would have taken."""
