"""What happens in a run: kept in one order, followed by many, and taken up again."""
