"""Times of the passes of blocks and model chunks on one rank, alone and side by side."""
