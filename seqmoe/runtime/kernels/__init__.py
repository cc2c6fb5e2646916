"""The device's side of the CUDA runtime: Triton kernels over a slot table, and what of them a CPU can check.

Importing this package, or `seqmoe`, needs no Triton; importing one of its kernels without it is an `InputError`.
"""
