"""The speed of the parts that have to be fast (``make bench``), and the study of the results page (``make results``)."""
