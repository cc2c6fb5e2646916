"""What this machine can reproduce, and what every part that it cannot still needs."""
