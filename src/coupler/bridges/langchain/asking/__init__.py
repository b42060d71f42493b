"""What the user is asked: permissions, and what a graph interrupts itself for."""
