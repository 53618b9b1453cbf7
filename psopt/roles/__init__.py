"""THE coordinator loop, the parameter server, and THE worker loop."""
