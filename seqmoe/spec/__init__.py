"""What is declared and passed between the rooms: frozen values with their invariants, pure Python and numpy."""
