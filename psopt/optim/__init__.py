"""Pure numerics on flat tensors; nothing here communicates."""
