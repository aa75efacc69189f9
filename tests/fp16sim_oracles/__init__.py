"""Adapters around arithmetic that other people wrote, all speaking encodings and this project's flag bits.

The tests folder is on pytest's `pythonpath`, so a test says `from fp16sim_oracles import softfloat`.
"""
