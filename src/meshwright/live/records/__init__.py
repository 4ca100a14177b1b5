"""Records of a ledger in its file, and their retention."""
