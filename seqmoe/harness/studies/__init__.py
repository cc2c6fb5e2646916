"""Studies: what is computed from routing traces, each cell in a process of its own, several side by side."""
