"""The paper's algorithms, once: slots, schedule, budget, link, pipeline, event loop, replay, CPU kernel, in C++17.

Each module is a thin typed face of the extension ``seqmoe.core._native`` and says what holds; the sources are in
``seqmoe/core/native``, the plain-Python twins that the tests hold them to in ``tests/core/twins``.
"""
