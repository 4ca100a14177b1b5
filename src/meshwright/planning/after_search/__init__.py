"""What is changed in the layouts that a search found: where their ranks stand, and the meshes of single stages."""
