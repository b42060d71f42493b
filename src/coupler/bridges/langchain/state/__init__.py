"""What lasts of a conversation: checkpoints, and what is mended in them."""
