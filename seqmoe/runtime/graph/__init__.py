"""`execution="graph"` on the CPU: the decode step compiled ahead of time, with no Python per layer."""
