"""What the fastest layout of a search is compared with, what its mechanisms buy, and layouts side by side."""
