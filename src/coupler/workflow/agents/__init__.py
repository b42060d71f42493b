"""Agents in steps: which one is meant, its sessions, what it may do and use, and what it says."""
