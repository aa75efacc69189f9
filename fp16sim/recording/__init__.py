"""Recordings of training, and what can be read from them."""
