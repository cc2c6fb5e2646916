"""The real thing: a host pool, a slot pool, and the one function between routing and experts."""
