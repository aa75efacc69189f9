"""Adapters around arithmetic that other people wrote, all speaking encodings and the flag bits of this project.

The tests folder is on pytest's `pythonpath`, so a test says `from fp16sim_oracles import softfloat`.
"""
