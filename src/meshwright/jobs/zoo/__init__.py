"""Well-known models as analytic job graphs, and the list of them."""
