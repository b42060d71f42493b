"""Agents of other frameworks as Coupler agents."""
