"""Workflows as an agent that editors talk to: slash commands, and runs shown in their turns."""
