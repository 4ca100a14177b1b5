"""``meshwright state``: one file for each source, and one for changes by hand."""
