"""Pages of the web for a model: found at an address that may be asked, bounded, and as text."""
