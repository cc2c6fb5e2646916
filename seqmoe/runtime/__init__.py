"""The real thing: experts in a host pool, a slot pool beside the model, and the one function between routing and experts."""
