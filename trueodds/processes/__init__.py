"""Process helpers of all packages: limits, confined readers, end with the parent, privacy, output, bars, version."""
