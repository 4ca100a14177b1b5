"""Templates of the pages, their style, and the script of the charts that answer to a pointer."""
