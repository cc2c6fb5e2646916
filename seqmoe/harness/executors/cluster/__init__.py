"""Runs on the nodes of a Ray cluster. Ray is the extra `seqmoe[ray]`; nothing here imports it before it is used."""
