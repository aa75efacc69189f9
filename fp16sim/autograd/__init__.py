"""A tape of operations that round as float16 training does, and its gradients."""
