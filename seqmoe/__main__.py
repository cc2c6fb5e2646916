"""`python -m seqmoe`."""

from seqmoe.cli import main

main()
