"""What all tests share."""

# Scripts that recorded results of other programs, which are not installed here; --doctest-modules would import them.
collect_ignore_glob = ["golden/*"]
