"""Files of workflows: read with lines and columns, by one table of keys; found, bundled and trusted."""
