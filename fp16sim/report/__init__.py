"""What a person sees of a comparison: tables, pictures, one self-contained page."""
