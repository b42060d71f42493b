"""Commands of a profile that run when something happens."""
