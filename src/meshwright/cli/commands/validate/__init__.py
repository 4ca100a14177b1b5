"""``meshwright dev validate``, and ``dev calibrate`` of collectives and shared links."""
