"""What a graph does while it runs, told to the client."""
