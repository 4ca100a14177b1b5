"""``meshwright validate``: one file for each kind of figures that ours are held against."""
