"""`coupler runs`: what was kept of workflows' runs, and ending one that goes on."""
