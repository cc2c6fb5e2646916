"""The CUDA runtime: a decode step as one graph, experts through slots that the device manages itself.

What needs no GPU runs on a CPU too, kernels in Triton's interpreter (`seqmoe.runtime.cuda.device.HostDevice`).
"""
