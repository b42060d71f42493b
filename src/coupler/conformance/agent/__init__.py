"""The assertions about agents, a module for each part of the protocol; `coupler check` runs them."""
