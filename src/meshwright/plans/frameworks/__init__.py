"""Training frameworks: how they spell a layout, what they do where it is left open, which they run, and how they number ranks."""
