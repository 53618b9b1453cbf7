"""What a worker can do: the task verbs on its model and data."""
