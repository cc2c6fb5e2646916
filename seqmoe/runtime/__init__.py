"""The real thing: a host pool, a slot pool, and the one function between routing and experts.

Importing `seqmoe.runtime.offload` makes ``experts_implementation="seqmoe"`` known to Transformers.
"""
