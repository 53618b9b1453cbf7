"""Convex problems whose optimum is known: how many rounds the methods on shards take to it."""
