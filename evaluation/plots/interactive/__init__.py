"""Charts that can be moved and asked, as data for the script of the pages, and the drawing in their place."""
