"""The assertions about clients, a module for each part of the protocol: `coupler check --client`."""
