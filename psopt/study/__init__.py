"""The speed-up study: many runs on the virtual cluster, and one page about them."""
