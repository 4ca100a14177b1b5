"""What is changed in the layouts that a search found: where their ranks are, and the meshes of single stages."""
