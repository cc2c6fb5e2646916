"""A load test of `seqmoe serve` with real clients: equal answers, no leak, numbers that agree, a clean end."""
