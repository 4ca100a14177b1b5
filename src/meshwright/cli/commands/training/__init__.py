"""``meshwright train``: one file for each method, and for several seeds."""
