"""What a ledger writes into its file, and what it gives up of it."""
