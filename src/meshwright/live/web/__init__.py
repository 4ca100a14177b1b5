"""The service over HTTP: the one part that imports the web framework, by the extra ``[serve]``."""
