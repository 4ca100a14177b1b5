"""Keys of a layout as frameworks spell them, and what they do where they are left open."""
