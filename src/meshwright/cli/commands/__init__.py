"""One file for each command: it calls the Python API and shows what that returns."""
