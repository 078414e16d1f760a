"""Many runs as one question: what varies, what is held, each run done once, and a table with what chance explains."""
