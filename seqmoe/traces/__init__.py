"""Routing traces: reading what others published and what the runtime records."""
