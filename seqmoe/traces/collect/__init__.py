"""Collection of traces from a Hugging Face model: the one part of this room that knows torch."""
