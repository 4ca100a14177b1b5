"""Changes to the layouts of a search: the places of their ranks, and the meshes of single stages."""
