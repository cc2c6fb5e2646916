"""A model and a system behind an OpenAI-compatible HTTP server. Its libraries are the extra `seqmoe[serve]`."""
