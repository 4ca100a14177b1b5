"""``meshwright dev calibrate`` of kernels, and their measurement."""
